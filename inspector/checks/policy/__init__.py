"""What a project demands of its layouts: rules read from a policy file, and what a Snapshot says to each.

A policy is a TOML file with a table, or several, for each kind of rule:

    [[replicated]]             # no array of `groups` larger than this is whole on every device
    over = "1 MiB"             #   along = ["data"]: … is not split over the mesh axis data
    [duplicated]               # of the bytes on all devices, so many are there a second time
    most_percent = 50
    [not_fully_sharded]        # of the parameters' bytes, so many are not split over every mesh axis
    most_percent = 2           #   axes = ["fsdp", "tensor"]: … over every one of these
    [bytes_per_device]         # train state on the fullest device
    most = "16 GiB"
    [memory]                   # of a program on one device, as the compiler counts it
    most = "80 GiB"            #   program = "train_step", figure = "peak" or "total"
    [[collectives]]            # none of these in the program, or at most so many bytes a run
    op = "all-gather"          #   axis = "data", program = "train_step", most_wire_bytes = "64 MiB"
    [specs]                    # equal those of a Snapshot or lock file, beside the policy file
    same_as = "golden.sharding.json"
    [findings]                 # none of this level or above
    none_from = "warning"

The rules about arrays take `groups`, `arrays` and `except` (patterns of paths, in which `*` stands for any
characters). The definitions stand with the rules. A rule that cannot be checked neither holds nor is
violated: its outcome says what is missing.
"""

from inspector.checks.policy.outcome import Outcome, Violation
from inspector.checks.policy.reading import Policy, parse, read

__all__ = ["Outcome", "Policy", "Violation", "parse", "read"]
