"""The lines of each package. A change that needs more raises its number, where its readers see it."""

from collections import Counter

from tests.paths import ROOT

# The most lines of `*.py` of each folder of `inspector`; "" has the files of the package itself.
MOST_LINES = {
    "": 47,
    "assessment": 1471,
    "checks": 4432,
    "compare": 7361,
    "compiled": 13461,
    "core": 8531,
    "figures": 7520,
    "guides": 1802,
    "layout": 3069,
    "machines": 6170,
    "media": 14961,
    "model": 426,
    "producers": 22080,
    "sections": 9354,
    "service": 6946,
    "testing": 281,
}
MOST_MODULES = 541


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
