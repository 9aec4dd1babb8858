#!/usr/bin/env python3
"""Starts Pullwright from a source tree: the same program as the installed command `pullwright`."""

import os
import sys

if __name__ == "__main__":
    sys.path.insert(0, os.path.dirname(os.path.realpath(__file__)))  # noqa: PTH120  pathlib takes long to load

    from orchestrator.__main__ import start

    sys.exit(start())
