"""The lines of each package. A change that needs more raises its number, where its readers see it."""

from collections import Counter

from tests.paths import ROOT

# The most lines of `*.py` of each folder of `inspector`; "" has the files of the package itself.
MOST_LINES = {
    "": 47,
    "answers": 9358,
    "assessment": 1499,
    "audit": 4391,
    "compare": 5073,
    "compiled": 3264,
    "compiling": 1157,
    "figures": 7522,
    "files": 752,
    "guides": 1803,
    "hlo": 10604,
    "jax_private": 2059,
    "jobs": 5945,
    "layout": 3096,
    "learn": 2086,
    "machines": 2484,
    "media": 14925,
    "model": 429,
    "partition": 4666,
    "prediction": 3846,
    "readers": 5079,
    "recording": 3669,
    "records": 4057,
    "search": 3607,
    "sharding": 2393,
    "testing": 281,
    "text": 558,
    "tracing": 3332,
}
MOST_MODULES = 533


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
