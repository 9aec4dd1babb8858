"""The dashboard in a real browser: a worker, a page, and a person who looks, answers and stops."""

from __future__ import annotations

import json
import os
import re
import signal
import threading
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import httpx2
import pytest

from orchestrator.app.cli.arguments import QUESTION
from orchestrator.bot.journal.folders import Home
from orchestrator.core.cycle_events import CycleEnded, TaskTaken
from orchestrator.core.events import CallStatus, ToolCallEnded, Warned
from tests.doubles import forked
from tests.doubles.browser import axe, chromium
from tests.doubles.journals import Journals, night, proposed, started, worked_round
from tests.doubles.loopback import Loopback, LoopbackHandler
from tests.doubles.model_server import gated
from tests.plugins.fleet.fleets import busy_fleet
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
        assert re.fullmatch(r"http://[0-9a-f]{32}\.localhost:\d+/\?token=[A-Za-z0-9_-]{43}", address)
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
        page.get_by_role("heading", name="1 pull request waits for your review").wait_for(timeout=60_000)
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
            page.get_by_text("your answer is kept").wait_for()
            other.get_by_text("1 run at work").wait_for(timeout=60_000)
            other.get_by_label("Your answer").wait_for(state="detached")
            # A run that is told to end before its first request asks no model.
            asked = other.locator(".facts.tight div").filter(has_text=re.compile(r"round\s*[1-9]"))
            asked.wait_for(timeout=60_000)
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


class Neighbour(Loopback):
    """Another server of this machine. Its page asks the dashboard for everything that a page can ask for.

    Attributes:
        cookies: what browsers sent to this server.
        referrers: where they came from.
    """

    def __init__(self, targets: list[str]) -> None:
        super().__init__(_NeighbourHandler)
        self.page = _NEIGHBOUR.replace("TARGETS", json.dumps(targets)).encode()
        self.cookies: list[str] = []
        self.referrers: list[str] = []


class _NeighbourHandler(LoopbackHandler):
    def do_GET(self) -> None:  # noqa: N802  the base class calls it so
        owner: Neighbour = self.server.owner
        owner.cookies += self.headers.get_all("Cookie", [])
        owner.referrers += self.headers.get_all("Referer", [])
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(owner.page)))
        self.end_headers()
        self.wfile.write(owner.page)


_NEIGHBOUR = """<!doctype html><body><script>
const fields = () => new URLSearchParams({verb: "retry", repository: "octo/ledger", task: "issue-204"});
(async () => {
  for (const target of TARGETS) {
    for (const [method, path] of [["GET", "/"], ["GET", "/stream"], ["POST", "/do"]]) {
      const body = method === "POST" ? fields() : undefined;
      await fetch(target + path, {method, body, mode: "no-cors", credentials: "include"}).catch(() => 0);
    }
    document.body.appendChild(document.createElement("iframe")).src = target + "/";
    document.body.appendChild(document.createElement("iframe")).name = target;
    const form = document.body.appendChild(document.createElement("form"));
    Object.assign(form, {method: "post", action: target + "/do", target});
    for (const [name, value] of fields()) form.appendChild(Object.assign(document.createElement("input"), {name, value}));
    form.submit();
    window.open(target + "/confirm?verb=retry&repository=octo/ledger&task=issue-204");
  }
})();
</script>"""


@slow
def test_another_server_of_this_machine_sees_no_credential_and_begins_nothing(
    own_state: Path, browser: Browser
) -> None:
    night(Home(own_state), datetime.now(UTC)).end()
    with opened(own_state) as address:
        url = httpx2.URL(address)
        targets = [f"http://{name}:{url.port}" for name in ("127.0.0.1", "localhost", "[::1]", url.host)]
        context = browser.new_context()
        with Neighbour(targets) as neighbour:
            port = httpx2.URL(neighbour.root).port
            page = context.new_page()
            page.goto(address)
            page.get_by_role("heading", name="Needs you").wait_for()
            assert [one["httpOnly"] for one in context.cookies()] == [True]
            answers: list[int] = []
            context.on(
                "response", lambda one: answers.append(one.status) if f":{url.port}/" in one.url else None
            )
            for name in ("127.0.0.1", "localhost", "neighbour.localhost"):
                with context.expect_event("response", lambda one: one.url == f"{targets[-1]}/do"):
                    context.new_page().goto(f"http://{name}:{port}/")
            page.evaluate(f"window.location = 'http://127.0.0.1:{port}/from-a-link'")
            page.wait_for_url("**/from-a-link")
            assert len(answers) > len(targets)
            assert set(answers) <= {401, 403}
            assert neighbour.cookies == []
            own = [one for one in neighbour.referrers if f":{port}" not in one]
            assert own == []
            page.go_back()
            page.get_by_role("heading", name="Needs you").wait_for()
        context.close()


@slow
def test_reload_and_a_second_tab_work_and_an_address_of_an_earlier_start_says_that_it_is_closed(
    own_state: Path, browser: Browser
) -> None:
    night(Home(own_state), datetime.now(UTC)).end()
    context = browser.new_context()
    page = context.new_page()
    with opened(own_state) as address:
        page.goto(address)
        for tab in (page, context.new_page()):
            tab.goto(address.partition("?")[0])
            tab.get_by_role("heading", name="Needs you").wait_for()
            tab.reload()
            tab.get_by_role("heading", name="Needs you").wait_for()
    with opened(own_state, "--port", str(httpx2.URL(address).port)) as later:
        page.reload()
        page.get_by_role("heading", name="This page is closed").wait_for()
        page.goto(later)
        page.get_by_role("heading", name="Needs you").wait_for()
    context.close()


def test_the_page_ends_at_once_with_a_stream_open(own_state: Path) -> None:
    with opened(own_state) as address:
        url = httpx2.URL(address)
        headers = {"Host": f"{url.host}:{url.port}"}  # the name is found by browsers, not by every machine
        here = httpx2.Client(base_url=f"http://127.0.0.1:{url.port}", trust_env=False, timeout=30)
        exchanged = here.get(url.raw_path.decode(), headers=headers)
        headers["Cookie"] = exchanged.headers["set-cookie"].partition(";")[0]
        stream = here.stream("GET", "/stream", headers=headers)
        lines = stream.__enter__().iter_lines()
        assert next(lines) == "retry: 2000"
    stream.__exit__(None, None, None)
    here.close()
