"""Remotes: accepted addresses, credentials of servers, and compare-and-swap pushes of refs."""

from __future__ import annotations

import enum
import os
import re
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol
from urllib.parse import quote, urlsplit

from orchestrator.bot.git.hostgit import error_for, printable_line, server_words
from orchestrator.core.addresses import holds_credential
from orchestrator.core.confined import ConfinedFolder
from orchestrator.core.errors import (
    ForgeError,
    ForgeRateLimitError,
    ForgeUnavailableError,
    PushRefusedError,
    PushRejectedError,
    RemoteRateLimitError,
    RemoteRefusedError,
    RemoteUnavailableError,
    WorkspaceError,
)
from orchestrator.core.repositories import is_branch_name, is_task_key

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from orchestrator.bot.git.hostgit import GitResult, HostGit
    from orchestrator.core.redaction import Credential

_MOST_SHOWN = 100
_MOST_HEAD_BYTES = 4_096
_COMMIT = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")


def is_commit_id(text: str) -> bool:
    """Return whether the text is a full object id, SHA-1 or SHA-256."""
    return _COMMIT.fullmatch(text) is not None


def listed_refs(output: bytes) -> dict[str, str]:
    """Return the refs in the output of `git ls-remote`, each with its commit; without targets of tags (`^{}`)."""
    found = {}
    # Not `splitlines`: a branch's name may contain characters that end a line in Unicode.
    for line in os.fsdecode(output).split("\n"):
        commit, _, name = line.partition("\t")
        if _COMMIT.fullmatch(commit) and not name.endswith("^{}"):
            found[name] = commit
    return found


def in_the_way(name: str, there: Collection[str], *, below: bool = True) -> str | None:
    """Return the ref that prevents one of this name, or None.

    Git keeps refs as files, so `a` and `a/b` exclude each other; on some servers `A` and `a` do, too.

    Args:
        name: a full name.
        there: full names of the existing refs. `name` itself does not count.
        below: whether refs below `name` count too.
    """
    folded = name.casefold()
    above = {folded[:at] for at, letter in enumerate(folded) if letter == "/"}
    for one in there:
        other = one.casefold()
        if one == name:
            continue
        if other == folded or other in above or (below and other.startswith(f"{folded}/")):
            return one
    return None


def plain_branch(text: str) -> str:
    """Return the name if it is valid for a branch. Raise `WorkspaceError` if it is not."""
    if not is_branch_name(text):
        raise WorkspaceError(f"{printable_line(text)!r} cannot be the name of a branch")
    return text


def plain_key(text: str) -> str:
    """Return the text if it is a valid task key, which is the last part of its refs' names."""
    if not is_task_key(text):
        raise WorkspaceError(
            f"{printable_line(text)[:_MOST_SHOWN]!r} is not the key of a task, such as issue-12"
        )
    return text


_SCHEMES = ("file", "http", "https", "ssh")

# `user@host:path`, git's short form for ssh: no slash before the first colon.
_SHORT_SSH = re.compile(r"(?:[\w.-]+@)?[\w.-]+:(?!:)[^\0]+")


@dataclass(frozen=True, slots=True)
class Remote:
    """A validated address of a repository.

    Attributes:
        url: the address for git; never contains a password.
        shown: the address in messages.
        scheme: one of `file`, `http`, `https`, `ssh`.
        authority: `host` or `host:port` of an http(s) URL, else empty.
        credential: called at each use; may raise `ForgeError`.
        folder: the path of a local repository, else None.
        cancelled: polled while a command contacts the remote; True ends the command.
    """

    url: str
    shown: str
    scheme: str
    authority: str
    credential: Callable[[], Credential | None]
    folder: Path | None = None
    cancelled: Callable[[], bool] = lambda: False

    def has_detached_head(self) -> bool:
        """Return whether a local repository's HEAD is a commit and not a branch.

        `git clone` would silently use any branch at the same commit instead.
        """
        if self.folder is None:
            return False
        with suppress(OSError), ConfinedFolder(self.folder) as folder:
            for head in (".git/HEAD", "HEAD"):
                if folder.is_file(head):
                    content = folder.beginning(head, _MOST_HEAD_BYTES)
                    return is_commit_id(content.decode("ascii", "replace").strip())
        return False

    def current_credential(self) -> Credential | None:
        """Return the present credential, if it is for this server; only http(s) uses one.

        Raises:
            RemoteRefusedError: the forge gives none any more: an app was removed or suspended, its key replaced.
            RemoteUnavailableError: the forge gives none now.
        """
        try:
            credential = self.credential()
        except (ForgeRateLimitError, ForgeUnavailableError) as error:
            raise RemoteUnavailableError(str(error)) from error
        except ForgeError as error:
            raise RemoteRefusedError(str(error)) from error
        return credential if credential is not None and credential.suits(self.authority) else None

    def variables(self, credential: Credential, helper: Path) -> dict[str, str]:
        """Return the environment of one git command that may send this credential to this server."""
        text = credential.username + credential.password
        if any(ord(letter) < 32 or ord(letter) == 127 for letter in text):  # noqa: PLR2004  ASCII control
            raise WorkspaceError(
                f"the credential for {credential.host} contains a control character, such as a line break"
            )
        # The wording of both questions: https://github.com/git/git/blob/master/credential.c
        user = quote(credential.username, safe="")
        return {
            "GIT_ASKPASS": str(helper),
            "PULLWRIGHT_GIT_ASKS_USERNAME": f"Username for '{self.scheme}://{self.authority}': ",
            "PULLWRIGHT_GIT_ASKS_PASSWORD": f"Password for '{self.scheme}://{user}@{self.authority}': ",
            "PULLWRIGHT_GIT_USERNAME": credential.username,
            "PULLWRIGHT_GIT_PASSWORD": credential.password,
        }


