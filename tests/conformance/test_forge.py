"""What every forge promises, checked on both: real git behind each, GitHub over HTTP on loopback."""

from __future__ import annotations

import json
import subprocess
from abc import ABC, abstractmethod
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from orchestrator.bot.forge.base import CheckState, Forge, OwnCheck, Proposal, PullRequestState
from orchestrator.bot.forge.local import LocalForge
from orchestrator.core.clock import ManualClock
from orchestrator.core.errors import ForgeError, ForgeNotFoundError, ForgePermissionError
from orchestrator.core.redaction import REPLACEMENT
from orchestrator.engine.policy.secrets import Redactor
from tests.doubles.github import bare, checks
from tests.doubles.github.faults import lost_reply
from tests.doubles.github.forges import open_forge
from tests.doubles.github.server import GitHub
from tests.plugins import part_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping
    from pathlib import Path

FIX = Proposal("pullwright/1-fix", "main", "Fix it", "Because.", draft=True)


class World(ABC):
    """A repository, its forge, and the people around it."""

    path: Path
    forge: Forge

    def push(self, branch: str, files: Mapping[str, str | bytes | None]) -> str:
        return bare.commit(self.path, files, branch=branch, message="A commit", start="main")

    @abstractmethod
    def merge(self, number: int, branch: str) -> None:
        """Somebody merges."""

    @abstractmethod
    def close(self, number: int) -> None:
        """Somebody says no."""

    @abstractmethod
    def comments(self, number: int) -> list[str]:
        """What is said on a pull request, by key."""

    @abstractmethod
    def labels(self, number: int) -> list[str]:
        """A pull request's labels."""

    @abstractmethod
    def empty(self) -> Forge:
        """The forge of a repository without a commit."""

    @abstractmethod
    def empty_path(self) -> Path:
        """Where that repository is."""


class OnGitHub(World):
    def __init__(self, github: GitHub) -> None:
        self.github = github
        self.repo = github.add_repository("octo/demo", {"README.md": "# Demo\n", "docs/a.md": "a\n"})
        self.path = self.repo.path
        self.issue = github.add_issue(self.repo, "Broken", "It fails.", ["Pullwright", "bug"], "reporter")
        self.opened: list[Any] = []
        self.forge = self._open("octo/demo")

    def merge(self, number: int, branch: str) -> None:
        assert self.repo.pulls[number].head == branch
        self.github.merge(self.repo, number)

    def close(self, number: int) -> None:
        self.github.close(self.repo, number)

    def comments(self, number: int) -> list[str]:
        bodies = [comment.body for comment in self.repo.threads[number].comments]
        assert len(bodies) <= 1
        sections_of = part_of("github", ".pull_requests:sections_of")
        return [said for body in bodies for said in (sections_of(body) or {}).values()]

    def labels(self, number: int) -> list[str]:
        return self.repo.threads[number].labels

    def empty(self) -> Forge:
        self.github.add_repository("octo/empty", None)
        forge: Forge = self._open("octo/empty")
        return forge

    def empty_path(self) -> Path:
        return self.github.repositories[-1].path

    def _open(self, name: str) -> Any:
        forge = open_forge(self.github.web_url, name, self.github.token(), redactor=Redactor([SECRET]))
        self.opened.append(forge)
        return forge


class OnDisk(World):
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.path = folder / "demo.git"
        bare.create(self.path, "main")
        self.push("main", {"README.md": "# Demo\n", "docs/a.md": "a\n"})
        self.local = self._open(self.path)
        self.forge = self.local

    def push(self, branch: str, files: Mapping[str, str | bytes | None]) -> str:
        start = "main" if bare.branches(self.path) else None
        return bare.commit(self.path, files, branch=branch, message="A commit", start=start)

    def merge(self, number: int, branch: str) -> None:
        head = bare.branches(self.path)[branch]
        bare.merge(self.path, base="main", head=head, message=f"Merge #{number}")

    def close(self, number: int) -> None:
        self.local.close_pull_request(number)

    def comments(self, number: int) -> list[str]:
        return [comment["body"] for comment in self._record(number)["comments"]]

    def labels(self, number: int) -> list[str]:
        found: list[str] = self._record(number)["labels"]
        return found

    def _record(self, number: int) -> dict[str, Any]:
        file = self.folder / "state" / "demo" / "pulls" / f"{number}.json"
        found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        return found

    def empty(self) -> Forge:
        bare.create(self.folder / "empty.git", "main")
        return self._open(self.empty_path())

    def empty_path(self) -> Path:
        return self.folder / "empty.git"

    def _open(self, path: Path) -> LocalForge:
        root, redactor = self.folder / "state" / path.stem, Redactor([SECRET])
        return LocalForge(root, path, BareGit(path), clock=ManualClock(), redactor=redactor)


