"""The dashboard in a real browser: a worker, a page, and a person who looks, answers and stops."""

from __future__ import annotations

import os
import re
import signal
import threading
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from orchestrator.app.cli.arguments import QUESTION
from orchestrator.bot.journal.folders import Home
from orchestrator.core.cycle_events import CycleEnded, TaskTaken
from orchestrator.core.events import CallStatus, ToolCallEnded, Warned
from tests.doubles import forked
from tests.doubles.browser import axe, chromium
from tests.doubles.fleets import busy_fleet
from tests.doubles.journals import Journals, night, proposed, started, worked_round
from tests.doubles.model_server import gated
from tests.scenarios.stage import FINISH, FIX, PROPOSE, Stage, add_commit, branches, do, program

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from playwright.sync_api import Browser, Page

slow = pytest.mark.slow(reason="a browser takes seconds")
BACKLOG = {"BACKLOG.md": "- [ ] Fix add() in calc.py\n"}
WHICH = ("ask_question", {"question_text": "Only whole numbers?"})
SMALLEST_LETTERS = """Math.min(...[...document.querySelectorAll('svg text')].map(
    one => parseFloat(getComputedStyle(one).fontSize) * one.getScreenCTM().a), 99)"""
"""Of the plots, in pixels, as they are drawn."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


@contextmanager
def opened(home: Path, *flags: str) -> Iterator[str]:
    """A dashboard in a process of its own; gives the address that it printed. It ends when it is told to."""
    environ = {**os.environ, "PULLWRIGHT_HOME": str(home), "TZ": "UTC"}
    with forked.piped("dashboard", *flags, environ=environ) as (process, out, _):
        address = out.readline().strip()
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/\?token=[A-Za-z0-9_-]{43}", address)
        try:
            yield address
        finally:
            process.send_signal(signal.SIGINT)
            assert process.wait(30) == 0


@contextmanager
def look(browser: Browser, address: str, width: int = 1280, scheme: str = "light") -> Iterator[Page]:
    """A page that was opened by its address. Whatever it asks for is asked of its own server; no script fails."""
    origin = address.partition("/?")[0]
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)  # type: ignore[arg-type]
    try:
        page = context.new_page()
        asked: list[str] = []
        trouble: list[str] = []
        page.on("request", lambda request: asked.append(request.url))
        page.on("pageerror", lambda error: trouble.append(str(error)))
        page.on("dialog", lambda dialog: trouble.append(dialog.message))
        page.goto(address)
        yield page
        assert trouble == []
        assert [url for url in asked if not url.startswith((f"{origin}/", "data:"))] == []
    finally:
        context.close()


@slow
def test_a_question_is_answered_on_the_page_and_the_work_goes_on(
    stage: Stage, repository: Path, browser: Browser
) -> None:
    add_commit(repository, BACKLOG, "A backlog")
    stage.script(do(FIX, WHICH))
    flags = ("--model", "openai-chat:scripted-1", "--api-url", stage.model.url)
    assert program("run", "--repo", str(repository), *flags).returncode == QUESTION
    stage.script(do(PROPOSE, FINISH))
    with opened(stage.home, *flags) as address, look(browser, address) as page:
        assert "token" not in page.url
        page.get_by_label("Your answer").fill("Yes & <b>only</b> those")
        page.get_by_role("button", name="Answer").click()
        assert "--answer=ANSWER" in page.locator("pre").inner_text()
        assert stage.model.requests[-1].body["messages"]
        page.get_by_role("button", name="Begin the run").click()
        page.get_by_role("link", name="Back to the overview").click()
        page.get_by_role("link", name="Make add() add").wait_for(timeout=60_000)
        page.get_by_role("heading", name="Nothing needs you").wait_for(timeout=60_000)
    assert "Yes & <b>only</b> those" in str(stage.model.requests[-1].body["messages"])
    assert len(branches(repository)) == 1


@slow
def test_an_answer_and_a_stop_reach_a_page_that_somebody_else_has_open(
    stage: Stage, repository: Path, browser: Browser
) -> None:
    add_commit(repository, BACKLOG, "A backlog")
    stage.script(do(FIX, WHICH))
    flags = ("--model", "openai-chat:scripted-1", "--api-url", stage.model.url)
    assert program("run", "--repo", str(repository), *flags).returncode == QUESTION
    gate = threading.Event()
    stage.script(gated(do(("read_file", {"path": "calc.py"})).text, gate))
    try:
        with opened(stage.home, *flags) as address, look(browser, address) as page:
            other = page.context.new_page()
            other.goto(address.partition("?")[0])
            other.get_by_text("live", exact=True).wait_for()
            other.evaluate("window.isTheSamePage = true")
            page.get_by_label("Your answer").fill("Yes")
            page.get_by_role("button", name="Answer").click()
            page.get_by_role("button", name="Begin the run").click()
            page.get_by_text("has begun").wait_for()
            other.get_by_text("1 run at work").wait_for(timeout=60_000)
            other.get_by_label("Your answer").wait_for(state="detached")
            page.get_by_role("link", name="Back to the overview").click()
            page.get_by_role("button", name="Stop after this round").click()
            assert "kill -INT" in page.locator("pre").inner_text()
            page.get_by_role("button", name="Stop after this round").click()
            page.get_by_text("was told to end").wait_for()
            other.get_by_text("1 run at work").wait_for()
            gate.set()
            other.get_by_text("nothing runs").wait_for(timeout=60_000)
            other.get_by_text("interrupted").first.wait_for()
            assert other.locator(".notice.failed").count() == 0  # a person wanted that end
            assert other.evaluate("window.isTheSamePage")
    finally:
        gate.set()
    assert branches(repository) == []
    assert len(stage.model.requests) == 2


@slow
def test_what_happens_comes_while_it_happens_and_what_is_typed_stays(
    own_state: Path, browser: Browser
) -> None:
    made = night(Home(own_state), datetime.now(UTC))
    task = TaskTaken("issue-9", "A live task", "", "issue", 9)
    writer = made.begin(datetime.now(UTC), [*started("r", task, "octo/ledger"), *worked_round(1)])
    with opened(own_state) as address, look(browser, address) as page:
        page.get_by_text("live", exact=True).wait_for()
        page.get_by_label("Your answer").fill("half an ans")
        page.get_by_label("Your answer").press("End")
        writer(ToolCallEnded("x", "read_file", CallStatus.FAILED, "there is no file b.py"))
        page.get_by_text("there is no file b.py").first.wait_for()
        assert page.get_by_label("Your answer").input_value() == "half an ans"
        page.get_by_role("link", name="A live task").first.click()
        for number in range(30):
            writer(Warned(f"note {number}"))
        page.get_by_text("note 29", exact=True).wait_for()
        assert page.get_by_text(re.compile(r"^note \d+$")).count() == 30
        writer(CycleEnded({"outcome": "failed", "error": "it broke"}))
        made.end()
        page.get_by_text("it broke").first.wait_for()
        page.locator("main:not([data-stream])").wait_for()


@slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_pages_fit_their_width_and_can_be_read_by_everybody(
    own_state: Path, browser: Browser, width: int, scheme: str
) -> None:
    made = night(Home(own_state), datetime.now(UTC))
    runs = sorted(path.name for path in (own_state / "runs").iterdir())
    file = own_state / "run.html"
    assert program("show", runs[-5], "--html", str(file)).returncode == 0
    paths = ["/", "/runs", f"/run/{runs[-1]}", f"/run/{runs[-5]}", "/repository?name=octo%2Fledger"]
    paths += ["/confirm?verb=retry&repository=octo/ledger&task=issue-204", "/fleet"]
    paths += ["/confirm?verb=fleet-pause&repository=github.com/octo/atlas"]
    (own_state / "fleets").mkdir()
    busy_fleet(f"sqlite:///{own_state}/fleets/only.db").close()
    with opened(own_state) as address, look(browser, address, width, scheme) as page:
        for path in paths:
            page.goto(address.partition("/?")[0] + path)
            page.evaluate("for (const one of document.querySelectorAll('details')) one.open = true")
            assert page.evaluate("document.documentElement.scrollWidth") <= width, path
            assert page.evaluate(SMALLEST_LETTERS) >= 11, path
            assert axe(page) == [], path
    made.end()
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)  # type: ignore[arg-type]
    page = context.new_page()
    page.goto(file.as_uri())
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert (
        page.evaluate("getComputedStyle(document.body).maxWidth") == "1216px"
    )  # its policy lets the style in
    assert axe(page) == []
    context.close()


@slow
def test_everything_can_be_done_by_the_keyboard(own_state: Path, browser: Browser) -> None:
    made = night(Home(own_state), datetime.now(UTC))
    with opened(own_state) as address, look(browser, address) as page:
        # On a busy machine the page begins with the newest runs, and the others come while it is open.
        for name in ("Answer", "Try again"):
            page.get_by_role("button", name=name).first.wait_for()
        reached = []
        for _ in range(12):
            page.keyboard.press("Tab")
            reached.append(
                page.evaluate("(document.activeElement.textContent || document.activeElement.name).trim()")
            )
            assert page.evaluate("getComputedStyle(document.activeElement).outlineStyle") != "none"
        assert reached[:4] == ["Skip to the content", "Pullwright", "Overview", "Runs"]
        assert "Try again" in reached
        page.get_by_role("button", name="Try again").first.focus()
        page.keyboard.press("Enter")
        page.get_by_role("heading", name="Try the task again?").wait_for()
        page.get_by_role("link", name="Cancel").focus()
        page.keyboard.press("Enter")
        page.get_by_role("heading", name="Needs you").wait_for()
    made.end()


@slow
def test_a_script_in_a_title_an_output_or_a_diff_does_not_run(own_state: Path, browser: Browser) -> None:
    attack = "</textarea></title></pre><img src=x onerror=alert(1)><script>alert(2)</script>"
    made = Journals(Home(own_state))
    task = TaskTaken("issue-1", attack, attack, "issue", 1)
    begin = [
        *started("r", task, "o/r"),
        *worked_round(1, plan=attack),
        ToolCallEnded("c", "t", CallStatus.OK, attack),
    ]
    run = made.add(datetime.now(UTC), [*begin, *proposed(1, attack, "o/r", diff=f"+{attack}")])
    writer = made.begin(datetime.now(UTC), begin)
    with opened(own_state) as address, look(browser, address) as page:
        page.get_by_text("live", exact=True).wait_for()
        page.goto(f"{address.partition('/?')[0]}/run/{run.name}")
        page.goto(f"{address.partition('/?')[0]}/run/{writer.path.parent.name}")
        page.get_by_text("live", exact=True).wait_for()
        writer(Warned(attack))
        page.get_by_text("alert(2)").last.wait_for()
        assert page.locator("img").count() == 0
    made.end()


def test_the_page_ends_at_once_with_a_stream_open(own_state: Path) -> None:
    import urllib.request

    with opened(own_state) as address:
        opener = urllib.request.build_opener(urllib.request.HTTPCookieProcessor())
        assert opener.open(address).status == 200
        stream = opener.open(address.partition("?")[0] + "stream")
        assert stream.readline() == b"retry: 2000\n"
    stream.close()
