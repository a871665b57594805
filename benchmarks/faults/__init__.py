"""Whether the program survives faults: killed workers and writers, full and read-only disks, two servers.

Each count is `N of M`, with a line for each case that did not hold. The kills are drawn with a seed, so a
second run kills at the same moments. Takes about 30 minutes on two cores, so it runs only by its name. The
disks need root. `search_faults` has the faults during a search.
"""

from __future__ import annotations

import os

from benchmarks.faults import disks, pages, servers, workers, writer, writes


def report(cases: int | None = None) -> str:
    """Cause all faults, at most `cases` kills of each kind, and return the counts."""
    most = {} if cases is None else {"kills": cases}
    texts = [workers.killed_workers(**most).text()]
    texts += [writes.killed_writers(kind, **most).text() for kind in writer.KINDS]
    texts.append(writes.two_writers(**most).text())
    texts += [servers.killed_servers(**most).text(), servers.killed_saves(**most).text()]
    if os.geteuid() == 0:
        texts += [disks.faulty_disks().text(), pages.faulty_pages().text()]
    else:
        texts.append("a full or read-only disk: not tried, only root can mount a tmpfs")
    return "\n".join(texts)
