"""What a folder that plays GitHub does not have: issues, people, checks, a server."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.bot.forge.base import Permission, TokenKind, Traffic
from orchestrator.core.errors import ForgeNotFoundError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import NoReturn

    from orchestrator.bot.forge.base import Check, Comment, Credential, Issue, IssueHistory, PullRequest


class LocalAbsences:
    """The answers that are the same for every folder."""

    def credential(self) -> Credential | None:
        """None: a folder needs none."""
        return None

    def open_issues(self, label: str) -> list[Issue]:  # noqa: ARG002  there are none of any label
        """Empty: a folder has no issues."""
        return []

    def issue(self, number: int) -> Issue:
        """Never one.

        Raises:
            ForgeNotFoundError: always, as do `history` and `comments`.
        """
        self._no_issue(number)

    def history(self, number: int, label: str) -> IssueHistory:  # noqa: ARG002  there is none of any label
        """Never one."""
        self._no_issue(number)

    def comments(self, number: int) -> list[Comment]:
        """Never any: people do not talk in a folder."""
        self._no_issue(number)

    def permission(self, login: str) -> Permission:  # noqa: ARG002  the disk's permissions know no logins
        """Always `NONE`: nobody has a name here. Who may write is up to the disk."""
        return Permission.NONE

    def linked_pull_requests(self, number: int) -> list[PullRequest]:
        """Never any: there are no issues to be linked to."""
        self._no_issue(number)

    def has_conflict(self, number: int) -> bool:  # noqa: ARG002  nobody merges here but people
        """Never: nobody looks."""
        return False

    def checks(self, commit: str) -> list[Check]:  # noqa: ARG002  no commit has any
        """Empty: nothing checks a folder."""
        return []

    def configured_checks(self, checks: Sequence[Check], commit: str, base: str) -> list[Check]:
        """Empty: nothing checks a folder."""
        del checks, commit, base
        return []

    def traffic(self) -> Traffic:
        """None: nobody is asked."""
        return Traffic()

    def own_login(self) -> str | None:
        """None: nobody has a name here."""
        return None

    def token_kind(self) -> TokenKind:
        """None: a folder needs none."""
        return TokenKind.NONE

    def _no_issue(self, number: int) -> NoReturn:
        raise ForgeNotFoundError(
            f"no issue #{number}: a local repository has no issues: use --task TEXT or a BACKLOG.md"
        )
