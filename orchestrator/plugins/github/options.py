"""The options of `github`."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from orchestrator.app.options import ADDRESS_FORM, Reach, option

if TYPE_CHECKING:
    from orchestrator.app.config.settings import Settings
    from orchestrator.app.forms import Address, AppId


class GitHubOptions:
    """The server that `owner/name` means, and who acts there."""

    github_url: Address = option(
        "https://github.com",
        "Address of GitHub or of a GitHub Enterprise server.",
        ADDRESS_FORM,
        Reach.NEVER,
        begins="GitHub",
        # docs.github.com/actions/reference/workflows-and-actions/variables
        variable="GITHUB_SERVER_URL",
        names_server=True,
    )
    github_app_id: AppId | None = option(
        None,
        "Id of the GitHub App to act as. Its key comes from the environment.",
        "an App's id or client id",
        Reach.NEVER,
    )


def github_options(settings: Settings) -> GitHubOptions:
    """Return the settings, which have these options if the plug-in is there."""
    return cast("GitHubOptions", settings)
