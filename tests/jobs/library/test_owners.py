"""Whose Snapshot it is: what each user sees and changes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inspector.jobs.engine import Requester
from inspector.jobs.library import Library, LibraryEntry, NameTaken
from inspector.text.errors import InvalidInput
from tests.jobs.library.test_kept import FOUND, names

ANN = Requester("https://p.org 1", "ann@my.org", "tab 1", signed_in=True)
BEN = Requester("https://p.org 2", "ben@my.org", "tab 2", signed_in=True)
GUEST = Requester("session 3", "Session 3", "3")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "kept" / "saved.sqlite3"


def test_each_user_sees_what_is_theirs_shared_or_has_no_owner(path: Path) -> None:
    local, ann, ben, guest = Library(path), *(Library(path, requester) for requester in (ANN, BEN, GUEST))
    local.save("local", "", FOUND)
    ann.save("hers", "secret note", FOUND)
    ann.save("shared", "", FOUND)
    assert ann.share("shared", True).shared
    assert {
        one: set(names(library)) for one, library in zip("labg", (local, ann, ben, guest), strict=True)
    } == {
        "l": {"local", "hers", "shared"},
        "a": {"local", "hers", "shared"},
        "b": {"local", "shared"},
        "g": {"local", "shared"},
    }
    assert names(ben, "secret") == [] and set(names(ben, "ann@my.org")) == {"shared"}
    assert ben.open("shared") == FOUND
    assert [ben.entry("shared").owner, ben.entry("local").owner] == ["ann@my.org", None]
    for use in (ben.open, ben.text, ben.entry, ben.delete, guest.open):
        with pytest.raises(InvalidInput, match="no entry named 'hers'"):
            use("hers")


@pytest.mark.parametrize("user", [BEN, GUEST])
def test_only_the_owner_changes_a_snapshot(path: Path, user: Requester) -> None:
    ann, other = Library(path, ANN), Library(path, user)
    ann.save("hers", "note", FOUND)
    ann.share("hers", True)
    assert ann.entry("hers").changeable and not other.entry("hers").changeable
    for change in (
        lambda: other.delete("hers"),
        lambda: other.rename("hers", "mine"),
        lambda: other.annotate("hers", "mine"),
        lambda: other.share("hers", False),
    ):
        with pytest.raises(InvalidInput, match=r"ann@my\.org"):
            change()
    with pytest.raises(InvalidInput, match="move the library"):
        other.move_aside()
    assert ann.entry("hers").note == "note"
    assert ann.rename("hers", "new name").name == "new name"
    assert ann.save("new name", "again", FOUND, replace=True).shared, "replacing keeps the sharing"
    assert names(other, "again") == ["new name"] and ann.open("new name") == FOUND
    ann.share("new name", False)
    assert names(other) == []
    ann.delete("new name")


def test_each_user_has_names_of_their_own(path: Path) -> None:
    local, guest, ann, ben = (Library(path), *(Library(path, requester) for requester in (GUEST, ANN, BEN)))
    for library, note in ((ann, "of Ann"), (ben, "of Ben"), (guest, "of a guest")):
        library.save("base", note, FOUND)
        with pytest.raises(NameTaken):
            library.save("base", "", FOUND)
        assert library.save("base", note, FOUND, replace=True).note == note
    ann.share("base", True)

    def notes(library: Library) -> dict[str, str]:
        return {entry.name: entry.note for entry in library.entries()}

    assert notes(ann) == {"base": "of Ann", "base (without owner)": "of a guest"}
    of_ann = {"base (ann@my.org)": "of Ann"}
    assert notes(ben) == {"base": "of Ben", "base (without owner)": "of a guest"} | of_ann
    assert notes(guest) == {"base": "of a guest"} | of_ann
    assert notes(local) == {"base": "of a guest", "base (ben@my.org)": "of Ben"} | of_ann
    for library in (ann, ben, guest, local):
        for name, note in notes(library).items():
            assert library.entry(name).note == note and library.open(name) == FOUND
    # Who gives an entry the name that is shown for another one takes nothing away.
    ben.save("base (ann@my.org)", "not of Ann", FOUND)
    assert notes(ben)["base (ann@my.org)"] == "not of Ann"
    assert notes(ben)["base (ann@my.org) (2)"] == "of Ann"
    with pytest.raises(InvalidInput, match="belongs to ann"):
        ben.delete("base (ann@my.org) (2)")
    with pytest.raises(NameTaken):
        ben.rename("base", "base (ann@my.org)")
    local.delete("base (ben@my.org)")
    assert "base" not in [name for name, note in notes(ben).items() if note == "of Ben"]
    assert notes(local)["base"] == "of a guest"


NAMES = st.sampled_from(["a", "b", "a (ann@my.org)", "a (without owner)"])
STEPS = st.lists(
    st.tuples(
        st.sampled_from(["save", "replace", "rename", "annotate", "share", "delete", "open", "list"]),
        NAMES,
        NAMES,
    ),
    max_size=8,
)


@given(st.lists(NAMES, max_size=3), STEPS, st.sampled_from([BEN, GUEST]))
def test_no_answer_depends_on_private_entries_of_others(
    tmp_path_factory: pytest.TempPathFactory,
    private: list[str],
    steps: list[tuple[str, str, str]],
    user: Requester,
) -> None:
    """The same steps with and without what Ann keeps for herself have the same outcomes."""
    outcomes: list[list[object]] = []
    for kept in ((), private):
        path = tmp_path_factory.mktemp("kept") / "saved.sqlite3"
        Library(path).save("public", "", FOUND)
        for name in set(kept):
            Library(path, ANN).save(name, "secret", FOUND)
        library = Library(path, user)
        outcomes.append([outcome(library, *step) for step in steps])
    assert outcomes[0] == outcomes[1]


def outcome(library: Library, step: str, name: str, other: str) -> object:
    """Return the answer of one use of the library, without the time."""
    uses: dict[str, Callable[[], object]] = {
        "save": lambda: library.save(name, "", FOUND),
        "replace": lambda: library.save(name, other, FOUND, replace=True),
        "rename": lambda: library.rename(name, other),
        "annotate": lambda: library.annotate(name, other),
        "share": lambda: library.share(name, True),
        "delete": lambda: library.delete(name),
        "open": lambda: library.text(name),
        "list": lambda: sorted(names(library)),
    }
    try:
        answer = uses[step]()
    except InvalidInput as error:
        return type(error).__name__, str(error)
    return replace(answer, saved="") if isinstance(answer, LibraryEntry) else answer


def test_what_has_no_owner_is_changed_by_users_without_sign_in(path: Path) -> None:
    local, guest, ann = Library(path), Library(path, GUEST), Library(path, ANN)
    local.save("old", "", FOUND)
    with pytest.raises(InvalidInput, match="has no owner"):
        ann.delete("old")
    guest.save("made by a guest", "", FOUND)
    guest.annotate("old", "seen")
    with pytest.raises(InvalidInput, match="has no owner"):
        guest.share("old", True)
    guest.delete("old")
    ann.save("hers", "", FOUND)
    local.delete("hers")
    assert names(local) == ["made by a guest"]


def test_changes_and_refusals_are_reported(path: Path) -> None:
    events: list[tuple[str, str, str, str]] = []

    def record(event: str, user: Requester, name: str, outcome: str) -> None:
        events.append((event, user.owner, name, outcome))

    ann, ben = (Library(path, requester, record) for requester in (ANN, BEN))
    ann.save("hers", "", FOUND)
    ann.share("hers", True)
    with pytest.raises(InvalidInput):
        ben.delete("hers")
    ann.delete("hers")
    assert [event[:3] for event in events] == [
        ("save", ANN.owner, "hers"),
        ("share", ANN.owner, "hers"),
        ("delete", BEN.owner, "hers"),
        ("delete", ANN.owner, "hers"),
    ]
    assert [event[3] == "done" for event in events] == [True, True, False, True]


def test_only_the_user_of_this_machine_reads_the_files(path: Path) -> None:
    library = Library(path)
    library.save("base", "", FOUND)
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert {file.stat().st_mode & 0o777 for file in path.parent.iterdir()} == {0o600}
    path.chmod(0o644)  # as earlier versions made it
    library.save("other", "", FOUND)
    assert path.stat().st_mode & 0o777 == 0o600
    path.chmod(0o660)  # for a group of servers
    library.save("third", "", FOUND)
    assert path.stat().st_mode & 0o777 == 0o660


def test_names_of_users_are_kept_as_they_are(path: Path) -> None:
    for number, name in enumerate(("<b>x</b>", "'; DROP TABLE snapshots; --", "\u202e")):
        user = Requester(f"p {number}", name, "s", signed_in=True)
        Library(path, user).save(f"entry {number}", "", FOUND)
        Library(path, user).share(f"entry {number}", True)
        assert Library(path, BEN).entry(f"entry {number}").owner == name
    assert len(names(Library(path))) == 3
