"""A profile: the tools, the prompt and the defaults that suit a family of models.

Also the system prompt of a session, which is made of the profile's prompt and of facts about the session's place.
"""

from __future__ import annotations

import functools
import os
import re
import shlex
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from orchestrator.core.errors import SandboxMissingError, ToolError
from orchestrator.core.prompts import fenced, one_line, prompts_folder, render
from orchestrator.engine.environments.base import HasHostView

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from orchestrator.core.clock import Clock
    from orchestrator.core.messages import JsonObject, ToolDefinition, Usage
    from orchestrator.engine.environments.base import ExecutionEnvironment, HostView
    from orchestrator.engine.models.base import Model
    from orchestrator.engine.models.catalog import ModelFacts
    from orchestrator.engine.tools.registry import ToolRegistry

UNIVERSAL_DOCUMENT = "AGENTS.md"
OTHER_DOCUMENTS = (
    *("CLAUDE.md", ".cursorrules", ".github/copilot-instructions.md", "GEMINI.md"),
    *("AGENT.md", ".claude/CLAUDE.md", ".windsurfrules", ".clinerules", ".junie/guidelines.md"),
)
"""Instruction files of other programs: the first of them counts in a folder that has none of the profile's own."""
_RULE_FOLDERS = (
    *(".cursor/rules/", ".github/instructions/", ".claude/rules/", ".windsurf/rules/", ".clinerules/"),
    *(".roo/rules/", ".continue/rules/", ".kiro/steering/", ".amazonq/rules/", ".junie/rules/"),
)
"""Folders of other programs with several instruction files, which count together, after the single files."""
_RULE_ENDS = (".mdc", ".md")


ReplyPrice: TypeAlias = "Callable[[Usage], float | None]"
"""Returns the cost of a reply in USD, or None if the model's price is unknown."""

OtherModel: TypeAlias = "Callable[[str], tuple[Model, ReplyPrice]]"
"""Returns the model of this name at the same provider, and its price. May raise `ConfigurationError`."""


@dataclass(frozen=True, slots=True)
class Profile:
    """Tools and prompts for a family of models, independent of the protocol.

    Attributes:
        name: one of `profile_names()`.
        tools: all tools, dangerous ones included; the gate and the prompt omit those in safe mode. A host may
            add its own; of two tools with one name the later one is used.
        base_prompt: the first part of the system prompt: a text, or a function that makes it of the tools shown.
        documents: the project's instruction files to read, by path below a folder.
        documents_from_root: whether they are searched from the root of the file system, instead of only from
            the root of the git repository.
        command_timeout_ms: default time-out of a command; None uses the session's.
        supports_parallel_tool_calls: whether a reply may have several calls, which then run concurrently.
            Otherwise one call is requested, and several run one after the other.
        subagents: whether the session adds the tools for subagents.
        subagents_in_background: whether these are `subagent` and `subagent_status`, without further levels of
            subagents, instead of the tools that start and steer them.
        provider_options: see `Request.provider_options`.
        model: the model for which the profile was created; a session may use another one.
        supports_reasoning: whether that model accepts a reasoning effort; if not, none is sent to it.
        supports_streaming: whether it can stream replies; if not, whole replies are requested.
        supports_images: whether it reads images; if not, it gets a note in their place.
        context_window_size: tokens that it can read; None if unknown, so that no warning is given.
        is_brief: whether its models get only necessary information.
        only_reads: whether the session shows none of the tools that may change something (`Tool.changes`).
        has_role: whether its prompt explains how a task is done and proposed; if not, the bot adds that.
        max_output_tokens: the default limit of a reply; None leaves it to the server.
        temperature: the default temperature until a call has failed since the last change; None sends none.
        price: computes the cost of a reply of that model in USD; returns None if it is unknown.
        other_model: creates another model of the same provider by name, with its price; for subagents.
        knowledge_cutoff: the end of that model's knowledge, as its vendor words it; empty if unknown.
    """

    name: str
    tools: ToolRegistry
    base_prompt: str | Callable[[Sequence[ToolDefinition]], str]
    documents: tuple[str, ...] = (UNIVERSAL_DOCUMENT,)
    documents_from_root: bool = False
    command_timeout_ms: int | None = None
    supports_parallel_tool_calls: bool = True
    subagents: bool = False
    subagents_in_background: bool = False
    provider_options: Mapping[str, JsonObject] = field(default_factory=dict)
    model: Model | None = None
    supports_reasoning: bool = True
    supports_streaming: bool = True
    supports_images: bool = True
    context_window_size: int | None = None
    knowledge_cutoff: str = ""
    is_brief: bool = False
    only_reads: bool = False
    has_role: bool = False
    max_output_tokens: int | None = None
    temperature: float | None = None
    price: ReplyPrice | None = None
    other_model: OtherModel | None = None

    def for_model(self, model: Model | None, facts: ModelFacts | None = None) -> Profile:
        """Return a copy for a model and its known abilities."""
        if facts is None:
            return replace(self, model=model)
        return replace(
            self,
            model=model,
            supports_reasoning=facts.reasoning is not False,
            supports_streaming=facts.streaming,
            supports_images=facts.images,
            context_window_size=facts.known_window,
            knowledge_cutoff=facts.knowledge_cutoff,
        )

    def words(self, shown: Sequence[ToolDefinition]) -> str:
        """Return the first part of the system prompt for a model that is shown these tools."""
        return self.base_prompt if isinstance(self.base_prompt, str) else self.base_prompt(shown)

    def with_words(self, more: Callable[[frozenset[str]], str]) -> Profile:
        """Return a copy whose prompt goes on with the text that `more` makes of the names of the tools shown."""
        return replace(
            self,
            base_prompt=lambda shown: f"{self.words(shown)}\n\n{more(frozenset(one.name for one in shown))}",
        )

    def is_made_for(self, model: Model) -> bool:
        """Return whether the profile's data about its model applies to this model."""
        return self.model is None or self.model is model