def parse_remote(text: str, credential: Callable[[], Credential | None]) -> Remote:
    """Validate an address: a URL, `user@host:path`, or a local path.

    Raises:
        WorkspaceError: the scheme is not accepted, the URL has a password, or the path does not exist.
    """
    if not text or any(ord(letter) < 32 for letter in text):  # noqa: PLR2004  ASCII control characters
        raise WorkspaceError(f"{text!r} is not the address of a repository")
    if "://" in text:
        return _from_url(text, credential)
    if not Path(text).exists() and _SHORT_SSH.fullmatch(text) and not text.startswith("-"):
        return Remote(text, text, "ssh", "", credential)
    return _from_path(text, Path(text), credential)


def _from_url(text: str, credential: Callable[[], Credential | None]) -> Remote:
    try:
        parts = urlsplit(text)
    except ValueError:
        parts = urlsplit("")
    scheme = parts.scheme.lower()
    if scheme not in _SCHEMES:
        raise WorkspaceError(
            f"the address begins with {text.partition('://')[0]!r}; use https, http, ssh, file or a path"
        )
    if scheme == "file":
        from urllib.request import url2pathname

        return _from_path(text, Path(url2pathname(parts.path)), credential)
    if scheme == "ssh":
        if holds_credential(text):
            raise WorkspaceError("the address holds a password; leave it out and use an ssh key")
        return Remote(text, text, scheme, "", credential)
    if holds_credential(text):
        raise WorkspaceError(
            "the address holds a user name or a token; leave it out and set the token instead"
        )
    if not parts.netloc:
        raise WorkspaceError(f"{text!r} names no server")
    return Remote(text, text, scheme, parts.netloc, credential)


def _from_path(text: str, path: Path, credential: Callable[[], Credential | None]) -> Remote:
    if not path.exists():
        raise WorkspaceError(f"{text} does not exist")
    # A file URL and not the path: git takes a plain path as a wish for a full copy and ignores the depth.
    return Remote(path.resolve().as_uri(), text, "file", "", credential, path.resolve())


HIDDEN = "refs/pullwright/"
"""Prefix of the refs that only this program uses."""

# Pauses after a temporary failure. They are short, because a claim is held meanwhile, or others want it.
PAUSES_SECONDS = (0.5, 1.0, 2.0, 4.0, 8.0)

# `!<TAB>from:to<TAB>[remote rejected] (reason)`, see "OUTPUT" in https://git-scm.com/docs/git-push
_REJECTED = re.compile(
    r"^!\t[^\t:\n]*+:?(?P<ref>[^\t\n]*)\t\[(?P<kind>[^\]\n]*)\](?: \((?P<reason>.*)\))?", re.MULTILINE
)

NOT_ATOMIC = "does not support --atomic push"
"""Git's words for a server that cannot move two refs together."""

_STALE = "stale info"

# A server's reasons while another push moves the same ref, or after it did. `atomic push failed` and `atomic push
# failure` are given for every ref of a push in which another one was refused.
_RACED = re.compile(
    r"stale info|fail(?:ed|ure) to (?:update|lock|delete)|cannot lock|unable to (?:lock|create)|\.lock\b"
    r"|transaction|atomic push fail|already exists|incorrect old value|is at [0-9a-f]+ but expected|fetch first",
    re.IGNORECASE,
)

