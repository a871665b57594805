"""The rule ledger: every rule that was tried on an array, as Flax Linen and as Flax nnx apply it."""

from collections.abc import Sequence

from inspector.answers.section import Block, Section, Strong, Table, notice, text
from inspector.model.built_in.catalogue import semantics
from inspector.records.snapshot import Array, Snapshot
from inspector.sharding.rules import Rule, RulesSemantics
from inspector.sharding.rules.entries import Ledger, RuleEntry, ledger_of
from inspector.sharding.rules.rule import rule_words
from inspector.sharding.sharding_text import spec_text
from inspector.text.formatting import counted, logical_text

LIBRARIES: dict[RulesSemantics, str] = {"linen": "Linen", "nnx": "nnx"}


def ledgers(snapshot: Snapshot, rules: Sequence[Rule]) -> list[tuple[Array, Ledger]]:
    """Return the arrays with logical axes and their ledgers, those that do not follow the rules first."""
    reading = semantics(snapshot)
    known = [
        (array, ledger)
        for array in snapshot.arrays
        if (ledger := ledger_of(array, snapshot.mesh_of(array), rules, reading)) is not None
    ]
    return sorted(known, key=lambda pair: pair[1].follows is not False)


def of_array(
    array: Array, ledger: Ledger, rules: Sequence[Rule], reading: RulesSemantics
) -> tuple[Block, ...]:
    """Return the specs of one array and every rule that was tried on it."""
    linen = spec_text(ledger.linen) if ledger.linen is not None else f"invalid, {ledger.linen_refusal}"
    blocks: list[Block] = [
        text(
            f"{logical_text(array.logical_axes)} · actual ",
            Strong(spec_text(array.spec)),
            " · Linen ",
            Strong(linen),
            " · nnx ",
            Strong(spec_text(ledger.nnx)),
        )
    ]
    if ledger.follows is False:
        chosen = " The compiler chose it." if array.group in ("activation", "gradient") else ""
        library = LIBRARIES[reading]
        blocks.append(notice("warning", f"The sharding differs from these rules in {library}.{chosen}"))
    if any(entry.taken_by_linen != entry.taken_by_nnx for entry in ledger.entries):
        refusals = f": {'; '.join(ledger.nnx_refusals)}." if ledger.nnx_refusals else "."
        blocks.append(notice("info", f"Linen and nnx apply these rules differently{refusals}"))
    blocks += [
        entries(ledger.entries, rules),
        text(
            "Rules without a dimension of this array are left out. Linen applies a rule if its dimension has "
            "no earlier rule and all of its mesh axes are free. nnx looks up each name; the last rule wins.",
            quiet=True,
        ),
    ]
    return tuple(blocks)


def entries(ledger: Sequence[RuleEntry], rules: Sequence[Rule]) -> Table:
    """Return one row per rule and dimension with what Linen and nnx make of it."""
    return Table.of(
        "ledger",
        ledger,
        {
            "Rule": lambda step: (
                "–" if step.rule is None else rule_words(step.rule, rules).removeprefix("rule ")
            ),
            "Dimension": lambda step: f"{step.dimension} {step.logical_axis or ''}".rstrip(),
            "Linen": lambda step: Strong(step.linen) if step.taken_by_linen else step.linen,
            "nnx": lambda step: Strong(step.nnx) if step.taken_by_nnx else step.nnx,
        },
        wrap=True,
    )


def overall(known: Sequence[tuple[Array, Ledger]], reading: RulesSemantics) -> Section:
    """Return whether all arrays follow the rules, and a table of them."""
    compared = [ledger for _, ledger in known if ledger.follows is not None]
    follow = sum(bool(ledger.follows) for ledger in compared)
    library = LIBRARIES[reading]
    blocks: list[Block] = []
    if compared:
        all_follow = follow == len(compared)
        count = f"{'All' if all_follow else f'{follow} of'} {counted(len(compared), 'array')}"
        said = f"{count} with logical axes follow the rules as {library} applies them."
        blocks.append(notice("success" if all_follow else "warning", said))
    return Section("ledger-all", "All arrays", (*blocks, table(known)))


def table(known: Sequence[tuple[Array, Ledger]]) -> Table:
    """Return one row per array: its spec, the spec of the rules in Linen and in nnx, and if they agree."""
    follows = {None: "unknown", True: "yes", False: "no"}
    return Table.of(
        "ledger_table",
        known,
        {
            "Path:code": lambda pair: pair[0].path,
            "Logical axes": lambda pair: logical_text(pair[0].logical_axes),
            "Actual": lambda pair: spec_text(pair[0].spec),
            "Linen": lambda pair: "invalid" if pair[1].linen is None else spec_text(pair[1].linen),
            "Follows": lambda pair: follows[pair[1].follows],
            "nnx": lambda pair: spec_text(pair[1].nnx) + (", invalid in JAX" if pair[1].nnx_refusals else ""),
        },
    )
