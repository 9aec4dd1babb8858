"""Compare-and-swap of references of a remote: one push, and what came of it in words that can be decided on."""

from __future__ import annotations

import enum
import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from orchestrator.bot.git.failures import error_for, printable, server_words
from orchestrator.core.errors import PushRejectedError, RemoteRateLimitError, RemoteUnavailableError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from orchestrator.bot.git.hostgit import GitResult, HostGit
    from orchestrator.bot.git.remote import Remote
    from orchestrator.core.errors import WorkspaceError

HIDDEN = "refs/pullwright/"
"""Begins the names of the references that only this program uses."""

# What is waited after a failure that may pass: short, because a claim is held meanwhile or wanted by others.
PAUSES_SECONDS = (0.5, 1.0, 2.0, 4.0, 8.0)
# `!<TAB>from:to<TAB>[remote rejected] (reason)`, see "OUTPUT" in https://git-scm.com/docs/git-push
_REJECTED = re.compile(
    r"^!\t[^\t:]*:?(?P<ref>[^\t]*)\t\[(?P<kind>[^\]]*)\](?: \((?P<reason>.*)\))?", re.MULTILINE
)
_NOT_ATOMIC = "does not support --atomic push"
_STALE = "stale info"
# Said by a server while another push moves the same reference, or after it did. `atomic push failed` and
# `atomic push failure` stand beside every reference of a push in which another one was refused.
_RACED = re.compile(
    r"stale info|fail(?:ed|ure) to (?:update|lock|delete)|cannot lock|unable to (?:lock|create)|\.lock\b"
    r"|transaction|atomic push fail|already exists|incorrect old value|is at [0-9a-f]+ but expected|fetch first",
    re.IGNORECASE,
)
# Said where names like ours are not taken: git's own `receive.hideRefs`, Gerrit's access rules, and others.
_NAME_REFUSED = re.compile(
    r"hidden ref|funny refname|prohibited|not permitted|not allowed|namespace", re.IGNORECASE
)
_HOOK_REFUSED = "hook declined"
# The server broke down, or the connection before it said what it did.
_BROKE = re.compile(r"internal server error|failed to report status|time-?out|timed out", re.IGNORECASE)


class PushAnswer(enum.Enum):
    """What a push came to."""

    MOVED = "moved"
    STALE = "stale"
    """Some reference was not where it was expected: git saw that before it sent anything."""
    RACED = "raced"
    """The server says that a reference moved or is being moved: look again."""
    REFUSED = "refused"
    """The server does not want it, and will not want it later."""
    NOT_ATOMIC = "not atomic"
    """The server cannot move several references as one; it was asked for nothing."""
    UNKNOWN = "unknown"
    """No answer: it may have arrived, or arrive later."""


@dataclass(frozen=True, slots=True)
class Update:
    """One reference of a remote: where it must be now, and where it goes. None means that it is not there."""

    ref: str
    old: str | None
    new: str | None


class Fence(Protocol):
    """Moves a reference only while a claim is still held: a lease of `bot/coordination` is one."""

    def push(self, git: HostGit, update: Update, *, doing: str, objects: Iterable[Path] = ()) -> str | None:
        """Move the reference in the same push as the claim, and read back what the remote holds.

        Args:
            git: has the objects of the update.
            update: what moves.
            doing: begins the message of an error.
            objects: folders with more objects.

        Raises:
            ClaimLostError: somebody else moved the claim.
            PushRejectedError: the reference is not where it was expected, or the server does not want it.
            RemoteUnavailableError: no answer, after several tries.
        """


@dataclass(frozen=True, slots=True)
class Pushed:
    """An answer, and the error that tells it where it is none of MOVED."""

    answer: PushAnswer
    error: WorkspaceError

    def require_possible(self) -> None:
        """Raise the error if trying again is of no use."""
        if self.answer is PushAnswer.REFUSED:
            raise self.error


