"""One repository on GitHub: requests under its present name, its state, and what the token may do in it."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import quote

from orchestrator.bot.forge.base import RequestQuota, TokenKind
from orchestrator.core import event_loop
from orchestrator.core.errors import (
    ForgeAuthenticationError,
    ForgeError,
    ForgeNotFoundError,
    ForgePermissionError,
    ForgeRateLimitError,
    ForgeUnavailableError,
)
from orchestrator.plugins.github.calls import BACKOFF_SECONDS, ApiRequest, Calls, CallTiming, Transport
from orchestrator.plugins.github.parsing import LOGIN, to_repository

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from datetime import timedelta

    from orchestrator.bot.forge.base import Repository, Traffic

T = TypeVar("T")
SETTLED_SECONDS = 60.0
"""How long one of GitHub's answers may lag behind another. Combined answers are cached only after that."""
_NONE = (HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT)
"""How GitHub answers if there is no such branch, and if there is no commit at all."""
_NEWEST = {"sort": "updated", "direction": "desc", "per_page": "100"}
WORKFLOW_LOGIN = "github-actions[bot]"
ACTIONS_APP_ID = "15368"
"""The app of GitHub Actions on github.com. Workflows get its installation tokens."""
VIEWER = "query { viewer { login } }"
"""docs.github.com/graphql/reference/queries#viewer; it answers for apps as well, unlike `GET /user`."""
_PREFIXES = {
    "ghp_": TokenKind.CLASSIC,
    "github_pat_": TokenKind.FINE_GRAINED,
    "gho_": TokenKind.OAUTH,
    "ghu_": TokenKind.OAUTH,
    "ghs_": TokenKind.APP,
}
"""github.blog/engineering/behind-githubs-new-authentication-token-formats"""
_APP_ID = re.compile(r"ghs_([0-9]+)_")
_APPS = frozenset({TokenKind.APP, TokenKind.WORKFLOW})
"""Kinds of tokens that have no user name."""
_PEOPLE = frozenset({TokenKind.CLASSIC, TokenKind.FINE_GRAINED, TokenKind.OAUTH})
"""Kinds of tokens that belong to a person."""
_EXPIRY_FORM = "%Y-%m-%d %H:%M:%S %z"
_PATTERN_SECONDS = 5.0
_LATEST_RESET = 10**11
"""In seconds since 1970. A larger number is taken for an error."""
QUOTAS = ("core", "graphql")
"""The quotas that a run uses: docs.github.com/rest/rate-limit/rate-limit"""
BYPASSES = frozenset({"always", "exempt"})
"""Values of `current_user_can_bypass` with which a rule does not stop a push: docs.github.com/rest/repos/rules"""


@dataclass(frozen=True, slots=True)
class TokenFacts:
    """GitHub's statements about a token. None stands for an unknown value.

    Attributes:
        kind: the kind of the token.
        scopes: the scopes of a classic or an OAuth token; may be empty.
        expires_at: when a personal access token expires.
        quotas: the rate limits by interface; empty if the server has none.
        server_date: the server's clock when it answered.
    """

    kind: TokenKind
    scopes: tuple[str, ...] | None = None
    expires_at: datetime | None = None
    quotas: Mapping[str, RequestQuota] = field(default_factory=dict)
    server_date: datetime | None = None


def token_kind_of(token: str, *, in_workflow: bool = False) -> TokenKind:
    """Return the kind of a token by its form.

    In a workflow, an app's token without an app id in it counts as the workflow's.
    """
    if not token:
        return TokenKind.NONE
    found = next((kind for prefix, kind in _PREFIXES.items() if token.startswith(prefix)), TokenKind.OTHER)
    if found is TokenKind.APP and in_workflow:
        app = _APP_ID.match(token)
        return TokenKind.WORKFLOW if app is None or app[1] == ACTIONS_APP_ID else TokenKind.APP
    return found


@dataclass(frozen=True, slots=True)
class TokenView:
    """GitHub's description of a repository for this token.

    `roles` are the person's, not the token's; None if GitHub does not say.
    """

    name: str
    url: str
    is_private: bool
    is_archived: bool
    has_issues: bool
    default_branch: str | None
    roles: frozenset[str] | None


