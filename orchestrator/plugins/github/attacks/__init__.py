"""The attacks by what is attached to an issue, a file each, which `redteam` plays."""

from __future__ import annotations

from pathlib import Path

FOLDER = Path(__file__).parent
