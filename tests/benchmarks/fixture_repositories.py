"""Unpacks the histories that Debian's package golang-github-go-git-go-git-fixtures-dev brings.

The package holds packs of public repositories as base64 inside one Go file:
https://github.com/go-git/go-git-fixtures
"""

from __future__ import annotations

import base64
import gzip
import re
import subprocess
import tempfile
from pathlib import Path

# The packs by the name of their repository; the commit that was its head, where it is not the newest one.
PACKS = {
    "go-git": ("3559b3b47e695b33b0913237a4df3357e739831c", "e8788ad9165781196e917292d6055cba1d78664e"),
    "spinnaker": ("f2e0a8889a746f7600e07d2246a2e29a72f696be", "06ce06d0fc49646c4de733c45b7788aabad98a6f"),
    "rumprun-xen": ("7861f2632868833a35fe5e4ab94f99638ec5129b", None),
}
_FILE = re.compile(r'"/data/pack-(\w+)\.pack":\s*\{[^`]*`([^`]*)`')


def unpack(package: Path, folder: Path) -> list[Path]:
    """Bare repositories in `folder`, made from a `.deb` file."""
    made = []
    with tempfile.TemporaryDirectory() as scratch:
        subprocess.run(["dpkg-deb", "-x", str(package), scratch], check=True)
        source = next(Path(scratch).rglob("data.go")).read_text("ascii")
    packs = dict(_FILE.findall(source))
    for name, (pack, head) in PACKS.items():
        repository = folder / f"{name}.git"
        _git(folder, "init", "-q", "--bare", str(repository))
        path = repository / "objects" / "pack" / f"pack-{pack}.pack"
        path.write_bytes(gzip.decompress(base64.b64decode(packs[pack])))
        _git(repository, "index-pack", str(path))
        _git(repository, "update-ref", "refs/heads/main", head or _newest(repository))
        _git(repository, "symbolic-ref", "HEAD", "refs/heads/main")
        made.append(repository)
    return made


def _newest(repository: Path) -> str:
    objects = _git(repository, "cat-file", "--batch-all-objects", "--batch-check").splitlines()
    commits = [line.split()[0] for line in objects if " commit " in line]
    command = ["git", "-C", str(repository), "rev-list", "--stdin", "--max-count=1"]
    return subprocess.run(
        command, check=True, capture_output=True, text=True, input="\n".join(commits)
    ).stdout.strip()


def _git(folder: Path, *arguments: str) -> str:
    return subprocess.run(
        ["git", "-C", str(folder), *arguments], check=True, capture_output=True, text=True
    ).stdout
