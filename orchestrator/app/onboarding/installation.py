"""Finds the origin of this installation, a commit on GitHub or a copy, so that a workflow can use it."""

from __future__ import annotations

import io
import json
import re
import stat
import subprocess
import zipfile
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from orchestrator.core.repositories import OWNER_AND_NAME, PROGRAM, SSH_ADDRESS

if TYPE_CHECKING:
    from collections.abc import Iterator

_PACKAGE = Path(__file__).resolve().parents[2]
_COMMIT = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_IN_REPOSITORY = ".github/actions/pullwright"
_ARCHIVE = "program.zip"
_LOCK = "requirements.lock"
_START = "run_local_agent.py"
_GIT_SECONDS = 10.0
_SKIPPED = frozenset({"__pycache__", "_action"})
_EXECUTABLE, _PLAIN = 0o755, 0o644


@dataclass(frozen=True, slots=True)
class ActionPlace:
    """A commit on GitHub that contains the action.

    Attributes:
        server: host of the server.
        uses: value of `uses:` in a workflow.
    """

    server: str
    uses: str


@dataclass(frozen=True, slots=True)
class ActionFile:
    """A file of the action's copy. `path` is relative to the top of the repository."""

    path: str
    content: bytes
    is_executable: bool = False


def action_place() -> ActionPlace | str:
    """Return the commit on GitHub with this exact program, or the reason why none is known.

    After `pip install git+https://...`, the installation itself names the commit (PEP 610). In a checkout, or
    after an installation from one that still has the same files, it is the checkout's commit, if that is
    published.
    """
    if (_PACKAGE.parent / _START).is_file():
        return _of_checkout(_PACKAGE.parent)
    try:
        text = metadata.distribution(PROGRAM).read_text("direct_url.json")
        said = json.loads(text) if text else None
    except (metadata.PackageNotFoundError, ValueError):
        said = None
    return (
        read_direct_url(said) if isinstance(said, dict) else f"{PROGRAM} was installed from a package index"
    )


def read_direct_url(said: dict[str, object]) -> ActionPlace | str:
    """Read the installer's record: https://packaging.python.org/specifications/direct-url-data-structure/."""
    url, vcs = str(said.get("url", "")), said.get("vcs_info")
    if isinstance(vcs, dict):
        folder = str(said.get("subdirectory", "")).strip("/")
        return _place_of(url, str(vcs.get("commit_id", "")), folder)
    if "dir_info" in said and urlsplit(url).scheme == "file":
        checkout = Path(unquote(urlsplit(url).path))
        if _same_program(checkout):
            return _of_checkout(checkout)
        return f"the files in {checkout}, from which {PROGRAM} was installed, have changed"
    return f"{PROGRAM} was installed from a file"


def _same_program(checkout: Path) -> bool:
    """Return whether a folder has the installed files."""
    there, here = checkout / "orchestrator", _PACKAGE
    if not there.is_dir():
        return False
    theirs = {path.relative_to(there): path for path in _files(there)}
    ours = {path.relative_to(here): path for path in _files(here) if "_prompts" not in path.parts}
    return theirs.keys() == ours.keys() and all(
        path.read_bytes() == theirs[name].read_bytes() for name, path in ours.items()
    )


def _of_checkout(folder: Path) -> ActionPlace | str:
    """Return the commit of a checkout, if the checkout is unchanged and the commit is published.

    Otherwise return the reason.
    """
    commit = _git(folder, "rev-parse", "HEAD")
    if commit is None or _git(folder, "rev-parse", "--show-toplevel") != str(folder.resolve()):
        return f"{folder} is not a checkout of git"
    if _git(folder, "status", "--porcelain") != "":
        return f"the checkout {folder} has changes that are not committed"
    remote = _git(folder, "remote", "get-url", "origin")
    if remote is None:
        return f"the checkout {folder} has no remote `origin`"
    if not _git(folder, "branch", "--remotes", "--contains", commit):
        return f"the commit of the checkout {folder} is not pushed"
    return _place_of(remote, commit, "")


def _git(folder: Path, *words: str) -> str | None:
    """Run a git query that executes nothing of the repository's; return None if git fails."""
    quiet = ("-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null")
    try:
        done = subprocess.run(  # noqa: S603  these words, in the program's own folder
            ["git", "-C", str(folder), *quiet, *words],  # noqa: S607  git is found on the path
            capture_output=True,
            text=True,
            timeout=_GIT_SECONDS,
            check=True,
        )
    except (OSError, ValueError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def _place_of(url: str, commit: str, folder: str) -> ActionPlace | str:
    parts, ssh = urlsplit(url), SSH_ADDRESS.fullmatch(url)
    host, path = (ssh["host"], ssh["path"]) if ssh else (parts.hostname or "", parts.path)
    name = OWNER_AND_NAME.fullmatch(path.strip("/").removesuffix(".git"))
    if name is None or not _COMMIT.fullmatch(commit):
        return f"the address that {PROGRAM} was installed from is not a repository on a server"
    below = "/".join(filter(None, (folder, _IN_REPOSITORY)))
    return ActionPlace(host.lower(), f"{name['owner']}/{name['name']}/{below}@{commit}")


def workflow_template() -> str:
    """Return the workflow that is part of this program, as its own repository uses it."""
    return _installed_or_source("workflow.yml", ".github/workflows/pullwright.yml").read_text(
        encoding="utf-8"
    )


def action_copy() -> list[ActionFile]:
    """Return the action as files for another repository, with the program in one archive.

    The same program always gives the same bytes.
    """
    folder = _installed_or_source("pullwright", _IN_REPOSITORY)
    files = [
        # A wheel does not always keep the executable bit.
        ActionFile(
            f"{_IN_REPOSITORY}/{path.name}",
            path.read_bytes(),
            is_executable=path.suffix == ".sh" or bool(path.stat().st_mode & stat.S_IXUSR),
        )
        for path in _files(folder)
    ]
    return [*files, ActionFile(f"{_IN_REPOSITORY}/{_ARCHIVE}", _archive())]


def _installed_or_source(installed: str, source: str) -> Path:
    """Return the path of a file in the installed package, or in the source tree."""
    inside = _PACKAGE / "_action" / installed
    return inside if inside.exists() else _PACKAGE.parent / source


def _archive() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for name, path in sorted(_program_files()):
            entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (stat.S_IFREG | _PLAIN) << 16
            archive.writestr(entry, path.read_bytes())
    return buffer.getvalue()


def _program_files() -> Iterator[tuple[str, Path]]:
    """Yield the files that the program needs to run from a folder, with their names in it."""
    for name in (_LOCK, _START):
        yield name, _installed_or_source(name, name)
    for path in _files(_PACKAGE):
        yield f"orchestrator/{path.relative_to(_PACKAGE).as_posix()}", path
    if not (_PACKAGE / "_prompts").is_dir():
        prompts = _PACKAGE.parent / "prompts"
        for path in _files(prompts):
            yield f"prompts/{path.relative_to(prompts).as_posix()}", path


def _files(folder: Path) -> list[Path]:
    return sorted(
        path
        for path in folder.rglob("*")
        if path.is_file() and not _SKIPPED.intersection(path.relative_to(folder).parts)
    )
