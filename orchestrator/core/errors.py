"""One tree of errors. Vendors' and libraries' errors are converted into it where they arise.

::

    PullwrightError
    ├── ConfigurationError            the user's input: flags, files, keys, the repository named
    │   └── SandboxMissingError       commands may run, but this machine has no sandbox for them
    ├── ModelError                    a model provider did not give a usable answer
    │   ├── AuthenticationError       the key is missing, wrong or expired
    │   ├── PermissionDeniedError     the key is valid but may not use this
    │   ├── ModelNotFoundError        no such model or endpoint
    │   ├── RateLimitError            too many requests; `resume_at`
    │   │   └── SpentQuotaError       a quota is spent: another request soon is useless
    │   ├── OverloadedError           the provider is down or busy; `resume_at` where it said so
    │   ├── ContextLengthError        the request is longer than the model can read
    │   ├── ContentFilterError        the provider refused the content
    │   ├── InvalidRequestError       the provider understood and rejected the request
    │   ├── ConnectionFailedError     no connection, a time-out, or a stream cut in the middle; `resume_at`
    │   │   └── NotConnectedError     nothing was sent, so nothing is billed
    │   └── ProviderError             any other error that a provider reports
    ├── BudgetExhaustedError          a cap on what may be spent is used up
    ├── OvertakenError                others acted while a task was worked on, so nothing is proposed
    │   ├── WithdrawnError            the task is not wanted any more
    │   ├── SupersededError           the base has the change already
    │   └── BaseConflictError         the change does not fit onto the base as it is now
    ├── BadReplyError                 the model answered, but not in the contract's form
    ├── ForgeError                    GitHub, or a local folder in its place, refused or failed
    │   ├── ForgeAuthenticationError
    │   ├── ForgePermissionError
    │   ├── ForgeNotFoundError
    │   ├── ForgeRateLimitError       `resume_at`
    │   ├── ForgeUnreadError          a part could not be read, so whether there is a task is not known
    │   ├── ForgeRejectedError        this one request is refused; another one may succeed
    │   └── ForgeUnavailableError
    ├── WorkspaceError                git or the clone
    │   ├── GitMissingError
    │   ├── EmptyRepositoryError
    │   ├── PushRejectedError
    │   │   ├── PushRefusedError      for what is pushed, or how it is named: `may_differ`
    │   │   └── PeoplesCommitsError   the branch has commits of people
    │   ├── ClaimLostError            another worker holds the task now
    │   ├── RemoteUnavailableError    the remote cannot be reached at the moment
    │   │   └── RemoteRateLimitError  too many requests to the git server; `seconds`
    │   ├── RemoteRefusedError        the remote refuses access: key, token or permission
    │   └── DiskFullError
    ├── ToolError                     a tool could not do it; the model reads the message
    │   ├── PathRefusedError          the path leaves the clone, or enters `.git`
    │   ├── FileMissingError
    │   └── FileUnreadableError       binary, not a file
    │       ├── FilePermissionError
    │       └── FileTooLargeError
    ├── FleetError                    the fleet's database cannot be reached, or has invalid data
    ├── MemoryStoreError              the memory rejects an entry
    │   ├── MemoryMissingError        no such index or item
    │   └── MemoryFileError           its file cannot be used
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
    """Base class of all errors that Pullwright raises on purpose."""


class ConfigurationError(PullwrightError):
    """The user's input is invalid or cannot be carried out."""


class SandboxMissingError(ConfigurationError):
    """This machine has no sandbox, so no command runs. The message says what to install."""


class ModelError(PullwrightError):
    """A model provider did not give a usable answer.

    Attributes:
        status: HTTP status code, or None if there was no HTTP reply.
        is_unexplained: whether the provider refused the request for a reason that this program does not
            recognize.
        body: the provider's own words, without the key; empty if it sent none.
    """

    is_unexplained = False
    body = b""

    def __init__(self, message: str, *, status: int | None = None) -> None:
        super().__init__(message)
        self.status = status


class AuthenticationError(ModelError):
    """The key is missing, wrong or expired."""


class PermissionDeniedError(ModelError):
    """The key is valid but may not use this model or feature."""


class ModelNotFoundError(ModelError):
    """The model, or the endpoint at this address, does not exist."""


