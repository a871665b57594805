"""The lines of each package. A change that needs more raises its number, where its readers see it."""

from collections import Counter

from tests.paths import ROOT

# The most lines of `*.py` of each folder of `inspector`; "" has the files of the package itself.
MOST_LINES = {
    "": 47,
    "answers": 9401,
    "assessment": 1467,
    "audit": 4435,
    "compare": 5083,
    "compiled": 3309,
    "compiling": 1155,
    "figures": 7504,
    "files": 752,
    "guides": 1803,
    "hlo": 10766,
    "jax_private": 2076,
    "jobs": 5938,
    "layout": 3026,
    "learn": 2084,
    "machines": 2484,
    "media": 14860,
    "model": 429,
    "partition": 4752,
    "prediction": 4015,
    "readers": 5077,
    "recording": 3653,
    "records": 4068,
    "search": 3770,
    "sharding": 2398,
    "testing": 281,
    "text": 558,
    "tracing": 3330,
}
MOST_MODULES = 499


def test_no_package_grows() -> None:
    package = ROOT / "inspector"
    files = [path for path in package.rglob("*.py") if "built_in" not in path.parts]  # a link to models/
    lines: Counter[str] = Counter()
    for path in files:
        folder, *inner = path.relative_to(package).parts
        lines[folder if inner else ""] += len(path.read_text().splitlines())
    assert lines.keys() == MOST_LINES.keys()
    assert {name: count for name, count in lines.items() if count > MOST_LINES[name]} == {}
    assert len(files) <= MOST_MODULES
