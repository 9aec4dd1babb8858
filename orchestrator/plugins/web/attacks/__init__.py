"""The attacks by web pages and on private addresses, a file each, which `redteam` plays."""

from __future__ import annotations

from pathlib import Path

FOLDER = Path(__file__).parent
