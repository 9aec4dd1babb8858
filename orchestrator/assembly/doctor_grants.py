"""Where on GitHub a person gives a token what it lacks, by the token's kind."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.forge.base import TokenKind

if TYPE_CHECKING:
    from orchestrator.forge.github_survey import RepositoryFacts

PERMISSIONS = {
    "contents": "Contents: Read and write",
    "issues": "Issues: Read and write",
    "pull_requests": "Pull requests: Read and write",
    "workflows": "Workflows: Read and write",
}
"""What they are called on GitHub's pages, by their names in workflows."""
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
            return f"write into the workflow's file, under permissions: {permission}: write"
        case TokenKind.APP:
            return f"give the app Repository permissions > {name}, and accept that in its installation"
        case TokenKind.CLASSIC | TokenKind.OAUTH:
            needed = "workflow" if permission == "workflows" else "repo" if is_private else "public_repo"
            return f"give the token the scope {needed}: {token_page(kind, web)}"
        case _:
            return f"give the token Repository permissions > {name}: {token_page(kind, web)}"


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
