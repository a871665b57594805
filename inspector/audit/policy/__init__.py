"""A project's requirements on its layouts, as rules in a policy file.

A policy is a TOML file with a table, or a list of tables, for each kind of rule:

    [[replicated]]             # no array larger than this is replicated on every device
    over = "1 MiB"             #   along = ["data"]: ... along this mesh axis
    [duplicated]               # share of the bytes on all devices that are further copies
    most_percent = 50
    [not_fully_sharded]        # share of the parameters' bytes not sharded over every mesh axis
    most_percent = 2           #   axes = ["fsdp", "tensor"]: over these mesh axes
    [bytes_per_device]         # train state on the fullest device
    most = "16 GiB"
    [memory]                   # one program on one device, as the compiler counts it
    most = "80 GiB"            #   program = "train_step", figure = "peak" or "total"
    [[collectives]]            # no such collective in the program, or at most this many bytes per run
    op = "all-gather"          #   axis = "data", program = "train_step", most_wire_bytes = "64 MiB",
                               #   larger_than = "1 MiB": only those with a larger array
    [specs]                    # the PartitionSpecs of a Snapshot or lock file next to the policy
    same_as = "golden.sharding.json"
    [findings]                 # no finding of this level or above
    none_from = "warning"

Rules about arrays also have `groups`, `arrays` and `except`. The last two are path patterns in which `*`
matches any characters. If a rule cannot be checked, its outcome gives the reason.
"""

from inspector.audit.policy.fields import RuleOutcome, Violation
from inspector.audit.policy.policy_file import Policy, Rule, parse, read, rule
