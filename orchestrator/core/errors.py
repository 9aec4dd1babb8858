"""One tree of errors. Vendors' and libraries' errors are converted into it where they arise.

::

    PullwrightError
    ├── ConfigurationError            the user's input: flags, files, keys, the repository named
    │   └── SandboxMissingError       commands may run, but this machine has no sandbox for them
    ├── ModelError                    a model provider did not give a usable answer
    │   ├── AuthenticationError       the key is missing, wrong or expired
    │   ├── PermissionDeniedError     the key is good but may not use this
    │   ├── ModelNotFoundError        no such model or endpoint
    │   ├── RateLimitError            too many requests; `resume_at`
    │   │   └── SpentQuotaError       a quota is spent: asking again soon is of no use
    │   ├── OverloadedError           the provider is down or busy; `resume_at` where it said so
    │   ├── ContextLengthError        the request is longer than the model can read
    │   ├── ContentFilterError        the provider refused the content
    │   ├── InvalidRequestError       the provider understood and rejected the request
    │   ├── ConnectionFailedError     no connection, a time-out, or a stream cut in the middle; `resume_at`
    │   └── ProviderError             anything else that a provider says
    ├── NothingLeftError              a cap on what may be spent is used up
    ├── BadReplyError                 the model answered, but not in the contract's form
    ├── ForgeError                    GitHub (or the folder that plays it) refused or failed
    │   ├── ForgeAuthenticationError
    │   ├── ForgePermissionError
    │   ├── ForgeNotFoundError
    │   ├── ForgeRateLimitError       `resume_at`
    │   └── ForgeUnavailableError
    ├── WorkspaceError                git or the clone
    │   ├── GitMissingError
    │   ├── EmptyRepositoryError
    │   ├── PushRejectedError
    │   ├── ClaimLostError            another worker holds the task by now
    │   ├── RemoteUnavailableError    the remote cannot be reached; it may be later
    │   │   └── RemoteRateLimitError  the git server wants a pause; `seconds`
    │   ├── RemoteRefusedError        the remote does not let us in: key, token or permission
    │   └── DiskFullError
    ├── ToolError                     a tool could not do it; the model reads the message
    │   ├── PathRefusedError          the path leaves the clone, or enters `.git`
    │   ├── FileMissingError
    │   └── FileUnreadableError       binary, too large, not a file, no permission
    ├── FleetError                    the fleet's database cannot be reached, or says what makes no sense
    ├── MemoryStoreError              the memory's file, or what was to be done with it
    └── JournalError                  a run's record is missing or damaged

Those with `resume_at` that come from a model are `ResumableError`s.

A message is one line that says what happened and, where there is one, what to do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from datetime import datetime


class PullwrightError(Exception):
    """Base of everything that Pullwright raises on purpose."""


class ConfigurationError(PullwrightError):
    """What the user asked for cannot be done as asked."""


class SandboxMissingError(ConfigurationError):
    """No sandbox is to be had on this machine, so no command runs; the message says what to install."""


class ModelError(PullwrightError):
    """A model provider did not give a usable answer.

    Attributes:
        status: HTTP status code, or None where there was no HTTP reply.
        is_unexplained: whether the provider refused the request and named no reason that this program knows.
    """

    is_unexplained = False

    def __init__(self, message: str, *, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class AuthenticationError(ModelError):
    """The key is missing, wrong or expired."""


class PermissionDeniedError(ModelError):
    """The key is good but may not use this model or feature."""


class ModelNotFoundError(ModelError):
    """No such model, or no such endpoint at this address."""


class ResumableError(ModelError):
    """A model error that passes by itself.

    Attributes:
        resume_at: the time (UTC) from which another try makes sense, if the provider said so.
        waits: what an error inside a reply said of that, under the names of HTTP headers; whoever reads the
            reply knows the time and makes `resume_at` of it.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int | None = None,
        resume_at: datetime | None = None,
        waits: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message, status=status)
        self.resume_at = resume_at
        self.waits = dict(waits or {})


class RateLimitError(ResumableError):
    """Too many requests, or a quota is spent."""


class SpentQuotaError(RateLimitError):
    """A quota is spent, or the credit: no more requests before `resume_at`, or until someone pays."""


class OverloadedError(ResumableError):
    """The provider is down or busy (500, 502, 503, 504, 529)."""


class ContextLengthError(ModelError):
    """The request is longer than the model can read."""


class ContentFilterError(ModelError):
    """The provider refused the content of the request or of the reply."""


class InvalidRequestError(ModelError):
    """The provider understood the request and rejected it."""


class ConnectionFailedError(ResumableError):
    """No connection, a time-out, or a stream that was cut in the middle."""


class NotConnectedError(ConnectionFailedError):
    """No connection came about, so nothing was sent and nothing is billed."""


class ProviderError(ModelError):
    """Anything else that a provider says."""


class NothingLeftError(PullwrightError):
    """A cap on what may be spent is used up, so that nothing is begun."""


class BadReplyError(PullwrightError):
    """The model answered several times in a row, never in the form that the contract asks for."""


class ForgeError(PullwrightError):
    """GitHub, or the folder that plays it, refused or failed."""


class ForgeAuthenticationError(ForgeError):
    """The token is missing, wrong or expired."""


class ForgePermissionError(ForgeError):
    """The token is good but may not do this."""


class ForgeNotFoundError(ForgeError):
    """No such repository, issue or pull request, or it is hidden from this token."""


class ForgeRateLimitError(ForgeError):
    """GitHub's primary or secondary rate limit.

    Attributes:
        resume_at: the time (UTC) from which another try makes sense, if GitHub said so.
    """

    def __init__(self, message: str, *, resume_at: datetime | None = None) -> None:
        super().__init__(message)
        self.resume_at = resume_at


class ForgeUnavailableError(ForgeError):
    """GitHub cannot be reached or answers with a server error."""


class WorkspaceError(PullwrightError):
    """Git, or the clone, cannot do what is needed."""


class GitMissingError(WorkspaceError):
    """No git program is installed."""


class EmptyRepositoryError(WorkspaceError):
    """The repository has no commit yet."""


class PushRejectedError(WorkspaceError):
    """The remote did not take the branch, or does not hold what was pushed."""


class ClaimLostError(WorkspaceError):
    """Another worker holds the claim on this task by now: nothing of ours may be pushed."""


class RemoteUnavailableError(WorkspaceError):
    """The remote cannot be reached, or is in trouble; the same may work later."""


class RemoteRateLimitError(RemoteUnavailableError):
    """The git server has had too many requests.

    Attributes:
        seconds: how long it wants none.
    """

    def __init__(self, message: str, *, seconds: float = 60.0) -> None:
        super().__init__(message)
        self.seconds = seconds


class RemoteRefusedError(WorkspaceError):
    """The remote does not let us in: the credential is wrong by now, or may not do that."""


class DiskFullError(WorkspaceError):
    """No space is left where the clone or the state is kept."""


class ToolError(PullwrightError):
    """A tool could not do what it was asked; the model reads the message and may act on it."""


class PathRefusedError(ToolError):
    """The path leaves the clone, enters `.git`, or goes through a link."""


class FileMissingError(ToolError):
    """There is nothing at the path."""


class FileUnreadableError(ToolError):
    """What is at the path cannot be read as asked: a folder, binary, too large, no permission."""


class FleetError(PullwrightError):
    """The fleet's database cannot be reached, or what it says makes no sense."""


class MemoryStoreError(PullwrightError):
    """The memory cannot be used, or does not take this."""


class JournalError(PullwrightError):
    """The record of a run is missing, damaged, or ends too early."""
