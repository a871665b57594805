"""Run benchmarks by name, or all that take minutes, and print a table: `python -m benchmarks [NAME]…`."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import signal
import sys
import traceback
from collections.abc import Sequence

from benchmarks import pairing
from inspector.files import output
from inspector.text.errors import InvalidInput

# Modules of this package in the order in which they run. Each has `measure(pairs)` and `PAIRS`, or
# `report(cases)` if it counts something: at most so many cases of each kind, all if None.
BENCHMARKS = (
    "warm_run", "page_run", "train_step", "preview", "first_map", "rule_change", "analysis", "board",
    "target_compile", "capture", "partition", "partitioned_change", "effects", "agreement",
    "before_compile",
    "origins", "recorded_run", "simulation", "memory_peak", "search_tasks", "candidates",
    "search",
)  # fmt: skip


# These take more than a few minutes, so they run only if they are named.
BY_NAME = ("faults", "search_bounds", "search_faults", "sessions", "opened_files")
NAMES = (*BENCHMARKS, *BY_NAME)


def main(arguments: list[str] | None = None) -> int:
    """Return 0 whatever the figures are, 1 if a benchmark failed, 2 for bad arguments."""
    parser = argparse.ArgumentParser(prog="benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one of {', '.join(NAMES)}")
    parser.add_argument("--pairs", type=int, help="pairs of each benchmark, or cases of one that counts")
    parser.add_argument("--json", metavar="FILE", help="also write every figure to this file")
    options = parser.parse_args(arguments)
    for name in options.names:
        if name not in NAMES:
            parser.error(f"NAME is {name!r}, but must be one of {', '.join(NAMES)}")
    if options.pairs is not None and options.pairs < 1:
        parser.error(f"--pairs is {options.pairs}, but must be at least 1")
    if options.json is not None:
        try:
            output.refuse_unwritable(options.json)
        except InvalidInput as refused:
            parser.error(str(refused))

    # A benchmark ends the servers and clusters that it started, also if it is ended itself.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    before = os.getloadavg()[0]  # the load average of the last minute
    results: list[pairing.Result] = []
    reports: dict[str, str] = {}
    failed: list[str] = []
    written = True
    for name in options.names or BENCHMARKS:
        print(f"{name} …", file=sys.stderr, flush=True)
        try:
            module = importlib.import_module(f"benchmarks.{name}")
            if hasattr(module, "report"):
                reports[name] = module.report(options.pairs)
            else:
                results += module.measure(options.pairs or module.PAIRS)
        except (RuntimeError, InvalidInput) as error:
            failed.append(f"{name} could not be measured: {error}")
        except Exception:  # a defect of one benchmark, which must not end the others
            failed.append(f"{name} failed: {traceback.format_exc()}")
        # After each, so that an interrupt loses no figure.
        written = options.json is None or _write(options.json, results, reports, failed)
    if results:
        print(f"{os.cpu_count()} cores, load {before:.1f} before and {os.getloadavg()[0]:.1f} after\n")
        print(pairing.table(results))
    for text in reports.values():
        print(f"\n{text}")
    for sentence in failed:
        print(sentence, file=sys.stderr)
    return 1 if failed or not written else 0


def _write(file: str, results: Sequence[pairing.Result], reports: dict[str, str], failed: list[str]) -> bool:
    """Write every figure so far, and return whether that was possible."""
    plain = {
        "cores": os.cpu_count(),
        "results": [pairing.to_json(one) for one in results],
        "reports": reports,
        "failed": failed,
    }
    try:
        output.write_text(json.dumps(plain, indent=1) + "\n", file)
    except InvalidInput as refused:
        print(refused, file=sys.stderr)
        return False
    return True


if __name__ == "__main__":
    sys.exit(main())
