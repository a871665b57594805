"""Snapshots in which every name that can come from a file is one that somebody may have meant ill."""

from __future__ import annotations

import dataclasses

from hypothesis import strategies as st

from inspector.records.snapshot import (
    Collective,
    Finding,
    Memory,
    MeshAxis,
    Program,
    Seconds,
    Snapshot,
    Source,
)
from tests.figures import samples

# What browsers, Markdown, GitHub and Plotly would read something out of.
PIECES = (
    "<img src=x onerror=window.hacked=1>", "</script><script>window.hacked=1</script>", "<!--", "-->",
    "]]>", "</style>", "</title>", "</details>", "</code>", "[x](javascript:window.hacked=1)", "| a |",
    "`", "``", "@team", "#123", "org/repo#4", "$x^2$", "\\", "*b*", "_i_", "~~s~~", "http://e.example/x",
    "www.e.example", ":tada:", "deadbeefcafe", "GH-12", '"', "'", "&lt;", "&#60;", "javascript:alert(1)",
    "%{x}", "{", "}", "<b>", "\u202e", "\u2028", "\x00", "\n", "\r", "\t", "- x", "# x", "1. x", "> x",
    "---", "    x", "é", "漢字", "\U0001f600", "/", " ", "a", "layer_0",
)  # fmt: skip

hostile_texts = st.one_of(
    st.lists(st.sampled_from(PIECES), min_size=1, max_size=4).map("".join),
    st.text(min_size=1, max_size=12),
).filter(lambda text: bool(text.strip()))


def snapshot(text: str, spec_of_w2: tuple = (None, None)) -> Snapshot:
    """A run in which `text` is a part of every name."""
    axis = f"model{text}"
    mesh = dataclasses.replace(samples.mesh(data=2, model=2), axes=(MeshAxis("data", 2), MeshAxis(axis, 2)))
    arrays = (
        samples.array(f"params/{text}/W1", (8, 8), (None, (axis,)), mesh, ("embed", f"hidden{text}")),
        samples.array(f"params/{text}/W2", (8, 8), spec_of_w2, mesh, (f"hidden{text}", "embed")),
    )
    collective = Collective(
        op="all-reduce", asynchronous=False, name=f"all-reduce.{text}", computation=text, executions=3,
        conditional=False, mesh_axes=(axis,), group_size=2, groups=2, payload_bytes=64,
        wire_bytes_per_device=64, op_name=f"jit(f)/{text}/dot", source=f"{text}.py:3",
        arrays=(arrays[0].path,),
    )  # fmt: skip
    programs = (
        Program(
            f"train_step{text}",
            memory=Memory(512, 256, 128, 64, 32, 800),
            collectives=(collective,),
            seconds=Seconds(0.1, 0.2, 0.3, (0.01, 0.02, 0.03)),
        ),
    )
    return Snapshot(
        source=Source("cpu", "cpu", "2026-01-01T00:00:00Z", {f"jax{text}": f"1{text}"}),
        layout={"model": text, "mesh": text, "rules": [[text, [text]]], "sizes": {text: text}},
        mesh=mesh,
        arrays=arrays,
        programs=programs,
        findings=(
            Finding("warning", text, f"about {text}: replicated", arrays[0].path, 64),
            Finding("note", text, text),
        ),
    )
