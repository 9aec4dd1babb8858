"""Past changes of a repository as candidates for a backtest: commits, and merged pull requests with their issues.

The task of a pull request is the text of its issue at the time when the change was begun, without hints at the solution.
Functions that read or write commits raise `WorkspaceError` if git failed.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from orchestrator.bot.git.hostgit import HostGit
from orchestrator.bot.git.local import RepositoryHistory, commit_tree, create_store
from orchestrator.bot.git.objects import Trees, differences
from orchestrator.bot.policy.incoming import clean_name, clean_words
from orchestrator.core.changes import SUBMODULE_MODE
from orchestrator.core.errors import WorkspaceError
from orchestrator.core.prompts import fence_after

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
    from datetime import datetime
    from pathlib import Path

    from orchestrator.bot.forge.base import MergedPullRequest, PastForge, PastIssue
    from orchestrator.bot.verification.trees import TestFiles
    from orchestrator.core.changes import FileChange, FileVersion

MOST_TASK_CHARS = 12_000
_LEAST_CODE_CHARS = 15
"""Shorter lines of code, such as `return None`, may appear in any text, and are not hints."""
_LEAST_ID_DIGITS = 7
_MOST_LINES = 20_000
_PROSE = (".md", ".rst", ".txt", ".adoc", ".org")
_REMOVED = "(removed)"

_ADDRESS = re.compile(r"\bhttps?://([^\s<>()\[\]\"'`]++)")
_OF_CHANGE = re.compile(r".(?=/(?:pull|pulls|commit|commits|compare)/)")
_HEXADECIMAL = re.compile(rf"\b[0-9a-f]{{{_LEAST_ID_DIGITS},64}}\b")
_HUNK = re.compile(r"@@ -\d+(?:,\d+)? \+\d+(?:,\d+)? @@")
_PATCH = re.compile(r"(?:diff --git |Index: \S|--- (?:a/|\S+\t)|\+\+\+ (?:b/|\S+\t))")
_IN_PATCH = re.compile(
    r"[+\-\\]|@@ |diff |index |--- |\+\+\+ |(?:new|deleted) file mode|similarity |rename | "
)
_TRAILER = re.compile(
    r"(?:(?:co-authored|signed-off|reviewed|acked|tested|reported|assisted|suggested)-by|change-id|cc)[ \t]*:",
    re.IGNORECASE,
)
_CLOSES = re.compile(
    r"(?:close[sd]?|fix(?:e[sd])?|resolve[sd]?)(?:[ \t]*+:)?[ \t]++\S*#\d+[.,;]?", re.IGNORECASE
)
_MERGED = re.compile(r"(?<!\s)\s*\(#\d+\)\s*$")
"""GitHub's suffix to the title of a squashed pull request."""
_BULLET = re.compile(r"[ \t]*(?:[*+>-]|\d+[.)])?[ \t]*`*")


def is_prose(path: str) -> bool:
    """Return whether a file is documentation and not code, judged by its name."""
    return path.lower().endswith(_PROSE)


class Hint(StrEnum):
    """The kinds of hints that are removed from a text."""

    PATCH = "patch"
    LINK = "link"
    CODE = "line of the real change"
    FILE = "line about a changed file"
    TRAILER = "trailer"
    LATER = "text of a later time"


@dataclass(frozen=True, slots=True)
class RealChange:
    """The parts of a real change that could appear in the text of its task.

    Attributes:
        pull: number of its pull request; None without one.
        commits: ids of its commits.
        code: lines of code that it adds, stripped.
        paths: files of code that it changes.
    """

    pull: int | None
    commits: frozenset[str]
    code: frozenset[str]
    paths: frozenset[str]

    @classmethod
    def of(
        cls,
        changes: Iterable[FileChange],
        *,
        pull: int | None,
        commits: Iterable[str],
        tests: Collection[str],
    ) -> RealChange:
        """Collect the lines and paths of a change, without those of tests and documentation."""
        code: set[str] = set()
        paths: set[str] = set()
        for change in changes:
            if change.path in tests or is_prose(change.path):
                continue
            paths.add(change.path)
            code |= _lines(change.new) - _lines(change.old)
        wanted = {line for line in code if len(line) >= _LEAST_CODE_CHARS}
        return cls(pull, frozenset(commits), frozenset(sorted(wanted)[:_MOST_LINES]), frozenset(paths))


