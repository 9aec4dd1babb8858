"""Past changes of a repository as candidates for a backtest: the task at that time, and the change."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from orchestrator.bot.evidence.task_text import Hint, RealChange, TaskText, is_prose, task_text
from orchestrator.bot.git.history import RepositoryHistory, commit_tree, create_store
from orchestrator.bot.git.hostgit import HostGit
from orchestrator.bot.git.objects import Trees, differences
from orchestrator.core.changes import SUBMODULE_MODE
from orchestrator.core.errors import WorkspaceError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from orchestrator.bot.verification.trees import TestFiles

MOST_LOOKED_AT = 2_000
"""Most commits of the history that are examined."""
_SHORT = 10
_MOST_TEXT_BYTES = 2_000_000


@dataclass(frozen=True, slots=True)
class PastChange:
    """A change that people made, with its task.

    Attributes:
        id: `commit-` with an abbreviated commit id, or `pull-` with a number.
        base: the commit before the change; `head` the one with it.
        title, body: the task's text when the change was begun; untrusted.
        removed: number of texts left out because they are newer.
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
    """A change that is not usable as a case, with the reason in words that end a sentence."""

    id: str
    title: str
    reason: str


def from_commits(history: RepositoryHistory, start: str, files: TestFiles) -> Iterator[PastChange]:
    """Yield the commits that change code and tests together, newest first.

    Raises:
        WorkspaceError: git failed.
    """
    for found in history.commits(start, MOST_LOOKED_AT):
        if len(found.parents) != 1:  # the first of all, or where a shallow clone ends
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


@dataclass(frozen=True, slots=True)
class Case:
    """A past change as a task, separated from its history.

    Attributes:
        store: a git directory with the trees below and no commit.
        base: the tree before the change; `head` the tree with it.
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
    """Copy the trees of a change from the history into a store, and build its task.

    Raises:
        WorkspaceError: git failed.
    """

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
            return unfit(f"it changes a file that is no text, or is too large: {one.path}")
    merged = {
        path: text
        for path, text in files.merged_sources(changes, with_old_code=True).items()
        if path not in given
    }
    if not written:
        return unfit("it changes nothing but tests, settings and scripts")
    tests = trees.replaced(trees.mixed(base, head, set(given)), merged)
    real = RealChange.of(changes, pull=change.pull, commits=change.commits, tests=given)
    text = task_text(change.title, change.body, real, is_commit=change.is_commit)
    if change.removed:
        text = TaskText(text.title, text.body, {**text.removed, Hint.LATER: change.removed})
    if not text.title:
        return unfit("nothing is left of its title without what would give the solution away")
    return Case(change, store, base, head, tests, tuple(sorted({*given, *merged})), text)


_ONLY_COMMIT = "The code as it is"


def create_task_repository(case: Case, path: Path) -> HostGit:
    """Create a repository with one commit: the code before the change. It contains nothing else of the history.

    Raises:
        WorkspaceError: git failed, or the repository contains something else.
    """
    store = RepositoryHistory(_git(case.store))
    made = create_store(path, store.object_format())
    store.copy_tree(case.base, made)
    commit_tree(made, case.base, _ONLY_COMMIT)
    return made


def copy_proposal(repository: Path, commit: str, store: Path) -> str:
    """Copy the tree that a try proposes into a store, and return its id.

    Raises:
        WorkspaceError: git failed.
    """
    history = RepositoryHistory(_git(repository))
    tree = Trees(history.git).tree_of(commit)
    history.copy_tree(tree, create_store(store))
    return tree


def patch_between(store: Path, old: str, new: str) -> str:
    """Return the diff of two trees of a store.

    Raises:
        WorkspaceError: git failed.
    """
    words = (
        "diff-tree",
        "-r",
        "-p",
        "--no-renames",
        "--no-ext-diff",
        "--no-textconv",
        "--no-color",
        old,
        new,
    )
    return _git(store).run(*words, doing="cannot show a change").decode("utf-8", "replace")


def _git(path: Path) -> HostGit:
    if not (path / "HEAD").is_file():
        raise WorkspaceError(f"{path} is no repository")
    return HostGit(path, path)
