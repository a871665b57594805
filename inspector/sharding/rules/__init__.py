"""Logical axes to mesh axes by rules, and why: as Flax Linen reads them, and as Flax nnx does.

`ledger` and `partition_spec` are Linen's, which is what layouts mean. `rules.nnx` reads the same rules as
nnx does and finds the differences, and `rules.entries` compares both.
"""

from inspector.sharding.rules.linen import ledger, partition_spec, rule_behind
from inspector.sharding.rules.rule import Rule, RulesSemantics, Trial
