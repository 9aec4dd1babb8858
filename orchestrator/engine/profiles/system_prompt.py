"""The system prompt: collects facts about the session's working place, and joins the layers of the prompt."""

from __future__ import annotations

import functools
import os
import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.core.errors import SandboxMissingError, ToolError
from orchestrator.core.prompts import fenced, one_line, render
from orchestrator.engine.environments.base import HasHostView

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from orchestrator.core.clock import Clock
    from orchestrator.engine.environments.base import ExecutionEnvironment
    from orchestrator.engine.environments.local import HostView
    from orchestrator.engine.profiles.base import Profile


DOCUMENTS_BYTES = 32 * 1024
"""Size of all project documents together."""

COMMITS = 10
_TIMEOUT_MS = 5_000
_UNTRACKED = "??"
_HEX = r"((?: *[0-9a-f]{2})*) *"
_HERE = re.compile(rf"here {_HEX}")
_DOCUMENT = re.compile(rf"document ([0-9]+)\|{_HEX}\|(.+)")
_BRANCH = re.compile(r"branch (.+)", re.DOTALL)
_DETACHED = re.compile(r"detached ([0-9a-f]+)")
_COMMIT = re.compile(r"commit ([0-9a-f]+) (.*)", re.DOTALL)
_STATUS = re.compile(r"status +([0-9]+) (..)")
_BYTE_ORDER_MARK = "\ufeff"
_LONGEST_CHARACTER_BYTES = 4
"""Longest UTF-8 character.

This many more bytes are read, so that half a character at the end is never shown.
"""

_MOST_READ_BYTES = DOCUMENTS_BYTES + _LONGEST_CHARACTER_BYTES + 1


@dataclass(frozen=True, slots=True)
class ProjectDocument:
    """An instruction file of the project: its absolute path where commands run, and its shown text."""

    path: str
    text: str


@dataclass(frozen=True, slots=True)
class GitSnapshot:
    """The state of a repository when the session started.

    Attributes:
        branch: its name, `detached at <commit>`, or empty if unknown.
        modified: number of tracked files that differ from the last commit; None if unknown.
        untracked: number of files and folders that git neither tracks nor ignores; None if unknown.
        commits: short id and subject of the latest commits, newest first.
    """

    branch: str = ""
    modified: int | None = None
    untracked: int | None = None
    commits: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Orientation:
    """The folder, the machine, the date, the model, and the project's documents.

    Attributes:
        git: None if the folder is in no git repository.
        today: the date in UTC, `YYYY-MM-DD`.
        knowledge_cutoff: empty if unknown.
        documents: from the top folder down; if two disagree, the later one takes precedence.
        documents_cut: whether a part of them was omitted because of their size.
    """

    working_directory: str
    platform: str
    os_version: str
    today: str
    model_name: str
    knowledge_cutoff: str = ""
    git: GitSnapshot | None = None
    documents: tuple[ProjectDocument, ...] = ()
    documents_cut: bool = False


async def orient(  # noqa: PLR0913  keyword-only
    environment: ExecutionEnvironment,
    *,
    documents: Sequence[str],
    from_root: bool,
    clock: Clock,
    model_name: str,
    knowledge_cutoff: str = "",
) -> Orientation:
    """Collect the facts with one command that changes nothing and runs no program of the repository.

    In a sandbox, where commands see nothing above the folder, this program reads the documents itself and
    runs git outside of the sandbox. Elsewhere the command runs in the environment. What cannot be found out
    (no git, no POSIX shell, no sandbox, more than 5 s) is omitted.

    Args:
        documents: names of instruction files, relative to each folder on the path.
        from_root: whether the path begins at the root of the file system instead of the repository's.
        model_name: the model's name in the prompt.
    """
    view = environment.host_view() if isinstance(environment, HasHostView) else None
    lines = await _printed(
        environment, view, _command(documents if view is None else (), from_root=from_root)
    )
    if view is None:
        found = _documents_in(lines)
    else:
        found = await view.documents(documents, from_root=from_root, most_bytes=_MOST_READ_BYTES)
    shown, cut = within_budget(found)
    return Orientation(
        working_directory=environment.working_directory(),
        platform=environment.platform(),
        os_version=environment.os_version(),
        today=f"{clock.now():%Y-%m-%d}",
        model_name=model_name,
        knowledge_cutoff=knowledge_cutoff,
        git=_git(lines),
        documents=shown,
        documents_cut=cut,
    )


async def _printed(environment: ExecutionEnvironment, view: HostView | None, command: str) -> list[str]:
    """Return the lines that the command prints; none if it cannot run."""
    try:
        if view is None:
            text = (await environment.exec_command(command, timeout_ms=_TIMEOUT_MS)).stdout
        else:
            text = await view.git(command, _TIMEOUT_MS)
    except (ToolError, SandboxMissingError):
        return []
    # The text after the last line feed may be an incomplete line.
    return text.split("\n")[:-1]


