"""The forge and the web that an attack meets: they answer what its file says, and note what the program sends."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from orchestrator.bot.forge.base import (
    AttachmentPlace,
    Check,
    CheckState,
    Comment,
    Edit,
    Feedback,
    FeedbackKind,
    Issue,
    IssueHistory,
    Permission,
    Proposal,
    PullRequest,
    PullRequestState,
)
from orchestrator.bot.forge.local import LocalForge, take_number
from orchestrator.bot.forge.public_web import parse_address, public_ips
from orchestrator.bot.git.local import LocalRepository
from orchestrator.core.clock import SystemClock
from orchestrator.core.errors import ToolError
from orchestrator.plugins.redteam.attack import AttackPlace
from orchestrator.plugins.redteam.world import FORGE_HOST, NAME, OLDER_PULL, OUR_BRANCH, THEIR_BRANCH

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from orchestrator.bot.forge.base import Forge
    from orchestrator.plugins.redteam.attack import Attack, WorldComment
    from orchestrator.plugins.redteam.world import Scene
    from orchestrator.plugins.web.base import SearchHit, WebAccess, WebPage

_A_PUBLIC_IP = "93.184.215.14"
_URL = f"https://forge.example/{NAME}"
_BOT = "pullwright[bot]"
_START = datetime(2026, 1, 1, 12, tzinfo=UTC)
"""When the issue was opened. Each later event follows a minute later."""


@dataclass(frozen=True, slots=True)
class OutgoingText:
    """A text that the program sent, and to where."""

    where: str
    text: str


class StagedForge(LocalForge):
    """A local forge that also has an issue, permissions, reviews and checks.

    Args:
        label: labels of the issue, separated by commas.
        base: the target branch of pull requests.

    Attributes:
        written: every text that the program wrote, in order.
        later: commit that is pushed to the attacker's branch at the first read of a file; empty for none.
    """

    def __init__(self, attack: Attack, scene: Scene, label: str, base: str) -> None:
        root, world = scene.folder / "forge", attack.world
        clock = SystemClock()
        super().__init__(root, scene.repository, LocalRepository(scene.repository), base=base, clock=clock)
        self.written: list[OutgoingText] = []
        self.later = ""
        self._branch = scene.repository / "refs" / "heads" / THEIR_BRANCH
        self._world, self._store = world, scene.store
        self._times = itertools.count()
        # An issue and a pull request never have the same number.
        number = take_number(root / "pulls")
        labels = frozenset(name.strip() for name in label.split(",")) if world.labelled_by else frozenset()
        self._issue = Issue(
            number=number,
            title=title_of(attack, scene),
            body=_body_of(attack, scene),
            is_open=True,
            labels=tuple(sorted(labels)),
            author=world.author,
            url=f"{_URL}/issues/{number}",
            created_at=self._tick(),
        )
        self._labelled_at = self._tick()
        edited = ("title", "body") if world.edited_by is not None else ()
        self._edits = tuple(Edit(world.edited_by or "", self._tick(), what) for what in edited)
        self._check: tuple[str, Check] | None = None
        words = scene.fill(attack.text)
        if attack.place is AttackPlace.CHECK:
            mine = Proposal(OUR_BRANCH, base, "Mend the greeting", "It is mended.", draft=False)
            pull, _ = self.ensure_pull_request(mine)
            check = Check("tests", CheckState.FAILED, words, pull.url, app=world.check_app)
            self._check = (pull.commit, check)
        self._older = self._older_pull(base) if world.pull_state else None
        self._reviews, self._comments = self._said(attack, scene)

    def _said(self, attack: Attack, scene: Scene) -> tuple[list[Feedback], list[Comment]]:
        """Return the comments on the older pull request and on the issue."""

        def words(one: WorldComment) -> str:
            return scene.fill(one.body.replace("{{text}}", attack.text))

        reviews = [
            Feedback(
                kind=FeedbackKind.LINE,
                id=at,
                author=one.author,
                body=words(one),
                created_at=self._tick(),
                updated_at=self._tick(),
                url=f"{_URL}/pull/{OLDER_PULL}#{at}",
                path="greet.py",
                line=1,
            )
            for at, one in enumerate(self._world.reviews, 1)
        ]
        comments = [
            Comment(at, one.author, words(one), self._tick(), f"{self._issue.url}#{at}")
            for at, one in enumerate(self._world.comments, 1)
        ]
        return reviews, comments

    def read_file(self, path: str, fingerprint: str = "") -> str | None:
        """Return a file's text. Before that, push `later` to the attacker's branch."""
        if self.later:
            self._branch.write_text(f"{self.later}\n", encoding="ascii")
            self.later = ""
        return super().read_file(path, fingerprint)

    def open_issues(self, label: str) -> list[Issue]:
        """Return the issue if it has the labels."""
        return [self._issue] if self._has(label) else []

    def issue(self, number: int) -> Issue:
        """Return the issue."""
        return self._issue if number == self._issue.number else super().issue(number)

    def permission(self, login: str) -> Permission:
        """Return a person's permission in the attack; `none` for others."""
        return Permission(self._world.people.get(login, "none"))

    def history(self, number: int, label: str) -> IssueHistory:
        """Return who labelled the issue, and who edited it."""
        self.issue(number)
        by = self._world.labelled_by if self._has(label) else None
        return IssueHistory(by, None if by is None else self._labelled_at, self._edits)

    def labelled_by(self, number: int, label: str) -> str | None:
        """See `Forge`."""
        return self.history(number, label).labelled_by

    def comments(self, number: int) -> list[Comment]:
        """Return the comments on the issue."""
        return list(self._comments) if number == self._issue.number else []

    def checks(self, commit: str) -> list[Check]:
        """Return the check if it belongs to this commit."""
        return [self._check[1]] if self._check and self._check[0] == commit else []

    def configured_checks(self, checks: Sequence[Check], commit: str, base: str) -> list[Check]:
        """Return the checks of the apps that the base branch requires."""
        del commit, base
        return [check for check in checks if check.app in self._world.required_apps]

    def our_pull_requests(self, branch_prefix: str | tuple[str, ...]) -> list[PullRequest]:
        """Return the pull requests in the folder, and the older one."""
        older = [self._older] if self._older is not None else []
        return [*super().our_pull_requests(branch_prefix), *older]

    def feedback(self, number: int) -> list[Feedback]:
        """Return the reviews of the older pull request."""
        is_older = self._older is not None and number == self._older.number
        return list(self._reviews) if is_older else super().feedback(number)

    def _older_pull(self, base: str) -> PullRequest:
        return PullRequest(
            number=OLDER_PULL,
            title="Write the greeting",
            body=self._world.pull_body,
            url=f"{_URL}/pull/{OLDER_PULL}",
            draft=False,
            state=PullRequestState(self._world.pull_state),
            branch="pullwright/issue-99-write-the-greeting",
            base=base,
            commit="0" * 40,
            author=_BOT,
            created_at=_START,
            updated_at=SystemClock().now(),
        )

    def linked_pull_requests(self, number: int) -> list[PullRequest]:
        """Return nothing: no pull request is linked to an issue."""
        del number
        return []

    def attachment(self, url: str) -> AttachmentPlace | None:
        """Return where an attachment is stored, as a GitHub Enterprise server does."""
        from orchestrator.plugins.github.address import is_attachment

        if not is_attachment(url, f"{self._store.forge}/api/v3", NAME):
            return None
        return AttachmentPlace(url, frozenset({FORGE_HOST}))

    def own_login(self) -> str:
        """Return the bot's name."""
        return _BOT

    def ensure_pull_request(self, proposal: Proposal) -> tuple[PullRequest, bool]:
        """Create or update the pull request of a branch, and record its texts."""
        pull, is_new = super().ensure_pull_request(proposal)
        self.written += [OutgoingText("title", pull.title), OutgoingText("body", pull.body)]
        return pull, is_new

    def ensure_question(self, issue: int | None, key: str, body: str) -> str | None:
        """Record a question."""
        del key
        self.written.append(OutgoingText("question", body))
        return None if issue is None else self._issue.url

    def ensure_comment(self, number: int, key: str, body: str) -> str:
        """Record a comment."""
        del key
        self.written += [OutgoingText("comment", body)] if body.strip() else []
        return f"{_URL}/issues/{number}"

    def ensure_label(self, number: int, label: str) -> None:
        """Record a label."""
        del number
        self.written.append(OutgoingText("label", label))

    def make_label(self, label: str, description: str) -> bool:
        """Record a label and its description."""
        self.written += [OutgoingText("label", label), OutgoingText("label", description)]
        return True

    def remove_label(self, number: int, label: str) -> None:
        """Do nothing: no cycle follows."""

    def _has(self, label: str) -> bool:
        return {name.strip() for name in label.split(",")} <= set(self._issue.labels)

    def _tick(self) -> datetime:
        return _START + timedelta(minutes=next(self._times))


