"""Checks of shardings in tests: lock files and policies for jitted functions, with or without a layout.

Each check compiles the function with `inspector.inspect` and reads its Snapshot, without running it. It also
takes a Snapshot that a check before has returned, so several checks need one compile.

The plugin for pytest has the option `--update-sharding-locks`. Paths then begin at the folder of the test.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # imported when a test needs them: pytest loads this package for its plugin
    from inspector.audit.checked import Checked
    from inspector.audit.policy import Rule
    from inspector.records.snapshot import Snapshot

__all__ = ["assert_policy", "no_collective", "sharding_lock"]

UPDATE = "--update-sharding-locks"
_EMULATE = "jax.config.update('jax_num_cpu_devices', 8) in conftest.py, before JAX is used"


class RunningTest:
    """The test that is running.

    Attributes:
      folder: where relative paths begin; the current folder without pytest.
      test: its name; None without pytest.
      update: whether lock files are written instead of compared.
      written: the test that has written each lock file, and its text.
    """

    def __init__(self) -> None:
        self.folder = Path()
        self.test: str | None = None
        self.update = False
        self.written: dict[Path, tuple[str | None, str]] = {}


run = RunningTest()  # the plugin sets it


def sharding_lock(
    jitted: Any,
    *arguments: Any,
    lock: str | os.PathLike[str] = "step.sharding.json",
    target: str | None = None,
    **keywords: Any,
) -> Snapshot:
    """Compare the shardings and collectives of a function with a committed lock file.

    Use it so that a change of a rule, a mesh or a library does not change a step unseen. A failure names the
    arrays and the traffic that changed, and lists every change. After a review of them,
    `pytest --update-sharding-locks` writes the lock file.

    Args:
      jitted: a jitted function. Another function is jitted. It is compiled and does not run. Or a Snapshot.
      arguments: arrays, or `jax.ShapeDtypeStruct` objects with shardings, as for a call.
      lock: the lock file, from the folder of the test.
      target: such as `tpu:v5e:4x4`: compile for this machine instead, as in `inspector.inspect`.
      keywords: the function's keyword arguments.

    Returns:
      The Snapshot, for further checks.

    Raises:
      AssertionError: something changed, or there is no lock file.
      InvalidInput: the function, the target or the lock file is invalid, or nothing is sharded, because the
        process has one device.

    Example:
      >>> import jax
      >>> from inspector.testing import sharding_lock
      >>> from jax.sharding import AxisType, NamedSharding, PartitionSpec as P
      >>> mesh = jax.make_mesh((2, 4), ("data", "model"), axis_types=(AxisType.Auto,) * 2)
      >>> x = jax.ShapeDtypeStruct((64, 64), "float32", sharding=NamedSharding(mesh, P("data", "model")))
      >>> sharding_lock(jax.jit(jax.numpy.sum), x, lock="sum.sharding.json")
      Traceback (most recent call last):
      ...
      AssertionError: no lock file sum.sharding.json: run `pytest --update-sharding-locks` and commit it
    """
    __tracebackhide__ = True
    from inspector.audit import checked, lock_file

    snapshot = _inspected(jitted, arguments, keywords, target)
    path = run.folder / lock
    if run.update:
        _write(snapshot, path)
        return snapshot
    if not path.exists():
        raise AssertionError(f"no lock file {lock}: run `pytest {UPDATE}` and commit it")
    found = checked.with_lock(snapshot, lock_file.read(path), str(lock))
    *notes, summary = found.notes
    remedy = f"After a review, `pytest {UPDATE}` writes {lock}."
    _assert_holds(found, before=[summary], after=[*notes, remedy])
    return snapshot


def assert_policy(
    jitted: Any,
    *arguments: Any,
    policy: str | os.PathLike[str] | Rule | Iterable[Rule],
    target: str | None = None,
    **keywords: Any,
) -> Snapshot:
    """Check that a function follows the rules of a policy.

    Use it for limits that every version must meet, such as no large array that is replicated.

    Args:
      jitted: a function or a Snapshot, as for `sharding_lock`.
      arguments: as for `sharding_lock`.
      policy: a policy file, from the folder of the test; or rules, such as those of `no_collective`.
      target: as for `sharding_lock`.
      keywords: the function's keyword arguments.

    Returns:
      The Snapshot, for further checks.

    Raises:
      AssertionError: a rule is violated. Each violation is a line.
      InvalidInput: the function, the target or the policy is invalid, or a rule cannot be checked.

    Example:
      >>> import jax
      >>> from inspector.testing import assert_policy, no_collective
      >>> from jax.sharding import AxisType, NamedSharding, PartitionSpec as P
      >>> mesh = jax.make_mesh((2, 4), ("data", "model"), axis_types=(AxisType.Auto,) * 2)
      >>> x = jax.ShapeDtypeStruct((64, 64), "float32", sharding=NamedSharding(mesh, P("data", "model")))
      >>> total = jax.jit(lambda x: x.sum(axis=1))
      >>> snapshot = assert_policy(total, x, policy=no_collective("all-gather"))
      >>> assert_policy(snapshot, policy=no_collective("all-reduce", over="model"))  # doctest: +ELLIPSIS
      Traceback (most recent call last):
      ...
      AssertionError: no_collective: all-reduce over model in <lambda>: 1 instruction, ...
    """
    __tracebackhide__ = True
    from inspector.audit import checked
    from inspector.audit import policy as policies

    if isinstance(policy, (str, os.PathLike)):
        rules = policies.read(run.folder / policy)
    elif isinstance(policy, policies.Rule):
        rules = policies.Policy((policy,))
    else:
        rules = policies.Policy(tuple(policy))
    snapshot = _inspected(jitted, arguments, keywords, target)
    _assert_holds(checked.with_policy(snapshot, rules))
    return snapshot


def no_collective(
    op: str | None = None,
    *,
    over: str | None = None,
    larger_than: str | int | None = None,
    program: str | None = None,
) -> Rule:
    """Return the rule that a program has no such collective, for `assert_policy`.

    Args:
      op: such as all-gather; None for all operations.
      over: a mesh axis; None for all.
      larger_than: bytes, or text such as `64 MiB`: only collectives count that send a larger array in one
        execution. It is the result of an all-gather, and the operand of another operation, on one device.
      program: None for the only program, or the train step.

    Raises:
      InvalidInput: there is no such operation, or a size is invalid.

    Example:
      >>> from inspector.testing import no_collective
      >>> no_collective("all-gather", over="fsdp", larger_than="64 MiB").title
      'no_collective'
    """
    from inspector.audit import policy as policies

    given = {"op": op, "axis": over, "larger_than": larger_than, "program": program}
    table = {field: value for field, value in given.items() if value is not None}
    return policies.rule("collectives", table, "no_collective")._replace(title="no_collective")


def _inspected(
    jitted: Any, arguments: tuple[Any, ...], keywords: dict[str, Any], target: str | None
) -> Snapshot:
    """Return the Snapshot of a function, or the given one.

    Raises:
      InvalidInput: a Snapshot has arguments, or the function runs on one device.
    """
    from inspector.records.snapshot import Snapshot
    from inspector.text.errors import InvalidInput

    if isinstance(jitted, Snapshot):
        if arguments or keywords or target is not None:
            raise InvalidInput("a Snapshot takes no arguments of a function and no target")
        return jitted
    import jax

    from inspector.recording.inspected import inspect

    snapshot = inspect(jitted, *arguments, target=target, **keywords)
    if jax.device_count() == 1 and (snapshot.mesh is None or snapshot.mesh.size == 1):
        raise InvalidInput(
            f"this process has one device, so {snapshot.programs[0].name} is not sharded: emulate more with "
            f"{_EMULATE}; a target needs as many devices here"
        )
    return snapshot


def _write(snapshot: Snapshot, path: Path) -> None:
    """Write the lock file, unless it has no change. Two tests cannot have one file with different texts."""
    __tracebackhide__ = True
    from inspector.audit import checked, lock_file

    text = lock_file.dumps(lock_file.locked(snapshot))
    test, before = run.written.setdefault(path.resolve(), (run.test, text))
    if before != text:
        raise AssertionError(f"{path} is the lock file of {test}: give this test its own with lock=")
    if path.exists():
        found = checked.with_lock(snapshot, lock_file.read(path), str(path))
        if not found.violations and not found.unknown:
            return  # also if it was written with other versions
    path.parent.mkdir(parents=True, exist_ok=True)
    lock_file.write(lock_file.locked(snapshot), path)


def _assert_holds(checked: Checked, before: Iterable[str] = (), after: Iterable[str] = ()) -> None:
    """Raise AssertionError with all violations, or InvalidInput if something cannot be checked.

    Args:
      before: lines before the violations.
      after: lines after them.
    """
    __tracebackhide__ = True
    from inspector.text.errors import InvalidInput

    unknown = [f"cannot be checked: {line}" for line in dict.fromkeys(checked.unknown)]
    if checked.violations:
        raise AssertionError("\n".join([*before, *checked.violations, *unknown, *after]))
    if unknown:
        raise InvalidInput("; ".join(unknown))