class ResumableError(ModelError):
    """A model error that ends by itself.

    Attributes:
        resume_at: the time (UTC) from which another attempt is useful, if the provider named it.
        waits: the wait that an error inside a reply named, under the names of HTTP headers. The reader of the
            reply, which knows the time, computes `resume_at` from it.
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
    """There were too many requests, or a quota is used up."""


class SpentQuotaError(RateLimitError):
    """A quota or credit is used up. Requests are useless before `resume_at`, or until someone pays."""


class OverloadedError(ResumableError):
    """The provider is down or busy (500, 502, 503, 504, 529)."""


class ContextLengthError(ModelError):
    """The request is longer than the model can read."""


class ContentFilterError(ModelError):
    """The provider refused the content of the request or of the reply."""


class InvalidRequestError(ModelError):
    """The provider understood the request and rejected it."""


class ConnectionFailedError(ResumableError):
    """The connection failed, timed out, or was cut in the middle of a stream."""


class NotConnectedError(ConnectionFailedError):
    """No connection was made, so nothing was sent and nothing is billed."""


class ProviderError(ModelError):
    """Any other error that a provider reports."""


class BudgetExhaustedError(PullwrightError):
    """A spending cap is used up, so no work starts."""


class OvertakenError(PullwrightError):
    """Others acted while a task was worked on, so that its change is not proposed."""


class WithdrawnError(OvertakenError):
    """The task is not wanted any more.

    Attributes:
        is_over: whether it is closed or gone, so that nobody would read a comment on it.
    """

    def __init__(self, message: str, *, is_over: bool = False) -> None:
        super().__init__(message)
        self.is_over = is_over


class SupersededError(OvertakenError):
    """The base has the change already."""


class BaseConflictError(OvertakenError):
    """The base has moved, and the change does not fit onto it."""


class BadReplyError(PullwrightError):
    """The model replied several times in a row, never in the form that the contract requires."""


class ForgeError(PullwrightError):
    """The forge (GitHub, or a local folder in its place) refused or failed."""


class ForgeAuthenticationError(ForgeError):
    """The token is missing, wrong or expired."""


class ForgePermissionError(ForgeError):
    """The token is valid but lacks the permission."""


class ForgeNotFoundError(ForgeError):
    """The repository, issue or pull request does not exist, or this token cannot see it."""


class ForgeRateLimitError(ForgeError):
    """GitHub's primary or secondary rate limit was reached.

    Attributes:
        resume_at: the time (UTC) from which another attempt is useful, if GitHub named it.
    """

    def __init__(self, message: str, *, resume_at: datetime | None = None) -> None:
        super().__init__(message)
        self.resume_at = resume_at


class ForgeUnreadError(ForgeError):
    """Something on the forge could not be read, so that it is not known whether there is a task."""


class ForgeRejectedError(ForgeError):
    """The forge understood one request and refused it, for what it contains or what it is about."""


class ForgeUnavailableError(ForgeError):
    """GitHub cannot be reached, or answers with a server error."""


class WorkspaceError(PullwrightError):
    """A git operation, or an operation on the clone, failed."""


class GitMissingError(WorkspaceError):
    """Git is not installed."""


class EmptyRepositoryError(WorkspaceError):
    """The repository has no commit yet."""


class PushRejectedError(WorkspaceError):
    """The remote rejected the branch, or does not contain what was pushed."""


class PushRefusedError(PushRejectedError):
    """The server refuses a branch for what is in it, or for its name. Another try is refused, too.

    Attributes:
        may_differ: whether another change may be accepted; if not, a person has to act.
        said: the server's words.
    """

    def __init__(self, message: str, *, may_differ: bool = False, said: str = "") -> None:
        super().__init__(message)
        self.may_differ = may_differ
        self.said = said


class PeoplesCommitsError(PushRejectedError):
    """The task's branch has commits of people, which are never replaced. A person has to merge or delete it."""


class ClaimLostError(WorkspaceError):
    """Another worker now holds the claim on this task, so this worker must not push."""


class RemoteUnavailableError(WorkspaceError):
    """The remote cannot be reached or fails at the moment. A later attempt may succeed."""


class RemoteRateLimitError(RemoteUnavailableError):
    """The git server received too many requests.

    Attributes:
        seconds: how long the server asks to wait.
    """

    def __init__(self, message: str, *, seconds: float = 60.0) -> None:
        super().__init__(message)
        self.seconds = seconds


class RemoteRefusedError(WorkspaceError):
    """The remote refuses access: the credential is no longer valid, or lacks the permission."""


class DiskFullError(WorkspaceError):
    """The disk that holds the clone or the state is full."""


class ToolError(PullwrightError):
    """A tool call failed. The model reads the message and can react to it.

    Attributes:
        code: the code of a file operation in section 7.2 of the assistant's specification.
    """

    code = "FILE_ERROR_IO"


class PathRefusedError(ToolError):
    """The path leaves the clone, enters `.git`, or passes through a symbolic link."""

    code = "FILE_ERROR_INVALID_PATH"


class CommandRefusedError(ToolError):
    """The command is one that the tool never runs."""


class FileMissingError(ToolError):
    """No file or folder exists at the path."""

    code = "FILE_ERROR_NOT_FOUND"


class FileUnreadableError(ToolError):
    """The file cannot be read: it is a folder, binary, too large, or not permitted."""


class FilePermissionError(FileUnreadableError):
    """This user may not read or write the file."""

    code = "FILE_ERROR_PERMISSION"


class FileTooLargeError(FileUnreadableError):
    """The file has more bytes than the operation takes."""

    code = "FILE_ERROR_TOO_LARGE"


class FleetError(PullwrightError):
    """The fleet's database cannot be reached, or contains invalid data."""


class MemoryStoreError(PullwrightError):
    """The memory file cannot be used, or rejects the entry.

    Attributes:
        code: the code of a vector database in section 7.2 of the assistant's specification.
    """

    code = "VECTOR_DB_ERROR_INVALID_PARAM"


class MemoryMissingError(MemoryStoreError):
    """There is no such index or item."""

    code = "VECTOR_DB_ERROR_ELEMENT_NOT_FOUND"


class MemoryFileError(MemoryStoreError):
    """The file cannot be read or written."""

    code = "VECTOR_DB_ERROR_FILE"


class JournalError(PullwrightError):
    """The journal of a run is missing, damaged or incomplete."""
