"""Records of a comparison of results: the programs of a script, sharded and on one device."""

from dataclasses import dataclass

from inspector.records.typed_json import FiniteFloat, NonNegativeInt, PositiveInt, Record

# A larger tolerance hides a forgotten sum over two devices, which changes a result by about a half.
MEANINGFUL = 0.25


@dataclass(frozen=True)
class UnequalReplicas(Record):
    """Replicas of one value that differ, although they are copies of the same part of it.

    Attributes:
      devices: Positions of two devices in the order of the program's devices.
      index: Index in the whole value at which these two differ most.
      values: The two values there, as text.
      groups: Number of parts of the value whose replicas differ.
    """

    devices: tuple[NonNegativeInt, NonNegativeInt]
    index: tuple[NonNegativeInt, ...]
    values: tuple[str, str]
    groups: PositiveInt


@dataclass(frozen=True)
class ComparedValue(Record):
    """One result of a program, or of one of its operations, sharded and on one device.

    Attributes:
      path: Path of the result in what the function returns; empty for a single array.
      dtype: Element type.
      shape: Global shape.
      difference: Norm of the difference, relative to the norm of the value; of integers, the share of the
        elements that differ. None if elements are NaN or infinite on one side only.
      tolerance: The largest difference that rounding explains.
      index: Index of the element that differs most. None if all are equal.
      values: That element, sharded and on one device, as text.
      factor: The sharded value is this multiple of the other one. None if it is no multiple.
      unequal: Replicas that differ, None if all are equal.
      differs: Whether the value differs by more than the tolerance, or its replicas differ.
    """

    path: str
    dtype: str
    shape: tuple[NonNegativeInt, ...]
    difference: FiniteFloat | None
    tolerance: FiniteFloat
    index: tuple[NonNegativeInt, ...] | None
    values: tuple[str, str] | None
    factor: FiniteFloat | None
    unequal: UnequalReplicas | None
    differs: bool

    @property
    def unchecked(self) -> bool:
        """Return whether the value agrees within a tolerance that hides real differences."""
        return not self.differs and self.tolerance > MEANINGFUL


@dataclass(frozen=True)
class FirstOperation(Record):
    """The first operation of a program whose result differs.

    Attributes:
      operation: Name, such as `dot_general`, or `shard_map` for a whole function that it maps.
      op_name: JAX's name stack, such as `jit(step)/dot_general`.
      source: Its source line, such as `train.py:31`. None if unknown.
      value: Its result.
      other_constants: Whether its operands are other constants on one device, because the script computes
        with the number of devices.
    """

    operation: str
    op_name: str
    source: str | None
    value: ComparedValue
    other_constants: bool = False


@dataclass(frozen=True)
class ComparedProgram(Record):
    """One program, sharded and on one device, with the same arguments.

    Attributes:
      name: Name; a second program of the name `step` is `step (2)`.
      source: The function as JAX writes it, such as `step at train.py:31`.
      devices: Number of devices of the sharded program.
      results: Number of results that were compared.
      values: The results, those that differ most come first, relative to their tolerance.
      first: The first operation whose result differs. None if none differs, or it is unknown. The results of
        each `shard_map` are compared even if no result of the program differs: a wrong gradient times a small
        learning rate hardly changes a parameter.
      first_unknown: Why the first operation is unknown. None if it is known or no result differs.
      reason: Why the program cannot be compared. None if it was compared. Its replicas can be compared
        anyway: then `values` has the results whose replicas differ.
    """

    name: str
    source: str
    devices: PositiveInt
    results: NonNegativeInt = 0
    values: tuple[ComparedValue, ...] = ()
    first: FirstOperation | None = None
    first_unknown: str | None = None
    reason: str | None = None

    @property
    def differing(self) -> tuple[ComparedValue, ...]:
        """Return the results that differ."""
        return tuple(value for value in self.values if value.differs)

    @property
    def unchecked(self) -> tuple[ComparedValue, ...]:
        """Return the results that rounding changes so much that equal ones say nothing."""
        return tuple(value for value in self.values if value.unchecked)

    @property
    def largest(self) -> ComparedValue | None:
        """Return the first result that differs, else the checked one with the largest difference, if any."""
        checked = [value for value in self.values if not value.unchecked]
        return max(self.differing[:1] or checked, key=lambda value: value.difference or 0.0, default=None)

    @property
    def differs(self) -> bool:
        """Return whether a result of the program, or one inside it, differs."""
        return self.first is not None or bool(self.differing)


@dataclass(frozen=True)
class SameResults(Record):
    """All sharded programs of a script or layout.

    Attributes:
      subject: What was run: the command or the layout file.
      programs: The programs that run on more than one device, in the order in which they were compiled.
      unsharded: Number of programs that run on one device, which were not compared.
    """

    subject: str
    programs: tuple[ComparedProgram, ...]
    unsharded: NonNegativeInt = 0

    @property
    def same(self) -> bool | None:
        """Return False if a program differs, None if one cannot be compared, True otherwise."""
        if any(program.differs for program in self.programs):
            return False
        if any(program.reason is not None or program.unchecked for program in self.programs):
            return None
        return True