@dataclass(frozen=True, slots=True)
class BranchRule:
    """A rule for a branch, of the ruleset with this number. `kind` and `parameters` are GitHub's names and values."""

    kind: str
    ruleset: int
    parameters: Mapping[str, Any] = field(default_factory=dict)

    def refuses(self, branch: str, email: str) -> bool:
        """Return whether the rule certainly refuses a new branch of this name with commits of this address."""
        match self.kind:
            case "creation" | "required_signatures":  # commits are not signed here
                return True
            case "branch_name_pattern":
                return self._misses(branch)
            case "commit_author_email_pattern" | "committer_email_pattern":
                return self._misses(email)
            case _:
                return False

    def _misses(self, text: str) -> bool:
        """Return whether a text does not fit the rule's pattern: docs.github.com/rest/repos/rules."""
        operator, pattern = self.parameters.get("operator"), self.parameters.get("pattern")
        if not isinstance(pattern, str):
            return False
        is_negated = self.parameters.get("negate") is True
        match operator:
            case "starts_with":
                fits = text.startswith(pattern)
            case "ends_with":
                fits = text.endswith(pattern)
            case "contains":
                fits = pattern in text
            case "regex":
                # GitHub does not document where a pattern may match, so the reading that refuses less is used.
                known = _fits_in_time(pattern, text, whole=is_negated)
                if known is None:
                    return False
                fits = known
            case _:
                return False
        return fits if is_negated else not fits


def _fits_in_time(pattern: str, text: str, *, whole: bool) -> bool | None:
    """Return whether a repository's own pattern matches; None if it is invalid, or takes too long to know."""
    from orchestrator.engine.environments.limited_child import in_child

    asked = {"do": "fits", "pattern": pattern, "text": text, "whole": whole}
    answer = event_loop.run(in_child(asked, _PATTERN_SECONDS))
    return None if answer is None else answer.get("fits")


