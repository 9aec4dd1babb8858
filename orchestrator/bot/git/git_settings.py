"""Under which settings git runs: none of a user's, a machine's or a repository's, and nothing of them is run."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Container

    from orchestrator.bot.git.remote import Remote

# The only variables of this process that git sees; names of keys and tokens are not among them.
_KEPT_VARIABLES = frozenset(
    {
        *(
            "TMPDIR",
            "TZ",
            "SSL_CERT_FILE",
            "SSL_CERT_DIR",
            "CURL_CA_BUNDLE",
            "GIT_SSL_CAINFO",
            "GIT_SSL_CAPATH",
        ),
        *("http_proxy", "https_proxy", "all_proxy", "no_proxy"),
        *("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"),
    }
)

_VARIABLES = {
    # A file and not a folder, so that no program finds a configuration (.gitconfig, .netrc) below it.
    "HOME": os.devnull,
    "XDG_CONFIG_HOME": os.devnull,
    "LANGUAGE": "C",
    "LC_ALL": "C",
    "GIT_ADVICE": "0",
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_SYSTEM": os.devnull,
    "GIT_DEFAULT_REF_FORMAT": "files",
    "GIT_EDITOR": "false",
    "GIT_LITERAL_PATHSPECS": "1",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_PAGER": "cat",
    "GIT_TERMINAL_PROMPT": "0",
    # A partial clone fetches missing objects by itself; a command that needs no remote reaches none.
    "GIT_ALLOW_PROTOCOL": "none",
}

_ALLOWED_PROTOCOLS = "file:http:https:ssh"

# No filter, textconv or merge driver is named here: drivers come from configuration only, and there is
# none but ours. `transfer.fsckObjects` stays off: it costs nothing measurable, but refuses many old and
# harmless repositories; what would be dangerous to check out is refused by the protect settings.
_SETTINGS = (
    "core.askPass=",
    f"core.attributesFile={os.devnull}",
    "core.autocrlf=false",
    f"core.excludesFile={os.devnull}",
    "core.fsmonitor=false",
    f"core.hooksPath={os.devnull}",
    "core.protectHFS=true",
    "core.protectNTFS=true",
    "core.quotePath=false",
    "core.safecrlf=false",
    "core.symlinks=true",
    "core.untrackedCache=false",
    "commit.gpgSign=false",
    "credential.helper=",
    "diff.external=",
    "fetch.recurseSubmodules=false",
    "gc.auto=0",
    "http.lowSpeedLimit=1",
    "http.lowSpeedTime=120",
    "log.showSignature=false",
    "maintenance.auto=false",
    "push.gpgSign=false",
    "push.recurseSubmodules=no",
    "submodule.recurse=false",
    "tag.gpgSign=false",
)
OPTIONS = tuple(word for setting in _SETTINGS for word in ("-c", setting))
"""Before the subcommand of every command."""


def environment_for(git_dir: Path | None, work_tree: Path | None) -> dict[str, str]:
    """The environment of a command on a git directory, and on the files that belong to it."""
    environment = {**_VARIABLES, "PATH": _absolute_path()}
    if git_dir is not None:
        environment["GIT_DIR"] = str(git_dir)
    if work_tree is not None:
        environment["GIT_WORK_TREE"] = str(work_tree)
    return environment


def dropped_variables(environment: Container[str]) -> list[str]:
    """The variables of this process that git must not see; those of `environment` are set anew."""
    return [name for name in os.environ if name not in _KEPT_VARIABLES and name not in environment]


def network_variables(remote: Remote) -> dict[str, str]:
    """What a command needs besides that may contact one remote."""
    variables = {"GIT_ALLOW_PROTOCOL": _ALLOWED_PROTOCOLS}
    if remote.scheme in {"http", "https"}:
        # Onto standard error, which stays in memory: git tells a server's headers in no other way. It leaves
        # out credentials (GIT_TRACE_REDACT), and `HostGit` takes them out once more.
        variables |= {"GIT_TRACE_CURL": "1", "GIT_TRACE_CURL_NO_DATA": "1", "GIT_TRACE_REDACT": "1"}
    if remote.scheme == "ssh":
        variables["GIT_SSH_COMMAND"] = "ssh -o BatchMode=yes"
        if "SSH_AUTH_SOCK" in os.environ:
            variables["SSH_AUTH_SOCK"] = os.environ["SSH_AUTH_SOCK"]
    return variables


def _absolute_path() -> str:
    """PATH without relative entries: in a clone they would find the clone's own programs."""
    entries = os.environ.get("PATH", os.defpath).split(os.pathsep)
    return os.pathsep.join(entry for entry in entries if Path(entry).is_absolute())
