"""The names of programs in texts."""

from __future__ import annotations

from inspector.text.program_names import noun, subject, title, who_runs


def test_the_programs_of_a_layout_have_one_name_and_others_that_of_their_function() -> None:
    names = [[of(name) for of in (title, noun, subject, who_runs)] for name in ("apply", "my_step")]
    assert names == [
        ["Inference", "the inference", "The inference", "An inference"],
        ["my_step"] * 4,
    ]
