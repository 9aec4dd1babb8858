"""Where the folders are that play GitHub, and for which repositories."""

from __future__ import annotations

import hashlib
import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from orchestrator.bot.forge.local_files import PlaceRecord, read

if TYPE_CHECKING:
    from pathlib import Path

PLACE_FILE = "repository.json"


@dataclass(frozen=True, slots=True)
class LocalPlace:
    """A folder that plays GitHub, and the repository that it does so for, which may be gone."""

    root: Path
    repository_path: Path


def root_of(state: Path, repository_path: Path) -> Path:
    """Where the state folder keeps what belongs to a repository: a readable name, and its path's digest."""
    path = repository_path.resolve()
    digest = hashlib.sha256(os.fsencode(path)).hexdigest()[:12]
    slug = re.sub(r"[^A-Za-z0-9._-]+", "-", path.name.removesuffix(".git"))[:40].strip("-.") or "repository"
    return state / "forge" / f"{slug}-{digest}"


def places(state: Path) -> list[LocalPlace]:
    """Every folder that plays GitHub below a state folder, by name.

    Raises:
        ForgeError: one of them is damaged.
    """
    found = sorted((state / "forge").glob(f"*/{PLACE_FILE}"))
    return [LocalPlace(file.parent, type(file)(read(file, PlaceRecord).path)) for file in found]
