"""Repositories in folders of this machine: create one, read one in place, and copy trees of its history."""

from __future__ import annotations

import os
import posixpath
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from orchestrator.bot.git.foreign import find_repository, refuse_special_files, settings_of
from orchestrator.bot.git.hostgit import HostGit, error_for, printable_line, storage_errors
from orchestrator.bot.git.objects import Trees, commit_at, commit_of, ls_tree
from orchestrator.bot.git.remote import alternates, is_commit_id, plain_branch
from orchestrator.bot.git.staging import diff
from orchestrator.core.addresses import without_credential
from orchestrator.core.errors import WorkspaceError
from orchestrator.core.watchdog import owner_variables

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping

    from orchestrator.bot.git.base import Identity
    from orchestrator.bot.git.foreign import FoundRepository
    from orchestrator.bot.git.hostgit import GitResult
    from orchestrator.bot.git.remote import Remote

_BRANCH = "main"
_ORIGIN_HEAD = "refs/remotes/origin/HEAD"
IdKind = Literal["sha1", "sha256"]
_SHA1_CHARACTERS = 40
_CONFIGURATIONS: dict[IdKind, str] = {
    "sha1": "[core]\n\trepositoryformatversion = 0\n\tbare = true\n",
    "sha256": "[core]\n\trepositoryformatversion = 1\n\tbare = true\n[extensions]\n\tobjectformat = sha256\n",
}


def id_kind(commit: str) -> IdKind:
    """Return the kind of an id, by its length."""
    return "sha256" if len(commit) > _SHA1_CHARACTERS else "sha1"


def make_bare(path: Path, kind: IdKind = "sha1") -> None:
    """Create an empty bare repository by hand: `git init` takes longer than most work in it.

    Required files: https://git-scm.com/docs/gitrepository-layout
    """
    for name in ("objects/pack", "refs/heads"):
        (path / name).mkdir(parents=True, exist_ok=True)
    (path / "config").write_text(_CONFIGURATIONS[kind], "ascii")
    # Last, because it shows that the rest is there.
    (path / "HEAD").write_text(f"ref: refs/heads/{_BRANCH}\n", "ascii")


def create_repository(path: Path, files: Mapping[str, str], message: str, identity: Identity) -> None:
    """Create a bare repository at `path` whose branch `main` contains these files.

    Args:
        path: its place; must not exist.
        files: text by relative path, which begins with no quote and contains no line end.
    """
    doing = f"cannot create a repository at {path}"
    # Format: https://git-scm.com/docs/git-fast-import
    who = f"{identity.name} <{identity.email}> now"
    stream = [f"commit refs/heads/{_BRANCH}\ncommitter {who}\n".encode(), _data(message)]
    for name, text in files.items():
        stream += [f"M 100644 inline {name}\n".encode(), _data(text)]
    with storage_errors(doing):
        path.mkdir(parents=True)
        make_bare(path)
        words = ("fast-import", "--quiet", "--date-format=now")
        HostGit(path, path).run(*words, doing=doing, stdin=b"".join(stream))


def _data(text: str) -> bytes:
    content = text.encode()
    return b"data %d\n%b\n" % (len(content), content)


_MOST_FILE_BYTES = 5_000_000


@dataclass(frozen=True, slots=True)
class Located:
    """The repository that contains a folder.

    Attributes:
        top: what is cloned: the top of the working tree, or the bare repository.
        home: the git directory, which all of its working trees share and no other repository has.
        origin: the address of its remote `origin`, without a credential; empty if there is none.
        is_repository: whether git found a repository.
        found: the repository's folders, if there is one.
    """

    top: Path
    home: Path
    origin: str = ""
    is_repository: bool = True
    found: FoundRepository | None = None


def locate(folder: Path) -> Located:
    """Find the repository of a folder as git does, upwards from inside a working tree, without git.

    A folder without a repository, or with one that git does not trust, is returned unchanged.

    Raises:
        WorkspaceError: git would wait for a file of the repository.
    """
    start = folder.resolve()
    refuse_special_files(start, upwards=True)
    found = find_repository(start, upwards=True)
    if found is None or not found.is_owned:
        return Located(start, start, is_repository=False)
    shared = found.common
    home = shared.parent if shared.name == ".git" else shared
    top = home if found.top == shared else found.top
    origin = dict(settings_of(found)).get("remote.origin.url", "")
    return Located(top, home, without_credential(origin), found=found)


