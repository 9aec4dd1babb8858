"""The double of GitHub as a forge without HTTP: what it knows, read directly. Tests of rules for choosing use it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from orchestrator.bot.forge.base import (
    ACTIONS_APP,
    Check,
    CheckState,
    Comment,
    Edit,
    Feedback,
    FeedbackKind,
    Issue,
    IssueHistory,
    Permission,
    PullRequest,
    PullRequestState,
    TokenKind,
)
from orchestrator.core.errors import ForgeNotFoundError
from tests.doubles.github import bare, people
from tests.doubles.github.checks import ACTIONS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tests.doubles.github import state
    from tests.doubles.github.server import GitHub

_MOST_COMPARED = 300
_STATES: dict[str | None, CheckState] = {
    **dict.fromkeys(
        ("failure", "timed_out", "action_required", "startup_failure", "error"), CheckState.FAILED
    ),
    "success": CheckState.PASSED,
    None: CheckState.RUNNING,
    "pending": CheckState.RUNNING,
}


@dataclass(frozen=True)
class InMemoryGitHub:
    """What `GitHubForge` reads, of one repository of the double; `test_in_memory` compares the two."""

    github: GitHub
    repo: state.Repo
    login: str = "pullwright-bot"

    def open_issues(self, label: str) -> list[Issue]:
        wanted = {part.strip().lower() for part in label.split(",")}
        found = [self._issue(one) for one in self.repo.issues.values() if one.state == "open"]
        return [one for one in found if wanted <= {name.lower() for name in one.labels}]

    def ahead(self) -> timedelta:
        return self.github.skew or timedelta(0)

    def labelled_issues(self, label: str) -> list[int]:
        wanted = label.lower()
        found = self.repo.issues.items()
        return [number for number, one in found if wanted in {name.lower() for name in one.labels}]

    def issue(self, number: int) -> Issue:
        if number not in self.repo.issues:
            raise ForgeNotFoundError(f"no issue #{number} in {self.repo.full_name}")
        return self._issue(self.repo.issues[number])

    def blockers(self, issue: Issue) -> list[Issue]:
        one = self.repo.issues[issue.number]
        return [
            self._issue(other) for other in self._open(list(dict.fromkeys([*one.blocked_by, *one.parts])))
        ]

    def permission(self, login: str) -> Permission:
        name = login.lower()
        is_nobody = name in self.github.nobodies or name.endswith("[bot]") or not name
        held, role = self.repo.people.get(name, ("none" if is_nobody else "read", "read"))
        return Permission(role if role in {"triage", "maintain"} else held)

    def history(self, number: int, label: str) -> IssueHistory:
        thread = self.repo.threads[number]
        renames = [
            Edit(self._name(one.actor), one.at, "title") for one in thread.happenings if one.kind == "renamed"
        ]
        edits = [Edit(self._name(one.editor), one.at, "body") for one in reversed(thread.body_edits)]
        by, at = self._labelling(thread, label) or (None, None)
        return IssueHistory(by, at, (*renames, *edits[:1], *edits))

    def labelled_by(self, number: int, label: str) -> str | None:
        last = self._labelling(self.repo.threads[number], label)
        return last[0] if last else None

    def comments(self, number: int) -> list[Comment]:
        return [
            Comment(
                one.id,
                self._name(one.author),
                one.body,
                one.created_at,
                f"{self._page(number)}#issuecomment-{one.id}",
                one.updated_at,
            )
            for one in self.repo.threads[number].comments
        ]

    def read_file(self, path: str, fingerprint: str = "") -> str | None:
        del fingerprint
        content = self.repo.show(self.repo.default_branch, path)
        return None if content is None else content.decode()

    def our_pull_requests(self, branch_prefix: str | tuple[str, ...]) -> list[PullRequest]:
        self.repo.refresh_heads()
        own = [one for one in self.repo.pulls.values() if one.fork is None]
        found = [self._pull(one) for one in own if one.head.startswith(branch_prefix)]
        return sorted(found, key=lambda one: one.number, reverse=True)

    def linked_pull_requests(self, number: int) -> list[PullRequest]:
        found = [one for one in self.repo.pulls.values() if number in one.closes and one.state == "open"]
        # GraphQL was not asked for these two.
        return [replace(self._pull(one), reference="", base_commit="") for one in found]

    def feedback(self, number: int) -> list[Feedback]:
        pull = self.repo.pulls[number]
        page = self._page(number)
        found = [
            self._said(FeedbackKind.REVIEW, one, f"{page}#pullrequestreview-", state=one.state.lower())
            for one in pull.reviews
            if one.sent_at
        ]
        for thread in pull.review_threads:
            where: dict[str, Any] = {
                "path": thread.path,
                "line": thread.line,
                "is_resolved": thread.is_resolved,
            }
            found += [
                self._said(FeedbackKind.LINE, one, f"{page}#discussion_r", **where)
                for one in thread.comments
                if one.sent_at
            ]
        for one in self.comments(number):
            edited = one.updated_at or one.created_at
            found.append(
                Feedback(FeedbackKind.COMMENT, one.id, one.author, one.body, one.created_at, edited, one.url)
            )
        return sorted(found, key=lambda said: (said.created_at, said.id))

    def has_conflict(self, number: int) -> bool:
        return self.repo.pulls[number].mergeable_state == "dirty"

    def checks(self, commit: str) -> list[Check]:
        newest = {
            ("status" if one.is_status else f"run {one.app}", one.name): one for one in self._by_age(commit)
        }
        return [self._check(newest[key]) for key in sorted(newest)]

    def configured_checks(self, checks: Sequence[Check], commit: str, base: str) -> list[Check]:
        known = self.repo.changes.get(commit)
        changed = bare.changed(self.repo.path, base, commit) if known is None else known
        is_changed = (
            changed is None
            or len(changed) >= _MOST_COMPARED
            or any(path.startswith((".github/workflows/", ".github/actions/")) for path in changed)
        )
        required = {
            (one["context"], one.get("integration_id"))
            for rule in self.repo.rules.values()
            if rule.kind == "required_status_checks"
            for one in (rule.parameters or {})["required_status_checks"]  # type: ignore[attr-defined]
        }
        return [
            one
            for one in checks
            if (one.app == ACTIONS_APP and not is_changed) or (one.app and (one.name, one.app_id) in required)
        ]

    def make_label(self, label: str, description: str) -> bool:  # noqa: ARG002  nobody reads it here
        is_new = label.lower() not in {name.lower() for name in self.repo.labels}
        self.repo.labels += [label] * is_new
        return is_new

    def remove_label(self, number: int, label: str) -> None:
        thread = self.repo.threads[number]
        for name in [name for name in thread.labels if name.lower() == label.lower()]:
            people.unlabel(self.github, thread, name, self.login)

    def fingerprint(self) -> str:
        return repr((self.repo.threads, self.repo.branches().get(self.repo.default_branch)))

    def own_login(self) -> str | None:
        return self.login

    def token_kind(self) -> TokenKind:
        return TokenKind.FINE_GRAINED

    def _name(self, login: str) -> str:
        return "" if login.lower() in self.github.nobodies else login

    def _page(self, number: int, kind: str = "") -> str:
        kind = kind or ("pull" if number in self.repo.pulls else "issues")
        return f"{self.github.web_url}/{self.repo.full_name}/{kind}/{number}"

    def _labelling(self, thread: state.Thread, label: str) -> tuple[str, Any] | None:
        wanted, there, last = {part.strip().lower() for part in label.split(",")}, set[str](), None
        for one in sorted(thread.happenings, key=lambda one: (one.at, one.id)):
            name = one.label.lower()
            if one.kind == "unlabeled" and name in wanted:
                there.discard(name)
                last = None
            elif one.kind == "labeled" and name in wanted:
                there.add(name)
                last = (self._name(one.actor), one.at) if there == wanted else last
        return last

    def _issue(self, one: state.Issue) -> Issue:
        return Issue(
            one.number,
            one.title,
            one.body or "",
            one.state == "open",
            tuple(one.labels),
            self._name(one.author),
            self._page(one.number),
            one.created_at,
            tuple(one.assignees),
            one.updated_at,
            association="COLLABORATOR" if one.author in self.repo.people else "NONE",
            blocked_by=len(self._open(one.blocked_by)),
            open_parts=len(self._open(one.parts)),
        )

    def _open(self, numbers: list[int]) -> list[state.Issue]:
        return [self.repo.issues[number] for number in numbers if self.repo.issues[number].state == "open"]

    def _pull(self, one: state.Pull) -> PullRequest:
        return PullRequest(
            one.number,
            one.title,
            one.body or "",
            self._page(one.number),
            one.draft,
            PullRequestState.MERGED if one.merged_at else PullRequestState(one.state),
            one.head,
            one.base,
            one.head_sha,
            self._name(one.author),
            tuple(one.labels),
            one.created_at,
            one.updated_at,
            f"refs/pull/{one.number}/head",
            one.base_sha,
        )

    def _said(self, kind: FeedbackKind, one: state.Said, place: str, **where: Any) -> Feedback:
        sent = one.sent_at or one.created_at
        edited = max(sent, one.edited_at) if one.edited_at else sent
        return Feedback(
            kind, one.id, self._name(one.author), one.body, sent, edited, f"{place}{one.id}", **where
        )

    def _by_age(self, commit: str) -> Iterable[state.CheckRun]:
        return sorted(
            self.repo.checks.get(commit, ()), key=lambda one: (one.ended_at or one.started_at, one.id)
        )

    def _check(self, one: state.CheckRun) -> Check:
        found = _STATES.get(one.result, CheckState.OTHER)
        if one.is_status:
            return Check(one.name, found, one.summary, "")
        summary = f"{one.name}\n\n{one.summary}" if one.summary else ""
        page = f"{self.github.web_url}/{self.repo.full_name}/runs/{one.id}"
        app = ACTIONS_APP if one.app == ACTIONS else f"app-{one.app}"
        return Check(one.name, found, summary, page, app, one.app)