class BareGit:
    """What git says of a bare repository whose default branch is `main`."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def heads(self) -> tuple[str | None, dict[str, str]]:
        branches = bare.branches(self._path)
        return "main" if branches else None, branches

    def read_file(self, path: str, commit: str) -> str | None:
        data = bare.show(self._path, commit, path)
        return None if data is None else data.decode("utf-8-sig")

    def merged(self, commits: Collection[str], into: str) -> set[str]:
        return {one for one in commits if bare.commits_between(self._path, into, one) == 0}


@pytest.fixture
def on_github(tmp_path: Path) -> Iterator[OnGitHub]:
    with GitHub(tmp_path / "github") as github:
        world = OnGitHub(github)
        yield world
        for forge in world.opened:
            forge.close()
    assert github.violations == []


@pytest.fixture(params=["github", "local"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> World:
    if request.param == "local":
        return OnDisk(tmp_path)
    found: World = request.getfixturevalue("on_github")
    return found


# Each case is a promise of `Forge`, checked in a world with a pushed branch `pullwright/1-fix`.


def the_repository_can_be_cloned(world: World) -> None:
    found = world.forge.repository()
    assert found.name.endswith("demo") or found.name.endswith("demo.git")
    assert found.default_branch == "main"
    listed = subprocess.run(
        ["git", "ls-remote", found.clone_url, "refs/heads/main"], capture_output=True, text=True, check=True
    )
    assert listed.stdout.split() == [bare.branches(world.path)["main"], "refs/heads/main"]


def an_empty_repository_has_no_default_branch(world: World) -> None:
    forge = world.empty()
    assert forge.repository().default_branch is None
    assert forge.read_file("README.md") is None
    assert forge.our_pull_requests("pullwright/") == []


def files_are_read_from_the_default_branch(world: World) -> None:
    world.push("other", {"README.md": "# Other\n"})
    assert world.forge.read_file("README.md") == "# Demo\n"
    assert world.forge.read_file("docs/a.md") == "a\n"
    assert world.forge.read_file("docs") is None
    assert world.forge.read_file("none.md") is None
    world.push("main", {"README.md": "# New\n"})
    assert world.forge.read_file("README.md") == "# New\n"


def a_pull_request_is_created_once(world: World) -> None:
    assert world.forge.our_pull_requests("pullwright/") == []
    first, created = world.forge.ensure_pull_request(FIX)
    again, created_again = world.forge.ensure_pull_request(FIX)
    assert (created, created_again) == (True, False)
    assert first == again
    assert world.forge.our_pull_requests("pullwright/") == [first]
    said = Proposal(first.branch, first.base, first.title, first.body, draft=first.draft)
    assert said == FIX
    assert first.state is PullRequestState.OPEN
    assert first.commit == bare.branches(world.path)[FIX.branch]
    assert "://" in first.url


def one_pull_request_is_read_as_it_is_now(world: World) -> None:
    made, _ = world.forge.ensure_pull_request(FIX)
    found = world.forge.pull_request(made.number)
    assert (found.number, found.title, found.body, found.base, found.branch) == (
        made.number,
        FIX.title,
        FIX.body,
        FIX.base,
        FIX.branch,
    )
    assert found.reference in {f"refs/pull/{made.number}/head", f"refs/heads/{FIX.branch}"}
    commit = world.push(FIX.branch, {"more.py": "more\n"})
    assert world.forge.pull_request(made.number).commit == commit
    world.merge(made.number, FIX.branch)
    assert world.forge.pull_request(made.number).state is PullRequestState.MERGED
    with pytest.raises(ForgeNotFoundError):
        world.forge.pull_request(99)


def a_pull_request_is_brought_up_to_date(world: World) -> None:
    first, _ = world.forge.ensure_pull_request(FIX)
    commit = world.push(FIX.branch, {"more.py": "more\n"})
    assert [pull.commit for pull in world.forge.our_pull_requests("")] == [commit]
    changed = replace(FIX, title="Fix it well", body="Ünïcode\n\n<!-- marker -->", draft=False)
    second, created = world.forge.ensure_pull_request(changed)
    assert not created
    assert (second.number, second.title, second.body) == (first.number, changed.title, changed.body)
    assert (second.commit, second.draft) == (commit, True)
    assert world.forge.our_pull_requests("") == [second]


def merged_and_closed_are_told_apart(world: World) -> None:
    world.push("pullwright/2-other", {"other.py": "other\n"})
    merged, _ = world.forge.ensure_pull_request(FIX)
    closed, _ = world.forge.ensure_pull_request(replace(FIX, branch="pullwright/2-other"))
    world.merge(merged.number, FIX.branch)
    bare.git(world.path, "update-ref", "-d", f"refs/heads/{FIX.branch}")
    world.close(closed.number)
    states = {pull.number: pull.state for pull in world.forge.our_pull_requests("pullwright/")}
    assert states == {merged.number: PullRequestState.MERGED, closed.number: PullRequestState.CLOSED}


def a_closed_one_is_not_reopened(world: World) -> None:
    first, _ = world.forge.ensure_pull_request(FIX)
    world.close(first.number)
    second, created = world.forge.ensure_pull_request(FIX)
    assert created
    assert second.number > first.number
    assert [pull.number for pull in world.forge.our_pull_requests("")] == [second.number, first.number]


def ours_are_those_with_the_prefix_newest_first(world: World) -> None:
    made = {}
    for branch in ("pullwright/2", "ada/fix", "pullwright/10", "pullwrightish"):
        world.push(branch, {f"{branch}.py": "x\n"})
        made[branch] = world.forge.ensure_pull_request(replace(FIX, branch=branch))[0].number
    assert list(made.values()) == sorted(made.values())
    found = [pull.branch for pull in world.forge.our_pull_requests("pullwright/")]
    assert found == ["pullwright/10", "pullwright/2"]


def a_branch_that_does_not_exist_is_an_error(world: World) -> None:
    with pytest.raises(ForgeError, match="pullwright/none"):
        world.forge.ensure_pull_request(replace(FIX, branch="pullwright/none"))
    assert world.forge.our_pull_requests("") == []


def a_branch_without_a_commit_of_its_own_is_an_error(world: World) -> None:
    first, _ = world.forge.ensure_pull_request(FIX)
    world.merge(first.number, FIX.branch)
    with pytest.raises(ForgeError, match=r"(?i)no commits between"):
        world.forge.ensure_pull_request(FIX)
    assert len(world.forge.our_pull_requests("")) == 1


def a_question_is_asked_once_for_a_key(world: World) -> None:
    first = world.forge.ensure_question(1, "task-1", "Which one?")
    assert world.forge.ensure_question(1, "task-1", "Which one?") == first
    assert world.forge.ensure_question(1, "task-1", "Or that one?") == first
    assert world.forge.ensure_question(1, "task-2", "And why?") != first
    assert first is not None


def an_issue_that_does_not_exist_is_not_found(world: World) -> None:
    with pytest.raises(ForgeNotFoundError):
        world.forge.issue(999)
    assert world.forge.open_issues("no-such-label") == []


def nobody_is_known_to_write_who_was_not_let_in(world: World) -> None:
    for login in ("mallory", "evil[bot]", "", "../user"):
        assert not world.forge.permission(login).may_write


def what_is_said_on_an_issue_that_does_not_exist_is_not_found(world: World) -> None:
    with pytest.raises(ForgeNotFoundError):
        world.forge.history(999, "pullwright")
    with pytest.raises(ForgeNotFoundError):
        world.forge.comments(999)


def a_comment_is_made_once_for_a_key(world: World) -> None:
    pull, _ = world.forge.ensure_pull_request(FIX)
    first = world.forge.ensure_comment(pull.number, "held", "Two files wait.")
    assert world.forge.ensure_comment(pull.number, "held", "One file waits.") == first
    world.forge.ensure_comment(pull.number, "other -->", "More.")
    assert "://" in first
    assert world.forge.ensure_comment(pull.number, "held", "No file waits.") == first
    assert [found.number for found in world.forge.our_pull_requests("")] == [pull.number]
    assert world.comments(pull.number) == ["No file waits.", "More."]


def an_empty_comment_takes_back_what_was_said(world: World) -> None:
    pull, _ = world.forge.ensure_pull_request(FIX)
    assert "://" in world.forge.ensure_comment(pull.number, "none", "")
    for key in ("held", "other"):
        world.forge.ensure_comment(pull.number, key, f"About {key}.")
    world.forge.ensure_comment(pull.number, "held", " ")
    assert world.comments(pull.number) == ["About other."]
    world.forge.ensure_comment(pull.number, "other", "")
    assert world.comments(pull.number) == []


def a_label_is_put_on_once(world: World) -> None:
    pull, _ = world.forge.ensure_pull_request(FIX)
    for label in ("weaker-tests", "Weaker-Tests", "bug"):
        world.forge.ensure_label(pull.number, label)
    assert [found.number for found in world.forge.our_pull_requests("")] == [pull.number]
    assert world.labels(pull.number) == ["weaker-tests", "bug"]


def a_label_of_the_repository_is_made_once(world: World) -> None:
    first, again = (world.forge.make_label("Later", "For later.") for _ in range(2))
    assert not again
    assert first is not isinstance(world, OnDisk)


def a_label_is_taken_off(world: World) -> None:
    pull, _ = world.forge.ensure_pull_request(FIX)
    for label in ("needs a look/now", "bug"):
        world.forge.ensure_label(pull.number, label)
    for _ in range(2):
        world.forge.remove_label(pull.number, "Needs a look/now")
    world.forge.remove_label(pull.number, "never there")
    assert world.labels(pull.number) == ["bug"]


def the_fingerprint_changes_with_what_happens_and_with_nothing_else(world: World) -> None:
    forge = world.forge
    pull, _ = forge.ensure_pull_request(FIX)
    forge.repository()
    before = forge.fingerprint()
    assert forge.fingerprint() == before
    forge.ensure_pull_request(FIX)
    forge.our_pull_requests("pullwright/")
    assert forge.fingerprint() == before
    acts: list[Callable[[], object]] = [
        lambda: forge.ensure_comment(pull.number, "held", "Hello"),
        lambda: forge.ensure_comment(pull.number, "held", "Hello again"),
        lambda: forge.ensure_label(pull.number, "bug"),
        lambda: forge.remove_label(pull.number, "bug"),
        lambda: world.push("main", {"more.md": "more\n"}),
        lambda: world.close(pull.number),
        lambda: forge.ensure_pull_request(FIX),
    ]
    for act in acts:
        act()
        after = forge.fingerprint()
        assert after != before
        assert forge.fingerprint() == after
        before = after


def the_fingerprint_of_an_empty_repository_changes_with_its_first_commit(world: World) -> None:
    forge = world.empty()
    before = forge.fingerprint()
    assert forge.fingerprint() == before
    bare.commit(world.empty_path(), {"README.md": "# First\n"}, branch="main", message="First")
    assert forge.fingerprint() != before


def whose_token_it_is_can_be_asked_again(world: World) -> None:
    assert world.forge.own_login() == world.forge.own_login()
    assert world.forge.token_kind() is world.forge.token_kind()


def the_ledger_only_grows(world: World) -> None:
    before = world.forge.traffic()
    world.forge.ensure_pull_request(FIX)
    spent = world.forge.traffic() - before
    assert 0 <= spent.writes <= spent.requests
    assert 0 <= spent.unchanged <= spent.requests


def nothing_is_said_or_labelled_where_there_is_nothing(world: World) -> None:
    with pytest.raises(ForgeNotFoundError):
        world.forge.ensure_comment(999, "held", "Hello")
    with pytest.raises(ForgeNotFoundError):
        world.forge.ensure_comment(999, "held", "")
    with pytest.raises(ForgeNotFoundError):
        world.forge.ensure_label(999, "bug")
    with pytest.raises(ForgeNotFoundError):
        world.forge.remove_label(999, "bug")


def no_text_that_is_written_holds_a_secret(world: World) -> None:
    text = f"so {SECRET} and {SECRET[::-1]} are"
    made, created = world.forge.ensure_pull_request(replace(FIX, title=text, body=text))
    again, created_again = world.forge.ensure_pull_request(replace(FIX, title=text, body=text))
    assert (created, created_again) == (True, False)
    world.forge.ensure_comment(made.number, "key", text)
    world.forge.ensure_question(None, "other", text)
    read = world.forge.pull_request(made.number)
    clean = f"so {REPLACEMENT} and {REPLACEMENT} are"
    for pull in (made, again, read):
        assert (pull.title, pull.body) == (clean, clean)
    assert world.comments(made.number) == [clean]


CASES: list[Callable[[World], None]] = [
    no_text_that_is_written_holds_a_secret,
    the_repository_can_be_cloned,
    an_empty_repository_has_no_default_branch,
    files_are_read_from_the_default_branch,
    a_pull_request_is_created_once,
    one_pull_request_is_read_as_it_is_now,
    a_pull_request_is_brought_up_to_date,
    merged_and_closed_are_told_apart,
    a_closed_one_is_not_reopened,
    ours_are_those_with_the_prefix_newest_first,
    a_branch_that_does_not_exist_is_an_error,
    a_branch_without_a_commit_of_its_own_is_an_error,
    a_question_is_asked_once_for_a_key,
    an_issue_that_does_not_exist_is_not_found,
    nobody_is_known_to_write_who_was_not_let_in,
    what_is_said_on_an_issue_that_does_not_exist_is_not_found,
    a_comment_is_made_once_for_a_key,
    an_empty_comment_takes_back_what_was_said,
    a_label_is_put_on_once,
    a_label_is_taken_off,
    the_fingerprint_changes_with_what_happens_and_with_nothing_else,
    the_fingerprint_of_an_empty_repository_changes_with_its_first_commit,
    whose_token_it_is_can_be_asked_again,
    the_ledger_only_grows,
    nothing_is_said_or_labelled_where_there_is_nothing,
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_a_forge_keeps_its_promise(case: Callable[[World], None], world: World) -> None:
    world.push(FIX.branch, {"fix.py": "fixed = True\n"})
    case(world)


SECRET = "zebraquartzmellowfinch"
CHECK = OwnCheck("pullwright:x", "Ours", "", CheckState.FAILED, "It does not hold.", "Because.")


def test_a_folder_has_no_check_runs(tmp_path: Path) -> None:
    with pytest.raises(ForgePermissionError, match="a local repository has no check runs"):
        OnDisk(tmp_path).forge.ensure_check(CHECK)


class Checking:
    """A repository on GitHub, asked under the tokens of Apps."""

    def __init__(self, world: OnGitHub) -> None:
        self.world, self.github, self.repo = world, world.github, world.repo
        self.commit = world.push("feature", {"a.py": "a\n"})
        self.check = replace(CHECK, commit=self.commit)

    def forge(self, permissions: Mapping[str, str] | None = None) -> Any:
        """Under the token of a new App."""
        may = {"contents": "read", "checks": "write"} if permissions is None else permissions
        app = self.github.app(["octo/demo"], permissions=may)
        token, _ = self.github.installation_token(app, ["octo/demo"])
        return self.opened(token)

    def opened(self, token: str) -> Any:
        forge = open_forge(self.github.web_url, "octo/demo", token)
        self.world.opened.append(forge)
        return forge

    @property
    def said(self) -> list[tuple[str, str | None, str]]:
        return [(run.title, run.result, run.summary) for run in self.repo.checks.get(self.commit, ())]


@pytest.fixture
def checking(on_github: OnGitHub) -> Checking:
    return Checking(on_github)


def test_a_check_run_is_written_once_and_then_changed(checking: Checking) -> None:
    checks.check(checking.github, checking.repo, checking.commit, "Ours", "success", "of somebody else")
    forge = checking.forge()
    url = forge.ensure_check(checking.check)
    good = replace(checking.check, state=CheckState.PASSED, title="It holds.", summary="All of it.")
    assert forge.ensure_check(good) == url
    assert checking.said == [("", "success", "of somebody else"), ("It holds.", "success", "All of it.")]
    other = replace(
        checking.check, commit=checking.world.push("feature", {"b.py": "b\n"}), state=CheckState.OTHER
    )
    assert forge.ensure_check(other) != url
    assert [run.result for run in checking.repo.checks[other.commit]] == ["neutral"]


def test_a_check_run_of_another_app_is_left_as_it_is(checking: Checking) -> None:
    first = checking.forge().ensure_check(checking.check)
    assert checking.forge().ensure_check(replace(checking.check, title="Mine")) != first
    assert [title for title, _, _ in checking.said] == ["It does not hold.", "Mine"]


def test_a_check_run_whose_reply_is_lost_is_written_once(checking: Checking) -> None:
    checking.github.faults.append(lost_reply("POST", ".*/check-runs"))
    checking.forge().ensure_check(checking.check)
    assert len(checking.said) == 1


@pytest.mark.parametrize(
    "permissions", [{"contents": "read", "checks": "read"}, None], ids=["read-only", "personal"]
)
def test_a_token_that_may_not_write_a_check_run_is_told(
    checking: Checking, permissions: dict[str, str] | None
) -> None:
    all_of_it = {"contents": "write", "checks": "write"}
    token = checking.github.token(permissions=all_of_it)
    forge = checking.forge(permissions) if permissions else checking.opened(token)
    with pytest.raises(ForgePermissionError, match="cannot write a check run"):
        forge.ensure_check(checking.check)
    assert checking.said == []


# Issues exist on GitHub only.


def test_issues_come_oldest_first_without_pull_requests(on_github: OnGitHub) -> None:
    github, repo, forge = on_github.github, on_github.repo, on_github.forge
    github.add_issue(repo, "Other label", labels=["bug"])
    late = github.add_issue(repo, "Late", labels=["pullwright"])
    github.close(repo, github.add_issue(repo, "Closed", labels=["pullwright"]).number)
    github.add_pull(repo, "x").labels.append("pullwright")

    found = forge.open_issues("pullwright")

    assert [issue.number for issue in found] == [on_github.issue.number, late.number]
    first = found[0]
    assert (first.title, first.body, first.author, first.is_open) == ("Broken", "It fails.", "reporter", True)
    assert first.labels == ("Pullwright", "bug")
    assert first.created_at == on_github.issue.created_at
    assert forge.issue(first.number) == first


def test_a_closed_issue_says_so(on_github: OnGitHub) -> None:
    on_github.github.close(on_github.repo, on_github.issue.number)
    assert on_github.forge.issue(on_github.issue.number).is_open is False


def test_a_pull_request_is_no_issue(on_github: OnGitHub) -> None:
    on_github.push(FIX.branch, {"fix.py": "fixed\n"})
    pull, _ = on_github.forge.ensure_pull_request(FIX)
    with pytest.raises(ForgeNotFoundError, match="is a pull request: name an issue"):
        on_github.forge.issue(pull.number)


def test_a_question_is_one_comment_on_the_issue(on_github: OnGitHub) -> None:
    forge, issue = on_github.forge, on_github.issue
    forge.ensure_question(issue.number, "1", "Which one?")
    url = forge.ensure_question(issue.number, "1", "Or that one?")
    [comment] = issue.comments
    assert comment.body == "Or that one?\n\n<!-- pullwright:question:1 -->"
    assert comment.author == "pullwright-bot"
    assert url is not None
    assert f"/octo/demo/issues/{issue.number}#issuecomment-{comment.id}" in url
