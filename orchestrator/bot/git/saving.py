"""Saving unfinished work of a clone on the remote, so that another run can go on with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.bot.git.base import LeftOut, Packed, SavedWork
from orchestrator.bot.git.failures import printable
from orchestrator.bot.git.objects import commit_of, differences, tree_of
from orchestrator.bot.git.remote import is_commit_id
from orchestrator.bot.git.staging import Stager, diff, held_paths
from orchestrator.bot.git.swap import Answer, Update, push_updates
from orchestrator.bot.git.wip import checked_pages, wip_message, wip_ref
from orchestrator.core.changes import FileChange
from orchestrator.core.errors import PushRejectedError, WorkspaceError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from datetime import datetime

    from orchestrator.bot.git.commit import Committer
    from orchestrator.bot.git.hostgit import HostGit
    from orchestrator.bot.git.remote import Remote
    from orchestrator.bot.git.swap import Fence

_DOING = "cannot save unfinished work"
_LARGE_BYTES = 1_000_000
# More than these are not looked at one by one: then no file is saved.
_MOST_SEARCHED = 1000
# GitHub takes no change to these, on any reference, from a token that may not edit workflows.
_WORKFLOWS = ".github/workflows/"


class Saver:
    """Makes two commits, the work and the record on top of it, and pushes them as one.

    Args:
        files: git on our objects and the work tree.
        committer: knows what was committed, and what would be.
        remote: where it goes.
    """

    def __init__(self, files: HostGit, committer: Committer, remote: Remote) -> None:
        if files.work_tree is None:
            raise WorkspaceError("a clone needs a git directory and a work tree")
        self._git = files.without_tree()
        self._committer = committer
        self._remote = remote
        self._stager = Stager(files, files.work_tree)

    def save(  # noqa: PLR0913  each is a fact of the save, given by name
        self,
        key: str,
        pages: Mapping[str, bytes],
        *,
        touched: set[str],
        include_commands: bool,
        expected: str | None,
        saved_at: datetime,
        stamp: str,
        find_secrets: Callable[[str], list[str]],
        lease: Fence | None,
    ) -> SavedWork:
        """See `Clone.save_wip`."""
        ref, pages = wip_ref(key), checked_pages(pages)
        if expected is not None and not is_commit_id(expected):
            message = f"{_DOING}: {printable(expected)!r} is not a commit id"
            raise WorkspaceError(message)
        tree, left_out = self._tree(touched, include_commands=include_commands, find_secrets=find_secrets)

        def push(tree: str, left_out: list[LeftOut]) -> SavedWork:
            work, start = self._work(key, tree), self._committer.start
            message = wip_message(key, work, start, saved_at, stamp)
            record = commit_of(self._git, self._pages(pages), [work or start], message)
            self._push(Update(ref, expected, record), lease)
            named = tuple(sorted(left_out, key=lambda item: item.path))
            return SavedWork(ref, record, work, named)

        try:
            return push(tree, left_out)
        except PushRejectedError as error:
            if "workflow" not in str(error).lower():
                raise
            fewer, workflows = self._without(
                tree, lambda path: "the token may not edit workflows" if path.startswith(_WORKFLOWS) else None
            )
            if not workflows:
                raise
            return push(fewer, left_out + workflows)

    def pack(
        self,
        key: str,
        *,
        touched: set[str],
        include_commands: bool,
        find_secrets: Callable[[str], list[str]],
        onto: str,
    ) -> Packed:
        """See `Clone.pack_wip`."""
        tree, _ = self._tree(touched, include_commands=include_commands, find_secrets=find_secrets)
        work = self._work(key, tree)
        if work is None:
            return Packed(None, self._committer.start, onto, b"")
        wanted = f"{work}\n^{onto}\n".encode("ascii")
        packed = self._git.run("pack-objects", "--revs", "--stdout", "-q", doing=_DOING, stdin=wanted)
        return Packed(work, self._committer.start, onto, packed)

    def _tree(
        self, touched: set[str], *, include_commands: bool, find_secrets: Callable[[str], list[str]]
    ) -> tuple[str, list[LeftOut]]:
        """What was changed since the base, without files that add a secret; and what is left out."""
        tree, left_out = self._committer.staged_tree(
            touched, include_commands=include_commands, large_limit_bytes=_LARGE_BYTES
        )
        tree, secret = self._without_secrets(tree, find_secrets)
        return tree, left_out + secret

    def _work(self, key: str, tree: str) -> str | None:
        start = self._committer.start
        if tree == tree_of(self._git, start):
            return None
        return commit_of(self._git, tree, [start], f"Unfinished work on {key}")

    def _without_secrets(
        self, tree: str, find_secrets: Callable[[str], list[str]]
    ) -> tuple[str, list[LeftOut]]:
        """The tree without the files that add a secret. Nothing of the work is left if that is not enough."""
        if not self._adds_secrets(tree, find_secrets):
            return tree, []
        left_out: list[LeftOut] = []
        if len(differences(self._git, self._committer.start, tree)) <= _MOST_SEARCHED:
            tree, left_out = self._without(
                tree,
                lambda path: "it holds a secret" if self._adds_secrets(tree, find_secrets, path) else None,
            )
            if not self._adds_secrets(tree, find_secrets):
                return tree, left_out
        empty, rest = self._without(tree, lambda _: "the change holds a secret")
        return empty, left_out + rest

    def _adds_secrets(self, tree: str, find_secrets: Callable[[str], list[str]], *paths: str) -> bool:
        made = diff(self._git, self._committer.start, tree, "--text", paths=paths)
        return bool(find_secrets(made.decode("utf-8", "replace")))

    def _without(self, tree: str, reason: Callable[[str], str | None]) -> tuple[str, list[LeftOut]]:
        """The tree with what the start has at some of the paths."""
        changed = differences(self._git, self._committer.start, tree)
        changes = [FileChange(difference.path, None, None) for difference in changed]
        out = held_paths(changes, lambda change: reason(change.path))
        if not out:
            return tree, []
        index = self._committer.index.with_name("index.wip")
        self._git.run("read-tree", tree, doing=_DOING, variables={"GIT_INDEX_FILE": str(index)})
        self._stager.restore([difference for difference in changed if difference.path in out], index)
        return self._stager.write_tree(index), [LeftOut(path, why) for path, why in sorted(out.items())]

    def _pages(self, pages: Mapping[str, bytes]) -> str:
        """A tree of the pages."""
        lines = []
        for name, content in sorted(pages.items()):
            made = self._git.run("hash-object", "-w", "--stdin", doing=_DOING, stdin=content)
            lines.append(f"100644 blob {made.decode('ascii').strip()}\t{name}\0")
        tree = self._git.run("mktree", "-z", doing=_DOING, stdin="".join(lines).encode("ascii"))
        return tree.decode("ascii").strip()

    def _push(self, update: Update, lease: Fence | None) -> None:
        """Push, and read back what is there."""
        try:
            self._push_once(update, lease)
        except PushRejectedError as error:
            # Where the server moves nothing backwards; the clone has the work until both are done.
            if update.old is None or "non-fast-forward" not in str(error):
                raise
            self._push_once(Update(update.ref, update.old, None), lease)
            self._push_once(Update(update.ref, None, update.new), lease)

    def _push_once(self, update: Update, lease: Fence | None) -> None:
        doing = f"{_DOING} at {update.ref} of {self._remote.shown}"
        if lease is not None:
            found = lease.push(self._git, update, doing=doing)
        else:
            pushed = push_updates(self._git, self._remote, [update], doing=doing)
            found = self._tip(update.ref, doing)
            if found != update.new and pushed.answer is not Answer.MOVED:
                raise pushed.error
        if found != update.new:
            message = f"{doing}: the remote holds {found or 'nothing'} instead of {update.new}"
            raise PushRejectedError(message)

    def _tip(self, ref: str, doing: str) -> str | None:
        output = self._git.run("ls-remote", "--", self._remote.url, ref, doing=doing, remote=self._remote)
        for line in output.decode("utf-8", "surrogateescape").splitlines():
            commit, _, name = line.partition("\t")
            if name == ref:
                return commit
        return None
