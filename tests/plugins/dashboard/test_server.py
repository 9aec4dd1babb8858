"""What the pages show, what the streams send, and what the verbs do."""

from __future__ import annotations

import asyncio
import json
import signal
from contextlib import ExitStack
from datetime import timedelta
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import httpx2
import pytest
from lxml import html

from orchestrator.app.http_server import listen, serving
from orchestrator.bot.journal.notes import PersonDecision, kept_answer, note_decision
from orchestrator.bot.journal.reader import lock_run
from orchestrator.core.cycle_events import CycleEnded, Paused, TaskTaken, TestRunEnded
from orchestrator.core.errors import ConfigurationError
from orchestrator.core.events import CallStatus, Event, ToolCallEnded, ToolCallStarted, Warned
from orchestrator.plugins.dashboard.serving import listen_for_browsers
from tests.doubles.journals import DIFF, night, proposed, runs_of_tests, started, worked_round
from tests.plugins.dashboard.scene import NOW, DashboardScene, make_scene, messages

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator
    from pathlib import Path

ATTACK = "\"'></title></script><script>alert(1)</script><img src=x onerror=a>\u202e\x1b[31m"
TASK = TaskTaken("issue-12", "Mend the sum", "It subtracts.", "issue", 12)


@pytest.fixture
def scene(tmp_path: Path) -> DashboardScene:
    return make_scene(tmp_path)


def page(answer: httpx2.Response) -> html.HtmlElement:
    assert answer.status_code == 200, answer.text
    return html.document_fromstring(answer.text)


async def test_an_empty_home_says_how_to_begin(scene: DashboardScene) -> None:
    answer = page(await scene.get("/"))
    assert "pullwright run --demo" in answer.text_content()
    assert not scene.home.root.exists()


async def test_where_runs_cannot_be_read_the_place_is_named(scene: DashboardScene) -> None:
    scene.home.root.mkdir()
    scene.home.runs.write_text("no folder")
    assert f"Runs are read from {scene.home.runs}" in page(await scene.get("/")).text_content()


async def test_the_page_of_a_run_that_has_just_begun_is_followed(scene: DashboardScene) -> None:
    writer = scene.journals.begin(NOW, started("r", TASK, "o/r"))
    name = writer.path.parent.name
    answer = page(await scene.get(f"/run/{name}"))
    assert answer.xpath("//@data-stream") == [f"/run/{name}/stream"]
    assert "The run goes on" in answer.text_content()
    scene.journals.end()


async def test_the_morning_in_its_order(scene: DashboardScene) -> None:
    made = night(scene.home, NOW)
    answer = page(await scene.get("/"))
    heads = [head.text_content().split("\n")[0].strip() for head in answer.xpath("//h2")]
    order = [
        "Needs you",
        "Pull requests",
        "Now",
        "Outcomes and cost",
        "Waiting tasks",
        "Failures by kind",
        "Repositories",
        "Runs",
    ]
    assert [next(name for name in order if head.startswith(name)) for head in heads] == order
    cards = [card.text_content() for card in answer.xpath("//section[@class='needs']//article")]
    assert "Should an export keep the zone" in cards[0]
    assert "the model gave no usable reply" in cards[1]
    assert "do not pass: test_add fails" in cards[-1]
    live = answer.xpath("//article[contains(@class,'active')]")[0].text_content()
    assert "Stop logging the access token" in live
    assert "run_tests pytest -q tests/test_log.py" in live
    text = answer.text_content()
    assert "issue #231 has no label pullwright" in text
    assert "begins nothing before" in text
    assert "cap $3.00" in text
    assert "$0.00" not in text
    made.end()


async def test_an_unknown_price_is_said_and_never_a_sum(scene: DashboardScene) -> None:
    rounds = worked_round(1, None)
    run = scene.journals.add(NOW, [*started("r", TASK, "o/r"), *rounds, *proposed(1, "Sum", "o/r")])
    for path in ("/", "/runs", f"/run/{run.name}"):
        found = page(await scene.get(path))
        text = found.text_content()
        assert "unknown" in text
        assert "$0.00" not in text
        # A phone shows the name of a column before each cell, so a cell does not say it again.
        cells = found.xpath("//td[@data-name]")
        named = [one.text_content() for one in cells if one.text_content().startswith(one.get("data-name"))]
        assert named == []


