"""The attacks of an agent program that works in place of the model's loop, a file each, which `redteam` plays."""

from __future__ import annotations

from pathlib import Path

FOLDER = Path(__file__).parent