# The reasons of servers that do not allow names like ours: git's own `receive.hideRefs`, Gerrit's access rules, others.
_NAME_REFUSED = re.compile(
    r"hidden ref|funny refname|prohibited|not permitted|not allowed|namespace", re.IGNORECASE
)

_HOOK_REFUSED = "hook declined"

# A server judges what it was given: git's hooks, and GitHub's rules.
_JUDGED = re.compile(r"hook declined|push declined|rule violation", re.IGNORECASE)

# What servers say of files and messages, which another change can have otherwise.
_OF_CONTENT = re.compile(
    r"secret|too large|larger than|large files?\b|file size|exceeds|commit message|message footer|change-id"
    r"|signed-off-by|file ?(?:name|path|extension)s?\b|path length|prohibited by the pattern|matches? a forbidden"
    r"|whitespace|conflict marker|malware|virus|lint|syntax",
    re.IGNORECASE,
)

# What they say of the account, the identity in a commit, the name of the branch, or the repository.
_OF_PERSON = re.compile(
    r"signature|must be signed|is not signed|gpg|e-?mail|committer|author\b|protected branch|branch name|permission"
    r"|denied|not allowed|not permitted|not authori[sz]ed|pull request|merge request|restricted|quota|storage|read.?only"
    r"|locked|disabled|expired",
    re.IGNORECASE,
)

# The server or the connection failed before the result was reported.
_NO_RESULT = re.compile(r"internal server error|failed to report status|time-?out|timed out", re.IGNORECASE)


class PushAnswer(enum.Enum):
    """The result of a push."""

    MOVED = "moved"
    STALE = "stale"
    """A ref was not where it was expected. Git noticed that before it sent anything."""
    RACED = "raced"
    """The server reports that a ref moved or is being moved: read it again."""
    REFUSED = "refused"
    """The server refuses the push, and will refuse it later."""
    NOT_ATOMIC = "not atomic"
    """The server does not support atomic pushes; nothing was changed."""
    UNKNOWN = "unknown"
    """No answer: the push may have arrived, or may do so later."""


@dataclass(frozen=True, slots=True)
class Update:
    """A ref of a remote with its expected and its new commit. None means that it does not exist."""

    ref: str
    old: str | None
    new: str | None


class Fence(Protocol):
    """Moves a ref only while a claim is held. The lease of `bot/coordination` implements it."""

    def push(self, git: HostGit, update: Update, *, doing: str, base: str | None = None) -> str | None:
        """Move the ref in the same push as the claim, and read back the remote's commit.

        Args:
            base: the commit of the base on which a branch stands; the claim records it.

        Raises:
            ClaimLostError: somebody else moved the claim.
            PushRejectedError: the ref is not where it was expected, or the server refused.
            RemoteUnavailableError: no answer, after several attempts.
        """


@dataclass(frozen=True, slots=True)
class Pushed:
    """The result of a push. `error` says why, unless it is MOVED."""

    answer: PushAnswer
    error: WorkspaceError

    def require_possible(self) -> None:
        """Raise the error if another attempt is useless."""
        if self.answer is PushAnswer.REFUSED:
            raise self.error


class RetrySchedule:
    """A retry schedule with growing pauses and a limited number of attempts.

    Args:
        sleep: waits that many seconds; may raise to interrupt.
    """

    def __init__(self, sleep: Callable[[float], None]) -> None:
        self._sleep = sleep
        self._left = list(PAUSES_SECONDS)
        self._waited_for: WorkspaceError | None = None

    def before_looking(self, error: WorkspaceError) -> None:
        """Pause before reading back the result of a push, if the remote asks for it; then `wait` does not."""
        if isinstance(error, RemoteRateLimitError):
            self.wait(error)
            self._waited_for = error

    def wait(self, error: WorkspaceError) -> None:
        """Pause before the next attempt, as long as the server asks, or raise the error of the last one."""
        if error is self._waited_for:
            return
        if not self._left:
            raise error
        pause = self._left.pop(0)
        try:
            self._sleep(max(pause, error.seconds) if isinstance(error, RemoteRateLimitError) else pause)
        except RemoteUnavailableError as interrupted:
            # The reason of the wait is more useful than the reason of its end.
            raise error if isinstance(error, RemoteUnavailableError) else interrupted from interrupted