class RestRepository:
    """One repository, seen through any transport that sends requests.

    The subclass of `ForgeError` says what the token lacks: it is not valid, may not do it, or does not see the
    repository.

    Args:
        name: `owner/name`. A former name is resolved to the present one.
        transport: sends and signs the requests.
        timing: pacing, retries and waits.
        kind: the kind of the token by its form.
        in_workflow: whether this runs in GitHub Actions, whose token looks like any app's.
    """

    def __init__(
        self,
        name: str,
        transport: Transport,
        timing: CallTiming,
        kind: TokenKind,
        in_workflow: bool,  # noqa: FBT001
    ) -> None:
        self._name, self._transport = name, transport
        self._kind, self._in_workflow = kind, in_workflow
        self._login: str | None = None
        self._login_is_known = False
        self._calls, self._clock = Calls(transport, timing), timing.clock
        self._is_resolved = False
        self._default_branch: str | None = None
        self._has_issues = True
        self._url = ""
        self._head_seen: tuple[str | None, float] = (None, 0.0)

    def close(self) -> None:
        """Close the connections."""
        self._transport.close()

    def repository(self) -> Repository:
        """Return the repository itself, under its present name."""
        request = ApiRequest("GET", f"/repos/{self._name}", f"open the repository {self._name}")
        repository, has_issues = self._calls.read_cached(
            request,
            lambda data: (
                to_repository(data, is_empty=data["size"] == 0 and self._is_empty(data)),
                data.get("has_issues") is not False,
            ),
        )
        self._name, self._is_resolved, self._url = repository.name, True, repository.url
        self._default_branch, self._has_issues = repository.default_branch, has_issues
        return repository

    def traffic(self) -> Traffic:
        """Return the requests so far. A request that GitHub redirects counts once here, and twice at GitHub."""
        return self._calls.traffic()

    def fingerprint(self) -> str:
        """Return a short text that stays the same while nothing changes that a worker would act on.

        It covers the hundred issues and pull requests that were changed last, and the default branch's head.
        Both are requested with an ETag. The first call on an object that has not read the repository yet
        makes one request more, for its present name.

        GitHub updates `updated_at` for titles, bodies, labels, assignees, comments, reviews, pushes to a pull
        request's branch, closing and merging. It does not for reactions, resolved threads, runs of checks,
        statuses and people's permissions, nor always for an edited comment. This object learns of another
        default branch only when it reads the repository again.
        """
        page, head = self._newest_changes(), self._head()
        if page is None or head is None:
            # Either the repository was renamed, and the redirection lost the query, or the branch is gone.
            self.repository()
            page, head = self._newest_changes(), self._head()
        if page is None or head is None:
            raise ForgeError(
                f"cannot look for changes in {self._name}: its name or default branch keeps changing: try again later"
            )
        return hashlib.sha256(json.dumps([head, page]).encode()).hexdigest()

    def own_login(self) -> str | None:
        """Return our login as an author, a bot's with `[bot]`; asked once.

        None without a token, or if GitHub does not tell.
        """
        if not self._login_is_known and self._transport.has_token:
            self._login = (None if self._kind in _APPS else self._user()) or self._viewer()
            self._login_is_known = True
        return self._login

    def token_kind(self) -> TokenKind:
        """Return the kind of our token.

        In a workflow, its own token and another app's may have the same form. Our login tells them apart.
        """
        if self._in_workflow and self._kind in _APPS:
            login = self.own_login()
            if login is not None:
                return TokenKind.WORKFLOW if login == WORKFLOW_LOGIN else TokenKind.APP
        return self._kind

    def ahead(self) -> timedelta:
        """Return how far GitHub's clock is ahead of ours, as its last reply says; zero if it does not say."""
        return self._calls.ahead()

    def about_token(self) -> TokenFacts:
        """Return GitHub's statements about the token and its limits. The request counts against no limit.

        docs.github.com/rest/rate-limit/rate-limit; Enterprise servers without limits answer 404.
        """
        kind = self.token_kind()
        request = ApiRequest("GET", "/rate_limit", "ask about the token")
        reply = self._calls.call(request, accept=(HTTPStatus.NOT_FOUND,))
        quotas: Mapping[str, RequestQuota] = {}
        if reply.status != HTTPStatus.NOT_FOUND:
            quotas = self._calls.parsed(reply, request.doing, _to_quotas)
        scopes = reply.headers.get("x-oauth-scopes")
        return TokenFacts(
            kind=kind,
            scopes=None if scopes is None else tuple(filter(None, map(str.strip, scopes.split(",")))),
            expires_at=to_expiry(reply.headers.get("github-authentication-token-expiration", "")),
            quotas=quotas,
            server_date=_to_date(reply.headers.get("date", "")),
        )

    def facts(self) -> TokenView:
        """Return the repository as this token sees it."""
        branch = self.repository().default_branch
        request = self._request("GET", "", "read the repository")
        return self._calls.read_cached(request, lambda data: _to_facts(data, branch))

    def try_reading(self, part: str) -> None:
        """Read the first of the `issues` or `pulls`. Raise `ForgePermissionError` if the token may not read them."""
        query = {"per_page": "1", "state": "all"}
        self._calls.call(
            self._request("GET", f"/{part}", f"read the {part}", query=query), accept=(HTTPStatus.GONE,)
        )

    def has_label(self, label: str) -> bool:
        """Return whether the repository has a label of this name."""
        request = self._request("GET", f"/labels/{quote(label, safe='')}", "look for the label")
        return self._calls.call(request, accept=(HTTPStatus.NOT_FOUND,)).status == HTTPStatus.OK

    def rules(self, branch: str) -> Sequence[BranchRule]:
        """Return the active rules for a branch, which need not exist. Empty if the server has no rules.

        Classic branch protection is not included: only administrators may read it.
        """
        path = f"/rules/branches/{quote(branch, safe='')}"
        request = self._request("GET", path, "read the rules for branches")
        return self._calls.pages(request, _to_rule, most=1, empty=(HTTPStatus.NOT_FOUND,))

    def why_not_pushed(self, branch: str, email: str) -> str | None:
        """Return a message about a rule that certainly refuses a new branch, or None.

        None also if the rules cannot be read. Then only the push shows it.
        """
        try:
            refusing = [rule for rule in self.rules(branch) if rule.refuses(branch, email)]
            stopping = [rule for rule in refusing if not self.passes_by(rule.ruleset)]
        except (ForgeAuthenticationError, ForgeRateLimitError):
            raise
        except ForgeError:
            return None
        if not stopping:
            return None
        rule = stopping[0]
        wanted = f" ({rule.parameters['pattern']!r})" if rule.parameters.get("pattern") else ""
        return (
            f"the rule {rule.kind}{wanted} of {self._name} refuses to take the branch {branch}: exclude "
            f"{branch.partition('/')[0]}/** from it, or let the token's owner bypass it: "
            f"{self._url}/rules/{rule.ruleset}"
        )

    def passes_by(self, ruleset: int) -> bool:
        """Return whether we may bypass a ruleset. False if GitHub does not say."""
        request = self._request("GET", f"/rulesets/{ruleset}", "read a ruleset")
        reply = self._calls.call(request, accept=(HTTPStatus.NOT_FOUND, HTTPStatus.FORBIDDEN))
        body = reply.json()
        return isinstance(body, dict) and body.get("current_user_can_bypass") in BYPASSES

    def try_pull_request(self, branch: str) -> None:
        """Request a pull request from a branch to itself, which GitHub rejects even for those who may open one."""
        body = {"title": "pullwright doctor", "head": branch, "base": branch}
        self._send_invalid("/pulls", "open a pull request", body)

    def try_issue(self) -> None:
        """Request an issue without a title, which GitHub rejects even for those who may open one."""
        self._send_invalid("/issues", "write issues", {"title": ""})

    def _request(
        self,
        method: str,
        rest: str,
        doing: str,
        *,
        query: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
    ) -> ApiRequest:
        """Return a request below the repository, under its present name, because a redirection would lose the query."""
        if not self._is_resolved:
            self.repository()
        return ApiRequest(method, f"/repos/{self._name}{rest}", f"{doing} of {self._name}", query or {}, body)

    def _query(
        self, query: str, part: str, doing: str, reader: Callable[[Any], T], **variables: int | str | None
    ) -> T:
        """Ask GraphQL about a part of the repository, such as `issue`, or about all of it if `part` is empty.

        `reader` gets the part's JSON.
        """
        if not self._is_resolved:
            self.repository()
        owner, name = self._name.split("/")
        body = {"query": query, "variables": {"owner": owner, "name": name, **variables}}
        doing = f"{doing} of {self._name}"

        def read(data: Any) -> T | None:
            repository = data["data"]["repository"]
            found = repository and repository[part] if part else repository
            return None if found is None else reader(found)

        answer = self._calls.read(ApiRequest("POST", "", doing, body=body, is_graphql=True), read)
        if answer is None:
            why = "nothing has this number" if part else "there is no such repository"
            raise ForgeNotFoundError(f"cannot {doing}: {why}")
        return answer

    def _need_token(self, doing: str) -> None:
        if not self._transport.has_token:
            raise ForgeAuthenticationError(
                f"cannot {doing} in {self._name} without a token: set {self._transport.token_variable}"
            )

    def _is_empty(self, data: Mapping[str, Any]) -> bool:
        """Return whether a repository of size 0 has no commit. GitHub names `main` for it all the same.

        A new repository with commits may have size 0, too.
        """
        path = f"/repos/{data['full_name']}/git/ref/heads/{quote(data['default_branch'])}"
        reply = self._calls.get(ApiRequest("GET", path, f"look for commits in {self._name}"), accept=_NONE)
        return reply.status != HTTPStatus.OK

    def _ensure(self, look: Callable[[], T | None], create: Callable[[], T | None]) -> tuple[T, bool]:
        """Look, then create; after a lost reply look again, so that nothing is created twice.

        `create` returns None if GitHub says that the thing exists.
        """
        lost, reason = False, ""
        for delay in (*BACKOFF_SECONDS, None):
            found = look()
            if found is not None:
                return found, lost
            try:
                made = create()
            except ForgeUnavailableError as error:
                if delay is None:
                    raise
                lost, reason = True, str(error)
            else:
                if made is not None:
                    return made, True
                reason = "GitHub says that it exists, but does not list it yet"
            if delay is not None:
                self._calls.wait(delay, reason)
        raise ForgeUnavailableError(f"{self._name}: {reason}: try again later")

    def _newest_changes(self) -> list[Any] | None:
        """Return the relevant fields of the newest changes; None if they belong to a repository of another name."""
        kind = "issues" if self._has_issues or not self._is_resolved else "pulls"
        query = {"state": "all", **_NEWEST}
        request = self._request("GET", f"/{kind}", "look for changes", query=query)
        reply = self._calls.get(request, accept=(HTTPStatus.GONE,))
        if reply.status == HTTPStatus.GONE:
            self._has_issues = False
            request = self._request("GET", "/pulls", "look for changes", query=query)
            reply = self._calls.get(request)
        found = self._calls.parsed(
            reply, request.doing, lambda data: [(str(item["url"]), _relevant_fields(item)) for item in data]
        )
        if not all(self._is_ours(url) for url, _ in found):
            return None
        return [changing for _, changing in found]

    def _head(self) -> str | None:
        """Return the default branch and its commit, or `no commit`; None if there is no branch of this name."""
        if not self._is_resolved:
            self.repository()
        if self._default_branch is None:
            # GitHub's answer for an empty repository has no ETag, so this request counts against the rate limit.
            return "no commit" if self.repository().default_branch is None else self._head()
        place = f"/git/ref/heads/{quote(self._default_branch)}"
        request = self._request("GET", place, "read the default branch")
        reply = self._calls.get(request, accept=_NONE)
        if reply.status in _NONE:
            return None
        url, commit = self._calls.parsed(
            reply, request.doing, lambda data: (str(data["url"]), str(data["object"]["sha"]))
        )
        return f"{self._default_branch} {commit}" if self._is_ours(url) else None

    def _settled_head(self) -> str | None:
        """Return the same as `_head`, but None until it has stayed the same for `SETTLED_SECONDS`."""
        head, now = self._head(), self._clock.monotonic()
        if head != self._head_seen[0]:
            self._head_seen = head, now
        return head if now - self._head_seen[1] > SETTLED_SECONDS else None

    def _is_ours(self, url: str) -> bool:
        return f"/repos/{self._name}/".lower() in url.lower()

    def _user(self) -> str | None:
        """Return a person's login; None for a token that belongs to no person."""
        try:
            request = ApiRequest("GET", "/user", "ask who owns the token")
            return self._calls.read(request, lambda data: str(data["login"]))
        except ForgePermissionError:
            return None

    def _viewer(self) -> str | None:
        """Return an app's login, such as that of a workflow's token; or a person's, which `/user` did not tell."""
        body = {"query": VIEWER, "variables": {}}
        request = ApiRequest("POST", "", "ask who owns the token", body=body, is_graphql=True)
        try:
            login = self._calls.read(request, lambda data: str(data["data"]["viewer"]["login"]))
        except (ForgeAuthenticationError, ForgeRateLimitError, ForgeUnavailableError):
            raise
        except ForgeError:
            return None
        if self._kind not in _PEOPLE:
            login = f"{login.removesuffix('[bot]')}[bot]"
        return login if LOGIN.fullmatch(login) else None

    def _send_invalid(self, rest: str, doing: str, body: Mapping[str, Any]) -> None:
        reply = self._calls.call(
            self._request("POST", rest, doing, body=body), accept=(HTTPStatus.UNPROCESSABLE_ENTITY,)
        )
        if reply.status != HTTPStatus.UNPROCESSABLE_ENTITY:
            raise ForgeError(
                f"{self._name} accepted a request that GitHub rejects ({reply.status}): look at {self._url}{rest}"
            )


