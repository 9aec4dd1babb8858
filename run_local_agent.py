#!/usr/bin/env python3
"""Starts Pullwright from a source tree: the same program as the installed command `pullwright`."""

import sys
from pathlib import Path

LEAST_PYTHON = (3, 11)

if __name__ == "__main__":
    if sys.version_info < LEAST_PYTHON:
        sys.exit("Pullwright needs Python 3.11 or newer.")
    sys.path.insert(0, str(Path(__file__).resolve().parent))

    from orchestrator.cli import main

    sys.exit(main())