async def test_a_runs_page_has_its_story_change_tests_and_costs(scene: DashboardScene) -> None:
    events = [*started("r", TASK, "o/r"), *worked_round(1), *runs_of_tests(), *proposed(7, "Sum", "o/r")]
    run = scene.journals.add(NOW, events)
    answer = page(await scene.get(f"/run/{run.name}"))
    text = answer.text_content()
    assert "def add(a, b):" in text
    assert "5,280, 3,000 of them cached" in text
    assert (
        answer.xpath("//span[@class='added']")[0].text_content().strip() == "+    if not isinstance(a, int):"
    )
    assert len(answer.xpath("//span[@class='removed']")) == DIFF.count("\n-") - DIFF.count("\n---")
    assert [[cell.text_content() for cell in row[:2]] for row in answer.xpath("//tbody/tr")][:2] == [
        ["before: the base", "passed"],
        ["after: the change", "passed"],
    ]
    assert "4,900" in text
    assert answer.xpath("//a[@href='https://github.com/o/r/pull/7']")


async def test_a_runs_page_claims_no_count_of_tests_that_nobody_knows(scene: DashboardScene) -> None:
    ended = (
        TestRunEnded("before", 0, 0, 0, 0, 1.0, counted=1_200),
        TestRunEnded("after", 0, 0, 0, 1, 1.0),
        TestRunEnded("new", 0, 0, 0, 0, 1.0, problem="no test ran"),
    )
    run = scene.journals.add(NOW, [*started("r", TASK, "o/r"), *worked_round(1), *ended])
    answer = page(await scene.get(f"/run/{run.name}"))
    rows = [[cell.text_content() for cell in row] for row in answer.xpath("//tbody/tr")]
    assert [row[2:5] for row in rows[:3]] == [["1,200 ran", "", ""], ["", "", ""], ["0", "0", "0"]]


async def test_no_text_of_others_becomes_markup_anywhere(scene: DashboardScene) -> None:
    task = TaskTaken("issue-1", ATTACK, ATTACK, "issue", 1)
    attacked = [
        *started("r", task, f"o/{ATTACK}"),
        *worked_round(1, plan=ATTACK),
        ToolCallStarted("c", ATTACK, {"path": ATTACK, ATTACK: [ATTACK]}),
        ToolCallEnded("c", ATTACK, CallStatus.FAILED, ATTACK),
        Warned(ATTACK),
    ]
    ends: list[list[Event]] = [
        proposed(1, ATTACK, "o/r", diff=DIFF.replace("calc.py", ATTACK).replace("add", ATTACK)),
        [CycleEnded({"outcome": "question", "question": ATTACK, "question_url": f"https://x/{ATTACK}"})],
        [CycleEnded({"outcome": ATTACK, "error": ATTACK, "reason": ATTACK})],
        [CycleEnded({"outcome": "failed", "error": ATTACK})],
        [
            CycleEnded(
                {"outcome": "no_task", "reason": ATTACK, "wake_at": (NOW + timedelta(hours=1)).isoformat()}
            )
        ],
    ]
    runs = [scene.journals.add(NOW, [*attacked, *end]) for end in ends]
    scene.journals.begin(NOW, attacked)
    for path in (
        "/",
        "/runs",
        "/repository?name=" + quote(f"o/{ATTACK}"),
        *(f"/run/{run.name}" for run in runs),
    ):
        answer = await scene.get(path)
        tree = html.document_fromstring(answer.text)
        assert not tree.xpath("//img | //script[not(@src)]"), path
        assert [one.get("src") for one in tree.xpath("//script")] == ["/live.js"]
        assert not [
            name for one in tree.iter() for name in one.attrib if name.startswith("on") or name == "style"
        ]
        assert "\u202e" not in answer.text
        assert "\x1b" not in answer.text
    scene.journals.end()