class LocalRepository:
    """A bare repository or a work tree, which is only read. Its configuration and hooks do not apply.

    Raises:
        WorkspaceError: it is not a git repository, or it belongs to another user.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        folder = path.resolve()
        if not folder.is_dir():
            raise WorkspaceError(f"{path} is not a folder" if folder.exists() else f"{path} does not exist")
        refuse_special_files(folder)
        found = find_repository(folder)
        if found is None:
            raise WorkspaceError(
                f"{path} is not a git repository: name one, or make it one (git init, then a first commit)"
            )
        if not found.is_owned:
            raise WorkspaceError(
                f"{path} belongs to another user, so git does not trust it; run as its owner"
            )
        self._git = HostGit(folder, found.git_dir, foreign=found)
        self._git.require_program()
        self._doing = f"cannot read {path}"
        self._seen_heads: set[str] = set()
        # The folder of a commit from which the last file was read.
        self._listed: tuple[tuple[str, str], dict[str, list[str]]] = ("", ""), {}
        # The last file that was read: its id, and its text.
        self._last_read = "", ""

    @property
    def name(self) -> str:
        """The folder's name, without `.git`."""
        folder = self.path.resolve()
        return (folder.parent if folder.name == ".git" else folder).name.removesuffix(".git")

    def is_empty(self) -> bool:
        """Return whether no branch has a commit."""
        return not self._git.run("for-each-ref", "--count=1", "refs/heads", doing=self._doing)

    def default_branch(self) -> str | None:
        """Return the branch that work begins from, whatever is checked out; None if it is not known.

        It is what `origin` declared, if there is such a branch here, else the branch that is checked out; else, where HEAD
        names a branch without a commit, `main`, `master` or the only branch.
        """
        return self.heads()[0]

    def default_and_checkout(self) -> tuple[str | None, bool]:
        """Return the default branch, as `default_branch` does, and whether only its checkout makes it that."""
        declared, checked_out, commits = self._branches()
        default = self._default(declared, checked_out, commits)
        return default, default not in {declared, "main", "master", None}

    def heads(self) -> tuple[str | None, dict[str, str]]:
        """Return the default branch, as `default_branch` does, and the commit of each branch."""
        declared, checked_out, commits = self._branches()
        return self._default(declared, checked_out, commits), commits

    def _branches(self) -> tuple[str | None, str | None, dict[str, str]]:
        """Return the branch that `origin` declared as its default and still has, the one checked out, and all commits."""
        form = "--format=%(HEAD)%(objectname) %(refname) %(symref)"
        words = ("for-each-ref", form, "refs/heads", _ORIGIN_HEAD)
        listed = os.fsdecode(self._git.run(*words, doing=self._doing))
        declared, checked_out, commits = None, None, {}
        for line in listed.removesuffix("\n").split("\n") if listed else ():
            commit, reference, target = line[1:].split(" ")
            if not reference.startswith("refs/heads/"):
                declared = target.removeprefix("refs/remotes/origin/")
                continue
            branch = reference.removeprefix("refs/heads/")
            commits[branch] = commit
            if line.startswith("*"):
                checked_out = branch
        self._seen_heads.update(commits.values())
        return declared, checked_out, commits

    def _default(self, declared: str | None, checked_out: str | None, commits: dict[str, str]) -> str | None:
        if declared in commits:
            return declared
        if checked_out is None and commits:
            is_named = self._git.attempt("symbolic-ref", "--quiet", "HEAD", doing=self._doing).status == 0
            known: list[str] = [name for name in ("main", "master") if name in commits] or list(commits)
            return known[0] if is_named and (known[0] in {"main", "master"} or len(known) == 1) else None
        return checked_out

    def reviewed_commit(self) -> str | None:
        """Return the commit of the default branch, whatever branch is checked out; None if unknown.

        The default branch is what `origin` declared, else `main` or `master`, else the only branch.
        """
        found = self._git.attempt(
            *("rev-parse", "--verify", "--quiet", f"{_ORIGIN_HEAD}^{{commit}}"), doing=self._doing
        )
        if found.status == 0:
            return found.stdout.decode("ascii").strip()
        _, commits = self.heads()
        named = next((commits[name] for name in ("main", "master") if name in commits), None)
        return named or (next(iter(commits.values())) if len(commits) == 1 else None)

    def trees(self) -> Trees:
        """Return its trees, for reading."""
        return Trees(self._git)

    def history(self) -> RepositoryHistory:
        """Return its commits and trees, for reading and copying."""
        return RepositoryHistory(self._git)

    def change_of(self, commit: str, base: str) -> str:
        """Return what a commit changes since it left a branch, as a unified diff. Undecodable bytes become U+FFFD."""
        words = ("merge-base", commit, f"refs/heads/{plain_branch(base)}")
        start = self._git.run(*words, doing=self._doing).decode("ascii").strip()
        return diff(self._git, start, commit).decode("utf-8", "replace")

    def read_file(self, path: str, commit: str) -> str | None:
        """Return a file's text in a commit; None if the file does not exist. Undecodable bytes become U+FFFD.

        A file of more than 5 MB raises a `WorkspaceError`.
        """
        if not is_commit_id(commit):
            raise WorkspaceError(f"{self._doing}: {commit!r} is not the id of a commit")
        if posixpath.normpath(path) != path or path.startswith(("/", "../", "\0")):
            return None
        place = commit, posixpath.dirname(path)
        known, listed = self._listed
        if known != place:
            below = ("--", f"{place[1]}/") if place[1] else ()
            listed = dict(ls_tree(self._git, "-l", commit, *below, doing=self._doing))
            self._listed = place, listed
        if path not in listed or not listed[path][0].startswith("100"):
            return None
        _, _, blob, size = listed[path]
        if not size.isdecimal():  # git says `BAD`
            raise WorkspaceError(
                f"the content of {path} is not in {self.path}: the repository is partial or damaged"
            )
        if int(size) > _MOST_FILE_BYTES:
            raise WorkspaceError(f"{path} in {self.path} is larger than {_MOST_FILE_BYTES:,} bytes")
        read, text = self._last_read
        if read != blob:
            text = self._git.run("cat-file", "blob", blob, doing=self._doing).decode("utf-8", "replace")
            self._last_read = blob, text
        return text

    def merged(self, commits: Collection[str], into: str) -> frozenset[str]:
        """Return the commits that are part of the history of another, so that they were merged.

        A missing commit is not returned: its branch was removed, and git cleaned up.
        """
        asked = sorted(filter(is_commit_id, commits))
        if not self._seen_heads.issuperset(asked):
            asked = self._existing(asked)
        if not asked or not is_commit_id(into):
            return frozenset()
        found = self._outside(asked, into)
        if found.status != 0:  # a branch's former head was removed since, or `into` is missing
            asked = self._existing(asked)
            found = self._outside(asked, into)
        if found.status != 0:
            raise error_for(found.stderr, self._doing)
        return frozenset(asked).difference(found.stdout.decode("ascii").split())

    def _outside(self, commits: Collection[str], into: str) -> GitResult:
        """List the commits that are in the history of these, but not in that of `into`."""
        ends = "".join(f"{name}\n" for name in (*commits, f"^{into}")).encode("ascii")
        return self._git.attempt("rev-list", "--stdin", stdin=ends, doing=self._doing)

    def _existing(self, names: Collection[str]) -> list[str]:
        """Return the names that are existing commits."""
        if not names:
            return []
        asked = "".join(f"{name}\n" for name in names).encode("ascii")
        form = "--batch-check=%(objectname) %(objecttype)"
        told = self._git.run("cat-file", form, stdin=asked, doing=self._doing).decode("ascii")
        return [line.removesuffix(" commit") for line in told.splitlines() if line.endswith(" commit")]


