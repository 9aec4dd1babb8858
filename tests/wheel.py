"""Checks that a wheel has each file of the program that git keeps, as it is: `python -m tests.wheel WHEEL`."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
PLACES = {"orchestrator": "orchestrator", "prompts": "orchestrator/_prompts"}
"""Where each folder of the program is in a wheel."""


def lacks(wheel: Path) -> list[str]:
    """Return the files that a wheel lacks, or has with another content."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", *PLACES], cwd=ROOT, capture_output=True, text=True, check=True
    )
    found = []
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        for name in filter(None, listed.stdout.split("\0")):
            folder, _, rest = name.partition("/")
            place = f"{PLACES[folder]}/{rest}"
            if place not in names or archive.read(place) != (ROOT / name).read_bytes():
                found.append(name)
    return found


if __name__ == "__main__":
    missing = lacks(Path(sys.argv[1]))
    sys.exit(f"the wheel lacks, or has otherwise: {', '.join(missing)}" if missing else 0)
