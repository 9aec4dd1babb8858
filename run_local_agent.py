#!/usr/bin/env python3
"""Starts Pullwright from a source tree: the same program as the installed command `pullwright`."""

import sys
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent))

    from orchestrator.__main__ import start

    sys.exit(start())
