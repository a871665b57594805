"""The names of programs in texts and figures. Others than these three have the name of their function."""

_NOUNS = {"init": "initialization", "train_step": "train step", "apply": "inference"}
_RUNS = {"init": "Initialization", "train_step": "A train step", "apply": "An inference"}


def title(name: str) -> str:
    """Return the name of a program as a title: `Train step`."""
    return _NOUNS[name].capitalize() if name in _NOUNS else name


def noun(name: str) -> str:
    """Return the name of a program inside a sentence: `the train step`."""
    return f"the {_NOUNS[name]}" if name in _NOUNS else name


def subject(name: str) -> str:
    """Return the name of a program that begins a sentence: `The train step`."""
    return f"The {_NOUNS[name]}" if name in _NOUNS else name


def who_runs(name: str) -> str:
    """Return who does something in one execution of a program: `A train step`."""
    return _RUNS.get(name, name)


def run_of(name: str | None) -> str:
    """Return one execution of a program as figures name it: `one step` or `one run`.

    name: None without a program, as of a plan that is not partitioned.
    """
    return "one step" if is_step(name) else "one run"


def is_step(name: str | None) -> bool:
    """Return whether a program, or that of a plan without any yet, is a train step."""
    return name in (None, "train_step")
