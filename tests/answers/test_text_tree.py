"""The tree of arrays as text."""

from __future__ import annotations

from inspector.answers.arrays import text_tree
from tests.figures import samples

GOLDEN = """\
array                    shape      dtype    logical axes → spec                 bytes per device
step                     scalar     int32    → P()                                            4 B
params/DotReluDot_{0,1}                                                                   4.0 MiB
  Dense_0/kernel         1024×1024  float32  (embed, hidden) → P(None, 'model')       2 × 1.0 MiB
  W2                     1024×1024  float32  (hidden, embed) → P('model', None)       2 × 1.0 MiB
"""


def test_a_small_state() -> None:
    arrays = samples.mlp_state(layers=2)[:5]
    assert text_tree(arrays) == GOLDEN


def test_every_layer_is_listed_if_not_folded() -> None:
    text = text_tree(samples.mlp_state(layers=2)[:5], folded=False)
    assert text.count("kernel") == 2
    assert "×  " not in text.split("\n", 1)[1] and " × " not in text


def test_control_characters_in_a_name_do_not_break_lines() -> None:
    array = samples.array("params/a\nb\x1b[31m", (8,), (None,), samples.DEFAULT_MESH)
    assert text_tree([array]).count("\n") == 2
    assert "\x1b" not in text_tree([array])