@dataclass(frozen=True, slots=True)
class TaskText:
    """A task as a person could have written it. `removed` counts the removed places, by kind of hint."""

    title: str
    body: str
    removed: Mapping[str, int] = field(default_factory=dict)

    @property
    def whole(self) -> str:
        """The title as the first line, then the rest."""
        return f"{self.title}\n\n{self.body}".strip()


def task_text(title: str, body: str, real: RealChange, *, is_commit: bool = False) -> TaskText:
    """Return the text of a task without patches, links to the real change, and lines that quote it.

    Args:
        is_commit: whether it is a commit message, which describes the solution: its trailers, and lines that
            begin with a file of the change, are removed as well.
    """
    removed: Counter[str] = Counter()
    title, count = _MERGED.subn("", clean_name(title).text)
    removed.update({Hint.LINK: count} if count else {})
    title = _without_references(title, real, removed).strip()
    text = _without_patches(clean_words(body.replace("\r\n", "\n")).text, removed)
    lines = []
    for line in text.split("\n"):
        kind = _hint_in(line, real, is_commit=is_commit)
        if kind:
            removed[kind] += 1
        else:
            lines.append(_without_references(line, real, removed))
    body = re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()
    return TaskText(title, body[:MOST_TASK_CHARS], dict(removed))


def _lines(version: FileVersion | None) -> set[str]:
    content = version.content if version else None
    if not content or b"\0" in content:
        return set()
    return {_plain(line) for line in content.decode("utf-8", "replace").split("\n")}


def _plain(text: str) -> str:
    return " ".join(text.split())


def _hint_in(line: str, real: RealChange, *, is_commit: bool) -> str:
    """Return why a line of the text must not be shown; empty if it may."""
    plain = _plain(line)
    if len(plain) >= _LEAST_CODE_CHARS and any(code in plain for code in real.code):
        return Hint.CODE
    if not is_commit:
        return ""
    if _TRAILER.match(plain):
        return Hint.TRAILER
    bullet = _BULLET.match(line)
    begins = line[bullet.end() :] if bullet else line
    return Hint.FILE if any(begins.startswith(path) for path in real.paths) else ""


def _without_references(line: str, real: RealChange, removed: Counter[str]) -> str:
    """Remove links to changes, and the number and ids of the real change, from a line."""

    def without_change(address: re.Match[str]) -> str:
        if not _OF_CHANGE.search(address[1]):
            return address[0]
        removed[Hint.LINK] += 1
        return _REMOVED

    line = _ADDRESS.sub(without_change, line)
    if real.pull is not None:
        line, count = re.subn(rf"(?<![\w/])(?:GH-|#){real.pull}\b", _REMOVED, line)
        removed.update({Hint.LINK: count} if count else {})
    line, count = _CLOSES.subn("", line)
    removed.update({Hint.LINK: count} if count else {})
    for found in set(_HEXADECIMAL.findall(line)):
        if any(commit.startswith(found) for commit in real.commits):
            line = line.replace(found, _REMOVED)
            removed[Hint.LINK] += 1
    return line


def _without_patches(text: str, removed: Counter[str]) -> str:
    """Remove everything that `git apply` or `patch` accepts, inside and outside of code blocks."""
    kept: list[str] = []
    block: list[str] = []
    fence = ""
    in_patch = False
    for line in text.split("\n"):
        before, fence = fence, fence_after(line, fence)
        if before or fence:
            block.append(line)
            in_patch = False
            if not fence:
                kept += _unless_patch(block, removed)
                block = []
        elif _PATCH.match(line) or _HUNK.match(line):
            removed[Hint.PATCH] += not in_patch
            in_patch = True
        elif not (in_patch and _IN_PATCH.match(line)):
            in_patch = False
            kept.append(line)
    return "\n".join(kept + _unless_patch(block, removed))


def _unless_patch(block: list[str], removed: Counter[str]) -> list[str]:
    """Return a block of code, or nothing if it is a patch."""
    named = bool(block) and block[0].strip().lstrip("`~ ").lower() in {"diff", "patch"}
    if named or any(_HUNK.match(line.lstrip()) or _PATCH.match(line.lstrip()) for line in block):
        removed[Hint.PATCH] += 1
        return []
    return block


_MOST_COMMITS = 50
"""Most commits of a pull request that GitHub lists."""
_MOST_COMMENT_CHARS = 2_000
MOST_LOOKED_AT = 2_000
"""Most commits of the history that are examined."""
_SHORT = 10
_MOST_TEXT_BYTES = 2_000_000