@pytest.mark.parametrize(
    "path",
    [
        "/run/x",
        "/run/20260101-000000-abcdef0",
        "/run/..%2f..",
        "/repository?name=x",
        "/none",
        "/run/x/stream",
    ],
)
async def test_what_is_not_there_is_404(scene: DashboardScene, path: str) -> None:
    assert (await scene.get(path)).status_code == 404


async def test_all_runs_can_be_leafed_through(scene: DashboardScene) -> None:
    for number in range(120):
        scene.journals.add(
            NOW + timedelta(seconds=number), [*started("r", TASK, "o/r"), CycleEnded({"outcome": "failed"})]
        )
    scene.dashboard.store.refresh()
    seen: list[str] = []
    path: str | None = "/runs"
    while path:
        answer = page(await scene.get(path))
        seen += answer.xpath("//tbody//a/@href")
        path = next(iter(answer.xpath("//a[@rel='next']/@href")), None)
    assert len(seen) == len(set(seen)) == 120


class Streaming:
    """A real server, because a stream comes in pieces."""

    def __init__(self, scene: DashboardScene) -> None:
        self.scene = scene

    async def read(self, path: str, **headers: str) -> AsyncGenerator[tuple[str, dict[str, Any]]]:
        with listen("127.0.0.1", 0) as bound:
            from orchestrator.plugins.dashboard.server import guarded

            port = bound.getsockname()[1]
            app = guarded(self.scene.dashboard, port)
            headers |= {"Host": app.host, "Cookie": f"pullwright={self.scene.dashboard.secrets.session}"}
            async with (
                serving(app, bound),
                httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=30) as client,
                client.stream("GET", path, headers=headers) as answer,
            ):
                assert answer.headers["content-type"].startswith("text/event-stream")
                try:
                    async for event in messages(answer.aiter_lines()):
                        yield event
                finally:
                    self.scene.dashboard.stopping.set()


async def test_the_stream_of_a_run_goes_on_from_the_last_number(scene: DashboardScene) -> None:
    writer = scene.journals.begin(
        NOW, [*started("r", TASK, "o/r"), *(Warned(f"w{number}") for number in range(20))]
    )
    folder = writer.path.parent
    begin = len(started("r", TASK, "o/r"))
    events = Streaming(scene).read(f"/run/{folder.name}/stream", **{"Last-Event-ID": str(begin + 15)})
    number, first = await anext(events)
    assert number == str(begin + 20)
    told = str(first["steps"])
    assert [f"w{count}<" in told for count in (14, 15, 19)] == [False, True, True]
    writer(Warned("later"))
    writer(CycleEnded({"outcome": "failed"}))
    scene.journals.end()
    rest = [event async for event in events]
    assert rest[-1] == (str(begin + 22), {"ended": True})
    assert "later" in str(rest[0][1]["steps"])


async def test_a_line_of_a_journal_cannot_break_out_of_an_event(scene: DashboardScene) -> None:
    text = 'x\n\ndata: {"ended": true}\n\nid: 99\r\rdata: y\u2028\u0085z'
    writer = scene.journals.begin(
        NOW, [*started("r", TASK, "o/r"), ToolCallEnded("c", "t", CallStatus.OK, text)]
    )
    events = Streaming(scene).read(f"/run/{writer.path.parent.name}/stream")
    number, first = await anext(events)
    assert (number, set(first)) == (str(len(started("r", TASK, "o/r")) + 1), {"parts", "steps"})
    await events.aclose()
    scene.journals.end()


async def test_the_overview_sends_what_changed(scene: DashboardScene) -> None:
    writer = scene.journals.begin(NOW, started("r", TASK, "o/r"))
    events = Streaming(scene).read("/stream")
    _, first = await anext(events)
    parts = first["parts"]
    assert isinstance(parts, dict)
    assert "Mend the sum" in parts["now"]
    writer(ToolCallStarted("c", "read_file", {"path": "a-new-path.py"}))
    async for _, data in events:
        if "a-new-path.py" in json.dumps(data):
            assert "now" in data["parts"]
            break
    await events.aclose()
    scene.journals.end()