def _relevant_fields(item: Mapping[str, Any]) -> list[Any]:
    """Return the fields that show a change of an issue or pull request.

    Labels and comments show changes within the same second.
    """
    labels = sorted(label if isinstance(label, str) else str(label["name"]) for label in item["labels"])
    return [int(item["number"]), str(item["updated_at"]), str(item["state"]), labels, item.get("comments")]


def to_expiry(text: str) -> datetime | None:
    """Return the time in `github-authentication-token-expiration`, or None if it has another form.

    It is written as `2026-01-31 08:00:00 UTC` or with an offset, `2026-01-31 08:00:00 +0100`.
    """
    try:
        return datetime.strptime(text.strip().replace(" UTC", " +0000"), _EXPIRY_FORM).astimezone(UTC)
    except (ValueError, OverflowError):
        return None


def _to_date(text: str) -> datetime | None:
    try:
        found = parsedate_to_datetime(text)
    except ValueError:
        return None
    return found if found.tzinfo else found.replace(tzinfo=UTC)


def _to_facts(data: Mapping[str, Any], branch: str | None) -> TokenView:
    said = data.get("permissions")
    return TokenView(
        name=str(data["full_name"]),
        url=str(data["html_url"]),
        is_private=bool(data["private"]),
        is_archived=bool(data.get("archived")),
        has_issues=data.get("has_issues") is not False,
        default_branch=branch,
        roles=None if said is None else frozenset(name for name, has in said.items() if has),
    )


def _to_quotas(data: Mapping[str, Any]) -> Mapping[str, RequestQuota]:
    named = {name: data["resources"][name] for name in QUOTAS if name in data["resources"]}
    return {
        name: RequestQuota("", name, int(one["limit"]), int(one["remaining"]), _to_reset(one))
        for name, one in named.items()
    }


def _to_reset(quota: Mapping[str, Any]) -> datetime:
    seconds = int(quota["reset"])
    if not 0 <= seconds < _LATEST_RESET:
        raise ValueError(seconds)
    return datetime.fromtimestamp(seconds, UTC)


def _to_rule(data: Mapping[str, Any]) -> BranchRule:
    parameters = data.get("parameters")
    return BranchRule(
        str(data["type"]),
        int(data.get("ruleset_id") or 0),
        parameters if isinstance(parameters, dict) else {},
    )
