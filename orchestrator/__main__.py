"""`python -m orchestrator` is the command `pullwright`."""

import sys

from orchestrator.app.cli import main

if __name__ == "__main__":
    sys.exit(main())