async def test_of_a_flood_the_newest_is_sent(scene: DashboardScene) -> None:
    flood = [Warned(f"warning {number}") for number in range(5_000)]
    writer = scene.journals.begin(NOW, [*started("r", TASK, "o/r"), *flood])
    events = Streaming(scene).read(f"/run/{writer.path.parent.name}/stream")
    number, first = await anext(events)
    steps = str(first["steps"])
    assert number == str(len(started("r", TASK, "o/r")) + 5_000)
    assert steps.count("warning ") == 200
    assert "warning 4999<" in steps
    assert "4,810 records left out here" in steps
    await events.aclose()
    scene.journals.end()


async def test_a_verb_is_confirmed_first(scene: DashboardScene) -> None:
    answer = page(await scene.get("/confirm?verb=retry&repository=o/r&task=issue-12"))
    assert "pullwright retry issue-12 --repo o/r" in answer.text_content()
    fields = {
        one.get("name"): one.value or one.text for one in answer.xpath("//form//input | //form//textarea")
    }
    assert fields["form"] == scene.dashboard.secrets.form
    assert (await scene.get("/confirm?verb=burn")).status_code == 409
    assert (await scene.get("/do?verb=retry")).status_code == 405


async def test_stop_tells_the_process_of_the_run(scene: DashboardScene) -> None:
    begun = started("r", TASK, "o/r")
    run = scene.journals.add(NOW, begun).name
    assert (await scene.post("/do", {"verb": "stop", "run": run})).status_code == 409
    told = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGINT, told.set)
    with lock_run(scene.home.runs / run):
        assert "tells process" in (await scene.get(f"/confirm?verb=stop&run={run}")).text
        answer = await scene.post("/do", {"verb": "stop", "run": run})
        await asyncio.wait_for(told.wait(), 20)
    asyncio.get_running_loop().remove_signal_handler(signal.SIGINT)
    assert "was told to end" in answer.text
    assert (await scene.post("/do", {"verb": "stop", "run": "../../x"})).status_code == 409


async def test_an_answer_that_cannot_begin_says_why(scene: DashboardScene) -> None:
    empty = await scene.post("/do", {"verb": "answer", "repository": "o/r", "task": "issue-1", "answer": " "})
    assert "the answer is empty" in empty.text
    none = await scene.post(
        "/do", {"verb": "answer", "repository": "/nowhere", "task": "issue-1", "answer": "-x"}
    )
    assert none.status_code == 409
    assert "your answer is kept" in none.text
    assert "status 2" in none.text
    assert "status 2: no model is named" in none.text, "what the run said last"
    assert "The run with your answer to issue-1 ended with status 2" in (await scene.get("/")).text
    (log,) = (scene.home.cache / "answers").iterdir()
    assert log.stat().st_mode & 0o777 == 0o600
    typed = scene.dashboard.actions.answer_command("o/r", "issue-1", "-x")
    assert typed == ["pullwright", "run", "--repo=o/r", "--task=issue-1", "--answer=-x"]
    assert scene.dashboard.actions.answer_command("o/r", "issue-1") == typed[:-1]


async def test_an_answer_is_kept_before_a_run_begins_and_shown_until_one_goes_on(
    scene: DashboardScene,
) -> None:
    question = "Which way?\n\n1. Only ints\n2. Floats too"
    asked = CycleEnded({"outcome": "question", "question": question, "question_url": "file:///here"})
    run = scene.journals.add(NOW, [*started("r", TASK, "/nowhere"), asked]).name
    buttons = page(await scene.get("/")).xpath("//button[@name='choice']")
    assert [(one.get("value"), one.text) for one in buttons] == [
        ("1", "1. Only ints"),
        ("2", "2. Floats too"),
    ]
    fields = {"verb": "answer", "repository": "/nowhere", "task": TASK.key, "run": run}
    chosen = await scene.post("/confirm", {**fields, "choice": "2", "answer": "and Decimal"})
    assert page(chosen).xpath("//blockquote")[0].text == "2 and Decimal"
    assert (await scene.post("/do", {**fields, "answer": "2 and Decimal"})).status_code == 409
    assert kept_answer(scene.home, TASK.key, run) == "2 and Decimal"
    assert kept_answer(scene.home, TASK.key, "another-run") == ""
    card = page(await scene.get("/")).xpath("//section[@class='needs']//article")[0]
    assert card.xpath(".//blockquote")[0].text == "2 and Decimal"


