"""`digest`: on real journals, with other people's words in them, and a webhook on loopback."""

from __future__ import annotations

import argparse
import json
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from orchestrator.app.cli import arguments
from orchestrator.bot.journal.digest import Digest
from orchestrator.bot.journal.folders import Home, create_run_folder
from orchestrator.bot.journal.records import JournalWriter
from orchestrator.bot.journal.run_facts import RunSummary
from orchestrator.core.changes import diff_stat
from orchestrator.core.clock import ManualClock, SystemClock
from orchestrator.core.cycle_events import CycleEnded, CycleStarted, Proposed, TaskTaken
from orchestrator.core.errors import ConfigurationError, ConnectionFailedError, JournalError
from orchestrator.core.events import ReplyReceived
from orchestrator.core.messages import FinishReason, Message, Spent, Usage
from orchestrator.engine.policy.secrets import Redactor
from orchestrator.plugins.digest.command import (
    MOST_MESSAGE_CHARS,
    SafeMarkdown,
    as_markdown,
    as_message,
    digest,
    run_as_markdown,
    send_webhook,
    since_time,
    webhook_of,
)
from tests.doubles.loopback import Loopback, LoopbackHandler
from tests.tables import table
from tests.unit.bot.worker.test_results import STATES

if TYPE_CHECKING:
    from collections.abc import Iterator
    from http.server import BaseHTTPRequestHandler
    from pathlib import Path


NOW = datetime(2026, 1, 2, 12, tzinfo=UTC)
SECRET = "hunter2-and-more-of-it"
PULL = Proposed(7, "Make add() add", "https://github.com/o/r/pull/7", "b", "c", created=True)
NOTE = RunSummary(
    "20260102-110000-abcdef",
    NOW,
    NOW + timedelta(minutes=2.5),
    "o/r",
    "m:1",
    "proposed",
    task=TaskTaken("issue-1", "add() subtracts", "", "issue", 1),
    task_url="https://github.com/o/r/issues/1",
    pull=PULL,
    costs={"m:1": Spent(0.25, 1_000, 0, 3)},
    requests=12,
)
EVIL = "@octo/team fixes #1 ![x](https://evil.example/a.png) <img src=//evil.example> <!-- pullwright:x --> `x` | a"


@pytest.fixture
def words() -> SafeMarkdown:
    return SafeMarkdown(Redactor([SECRET]).redact)


def told(words: SafeMarkdown, *runs: RunSummary) -> str:
    return as_markdown(Digest(NOW - timedelta(days=1), NOW, runs), words)


def test_what_became_of_tasks_and_what_a_month_would_cost(words: SafeMarkdown) -> None:
    text = as_markdown(Digest(NOW - timedelta(days=1), NOW, (NOTE,)), words, STATES)
    assert "- Of the tasks that are kept: 2 merged, 1 declined, 1 abandoned; a merged one cost $2.50" in text
    assert "- A month at this rate: $7.50" in text
    free = replace(NOTE, costs={"m:1": Spent(None, 1_000, 0, 3)})
    unpriced = as_markdown(Digest(NOW - timedelta(days=1), NOW, (free,)), words, STATES)
    assert "- A month at this rate: unknown\n" in f"{unpriced}\n"


def typed(**fields: Any) -> int:
    usual = {"command": "digest", "since": None, "repo": None, "run": None, "post": None, "json": False}
    return digest(argparse.Namespace(**{**usual, **fields}))


@pytest.fixture
def home(own_state: Path) -> Home:
    """One run that began just now."""
    home, clock = Home(own_state), SystemClock()
    folder = create_run_folder(home, f"{clock.now():%Y%m%d-%H%M%S}-abcdef")
    write_run(folder, clock, "o/r")
    return home


def write_run(folder: Path, clock: SystemClock, repository: str) -> None:
    """The journal of a run that opened a pull request."""
    message = Message.assistant("x")
    with JournalWriter(folder, Redactor(), clock) as writer:
        writer(CycleStarted(folder.name, repository, "m:1", "native"))
        writer(TaskTaken("issue-1", f"keep {SECRET}", "", "issue", 1))
        writer(ReplyReceived(message, FinishReason.STOP, Usage(10, 10), 0.5, "m:1"))
        writer(PULL)
        writer(CycleEnded({"outcome": "proposed"}))


def test_no_runs_are_one_clear_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert typed(since="2026-01-01") == arguments.DONE
    assert capsys.readouterr().out == "Pullwright: no runs since 2026-01-01 00:00 UTC.\n"


