"""Names the place from which the package is built as its source, so that a released one says where it comes from."""  # noqa: INP001  a build hook

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

_SSH = re.compile(r"(?:ssh://)?git@([\w.-]+)[:/]([\w.-]+/[\w.-]+?)(?:\.git)?/?")
_HTTPS = re.compile(r"https://(?:[^@/\s]*@)?([\w.-]+)/([\w.-]+/[\w.-]+?)(?:\.git)?/?")
_GIT_SECONDS = 10


class SourceAddress(MetadataHookInterface):
    """Sets `urls` to the checkout's `origin`. A source distribution keeps what its `PKG-INFO` says."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Add the address, if one is known."""
        address = origin(Path(self.root))
        metadata["urls"] = {"Source": address} if address else {}


def origin(root: Path) -> str:
    """Return the address of the checkout's `origin` for a browser, without a password; empty if there is none."""
    if not (root / ".git").exists():
        return ""
    try:
        done = subprocess.run(  # noqa: S603  these words, in the folder that is built
            ["git", "-C", str(root), "remote", "get-url", "origin"],  # noqa: S607  git is found on the path
            capture_output=True,
            text=True,
            timeout=_GIT_SECONDS,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    url = done.stdout.strip()
    match = _HTTPS.fullmatch(url) or _SSH.fullmatch(url)
    return f"https://{match[1].lower()}/{match[2]}" if match else ""
