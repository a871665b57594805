"""`python -m inspector VERB …`: what the pages do, from a terminal."""

from __future__ import annotations

import sys

from inspector.media.terminal import main

if __name__ == "__main__":
    sys.exit(main())
