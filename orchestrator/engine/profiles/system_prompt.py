"""The system prompt: what a session finds out about the place where it works, and the layers put together."""

from __future__ import annotations

import functools
import os
import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.core.errors import SandboxMissingError, ToolError
from orchestrator.core.fence import fenced, one_line
from orchestrator.core.prompts import render
from orchestrator.engine.environments.host_view import HasHostView

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from orchestrator.core.clock import Clock
    from orchestrator.engine.environments.base import ExecutionEnvironment
    from orchestrator.engine.environments.host_view import HostView
    from orchestrator.engine.profiles.base import Profile


DOCUMENTS_BYTES = 32 * 1024
"""Of all project documents together."""

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
"""Of UTF-8. So much more is read, so that what may be half a character at the end is never shown."""

_MOST_READ_BYTES = DOCUMENTS_BYTES + _LONGEST_CHARACTER_BYTES + 1


@dataclass(frozen=True, slots=True)
class ProjectDocument:
    """An instruction file of the project: its absolute path where commands run, and as much as is shown of it."""

    path: str
    text: str


@dataclass(frozen=True, slots=True)
class GitSnapshot:
    """A repository as it was when the session started.

    Attributes:
        branch: its name, `detached at <commit>`, or empty where it is unknown.
        modified: how many tracked files differ from the last commit, None if unknown.
        untracked: how many files and folders git does not know and does not ignore, None if unknown.
        commits: short id and subject of the latest, newest first.
    """

    branch: str = ""
    modified: int | None = None
    untracked: int | None = None
    commits: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Orientation:
    """The folder, the machine, the day, the model, and the project's documents.

    Attributes:
        git: None where the folder is in no git repository.
        today: the date in UTC, `YYYY-MM-DD`.
        knowledge_cutoff: empty if unknown.
        documents: from the top folder down; of two that disagree the later one counts.
        documents_cut: something of them was left out, for their size.
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


async def orient(  # noqa: PLR0913  each is a fact of its own, given by name
    environment: ExecutionEnvironment,
    *,
    documents: Sequence[str],
    from_root: bool,
    clock: Clock,
    model_name: str,
    knowledge_cutoff: str = "",
) -> Orientation:
    """Look around, with one command that changes nothing and runs nothing of the repository's.

    Where commands run in a sandbox, which shows them nothing above the folder, this program reads the
    documents itself and asks git outside of it; anywhere else the command is one of the environment's.
    What cannot be found out (no git, no POSIX shell, no sandbox, no time left after 5 s) is left out.

    Args:
        documents: names of instruction files, relative to each folder on the way down.
        from_root: the way begins at the root of the file system instead of that of the repository.
        model_name: what the model is told of its own name.
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
    """The lines that the command prints, none where it cannot be run."""
    try:
        if view is None:
            text = (await environment.exec_command(command, timeout_ms=_TIMEOUT_MS)).stdout
        else:
            text = await view.git(command, _TIMEOUT_MS)
    except (ToolError, SandboxMissingError):
        return []
    # What comes after the last line feed may be the beginning of a line that was cut off.
    return text.split("\n")[:-1]


def within_budget(
    documents: Iterable[tuple[str, bytes]], limit_bytes: int = DOCUMENTS_BYTES
) -> tuple[tuple[ProjectDocument, ...], bool]:
    """The beginning of the documents' text, in order, at most so many bytes of UTF-8; and whether more was there.

    Bytes that are no UTF-8 are shown as replacement characters, and no character is cut in two.
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
        "left": _MOST_READ_BYTES - 1,  # it reads one byte more
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
    profile: Profile, *, contract_words: str, orientation: Orientation | None, user_instructions: str = ""
) -> str:
    """The same bytes for the same values: nothing in it changes while a session runs.

    Args:
        profile: its base prompt comes first.
        contract_words: the tools and the form of replies, as the contract describes them; may be empty.
        orientation: the environment, git and the project's documents; None leaves them out.
        user_instructions: what the user wants beyond the task; comes last, if it says anything.
    """
    layers = [
        profile.base_prompt,
        _environment(orientation) if orientation else "",
        contract_words,
        _documents(orientation) if orientation else "",
        render("agent/user_instructions", instructions=said) if (said := user_instructions.strip()) else "",
    ]
    return "\n\n".join(layer for layer in layers if layer)


def _environment(orientation: Orientation) -> str:
    git = orientation.git
    facts = {
        "working_directory": orientation.working_directory,
        "is_git": "true" if git else "false",
        "branch": (git.branch or "unknown") if git else "none",
        "platform": orientation.platform,
        "os_version": orientation.os_version,
        "today": orientation.today,
        "model": orientation.model_name,
        "knowledge_cutoff": orientation.knowledge_cutoff or "unknown",
        "status": _status(git),
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


def _status(git: GitSnapshot | None) -> str:
    if git is None:
        return ""
    if git.modified is None or git.untracked is None:
        return "unknown"
    return f"{git.modified} modified, {git.untracked} untracked"


def _documents(orientation: Orientation) -> str:
    if not orientation.documents and not orientation.documents_cut:
        return ""
    shown = [
        {"path": one_line(document.path, limit=_FACT_CHARS), "block": fenced(document.text)}
        for document in orientation.documents
    ]
    return render("agent/project_documents", documents=shown, cut=orientation.documents_cut)