class Tries:
    """Pauses between tries, longer and longer, until there were enough.

    Args:
        sleep: waits that many seconds; may be interrupted by raising.
    """

    def __init__(self, sleep: Callable[[float], None]) -> None:
        self._sleep = sleep
        self._left = list(PAUSES_SECONDS)
        self._waited_for: WorkspaceError | None = None

    def before_looking(self, error: WorkspaceError) -> None:
        """Pause before the remote is asked what came of a push, where it wants that; `wait` then need not."""
        if isinstance(error, RemoteRateLimitError):
            self.wait(error)
            self._waited_for = error

    def wait(self, error: WorkspaceError) -> None:
        """Pause before the next try, for as long as the server asks, or raise the error of the last one."""
        if error is self._waited_for:
            return
        if not self._left:
            raise error
        pause = self._left.pop(0)
        try:
            self._sleep(max(pause, error.seconds) if isinstance(error, RemoteRateLimitError) else pause)
        except RemoteUnavailableError as interrupted:
            # What was waited for says more than that nobody waits any longer.
            raise error if isinstance(error, RemoteUnavailableError) else interrupted from interrupted


def push_updates(
    git: HostGit, remote: Remote, updates: Sequence[Update], *, doing: str, objects: Iterable[Path] = ()
) -> Pushed:
    """Move references, all or none, each only if it is where it is expected.

    Git compares nothing for a reference that would stay where it is: each must move.

    Args:
        git: has the objects.
        remote: where.
        updates: at least one, with checked names.
        doing: begins the message of an error.
        objects: folders with more objects, such as `Records.objects`.

    Raises:
        WorkspaceError: git could not even try, for a reason that has nothing to do with the network.
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
    """The variable that lets git see the objects of other folders.

    Its format: GIT_ALTERNATE_OBJECT_DIRECTORIES in https://git-scm.com/docs/git#_the_git_repository
    """
    quoted = ['"' + str(path).replace("\\", "\\\\").replace('"', '\\"') + '"' for path in objects]
    return {"GIT_ALTERNATE_OBJECT_DIRECTORIES": os.pathsep.join(quoted)} if quoted else {}


def _judge(result: GitResult, doing: str) -> Pushed:
    if result.status == 0:
        return Pushed(PushAnswer.MOVED, PushRejectedError(f"{doing}: it arrived"))
    if _NOT_ATOMIC in result.stderr:
        return Pushed(PushAnswer.NOT_ATOMIC, PushRejectedError(f"{doing}: the server has no atomic push"))
    text = result.stdout.decode("utf-8", "replace")
    rejected = list(_REJECTED.finditer(text))
    reasons = [found["reason"] or found["kind"] for found in rejected]
    for found, reason in zip(rejected, reasons, strict=True):
        if not _RACED.search(reason) and not _BROKE.search(reason):
            return Pushed(PushAnswer.REFUSED, _rejection(found["ref"], reason, result.stderr, doing))
    if any(_BROKE.search(reason) for reason in reasons):
        message = f"{doing}: the server did not say what it did"
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
    """The error of a push that failed."""
    rejected = _REJECTED.search(result.stdout.decode("utf-8", "replace"))
    if rejected is None:
        return error_for(result.stderr, doing)
    return _rejection(rejected["ref"], rejected["reason"] or rejected["kind"], result.stderr, doing)


def _rejection(ref: str, reason: str, stderr: str, doing: str) -> PushRejectedError:
    if reason == _STALE:
        return PushRejectedError(f"{doing}: it changed on the remote meanwhile")
    detail = server_words(stderr)
    if not ref.startswith(HIDDEN):
        return PushRejectedError(f"{doing}: {printable(reason)}{detail}")
    # Whoever reads this has never heard of the reference, and it is the server that has to be told.
    name, allow = printable(ref), f"let this account create, move and remove {HIDDEN}* on the server"
    if _NAME_REFUSED.search(reason):
        return PushRejectedError(
            f"{doing}: the server does not take {name} ({printable(reason)}){detail}; {allow}"
        )
    hint = f"; if it is the name {name} that is refused, {allow}" if _HOOK_REFUSED in reason else ""
    return PushRejectedError(f"{doing}: {printable(reason)}{detail}{hint}")