def within_budget(
    documents: Iterable[tuple[str, bytes]], limit_bytes: int = DOCUMENTS_BYTES
) -> tuple[tuple[ProjectDocument, ...], bool]:
    """Return the documents' text in order, at most `limit_bytes` of UTF-8, and whether there was more.

    Bytes that are not UTF-8 become replacement characters, and no character is split.
    """
    shown = []
    left = limit_bytes
    for path, content in documents:
        text = content.decode(errors="replace").encode()
        if kept := text[:left].decode(errors="ignore").removeprefix(_BYTE_ORDER_MARK):
            shown.append(ProjectDocument(path, kept))
        if len(text) > left:
            return tuple(shown), True
        left -= len(text)
    return tuple(shown), False


def _command(documents: Sequence[str], *, from_root: bool) -> str:
    given = {
        "names": shlex.quote("\n".join(documents)),
        "from_root": int(from_root),
        "left": _MOST_READ_BYTES - 1,  # the script reads one byte more
        "commits": COMMITS,
    }
    return "".join(f"{name}={value}\n" for name, value in given.items()) + _script()


@functools.cache
def _script() -> str:
    return Path(__file__).with_name("orientation.sh").read_text(encoding="utf-8")


def _documents_in(lines: Sequence[str]) -> list[tuple[str, bytes]]:
    here = _facts(_HERE, lines)
    if not here:
        return []
    folder = bytes.fromhex(here[0][1])
    found = []
    for line in _facts(_DOCUMENT, lines):
        steps, content, name = int(line[1]), line[2], line[3]
        above = folder.rsplit(b"/", steps)[0] if steps else folder
        found.append((f"{os.fsdecode(above)}/{name}", bytes.fromhex(content)))
    return found


def _git(lines: Sequence[str]) -> GitSnapshot | None:
    if "repository 1" not in lines:
        return None
    branch = [line[1] for line in _facts(_BRANCH, lines)] + [
        f"detached at {line[1]}" for line in _facts(_DETACHED, lines)
    ]
    counts = [(line[2], int(line[1])) for line in _facts(_STATUS, lines)]
    known = "status done" in lines
    return GitSnapshot(
        branch=branch[0] if branch else "",
        modified=sum(count for kind, count in counts if kind != _UNTRACKED) if known else None,
        untracked=sum(count for kind, count in counts if kind == _UNTRACKED) if known else None,
        commits=tuple((line[1], line[2]) for line in _facts(_COMMIT, lines)),
    )


def _facts(fact: re.Pattern[str], lines: Sequence[str]) -> list[re.Match[str]]:
    return [match for line in lines if (match := fact.fullmatch(line))]


_SUBJECT_CHARS = 100
_FACT_CHARS = 1_000


def system_prompt(
    profile: Profile, *, contract_words: str, orientation: Orientation, user_instructions: str = ""
) -> str:
    """Join the layers of the prompt; a later one takes precedence. Equal values give equal bytes.

    Args:
        contract_words: the tools and the form of replies, as the contract describes them; may be empty.
        user_instructions: the user's wishes beyond the task; the last layer unless empty.
    """
    layers = [
        profile.base_prompt,
        _environment(orientation),
        contract_words,
        _documents(orientation),
        render("agent/user_instructions", instructions=said) if (said := user_instructions.strip()) else "",
    ]
    return "\n\n".join(layer for layer in layers if layer)


def _environment(orientation: Orientation) -> str:
    git, status = orientation.git, ""
    if git:
        is_known = git.modified is not None and git.untracked is not None
        status = f"{git.modified} modified, {git.untracked} untracked" if is_known else "unknown"
    facts = {
        "working_directory": orientation.working_directory,
        "is_git": "true" if git else "false",
        "branch": (git.branch or "unknown") if git else "none",
        "platform": orientation.platform,
        "os_version": orientation.os_version,
        "today": orientation.today,
        "model": orientation.model_name,
        "knowledge_cutoff": orientation.knowledge_cutoff or "unknown",
        "status": status,
    }
    commits = [
        f"{commit} {one_line(subject, limit=_SUBJECT_CHARS, keep='`')}"
        for commit, subject in (git.commits if git else ())
    ]
    return render(
        "agent/environment",
        **{name: one_line(fact, limit=_FACT_CHARS) for name, fact in facts.items()},
        git=git is not None,
        commits=fenced("\n".join(commits)) if commits else "",
    )


def _documents(orientation: Orientation) -> str:
    if not orientation.documents and not orientation.documents_cut:
        return ""
    shown = [
        {"path": one_line(document.path, limit=_FACT_CHARS), "block": fenced(document.text)}
        for document in orientation.documents
    ]
    return render("agent/project_documents", documents=shown, cut=orientation.documents_cut)
