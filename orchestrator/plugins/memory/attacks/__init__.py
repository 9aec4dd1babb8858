"""The attacks on memories, a file each, which `redteam` plays."""

from __future__ import annotations

from pathlib import Path

FOLDER = Path(__file__).parent