def test_what_was_done(words: SafeMarkdown) -> None:
    text = told(words, NOTE)
    assert text.startswith(
        "**Pullwright since 2026-01-01 12:00 UTC**: 1 run, 1 pull request, 0 questions waiting, $0.25"
    )
    assert "- #7 Make add() add (no test was run) https://github.com/o/r/pull/7" in text
    assert "- `o/r` by `m:1`: $0.2500, 1,000 tokens, 3 rounds, 2.5 minutes" in text
    assert "- 12 requests to the forge" in text


def test_pull_requests_of_several_repositories_have_their_names(words: SafeMarkdown) -> None:
    other = replace(NOTE, repository="o/shop")
    lines = told(words, NOTE, other).split("\n")
    assert "- `o/r` #7 Make add() add (no test was run) https://github.com/o/r/pull/7" in lines
    assert "- `o/shop` #7 Make add() add (no test was run) https://github.com/o/r/pull/7" in lines


def test_every_section(words: SafeMarkdown) -> None:
    other = replace(NOTE, pull=None, task=TaskTaken("issue-2", "Two", "", "issue", 2))
    text = told(
        words,
        NOTE,
        replace(
            other, outcome="question", question="Which?", question_url="https://github.com/o/r/issues/2#c"
        ),
        replace(
            other,
            task=TaskTaken("issue-3", "Three", "", "issue", 3),
            outcome="limit",
            reason="rounds",
            saved="refs/x",
        ),
        replace(NOTE, pull=None, task=None, outcome="no_task", reason="issue #9 waits"),
        replace(NOTE, pull=None, task=None, outcome="running"),
    )
    for line in (
        "- #2 Two in `o/r`: Which? https://github.com/o/r/issues/2#c",
        "- unfinished (limit reached), #3 Three in `o/r`: rounds (`20260102-110000-abcdef`)",
        "- #3 Three in `o/r`: `refs/x`",
        "- issue `#9` waits",
        "- in `o/r` (`20260102-110000-abcdef`)",
    ):
        assert line in text.split("\n")


@pytest.mark.parametrize(
    "render", [told, lambda words, run: run_as_markdown(run, words)], ids=["digest", "run"]
)
def test_other_peoples_words_call_nobody_and_load_nothing(words: SafeMarkdown, render: Any) -> None:
    text = render(
        words,
        replace(
            NOTE,
            task=TaskTaken("issue-1", EVIL, "", "issue", 1),
            pull=replace(PULL, title=EVIL, url="javascript:alert(1)"),
            repository=f"`{EVIL}",
            outcome="failed\n# heading",
            error=EVIL,
            question=EVIL,
            question_url="https://evil.example/)<img>",
            refused=(EVIL,),
            saved=EVIL,
            plan=f"```\n{EVIL}\n````\n# heading",
        ),
    )
    shown = re.sub(r"`[^`\n]*`", "", text.split("<details>")[0])  # code is shown as it is
    for word in ("@octo", "fixes #1", "![", "<img", "<!--", "javascript:", "](", "evil.example/"):
        assert word not in shown
    assert "\n# heading" not in shown


def test_a_plan_stays_in_its_block(words: SafeMarkdown) -> None:
    text = run_as_markdown(replace(NOTE, plan="a\n```\n@b\n`````\n</details>"), words)
    block = text.split("<details><summary>Plan</summary>\n\n")[1]
    fence = block.split("text\n")[0]
    assert fence == "``````"
    assert block.endswith(f"\n{fence}\n\n</details>")
    assert block.count(f"\n{fence}\n") == 1


def test_a_diff_is_counted(words: SafeMarkdown) -> None:
    diff = "diff --git a/a.py b/a.py\n--- a/a.py\n+++ b/a.py\n@@ -1 +1,2 @@\n-x\n+y\n+++z\n"
    assert "- changed: 1 file (+2 -1): `a.py`" in run_as_markdown(
        replace(NOTE, changed=diff_stat(diff)), words
    )
    assert "- changed: 2 files: `b.py`, `c.py`" in run_as_markdown(
        replace(NOTE, touched=("b.py", "c.py")), words
    )