def push_updates(
    git: HostGit, remote: Remote, updates: Sequence[Update], *, doing: str, objects: Iterable[Path] = ()
) -> Pushed:
    """Move refs, all or none, each only if it is at the expected commit.

    Git compares nothing for a ref that would stay where it is: each must move.

    Args:
        updates: at least one, with validated names.
        objects: folders with further objects, such as `Records.objects`.
    """
    atomic = ("--atomic",) if len(updates) > 1 else ()
    result = git.attempt(
        *("push", "--porcelain", "--no-verify", "--no-follow-tags", "--recurse-submodules=no", *atomic),
        *(f"--force-with-lease={update.ref}:{update.old or ''}" for update in updates),
        *("--", remote.url),
        *(f"{update.new or ''}:{update.ref}" for update in updates),
        doing=doing,
        variables=alternates(objects),
        remote=remote,
    )
    return _judge(result, doing)


def alternates(objects: Iterable[Path]) -> Mapping[str, str]:
    """Return the variable that gives git access to the objects of other folders.

    Format: GIT_ALTERNATE_OBJECT_DIRECTORIES in https://git-scm.com/docs/git#_the_git_repository
    """
    quoted = ['"' + str(path).replace("\\", "\\\\").replace('"', '\\"') + '"' for path in objects]
    return {"GIT_ALTERNATE_OBJECT_DIRECTORIES": os.pathsep.join(quoted)} if quoted else {}


def _judge(result: GitResult, doing: str) -> Pushed:
    if result.status == 0:
        return Pushed(PushAnswer.MOVED, PushRejectedError(f"{doing}: it arrived"))
    if NOT_ATOMIC in result.stderr:
        return Pushed(PushAnswer.NOT_ATOMIC, PushRejectedError(f"{doing}: the server has no atomic push"))
    text = result.stdout.decode("utf-8", "replace")
    rejected = list(_REJECTED.finditer(text))
    reasons = [found["reason"] or found["kind"] for found in rejected]
    # A hook of the whole push declines every ref of it: people know the branch.
    pairs = sorted(zip(rejected, reasons, strict=True), key=lambda pair: pair[0]["ref"].startswith(HIDDEN))
    for found, reason in pairs:
        if not _RACED.search(reason) and not _NO_RESULT.search(reason):
            return Pushed(PushAnswer.REFUSED, _rejection(found["ref"], reason, result.stderr, doing))
    if any(_NO_RESULT.search(reason) for reason in reasons):
        message = f"{doing}: the server did not report the result"
        return Pushed(PushAnswer.UNKNOWN, RemoteUnavailableError(message))
    if reasons:
        # In an atomic push others stand beside the stale one.
        answer = PushAnswer.STALE if _STALE in reasons else PushAnswer.RACED
        reason = _STALE if answer is PushAnswer.STALE else reasons[0]
        return Pushed(answer, _rejection("", reason, result.stderr, doing))
    error = error_for(result.stderr, doing)
    if isinstance(error, RemoteUnavailableError):
        return Pushed(PushAnswer.UNKNOWN, error)
    raise error


def push_error(result: GitResult, doing: str) -> WorkspaceError:
    """Return the error of a failed push."""
    rejected = _REJECTED.search(result.stdout.decode("utf-8", "replace"))
    if rejected is None:
        return error_for(result.stderr, doing)
    return _rejection(rejected["ref"], rejected["reason"] or rejected["kind"], result.stderr, doing)


def _may_differ(reason: str, said: str) -> bool:
    """Return whether a server that refuses a branch may accept another change.

    Words that are not known are for the model if the server judged the content: it is asked a few times at most.
    Without a judgement nothing that a model can write helps.
    """
    if _OF_CONTENT.search(f"{reason} {said}"):
        return True
    return _JUDGED.search(reason) is not None and not _OF_PERSON.search(f"{reason} {said}")


def _rejection(ref: str, reason: str, stderr: str, doing: str) -> PushRejectedError:
    if reason == _STALE:
        return PushRejectedError(f"{doing}: it changed on the remote meanwhile")
    detail = server_words(stderr)
    if not ref.startswith(HIDDEN):
        may_differ = _may_differ(reason, detail)
        said = f"{printable_line(reason)}{detail}"
        return PushRefusedError(f"{doing}: {said}", may_differ=may_differ, said=said)
    # People do not know these refs, and only a setting of the server helps.
    name, allow = printable_line(ref), f"let this account create, move and remove {HIDDEN}* on the server"
    if _NAME_REFUSED.search(reason):
        return PushRejectedError(
            f"{doing}: the server does not accept {name} ({printable_line(reason)}){detail}; {allow}"
        )
    hint = f"; if the server refuses the name {name}, {allow}" if _HOOK_REFUSED in reason else ""
    return PushRejectedError(f"{doing}: {printable_line(reason)}{detail}{hint}")