async def test_runs_are_filtered_and_searched(scene: DashboardScene) -> None:
    for number in range(60):
        ended = CycleEnded({"outcome": "failed", "error": "the quota is spent"})
        scene.journals.add(
            NOW - timedelta(minutes=number),
            [*started("r", TASK, "o/r"), *([ended] if number % 2 else proposed(1, "Sum", "o/r"))],
        )
    scene.journals.add(NOW, [*started("r", TASK, "o/s"), *proposed(2, "Product", "o/s")])

    async def shown(path: str) -> tuple[int, str, list[str]]:
        tree = page(await scene.get(path))
        rows = len(tree.xpath("//tbody/tr"))
        return (
            rows,
            tree.xpath("//p[@class='subtitle']")[0].text_content(),
            tree.xpath("//a[@rel='next']/@href"),
        )

    assert await shown("/runs?repository=o/s") == (1, "1 of 61 known", [])
    assert await shown("/runs?q=QUOTA+mend") == (30, "30 of 61 known", [])
    assert (await shown("/runs?outcome=failed&q=nothing+such"))[0] == 0
    rows, _, (older,) = await shown("/runs?repository=o/r")
    assert (rows, (await shown(older))[0]) == (50, 10)


async def test_a_pull_request_that_was_closed_here_is_not_unknown(scene: DashboardScene) -> None:
    scene.journals.add(NOW - timedelta(hours=1), [*started("r", TASK, "o/r"), *proposed(7, "Sum", "o/r")])
    before = page(await scene.get("/"))
    assert "1 pull request waits for your review" in before.text_content()
    assert "Nothing needs you" not in before.text_content()
    note_decision(scene.home, PersonDecision(NOW, "o/r", TASK.key, "declined"))
    scene.journals.add(NOW, [*started("r", None, "o/s"), CycleEnded({"outcome": "no_task"})])
    after = page(await scene.get("/"))
    assert "Nothing needs you" in after.text_content()
    assert (
        after.xpath("//div[@id='part-pulls']//span[contains(@class,'badge')]")[0].text_content() == "closed"
    )


async def test_a_wrong_address_is_answered_by_a_page(scene: DashboardScene) -> None:
    answer = await scene.get("/nothing-such")
    assert answer.status_code == 404
    assert "There is no page /nothing-such here" in answer.text
    assert "Back to the overview" in answer.text


async def test_a_pause_is_counted_down(scene: DashboardScene) -> None:
    until = (NOW + timedelta(minutes=5)).isoformat()
    scene.journals.add(
        NOW,
        [*started("r", None, "o/r"), Paused(until, "the quota is spent"), CycleEnded({"outcome": "paused"})],
    )
    answer = page(await scene.get("/"))
    assert answer.xpath("//span[@class='count']/@data-until") == [until]


def test_an_address_that_is_taken_is_said_in_one_line() -> None:
    with listen("127.0.0.1", 0) as bound, pytest.raises(ConfigurationError, match="cannot listen at 127"):
        listen("127.0.0.1", bound.getsockname()[1])


def test_no_other_program_can_listen_where_browsers_look_first() -> None:
    first, *second = listen_for_browsers(0)
    with first, ExitStack() as stack:
        for one in second:  # a machine may have no IPv6
            stack.enter_context(one)
        port = first.getsockname()[1]
        assert [one.getsockname()[:2] for one in second] == [("::1", port)] * len(second)
        for host in ("127.0.0.1", "::1")[: 1 + len(second)]:
            with pytest.raises(ConfigurationError, match="cannot listen at"):
                listen(host, port)
        with pytest.raises(ConfigurationError, match=r"cannot listen at 127\.0\.0\.1"):
            listen_for_browsers(port)


def test_a_port_that_another_program_has_at_one_address_is_not_used() -> None:
    try:
        other = listen("::1", 0)
    except ConfigurationError:
        pytest.skip("this machine has no IPv6")
    with other, pytest.raises(ConfigurationError, match=r"cannot listen at \[::1\]"):
        listen_for_browsers(other.getsockname()[1])