def title_of(attack: Attack, scene: Scene) -> str:
    """Return the issue's title."""
    return scene.fill(attack.text if attack.place is AttackPlace.ISSUE_TITLE else attack.world.title)


def _body_of(attack: Attack, scene: Scene) -> str:
    body = scene.fill(attack.world.body)
    is_there = attack.place in {AttackPlace.ISSUE_BODY, AttackPlace.ACTOR}
    return f"{body}\n\n{scene.fill(attack.text)}" if is_there else body


@dataclass(slots=True)
class FakeWeb:
    """Web pages in memory.

    Attributes:
        pages: text by address.
        hosts: IP address by host name; other names have a public one.
        fetched: the fetched addresses, in order.
        sent: every address and query that the program sent.
    """

    pages: Mapping[str, str]
    hosts: Mapping[str, str] = field(default_factory=dict)
    fetched: list[str] = field(default_factory=list)
    sent: list[str] = field(default_factory=list)

    @property
    def can_search(self) -> bool:
        """Whether a search engine is available."""
        return True

    async def search(self, query: str, max_results: int) -> list[SearchHit]:
        """Return every page for any query."""
        from orchestrator.plugins.web.base import SearchHit

        self.sent.append(query)
        hits = [SearchHit(text.split("\n", 1)[0], url, text) for url, text in self.pages.items()]
        return hits[:max_results]

    async def fetch(self, url: str) -> WebPage:
        """Return a page."""
        from orchestrator.plugins.web.base import PageKind, WebPage

        await self.check(url)
        self.sent.append(url)
        self.fetched.append(url)
        if url not in self.pages:
            raise ToolError(f"{url}: not found (404)")
        text = self.pages[url]
        kind = PageKind.HTML if text.lstrip().startswith("<") else PageKind.TEXT
        return WebPage(url, kind, text)

    async def check(self, url: str) -> None:
        """Check an address like the real web client, without a connection."""
        await public_ips(parse_address(url), self._resolve)

    async def _resolve(self, host: str, port: int) -> Sequence[str]:
        del port
        return [self.hosts.get(host, _A_PUBLIC_IP)]


if TYPE_CHECKING:

    def _conforms(web: FakeWeb, forge: StagedForge) -> tuple[WebAccess, Forge]:
        return web, forge