_MERGE_SECONDS = 600.0
_SAID_LINES = 3


class _OwnGit:
    """The person's own git in their own repository: with their identity, configuration and hooks.

    It does what they would type. Everything else that this program does with a repository goes by `HostGit`.
    """

    def __init__(self, folder: Path, doing: str) -> None:
        self.folder, self._doing = folder, doing

    def run(self, *arguments: str) -> str:
        """Run git and return its output."""
        done = self.attempt(*arguments)
        if done.returncode != 0:
            raise self.refusal(done)
        return done.stdout.strip()

    def refusal(self, done: subprocess.CompletedProcess[str]) -> WorkspaceError:
        """Return the error for a git that failed, with the first lines of what it said."""
        said = done.stderr.strip() or done.stdout.strip() or f"git ended with status {done.returncode}"
        lines = [line.strip() for line in said.splitlines()[:_SAID_LINES]]
        return WorkspaceError(f"{self._doing}: {printable_line(' '.join(lines))}")

    def attempt(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run git, whatever status it ends with."""
        try:
            return subprocess.run(  # noqa: S603  the person's own git
                ["git", "-C", str(self.folder), *arguments],  # noqa: S607  the one on their path
                env={
                    **os.environ,
                    **owner_variables(),
                    "GIT_MERGE_AUTOEDIT": "no",
                    "GIT_TERMINAL_PROMPT": "0",
                },
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=_MERGE_SECONDS,
                check=False,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise WorkspaceError(f"{self._doing}: {error}") from None

    def checkout_of(self, branch: str) -> Path | None:
        """Return the folder in which a branch is checked out, or None."""
        folder: Path | None = None
        for line in self.run("worktree", "list", "--porcelain", "-z").split("\0"):
            if line.startswith("worktree "):
                folder = Path(line.removeprefix("worktree "))
            elif line == f"branch refs/heads/{branch}":
                return folder
        return None


def merge_branch(repository: Path, branch: str, *, commit: str, base: str, message: str) -> str:
    """Merge a branch into another one of a repository on this machine, remove it, and return the merge's commit.

    Where the base is checked out, its files are changed as by `git merge`, which refuses if changes that are not
    committed would be lost. Elsewhere no file is touched.

    Args:
        commit: what the branch must point to.

    Raises:
        WorkspaceError: the branch has changed, the two conflict, or git refused. Nothing was changed then.
    """
    doing = f"cannot merge {branch} into {base}"
    git = _OwnGit(repository, doing)
    if git.run("rev-parse", "--verify", f"refs/heads/{branch}") != commit:
        raise WorkspaceError(f"{doing}: somebody pushed to it meanwhile; look at it again")
    if git.attempt("var", "GIT_COMMITTER_IDENT").returncode != 0:
        raise WorkspaceError(
            f"{doing}: git does not know who you are: set it with git config user.name and git config user.email"
        )
    old = git.run("rev-parse", "--verify", f"refs/heads/{base}")
    folder = git.checkout_of(base)
    if folder is not None:
        there = _OwnGit(folder, doing)
        done = there.attempt("merge", "--no-ff", "--quiet", "-m", message, commit)
        if done.returncode != 0:
            if there.attempt("rev-parse", "--verify", "--quiet", "MERGE_HEAD").returncode == 0:
                there.attempt("merge", "--abort")
                raise WorkspaceError(f"{doing}: they conflict. By hand: git merge {branch}")
            raise there.refusal(done)
        merged = there.run("rev-parse", "HEAD")
    else:
        tree = git.attempt("merge-tree", "--write-tree", "--name-only", old, commit)
        if tree.returncode != 0:
            raise WorkspaceError(
                f"{doing}: they conflict. By hand: git checkout {base}, then git merge {branch}"
            )
        merged = git.run("commit-tree", tree.stdout.split()[0], "-p", old, "-p", commit, "-m", message)
        git.run("update-ref", "-m", message, f"refs/heads/{base}", merged, old)
    if git.checkout_of(branch) is None:
        git.attempt("update-ref", "-d", f"refs/heads/{branch}", commit)
    return merged


_READING = "cannot read the history"
_COPYING = "cannot copy a tree of the history"
_FETCHING = "cannot fetch the commits of a pull request"
_AT_ONCE = 200
_FETCH = (
    "fetch",
    "--quiet",
    "--no-tags",
    "--no-recurse-submodules",
    "--no-write-fetch-head",
    "--update-head-ok",
)
_COMMIT_FORM = "%H%x00%P%x00%cI%x00%B%x00%x1e"


@dataclass(frozen=True, slots=True)
class PastCommit:
    """A commit of the history. `when` is in ISO 8601; `message` is untrusted."""

    commit: str
    parents: tuple[str, ...]
    when: str
    message: str


class RepositoryHistory:
    """The commits and trees of a foreign repository, which is only read."""

    def __init__(self, git: HostGit) -> None:
        self.git = git.without_tree()

    def is_shallow(self) -> bool:
        """Return whether the repository has only the newest part of its history."""
        answer = self.git.run("rev-parse", "--is-shallow-repository", doing=_READING)
        return answer.strip() == b"true"

    def resolve(self, name: str) -> str:
        """Return the commit of a branch, a tag or an id."""
        return commit_at(self.git, name, doing=_READING)

    def commits(self, start: str, most: int) -> Iterator[PastCommit]:
        """Yield a commit and its ancestors, newest first, at most so many. Merges are left out."""
        for skipped in range(0, most, _AT_ONCE):
            options = (f"--skip={skipped}", f"--max-count={min(_AT_ONCE, most - skipped)}")
            words = ("log", "--no-merges", "--encoding=UTF-8", f"--format={_COMMIT_FORM}", *options)
            output = self.git.run(*words, start, "--", doing=_READING)
            entries = output.decode("utf-8", "replace").split("\0\x1e\n")[:-1]
            yield from map(_past_commit, entries)
            if len(entries) < _AT_ONCE:
                return

    def parents(self, commit: str) -> tuple[str, ...]:
        """Return the available parents of a commit."""
        found = self.git.run("rev-list", "--parents", "--max-count=1", commit, doing=_READING)
        return tuple(found.decode("ascii").split()[1:])

    def before(self, commit: str, count: int) -> str | None:
        """Return the ancestor so many first parents before a commit; None if it is not available."""
        words = ("rev-parse", "--verify", "--quiet", "--end-of-options", f"{commit}~{count}^{{commit}}")
        found = self.git.attempt(*words, doing=_READING)
        return found.stdout.decode("ascii").strip() if found.status == 0 else None

    def size_of_change(self, old: str, new: str) -> tuple[int, int, int]:
        """Count the changed files and the added and removed lines between two commits, as forges do."""
        output = self.git.run("diff-tree", "-r", "-M", "--numstat", "-z", old, new, doing=_READING)
        # `<added>TAB<removed>TAB<path>NUL`, of a renamed file `<added>TAB<removed>TABNUL<old>NUL<new>NUL`
        counts = [line.split(b"\t") for line in output.split(b"\0") if line.count(b"\t") >= 2]  # noqa: PLR2004  the same
        sums = [sum(int(one[place]) for one in counts if one[place].isdigit()) for place in (0, 1)]
        return len(counts), sums[0], sums[1]

    def copy_tree(self, tree: str, target: HostGit) -> None:
        """Copy a tree with its content into another repository, without commits or names."""
        named = self.git.run("rev-list", "--objects", "--no-object-names", tree, doing=_COPYING)
        if is_commit_id(tree) and not named:
            raise WorkspaceError(f"{_COPYING}: {tree} is empty")
        target.run(
            *("pack-objects", "--quiet", str(target.git_dir / "objects" / "pack" / "pack")),
            doing=_COPYING,
            stdin=named,
            variables=alternates([self.git.object_folder]),
        )

    def object_format(self) -> IdKind:
        """Return the hash algorithm of object ids."""
        shown = self.git.run("rev-parse", "--show-object-format", doing=_READING)
        return "sha256" if shown.strip() == b"sha256" else "sha1"


def _past_commit(entry: str) -> PastCommit:
    commit, parents, when, message = entry.split("\0", 3)
    return PastCommit(commit, tuple(parents.split()), when, message.strip())


def create_store(path: Path, kind: IdKind = "sha1") -> HostGit:
    """Create or open an empty bare repository without hooks, remotes or the user's configuration."""
    with storage_errors(f"cannot create a repository at {path}"):
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not (path / "HEAD").is_file():
            make_bare(path, kind)
    return HostGit(path, path)


def commit_tree(store: HostGit, tree: str, message: str) -> str:
    """Make a tree the only commit of a store's only branch, with neutral author and time."""
    commit = commit_of(store, tree, (), message)
    store.run("update-ref", f"refs/heads/{_BRANCH}", commit, doing=_COPYING)
    return commit


def fetch_commits(store: HostGit, remote: Remote, wanted: Mapping[str, int]) -> None:
    """Fetch commits by their ids into a store, each with so many ancestors."""
    for commit, depth in wanted.items():
        if not is_commit_id(commit):
            raise WorkspaceError(f"{_FETCHING}: {commit[:80]!r} is not the id of a commit")
        store.run(*_FETCH, f"--depth={depth + 1}", "--", remote.url, commit, doing=_FETCHING, remote=remote)


def fetch_branch(store: HostGit, remote: Remote, branch: str, most: int) -> str:
    """Fetch the newest commits of a branch into a store, and return the last one's id."""
    wanted = f"+refs/heads/{plain_branch(branch)}:refs/heads/{_BRANCH}"
    doing = f"cannot fetch the history of {remote.shown}"
    store.run(*_FETCH, f"--depth={most}", "--", remote.url, wanted, doing=doing, remote=remote)
    return RepositoryHistory(store).resolve(f"refs/heads/{_BRANCH}")