def profile_names() -> tuple[str, ...]:
    """Return the names of all profiles."""
    return tuple(sorted(path.stem for path in (prompts_folder() / "profiles").glob("*.md")))


DOCUMENTS_BYTES = 32 * 1024
"""Size of all project documents together."""

COMMITS = 10
_TIMEOUT_MS = 5_000
_UNTRACKED = "??"
_HEX = r"((?: *[0-9a-f]{2})*) *"
_HERE = re.compile(rf"here {_HEX}")
_DOCUMENT = re.compile(rf"document ([0-9]{{1,4}})\|{_HEX}\|(.+)")
_BRANCH = re.compile(r"branch (.+)", re.DOTALL)
_DETACHED = re.compile(r"detached ([0-9a-f]+)")
_COMMIT = re.compile(r"commit ([0-9a-f]+) (.*)", re.DOTALL)
_STATUS = re.compile(r"status +([0-9]{1,9}) (..)")
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


def documents_in_rule_folders(paths: Iterable[str]) -> list[str]:
    """Return the names of files in other programs' folders of rules, each below the folder that it is about."""
    ending = (path for path in paths if path.endswith(_RULE_ENDS))
    starts = ((path, f"/{path}".rfind(f"/{folder}")) for path in ending for folder in _RULE_FOLDERS)
    return sorted({path[start:] for path, start in starts if start >= 0})


def counting_documents(paths: Iterable[str], documents: Sequence[str]) -> set[str]:
    """Return which of these paths are instruction files that count; none without names of documents.

    In each folder these are the files with the given names, or else the first one of `OTHER_DOCUMENTS`, or else those of
    one folder of rules.
    """
    paths = list(paths)
    rules = documents_in_rule_folders(paths)
    groups = [[name] for name in OTHER_DOCUMENTS] + [
        [name for name in rules if name.startswith(folder)] for folder in _RULE_FOLDERS
    ]
    names = dict.fromkeys((*documents, *OTHER_DOCUMENTS, *rules))
    ends = {name.rpartition("/")[2] for name in names}
    by_folder: dict[str, dict[str, str]] = {}
    for path in (path for path in paths if path.rpartition("/")[2] in ends):
        for name in names:
            if f"/{path}".endswith(f"/{name}"):
                by_folder.setdefault(path[: len(path) - len(name)], {})[name] = path
    found: set[str] = set()
    for there in by_folder.values() if documents else ():
        own = [there[name] for name in documents if name in there]
        found.update(
            own
            or next(filter(None, ([there[name] for name in group if name in there] for group in groups)), [])
        )
    return found


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
    names = tuple(dict.fromkeys((*documents, *OTHER_DOCUMENTS))) if documents else ()
    lines = await _printed(environment, view, _command(names if view is None else (), from_root=from_root))
    if view is None:
        found = _documents_in(lines)
    else:
        found = await view.documents(names, from_root=from_root, most_bytes=_MOST_READ_BYTES)
    counting = counting_documents([path for path, _ in found], documents)
    shown, cut = within_budget([(path, content) for path, content in found if path in counting])
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
    profile: Profile,
    *,
    shown: Sequence[ToolDefinition] = (),
    contract_words: str,
    orientation: Orientation,
    user_instructions: str = "",
) -> str:
    """Join the layers of the prompt; a later one takes precedence. Equal values give equal bytes.

    Args:
        shown: the tools that the model is shown.
        contract_words: the tools and the form of replies, as the contract describes them; may be empty.
        user_instructions: the user's wishes beyond the task; the last layer unless empty.
    """
    layers = [
        profile.words(shown),
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
