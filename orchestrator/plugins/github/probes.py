"""Probes of GitHub: the token, its rate limits, the repository, and the permissions there."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

from orchestrator.app.doctor.findings import (
    ForgeProbes,
    Group,
    Probe,
    ProbeFinding,
    Unmet,
    failed,
    ok,
    skipped,
    warned,
)
from orchestrator.bot.forge.base import TokenKind
from orchestrator.bot.policy.change_checks import PathPolicy
from orchestrator.core.changes import FileChange, FileVersion
from orchestrator.core.errors import ForgeNotFoundError, ForgePermissionError
from orchestrator.plugins.github.address import TOKEN_VARIABLE

if TYPE_CHECKING:
    from collections.abc import Callable
    from datetime import datetime

    from orchestrator.app.wiring import BuildContext
    from orchestrator.app.wiring.repository import OnServer, Site
    from orchestrator.plugins.github.forge import GitHubForge
    from orchestrator.plugins.github.repository import TokenFacts, TokenView
    from orchestrator.plugins.github.servers import HostCredential


PERMISSIONS = {
    "contents": "Contents: Read and write",
    "issues": "Issues: Read and write",
    "pull_requests": "Pull requests: Read and write",
    "workflows": "Workflows: Read and write",
    "checks": "Checks: Read-only",
    "statuses": "Commit statuses: Read-only",
}
"""The names of permissions on GitHub's pages, by their names in workflows."""
_READ = frozenset({"checks", "statuses"})
_OTHER_TOKEN = "use a GitHub App (github_app_id, PULLWRIGHT_GITHUB_APP_KEY_FILE) or a personal access token"  # noqa: S105  words for people
NO_TOKEN = "set GITHUB_TOKEN, or github_app_id and PULLWRIGHT_GITHUB_APP_KEY_FILE"  # noqa: S105  words for people


def grant(kind: TokenKind, permission: str, web: str, *, is_private: bool = True) -> str:
    """Return one line that says how to give a token a permission.

    Args:
        permission: one of `PERMISSIONS`.
        web: the server's web address.
        is_private: whether the repository is private. Public ones need a smaller scope of a classic token.
    """
    name = PERMISSIONS[permission]
    match kind:
        case TokenKind.NONE:
            return NO_TOKEN
        case TokenKind.WORKFLOW if permission == "workflows":
            return f"a workflow's token never may: {_OTHER_TOKEN}"
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


def token_page(kind: TokenKind, web: str) -> str:
    """Return the address where tokens of this kind are created and changed."""
    if kind is TokenKind.FINE_GRAINED:
        return f"{web}/settings/personal-access-tokens"
    return f"{web}/settings/tokens"


def role_fix(facts: TokenView) -> str:
    """Return where the owner of a token gets more rights."""
    return f"give the token's owner the role Write: {facts.url}/settings/access"


_BRANCH = "pullwright/issue-1-doctor"
"""An example of the branches that we push. It is never created."""
_FEW_DAYS = 7
_SMALL_SHARE = 0.1
_HARD = frozenset(
    {"creation", "update", "pull_request", "required_signatures", "required_status_checks", "merge_queue"}
)
"""Rules that refuse every push of ours: docs.github.com/rest/repos/rules"""
_SOFT = frozenset(
    {
        "non_fast_forward",
        "branch_name_pattern",
        "commit_message_pattern",
        "commit_author_email_pattern",
        "committer_email_pattern",
        "file_path_restriction",
        "max_file_size",
        "file_extension_restriction",
    }
)
"""Rules that refuse some pushes of ours."""
_ROLES = frozenset({"push", "maintain", "admin"})
_SAME_SECONDS = 10
_SKEW_WARNS_SECONDS = 300
_SKEW_FAILS_SECONDS = 600
"""Claims tolerate a difference of ten minutes."""
BY_ROLE = frozenset({TokenKind.CLASSIC, TokenKind.OAUTH})
"""Tokens with the rights of their owner, limited by their scopes."""
_WORKFLOW_FILE = ".github/workflows/ci.yml"
_TRY = "only a request shows it: --write sends one that GitHub refuses for its content"