def test_no_secret_is_shown(words: SafeMarkdown) -> None:
    torn = f"{SECRET[:4]}\u200b{SECRET[4:]}"
    run = replace(
        NOTE,
        task=TaskTaken("k", SECRET, "", "text"),
        pull=replace(PULL, title=torn, url=f"https://x/{SECRET}"),
        error=torn,
        question=SECRET,
        plan=torn,
        saved=SECRET,
        repository=SECRET,
        outcome="failed",
        touched=(SECRET,),
        refused=(torn,),
    )
    assert SECRET not in told(words, run)
    assert SECRET not in run_as_markdown(run, words)


def test_a_long_list_is_cut(words: SafeMarkdown) -> None:
    runs = [replace(NOTE, pull=replace(PULL, number=number)) for number in range(30)]
    assert "- … 10 more" in told(words, *runs)


def test_the_command_prints_and_counts(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    assert home.runs.is_dir()
    assert typed() == arguments.DONE
    assert "- #7 Make add() add" in capsys.readouterr().out
    assert typed(repo="o/other") == arguments.DONE
    assert "no runs" in capsys.readouterr().out


def test_one_run(home: Home, capsys: pytest.CaptureFixture[str]) -> None:
    assert home.runs.is_dir()
    assert typed(run="last") == arguments.DONE
    assert capsys.readouterr().out.startswith("### Pullwright: proposed\n")
    with pytest.raises(JournalError, match="no run"):
        typed(run="2025")


def test_json(home: Home, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert home.runs.is_dir()
    monkeypatch.setenv("SOME_TOKEN", SECRET)
    typed(json=True)
    printed = capsys.readouterr().out
    assert SECRET not in printed
    found = json.loads(printed)
    (run,) = found["runs"]
    assert found["pull_requests"] == [run["run"]]
    assert (run["outcome"], run["pull_request"]["number"], found["spent"]["usd"]) == ("proposed", 7, 0.5)
    typed(json=True, run="last")
    assert json.loads(capsys.readouterr().out) == run


@table(
    ("fields", "said"),
    [
        ({"since": "yesterday"}, "is not a time"),
        ({"since": "5x"}, "is not a time"),
        ({"since": "2999-01-01"}, "is in the future"),
        ({"post": "issue:1"}, "needs --repo"),
        ({"post": "issue:0", "repo": "o/r"}, "is not a place"),
        ({"post": "1", "repo": "o/r"}, "is not a place"),
        ({"post": "issue:1", "repo": "o/r"}, "no token"),
        ({"run": "last", "since": "24h"}, "leave out --since"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line(fields: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigurationError, match=said) as raised:
        typed(**fields)
    assert "\n" not in str(raised.value)


@table(
    ("text", "at"),
    [
        ("24h", NOW - timedelta(hours=24)),
        ("90m", NOW - timedelta(minutes=90)),
        (" 2w ", NOW - timedelta(weeks=2)),
        ("2026-01-01", datetime(2026, 1, 1, tzinfo=UTC)),
        ("2026-01-01T06:00:00+02:00", datetime(2026, 1, 1, 4, tzinfo=UTC)),
    ],
)
def test_times(text: str, at: datetime) -> None:
    assert since_time(text, NOW) == at


def test_a_time_before_the_calendar_is_no_crash() -> None:
    assert since_time("999999w", NOW).year == 1026


def test_the_comment_is_changed_in_place(home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.doubles.github.server import GitHub

    clock = SystemClock()
    with GitHub(tmp_path / "github") as github:
        folder = create_run_folder(home, f"{clock.now():%Y%m%d-%H%M%S}-abcdea")
        write_run(folder, clock, f"{github.web_url}/o/r")
        repo = github.add_repository("o/r", {"README.md": "x"})
        issue = github.add_issue(repo, "Digest", "")
        monkeypatch.setenv("GITHUB_TOKEN", github.token())
        monkeypatch.setenv("PULLWRIGHT_GITHUB_URL", github.web_url)
        monkeypatch.chdir(tmp_path)
        assert typed(repo="o/r", post=f"issue:{issue.number}") == arguments.DONE
        assert typed(repo="o/r", post=f"issue:{issue.number}") == arguments.DONE
        (comment,) = issue.comments
        assert "Make add() add" in comment.body
        assert github.violations == []


class Hook(Loopback):
    """A webhook that gives these answers."""

    def __init__(self, *answers: int, retry_after: str = "") -> None:
        self.answers, self.retry_after = list(answers), retry_after
        self.bodies: list[dict[str, Any]] = []
        super().__init__(_handler(self))

    @property
    def url(self) -> str:
        return f"{self.root}/services/{SECRET}"


def _handler(hook: Hook) -> type[BaseHTTPRequestHandler]:
    class Handler(LoopbackHandler):
        def do_POST(self) -> None:  # noqa: N802  the library's name
            hook.bodies.append(self.posted()[1])
            status = hook.answers.pop(0)
            self.send_response(status)
            self.send_header("Content-Length", "0")
            if 300 <= status < 400:
                self.send_header("Location", f"{hook.root}/elsewhere")
            if hook.retry_after:
                self.send_header("Retry-After", hook.retry_after)
            self.end_headers()

    return Handler


@pytest.fixture
def clock() -> Iterator[ManualClock]:
    clock = ManualClock()
    yield clock
    assert len(clock.slept) <= 1


async def test_the_webhook_gets_the_text(clock: ManualClock) -> None:
    with Hook(200) as hook:
        await send_webhook(hook.url, "done", clock)
    assert hook.bodies == [{"text": "done"}]


async def test_a_busy_webhook_is_asked_twice(clock: ManualClock) -> None:
    with Hook(503, 204) as hook:
        await send_webhook(hook.url, "done", clock)
    assert len(hook.bodies) == 2


@pytest.mark.parametrize(("asked", "waited"), [("30", 30.0), ("1", 2.0), ("3600", 60.0), ("soon", 2.0)])
async def test_a_busy_webhook_is_asked_again_when_it_says(
    clock: ManualClock, asked: str, waited: float
) -> None:
    with Hook(429, 204, retry_after=asked) as hook:
        await send_webhook(hook.url, "done", clock)
    assert clock.slept == [waited]


@pytest.mark.parametrize(("answers", "tries"), [((404,), 1), ((302,), 1), ((500, 429), 2)])
async def test_a_webhook_that_refuses_is_named_without_its_address(
    clock: ManualClock, answers: tuple[int, ...], tries: int
) -> None:
    with (
        Hook(*answers) as hook,
        pytest.raises(ConnectionFailedError, match=f"answered {answers[-1]}") as raised,
    ):
        await send_webhook(hook.url, "done", clock)
    assert len(hook.bodies) == tries
    assert SECRET not in str(raised.value)


async def test_a_webhook_that_is_not_there_is_named_without_its_address(clock: ManualClock) -> None:
    with Hook() as hook:
        url = hook.url
    with pytest.raises(ConnectionFailedError, match="cannot be reached") as raised:
        await send_webhook(url, "done", clock)
    assert SECRET not in str(raised.value)
    assert "127.0.0.1" not in str(raised.value)


@table(
    "value",
    [
        "http://x/y",
        "x",
        "https://",
        "https://u:p@x/y",
        "https://x/a b",
        "https://x/a\nb",
        "https://x/ü",
        "https://[x",
    ],
)
def test_a_webhook_that_is_none_is_refused_without_showing_it(value: str) -> None:
    with pytest.raises(ConfigurationError) as raised:
        webhook_of({"PULLWRIGHT_WEBHOOK": value})
    assert (
        str(raised.value) == "PULLWRIGHT_WEBHOOK must hold one https:// address of at most 2,000 characters"
    )


def test_no_webhook_is_none() -> None:
    assert webhook_of({}) is webhook_of({"PULLWRIGHT_WEBHOOK": " "}) is None
    assert webhook_of({"PULLWRIGHT_WEBHOOK": "https://x/y "}) == "https://x/y"


def test_a_failed_webhook_is_a_line_and_an_exit_status(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with Hook() as hook:
        port = hook.root.rpartition(":")[2]
    monkeypatch.setenv("PULLWRIGHT_WEBHOOK", f"https://127.0.0.1:{port}/{SECRET}")
    assert typed() == arguments.FAILED
    printed = capsys.readouterr()
    assert "no runs" in printed.out
    assert printed.err.count("\n") == 1
    assert SECRET not in printed.err


def test_a_chat_is_called_by_nothing_and_takes_the_length() -> None:
    text = as_message("- &lt;!channel> <!here> @&#8203;everyone a\\|b")
    assert not set("<>") & set(text)
    assert "@everyone" not in text
    long = as_message("\n".join(["- a line"] * 1_000))
    assert len(long) <= MOST_MESSAGE_CHARS
    assert long.endswith("- a line\n…")
    assert len(as_message("x" * 5_000)) <= MOST_MESSAGE_CHARS
