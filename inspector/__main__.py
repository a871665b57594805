"""Run the command line: `python -m inspector VERB …`, the same as `sharding-inspector VERB …`."""

from __future__ import annotations

import sys

from inspector.media.terminal import main

if __name__ == "__main__":
    sys.exit(main())
