"""Commits made by this program: it stages what was touched, path by path, and runs nothing of the clone's."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from orchestrator.core.errors import DiskFullError, WorkspaceError
from orchestrator.workspace.base import CommitOutcome
from orchestrator.workspace.failures import printable, storage_errors
from orchestrator.workspace.hostgit import decode_paths
from orchestrator.workspace.staging import COMMITTING, Stager

if TYPE_CHECKING:
    from pathlib import Path

    from orchestrator.core.clock import Clock
    from orchestrator.workspace.base import Identity, Screen
    from orchestrator.workspace.hostgit import HostGit
    from orchestrator.workspace.model_repository import ModelRepository

_MOST_MESSAGE_CHARACTERS = 20_000
_DEFAULT_MESSAGE = "Change files"
_NOT_KEPT = "the model's own commits are not kept as commits"
_DIFF = ("diff", "--no-ext-diff", "--no-textconv", "--no-color", "--no-renames")


class Committer:
    """The head of what is committed, and the ways to move it.

    Args:
        files: git on our objects and the work tree.
        base: the commit to begin with.
        identity: author and committer.
        clock: dates the commits.
        model: the repository in which the model may have made commits of its own, if it has one.

    Attributes:
        tip: the last commit made here, or the base.
    """

    def __init__(
        self,
        files: HostGit,
        base: str,
        identity: Identity,
        clock: Clock,
        model: ModelRepository | None,
    ) -> None:
        if files.git_dir is None or files.work_tree is None:
            raise WorkspaceError("a clone needs a git directory and a work tree")
        self.tip = base
        self._base = base
        self._git = files.without_tree()
        self._stager = Stager(files, files.work_tree)
        self._identity = identity
        self._clock = clock
        self._model = model
        self._tree = files.work_tree
        self._index = files.git_dir / "index"

    def changed_paths(self) -> set[str]:
        """See `Clone.changed_paths`."""
        self._require_tree()
        return self._stager.changed(self._index)

    def commit(
        self,
        touched: set[str],
        message: str,
        *,
        include_commands: bool,
        large_limit_bytes: int,
        screen: Screen,
    ) -> CommitOutcome:
        """See `Clone.commit`. Nothing changes here unless all of it succeeds."""
        self._require_tree()
        index = self._scratch_index("index.commit")
        notes: list[str] = []
        tip = self.tip
        if self._model is not None and include_commands:
            tip, index = self._with_model_commits(self._model, index, notes, large_limit_bytes, screen)
        left_out = self._stager.stage(
            index, touched, include_commands=include_commands, large_limit_bytes=large_limit_bytes
        )
        parent, tip = tip, self._commit_index(index, tip, message)
        if tip == self.tip:
            return CommitOutcome(None, [], left_out, notes)
        if held_back := self._secrets(parent, tip, screen):
            return CommitOutcome(None, [], left_out, notes, held_back)
        changed = ("diff-tree", "-r", "-z", "--name-only", "--no-renames", self.tip, tip)
        files = sorted(decode_paths(self._git.run(*changed, doing=COMMITTING)))
        with storage_errors(COMMITTING):
            index.replace(self._index)
        self.tip = tip
        if self._model is not None and include_commands:
            self._model.settle()
        return CommitOutcome(tip, files, left_out, notes)

    def diff(self) -> bytes:
        """See `Clone.diff`."""
        return self._diff(self._base, self.tip)

    def _diff(self, old: str, new: str) -> bytes:
        return self._git.run(*_DIFF, old, new, "--", doing="cannot make the diff")

    def _secrets(self, old: str, new: str, screen: Screen) -> list[str]:
        return [] if old == new else screen.find_secrets(self._diff(old, new).decode("utf-8", "replace"))

    def pending_patch(
        self, since: str, touched: set[str], *, include_commands: bool, large_limit_bytes: int
    ) -> bytes:
        """See `Clone.pending_patch`."""
        self._require_tree()
        index = self._scratch_index("index.patch")
        left_out = self._stager.stage(
            index, touched, include_commands=include_commands, large_limit_bytes=large_limit_bytes
        )
        names = "".join(f"# left out: {printable(item.path)}: {item.reason}\n" for item in left_out)
        return names.encode() + self._patch(since, self._write_tree(index))

    def _patch(self, old: str, new: str) -> bytes:
        return self._git.run(
            *_DIFF, "--binary", "--full-index", old, new, "--", doing="cannot make the patch"
        )

    def _require_tree(self) -> None:
        if self._tree.is_symlink() or not self._tree.is_dir():
            raise WorkspaceError("the clone's files are gone: something removed or replaced their folder")

    def _scratch_index(self, name: str) -> Path:
        """A copy of the index to work on, so that a failure leaves the index as it was."""
        scratch = self._index.with_name(name)
        with storage_errors(COMMITTING):
            scratch.with_name(f"{name}.lock").unlink(missing_ok=True)
            shutil.copyfile(self._index, scratch)
        return scratch

    def _with_model_commits(
        self,
        model: ModelRepository,
        index: Path,
        notes: list[str],
        large_limit_bytes: int,
        screen: Screen,
    ) -> tuple[str, Path]:
        """Make the model's new commits again on top of ours, or say why that is not possible."""
        replay = self._scratch_index("index.replay")
        tip = self.tip
        try:
            for made in model.new_commits(large_limit_bytes):
                self._stager.apply(made.index_lines, replay)
                parent, tip = tip, self._commit_index(replay, tip, screen.clean_message(made.message))
                # A later commit may have taken it out again; the history would still have it.
                if places := self._secrets(parent, tip, screen):
                    notes.append(f"{_NOT_KEPT}: one adds what looks like a secret, at {', '.join(places)}")
                    return self.tip, index
        except DiskFullError:
            raise
        except WorkspaceError as error:
            notes.append(f"{_NOT_KEPT}: {error}")
            return self.tip, index
        return tip, replay

    def _write_tree(self, index: Path) -> str:
        output = self._git.run("write-tree", doing=COMMITTING, variables={"GIT_INDEX_FILE": str(index)})
        return output.decode("ascii").strip()

    def _commit_index(self, index: Path, parent: str, message: str) -> str:
        """Commit the index on top of a commit; where there is no difference, the parent is the answer."""
        tree = self._write_tree(index)
        if tree == self._git.run("rev-parse", f"{parent}^{{tree}}", doing=COMMITTING).decode("ascii").strip():
            return parent
        text = message.replace("\0", "")[:_MOST_MESSAGE_CHARACTERS].strip() or _DEFAULT_MESSAGE
        date = f"@{int(self._clock.now().timestamp())} +0000"
        variables = {
            "GIT_AUTHOR_NAME": self._identity.name,
            "GIT_AUTHOR_EMAIL": self._identity.email,
            "GIT_AUTHOR_DATE": date,
            "GIT_COMMITTER_NAME": self._identity.name,
            "GIT_COMMITTER_EMAIL": self._identity.email,
            "GIT_COMMITTER_DATE": date,
        }
        stdin = f"{text}\n".encode("utf-8", "replace")
        made = self._git.run(
            "commit-tree", tree, "-p", parent, doing=COMMITTING, stdin=stdin, variables=variables
        )
        return made.decode("ascii").strip()