def forge_probes(place: OnServer, site: Site, context: BuildContext, *, writes: bool) -> ForgeProbes | None:
    """Return the probes of a repository on GitHub; None for another forge: see `Point.FORGE_PROBES`."""
    from orchestrator.plugins.github.forge import GitHubForge
    from orchestrator.plugins.github.servers import credential_for

    if not isinstance(site.forge, GitHubForge):
        return None
    known, web = credential_for(place.server, context), place.server.rstrip("/")
    probes = GitHubProbes(site.forge, context, web, writes=writes, known=known)
    return ForgeProbes(probes.group(), probes.push_fix, site.forge.close)


class GitHubProbes:
    """Probes of one repository and one token.

    Args:
        writes: whether to send requests that would write if GitHub did not refuse their content.
    """

    def __init__(
        self, forge: GitHubForge, context: BuildContext, web: str, *, writes: bool, known: HostCredential
    ) -> None:
        self._forge, self._context, self._web, self._writes = forge, context, web, writes
        self._variable = known.variable
        self.no_token = NO_TOKEN if known.variable == TOKEN_VARIABLE else known.missing
        self.known_facts: TokenView | None = None
        self._known_token: TokenFacts | None = None

    def group(self) -> Group:
        """Return the probes, in order."""
        network = "check the network and --github-url; https://www.githubstatus.com shows outages"
        new_token = f"make a new token ({self._web}/settings/tokens) and set {self._variable}"
        label = self._context.settings.label
        looks: tuple[tuple[str, Callable[[], ProbeFinding], str], ...] = (
            ("token", self._token, new_token),
            ("expiry", self._expiry, network),
            ("rate limits", self._limits, network),
            ("clock", self._clock, network),
            (
                "repository",
                self._repository,
                "check --repo; a private repository needs a token with access to it",
            ),
            ("read issues", self._read_issues, network),
            ("write issues", lambda: self._writes_part("issues"), network),
            ("label", self._label, f"make the label {label!r}"),
            ("pull requests", lambda: self._writes_part("pull_requests"), network),
            ("branch rules", self._rules, network),
            ("workflow files", self._workflow_files, network),
            ("checks", self._checks, network),
        )
        probes = tuple(Probe(*look, away=network) for look in looks)
        return Group("GitHub", probes)

    def push_fix(self) -> str | None:
        """Return what to do if nothing can be pushed; None if the repository could not be read."""
        facts = self.known_facts
        if facts is None:
            return None
        if self.kind is TokenKind.NONE:
            return self.no_token
        fix = self._grant("contents")
        is_reader = facts.roles is not None and "push" not in facts.roles and self.kind in BY_ROLE
        return f"{role_fix(facts)}; and {fix}" if is_reader else fix

    @cached_property
    def kind(self) -> TokenKind:
        """The token's kind."""
        return self._forge.token_kind()

    def _needed(self) -> TokenView:
        """Return the repository, or skip the probe if it could not be read."""
        if self.known_facts is None:
            raise Unmet("not tried: see repository")
        return self.known_facts

    def _answered(self) -> TokenFacts:
        """Return the facts about the token, or skip the probe if GitHub did not answer."""
        if self._known_token is None:
            raise Unmet("not tried: see token")
        return self._known_token

    def _token(self) -> ProbeFinding:
        about = self._known_token = self._forge.about_token()
        if self.kind is TokenKind.NONE:
            return failed("none is set: nothing can be pushed", self.no_token)
        words = {
            TokenKind.WORKFLOW: "of a workflow run (GITHUB_TOKEN)",
            TokenKind.APP: "of a GitHub App",
            TokenKind.CLASSIC: "a classic personal access token",
            TokenKind.FINE_GRAINED: "a fine-grained personal access token",
            TokenKind.OAUTH: "of an OAuth app, for a person",
        }.get(about.kind, "of a kind that is not known")
        if about.scopes is None:
            return ok(words)
        return ok(f"{words}, scopes: {', '.join(about.scopes) or 'none'}")

    def _expiry(self) -> ProbeFinding:
        expires = self._answered().expires_at
        now = self._answered().server_date or self._context.clock.now()
        if self.kind is TokenKind.NONE:
            return skipped("there is no token")
        if expires is None:
            if self.kind in {TokenKind.APP, TokenKind.WORKFLOW}:
                return ok("unknown; an app's token lasts an hour, a workflow's as long as its job")
            return ok("never")
        days = (expires - now).days
        when = f"{expires:%Y-%m-%d %H:%M} UTC, in {'1 day' if days == 1 else f'{days} days'}"
        if days < _FEW_DAYS:
            page = token_page(self.kind, self._web)
            return warned(when, f"make a new one before that ({page}) and set {self._variable}")
        return ok(when)

    def _limits(self) -> ProbeFinding:
        quotas = self._answered().quotas
        if not quotas:
            return ok("the server has none")
        told = "; ".join(
            f"{name}: {quota.remaining:,} of {quota.limit:,} left" for name, quota in quotas.items()
        )
        small = [quota for quota in quotas.values() if quota.remaining < quota.limit * _SMALL_SHARE]
        if small:
            until = max(quota.reset for quota in small)
            fix = f"wait until {until:%H:%M} UTC, or give Pullwright a token that nothing else uses"
            return warned(told, fix)
        return ok(told)

    def _clock(self) -> ProbeFinding:
        server = self._answered().server_date
        if server is None:
            return skipped("the server does not send its time")
        return judge_clock(self._context.clock.now(), server)

    def _repository(self) -> ProbeFinding:
        facts = self.known_facts = self._forge.facts()
        words = "private" if facts.is_private else "public"
        if facts.is_archived:
            return failed(
                f"{facts.name} is archived: nothing can be pushed", f"unarchive it: {facts.url}/settings"
            )
        if facts.default_branch is None:
            return failed(f"{facts.name} is empty", "push a first commit")
        shows = facts.roles and self.kind in BY_ROLE
        roles = f", your roles: {', '.join(sorted(facts.roles or ()))}" if shows else ""
        return ok(f"{words}, default branch {facts.default_branch}{roles}")

    def _read_issues(self) -> ProbeFinding:
        facts = self._needed()
        if not facts.has_issues:
            found = "issues are switched off: only files such as BACKLOG.md are a backlog"
            return warned(found, f"switch Issues on: {facts.url}/settings")
        try:
            self._forge.try_reading("issues")
        except ForgePermissionError:
            return failed("the token may not read issues", self._grant("issues"))
        return ok("yes")

    def _grant(self, permission: str) -> str:
        return grant(self.kind, permission, self._web, is_private=self._needed().is_private)

    def _writes_part(self, permission: str) -> ProbeFinding:
        facts = self._needed()
        if self.kind is TokenKind.NONE:
            return failed("not without a token", self.no_token)
        if permission == "issues" and not facts.has_issues:
            return skipped("issues are switched off")
        if permission == "pull_requests":
            try:
                self._forge.try_reading("pulls")
            except ForgePermissionError:
                return failed("the token may not even read them", self._grant(permission))
        return self._by_scope(permission, facts) or self._by_trial(permission, facts)

    def _by_trial(self, permission: str, facts: TokenView) -> ProbeFinding:
        if not self._writes:
            return skipped(_TRY)
        try:
            if permission == "issues":
                self._forge.try_issue()
            else:
                self._forge.try_pull_request(facts.default_branch or "main")
        except ForgePermissionError:
            return failed("the token may not write them", self._grant(permission))
        return ok("yes: GitHub refused a request only for its content")

    def _by_scope(self, permission: str, facts: TokenView) -> ProbeFinding | None:
        """Judge by the token's scopes and its owner's role; None for a token that has permissions instead."""
        scopes = self._answered().scopes
        if scopes is None or self.kind not in BY_ROLE:
            return None
        enough = _ROLES | ({"triage"} if permission == "issues" else set())
        if facts.roles is not None and not facts.roles & enough:
            return failed("the token's owner may only read here", role_fix(facts))
        if "repo" in scopes or ("public_repo" in scopes and not facts.is_private):
            return ok(f"yes, by the scope {'repo' if 'repo' in scopes else 'public_repo'}")
        return failed("the token has no scope for it", self._grant("contents"))

    def _label(self) -> ProbeFinding:
        facts, label = self._needed(), self._context.settings.label
        if not facts.has_issues:
            return skipped("issues are switched off")
        try:
            there = self._forge.has_label(label)
        except ForgePermissionError:
            raise Unmet("not tried: see read issues") from None
        if there:
            return ok(f"{label!r} is there")
        return warned(
            f"there is no label {label!r}: no issue is in the backlog", f"make it: {facts.url}/labels"
        )

    def _rules(self) -> ProbeFinding:
        facts = self._needed()
        try:
            rules = [rule for rule in self._forge.rules(_BRANCH) if rule.kind in _HARD | _SOFT]
        except ForgePermissionError:
            return skipped("the token may not read them; only a push shows it")
        stopping = [rule for rule in rules if not self._forge.passes_by(rule.ruleset)]
        if not stopping:
            return ok("none refuses branches below pullwright/")
        kinds = ", ".join(dict.fromkeys(rule.kind for rule in stopping))
        page = f"{facts.url}/rules/{stopping[0].ruleset}"
        fix = f"exclude pullwright/** from it, or let the token's owner bypass it: {page}"
        email = self._context.settings.author_email
        if any(rule.kind in _HARD or rule.refuses(_BRANCH, email) for rule in stopping):
            return failed(f"branches below pullwright/ are refused by: {kinds}", fix)
        return warned(f"some pushes may be refused by: {kinds}", fix)

    def _workflow_files(self) -> ProbeFinding:
        self._needed()
        policy = PathPolicy(self._context.settings.allow_path, self._context.settings.protect_path)
        change = FileChange(_WORKFLOW_FILE, None, FileVersion("100644", b"", 0))
        if policy(change) is not None:
            return skipped("changes of workflows wait for a person (no --allow-path '.github/**')")
        scopes = self._answered().scopes
        if scopes is None and self.kind not in {TokenKind.WORKFLOW, TokenKind.NONE}:
            return skipped("unknown before a push changes one; the token needs workflows: write")
        if scopes is not None and "workflow" in scopes:
            return ok("may be changed, by the scope workflow")
        return failed("--allow-path lets workflows change, the token does not", self._grant("workflows"))

    def _checks(self) -> ProbeFinding:
        branch = self._needed().default_branch
        try:
            lacking = self._forge.unreadable_checks(branch) if branch is not None else []
        except ForgeNotFoundError as error:
            return warned(f"failed ones are never seen: {error}", self._grant("checks"))
        if lacking:
            found = f"the token may not read {' and '.join(lacking)}: failed ones are never seen"
            return warned(found, "; and ".join(map(self._grant, lacking)))
        match self.kind:
            case TokenKind.WORKFLOW:
                return warned("what a workflow's token pushes starts no checks", _OTHER_TOKEN)
            case TokenKind.NONE:
                return skipped("there is no token")
            case _:
                return ok("pull requests of this token start workflows")


def judge_clock(now: datetime, server: datetime) -> ProbeFinding:
    """Compare our clock with the server's."""
    seconds = (now - server).total_seconds()
    words = f"{_minutes(abs(seconds))} {'ahead of' if seconds > 0 else 'behind'} GitHub's"
    fix = "set the clock: sudo timedatectl set-ntp true (macOS: sudo sntp -sS time.apple.com)"
    if abs(seconds) > _SKEW_FAILS_SECONDS:
        return failed(f"{words}: claims allow for 10 minutes", fix)
    if abs(seconds) > _SKEW_WARNS_SECONDS:
        return warned(words, fix)
    return ok("agrees with GitHub's" if abs(seconds) < _SAME_SECONDS else words)


def _minutes(seconds: float) -> str:
    return f"{seconds:.0f} s" if seconds < 120 else f"{seconds / 60:.0f} min"  # noqa: PLR2004  two minutes