@dataclass(frozen=True, slots=True)
class PastChange:
    """A change that people made, with its task.

    Attributes:
        id: `commit-` with an abbreviated commit id, or `pull-` with a number.
        base: the commit before the change.
        head: the commit with the change.
        title, body: the task's text at the time when the change was begun; untrusted.
        when: date of the commit or the pull request.
        removed: number of texts that are left out because they are newer.
    """

    id: str
    base: str
    head: str
    title: str
    body: str
    when: str
    url: str = ""
    pull: int | None = None
    commits: tuple[str, ...] = ()
    removed: int = 0

    @property
    def is_commit(self) -> bool:
        """Whether its task is the commit's own message."""
        return self.pull is None


@dataclass(frozen=True, slots=True)
class UnfitChange:
    """A change that is not usable as a case, and why."""

    id: str
    title: str
    reason: str


def from_commits(history: RepositoryHistory, start: str, files: TestFiles) -> Iterator[PastChange]:
    """Yield the commits that change code and tests together, newest first."""
    for found in history.commits(start, MOST_LOOKED_AT):
        if len(found.parents) != 1:  # the first commit, the end of a shallow clone, or a merge
            continue
        paths = [one.path for one in differences(history.git, found.parents[0], found.commit)]
        tests = [path for path in paths if files.is_test(path)]
        if tests and any(not is_prose(path) for path in paths if path not in tests):
            title, _, body = found.message.partition("\n")
            yield PastChange(
                f"commit-{found.commit[:_SHORT]}",
                found.parents[0],
                found.commit,
                title.strip(),
                body.strip(),
                found.when,
                commits=(found.commit,),
            )


FetchCommits: TypeAlias = "Callable[[str, int], RepositoryHistory]"
"""Fetches a commit and so many ancestors into a history; `WorkspaceError` if the server has lost it, or is away."""


def from_pull_requests(
    forge: PastForge, fetch: FetchCommits, *, with_comments: bool
) -> Iterator[PastChange | UnfitChange]:
    """Yield the merged pull requests that closed an issue, newest first.

    Args:
        with_comments: whether the task includes comments on the issue by people with write permission.
    """
    for pull in forge.merged_pull_requests():
        if pull.issues:
            yield _change(pull, forge, fetch, with_comments=with_comments)


def _change(
    pull: MergedPullRequest, forge: PastForge, fetch: FetchCommits, *, with_comments: bool
) -> PastChange | UnfitChange:
    def unfit(reason: str) -> UnfitChange:
        return UnfitChange(f"pull-{pull.number}", pull.title, reason)

    issue = min(pull.issues, key=lambda one: one.created_at)
    if issue.created_at >= pull.began_at:
        return unfit("its issue is newer than its first commit")
    if pull.commit_count > _MOST_COMMITS:
        return unfit(f"it has more than {_MOST_COMMITS} commits")
    history = fetch(pull.merge_commit, pull.commit_count + 1)
    base = _base_of(pull, history)
    if base is None:
        return unfit("its commits on the base branch cannot be identified")
    title = forge.title_at(issue, pull.began_at)
    body, left_out = text_at(issue, title, pull, with_comments=with_comments)
    return PastChange(
        f"pull-{pull.number}",
        base,
        pull.merge_commit,
        title,
        body,
        pull.created_at.isoformat(),
        pull.url,
        pull.number,
        (*pull.commits, pull.merge_commit),
        left_out,
    )


def _base_of(pull: MergedPullRequest, history: RepositoryHistory) -> str | None:
    """Return the commit before a pull request on its base branch; None if unknown.

    A squashed pull request is one commit there, a rebased one as many as it has. The number of files and lines
    shows which of the two it is.
    """
    parents = history.parents(pull.merge_commit)
    if len(parents) != 1:
        return parents[0] if parents else None
    wanted = pull.files, pull.added, pull.removed
    found = []
    for back in sorted({1, pull.commit_count}):
        base = history.before(pull.merge_commit, back)
        if base is not None and history.size_of_change(base, pull.merge_commit) == wanted:
            found.append(base)
    return found[0] if len(found) == 1 else None


def text_at(issue: PastIssue, title: str, pull: MergedPullRequest, *, with_comments: bool) -> tuple[str, int]:
    """Return the text of an issue when its change was begun, without later comments and edits.

    Args:
        title: the title that it had then.

    Returns:
        The text, and how many texts are left out because they are, or may be, newer.
    """
    left_out = int(title != issue.title)
    body = body_at(issue, pull.began_at)
    if body is None:
        left_out += 1
        body = ""
    elif body != issue.body:
        left_out += 1
    parts = [body]
    for comment in issue.comments if with_comments else ():
        if not comment.is_writers:
            continue
        if (
            comment.created_at >= pull.created_at
            or (comment.edited_at or comment.created_at) >= pull.began_at
        ):
            left_out += 1
        else:
            parts.append(
                f"Comment by {comment.author or 'a deleted account'}:\n{comment.body[:_MOST_COMMENT_CHARS]}"
            )
    return "\n\n".join(filter(None, parts)), left_out


