"""What stands on pictures of arrays that no model has."""

from __future__ import annotations

import re

from inspector.figures import array_provenance
from tests.figures import samples


def test_a_line_says_how_mesh_versions_and_when_it_was_drawn() -> None:
    mesh = samples.mesh(x=2, y=4)
    line = array_provenance.line(["An array", "P('x')"], mesh, {"jax": "1.2"}, processes=2)
    how, spec, on, ran, versions, drawn = line.split(" · ")
    assert (how, spec, versions) == ("An array", "P('x')", "versions jax 1.2")
    assert on.startswith("mesh ") and "x" in on and "(8 devices)" in on
    assert ran == "run on emulated devices of 2 processes"
    assert re.fullmatch(r"drawn \d{4}-\d\d-\d\d \d\d:\d\d", drawn)
    alone = array_provenance.line([], mesh, {})
    assert " · run on emulated devices · versions unknown · " in alone
