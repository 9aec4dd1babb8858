"""Where on GitHub a person gives a token what it lacks, by the token's kind."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from orchestrator.bot.forge.base import TokenKind

if TYPE_CHECKING:
    from orchestrator.bot.forge.github.token import RepositoryFacts

PERMISSIONS = {
    "contents": "Contents: Read and write",
    "issues": "Issues: Read and write",
    "pull_requests": "Pull requests: Read and write",
    "workflows": "Workflows: Read and write",
    "checks": "Checks: Read-only",
    "statuses": "Commit statuses: Read-only",
}
"""What they are called on GitHub's pages, by their names in workflows."""
_READ = frozenset({"checks", "statuses"})
NO_TOKEN = "set GITHUB_TOKEN, or github_app_id and PULLWRIGHT_GITHUB_APP_KEY_FILE"  # noqa: S105  words for people


def grant(kind: TokenKind, permission: str, web: str, *, is_private: bool = True) -> str:
    """The one line that says how to give it.

    Args:
        kind: the token's.
        permission: one of `PERMISSIONS`.
        web: the server's web address.
        is_private: whether the repository is: public ones need less of a classic token.
    """
    name = PERMISSIONS[permission]
    match kind:
        case TokenKind.NONE:
            return NO_TOKEN
        case TokenKind.WORKFLOW if permission == "workflows":
            return f"a workflow's token never may: {other_token()}"
        case TokenKind.WORKFLOW:
            access = "read" if permission in _READ else "write"
            return f"write into the workflow's file, under permissions: {permission}: {access}"
        case TokenKind.APP:
            return f"give the app Repository permissions > {name}, and accept that in its installation"
        case TokenKind.CLASSIC | TokenKind.OAUTH:
            needed = "workflow" if permission == "workflows" else "repo" if is_private else "public_repo"
            return f"give the token the scope {needed}: {token_page(kind, web)}"
        case _:
            return f"give the token Repository permissions > {name}: {token_page(kind, web)}"


_REFUSED = tuple(
    (re.compile(pattern, re.IGNORECASE), fix)
    for pattern, fix in (
        (r"archived", "unarchive it in its settings, or name another repository"),
        (
            r"SAML|SSO\b|single sign-on",
            "authorize the token or the ssh key for the organization: on its page, Configure SSO",
        ),
        (
            r"push protection|contain secrets|secret-scanning",
            "take the secret out of the file that the server names, or allow it at the address that it gives",
        ),
        (
            r"(?:verified|valid) signatures|must be signed",
            (
                "exclude pullwright* branches from the rule for signatures, or let the token's owner bypass it: "
                "commits are not signed here"
            ),
        ),
        (
            r"GH006|protected branch",
            "exclude pullwright* branches from that protection, or let the token's owner bypass it",
        ),
        (
            r"GH013|rule violations|being restricted|ruleset",
            (
                "exclude pullwright* branches from the rule at the address that the server gives, "
                "or let the token's owner bypass it"
            ),
        ),
        (r"marked as read only|read-only (?:key|token)", "use a key or a token that may write"),
        (r"rate limit|error: 429", "wait, and run again; fewer workers need fewer requests"),
        (
            r"no such repository|not found",
            "check the name, and give the token access to it: a hidden repository looks as if it were not there",
        ),
        (r"hook declined", "ask who runs the server: a hook of it refuses what is pushed"),
    )
)
"""What ends a refusal, by the words of the server or of `bot/git/failures.py`. The first that matches."""


def fix_for(said: str, otherwise: str) -> str:
    """What to do about a refusal of a git server.

    Args:
        said: the error, with the server's words.
        otherwise: what to do where nothing special is known of them.
    """
    return next((fix for pattern, fix in _REFUSED if pattern.search(said)), otherwise)


def other_token() -> str:
    """The two ways out for who has a workflow's token."""
    return "use a GitHub App (github_app_id, PULLWRIGHT_GITHUB_APP_KEY_FILE) or a personal access token"


def token_page(kind: TokenKind, web: str) -> str:
    """Where tokens of this kind are made and changed."""
    if kind is TokenKind.FINE_GRAINED:
        return f"{web}/settings/personal-access-tokens"
    return f"{web}/settings/tokens"


def role_fix(facts: RepositoryFacts) -> str:
    """Where the owner of a token gets more rights."""
    return f"give the token's owner the role Write: {facts.url}/settings/access"