def body_at(issue: PastIssue, moment: datetime) -> str | None:
    """Return the body of an issue at a moment; None if unknown.

    GitHub's interface calls the record of an edit a diff, but in all samples it was the complete text. It is used
    only if the newest record equals the present body.
    """
    if issue.edited_at is None or issue.edited_at < moment:
        return issue.body
    versions = sorted(issue.versions, key=lambda one: one.at)
    earlier = [one.text for one in versions if one.at < moment]
    if not earlier or _plain(versions[-1].text) != _plain(issue.body):
        return None
    return earlier[-1]


@dataclass(frozen=True, slots=True)
class Case:
    """A past change as a task, separated from its history.

    Attributes:
        store: a git directory with these trees and no commit.
        base: the tree before the change.
        head: the tree with the change.
        tests: the tree before the change with the tests, settings and scripts of the change.
        given: the paths that `tests` takes from the change.
    """

    change: PastChange
    store: Path
    base: str
    head: str
    tests: str
    given: tuple[str, ...]
    text: TaskText

    @property
    def id(self) -> str:
        """The id of the change."""
        return self.change.id


def take_out(
    change: PastChange, history: RepositoryHistory, store: Path, files: TestFiles
) -> Case | UnfitChange:
    """Copy the trees of a change from the history into a store, and build its task."""

    def unfit(reason: str) -> UnfitChange:
        return UnfitChange(change.id, change.title, reason)

    source = Trees(history.git)
    base, head = source.tree_of(change.base), source.tree_of(change.head)
    if any(mode == SUBMODULE_MODE for tree in (base, head) for mode in source.entries(tree).values()):
        return unfit("it has a submodule, whose files are not in the repository")
    git = create_store(store, history.object_format())
    for tree in (base, head):
        history.copy_tree(tree, git)
    trees = Trees(git)
    changes = trees.changes(base, head)
    text_of = partial(trees.text, base, most_bytes=_MOST_TEXT_BYTES)
    given = files.restored(changes, trees.entries(base), text_of=text_of)
    written = [one for one in changes if one.path not in given]
    for one in written:
        if any(side and (side.content is None or b"\0" in side.content) for side in (one.old, one.new)):
            return unfit(f"it changes a file that is not text, or is too large: {one.path}")
    merged = {
        path: text
        for path, text in files.merged_sources(changes, with_old_code=True).items()
        if path not in given
    }
    if not written:
        return unfit("it changes only tests, settings and scripts")
    tests = trees.replaced(trees.mixed(base, head, set(given)), merged)
    real = RealChange.of(changes, pull=change.pull, commits=change.commits, tests=given)
    text = task_text(change.title, change.body, real, is_commit=change.is_commit)
    if change.removed:
        text = replace(text, removed={**text.removed, Hint.LATER: change.removed})
    if not text.title:
        return unfit("its title has only hints at the solution")
    return Case(change, store, base, head, tests, tuple(sorted({*given, *merged})), text)


_ONLY_COMMIT = "The code as it is"


def create_task_repository(case: Case, path: Path) -> HostGit:
    """Create a repository with one commit, the code before the change, and nothing else of the history."""
    store = RepositoryHistory(_git(case.store))
    repository = create_store(path, store.object_format())
    store.copy_tree(case.base, repository)
    commit_tree(repository, case.base, _ONLY_COMMIT)
    return repository


def copy_proposal(repository: Path, commit: str, store: Path) -> str:
    """Copy the tree that a try proposes into a store, and return its id."""
    history = RepositoryHistory(_git(repository))
    tree = Trees(history.git).tree_of(commit)
    history.copy_tree(tree, create_store(store))
    return tree


def patch_between(store: Path, old: str, new: str) -> str:
    """Return the diff of two trees of a store."""
    options = ("-r", "-p", "--no-renames", "--no-ext-diff", "--no-textconv", "--no-color")
    diff = _git(store).run("diff-tree", *options, old, new, doing="cannot show a change")
    return diff.decode("utf-8", "replace")


def _git(path: Path) -> HostGit:
    if not (path / "HEAD").is_file():
        raise WorkspaceError(f"{path} is not a git repository")
    return HostGit(path, path)
