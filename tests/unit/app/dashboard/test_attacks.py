"""Attacks on the page. Each is stopped, and succeeds where its defence is taken away: else it would prove nothing."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import httpx2
import pytest
from lxml import html

from orchestrator.app.dashboard.gate import BrowserSecrets, Gate
from orchestrator.app.dashboard.pages import TEMPLATES
from orchestrator.app.dashboard.server import event_text, make_app
from orchestrator.app.html import page as html_page
from orchestrator.app.html.page import Output, Step
from orchestrator.core.events import CycleEnded, TaskTaken
from tests.doubles.journals import started
from tests.unit.app.dashboard.scene import ORIGIN, PORT, make_scene, messages

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from starlette.types import ASGIApp

SCRIPT = "</pre><script>alert(1)</script>"


class CarelessSecrets(BrowserSecrets):
    """Takes each form for ours."""

    def is_form(self, text: str) -> bool:
        return bool(text) or True


async def ask(
    app: ASGIApp, verb: str, path: str, host: str = f"127.0.0.1:{PORT}", **sent: Any
) -> httpx2.Response:
    cookies = {f"pullwright-{PORT}": "the-session"}
    transport = httpx2.ASGITransport(app=app)
    async with httpx2.AsyncClient(transport=transport, base_url=f"http://{host}", cookies=cookies) as browser:
        if host != f"127.0.0.1:{PORT}":  # the name was pointed at this machine; cookies go by the name
            sent["headers"] = {"Cookie": f"pullwright-{PORT}=the-session"}
        return await browser.request(verb, path, **sent)


def test_a_script_in_what_a_run_says() -> None:
    steps = [
        Step(SCRIPT, "ok", "+", body=SCRIPT, folded=[Output(SCRIPT, SCRIPT)]),
        Step(SCRIPT, is_heading=True),
    ]

    def scripts(**changed: Any) -> int:
        template = html_page._environment(TEMPLATES).overlay(**changed).get_template("steps.html")
        return len(html.document_fromstring(template.render(steps=steps, zone=None)).xpath("//script"))

    assert scripts() == 0
    assert scripts(autoescape=False) > 0


async def test_a_form_of_another_page(tmp_path: Path) -> None:
    scene = make_scene(tmp_path)
    run = scene.journals.begin(scene.dashboard.clock.now(), started("r", None, "o/r")).path.parent.name
    form = {"verb": "retry", "repository": "/nowhere", "task": "x"}
    evil = {"Origin": "http://evil.example"}
    with_word = {**form, "form": scene.dashboard.secrets.form}
    # It is done, and fails only because there is no such folder.
    done = "no such folder"
    assert (await ask(scene.app, "POST", "/do", data=with_word, headers=evil)).status_code == 403
    assert done in (await ask(make_app(scene.dashboard), "POST", "/do", data=with_word, headers=evil)).text
    assert (await ask(scene.app, "POST", "/do", data=form, headers={"Origin": ORIGIN})).status_code == 403
    scene.dashboard.secrets = CarelessSecrets("the-token", "the-session")
    assert done in (await ask(scene.app, "POST", "/do", data=form, headers={"Origin": ORIGIN})).text
    assert run
    scene.journals.end()


async def test_a_name_of_somebody_else_that_leads_to_this_machine(tmp_path: Path) -> None:
    scene = make_scene(tmp_path)
    host = f"evil.example:{PORT}"
    open_gate = Gate(
        make_app(scene.dashboard), frozenset({f"127.0.0.1:{PORT}", host}), scene.dashboard.secrets
    )
    assert (await ask(scene.app, "GET", "/runs", host)).status_code == 403
    assert (await ask(open_gate, "GET", "/runs", host)).status_code == 200


async def test_a_guessed_token(tmp_path: Path) -> None:
    scene = make_scene(tmp_path)
    guesses = [f"{number:02x}" for number in range(256)]

    async def found(known: BrowserSecrets) -> bool:
        scene.dashboard.secrets = known
        async with scene.browser(knows_the_token=False) as browser:
            answers = [(await browser.get(f"/?token={guess}")).status_code for guess in guesses]
        return 303 in answers

    assert await found(BrowserSecrets("c0", "x"))
    assert not await found(BrowserSecrets())
    assert len({BrowserSecrets().token for _ in range(100)}) == 100
    assert len(BrowserSecrets().token) == len(BrowserSecrets().session) == 43  # 256 bits


@pytest.mark.parametrize("path", ["//evil.example/x", "/\\evil.example", "///evil.example"])
async def test_an_address_that_leads_away_with_its_token(tmp_path: Path, path: str) -> None:
    scene = make_scene(tmp_path)
    request = httpx2.Request("GET", f"http://127.0.0.1:{PORT}")
    request.url = request.url.copy_with(raw_path=f"{path}?token=the-token".encode())
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app=scene.app)) as browser:
        answer = await browser.send(request)
    place = answer.headers["location"]
    assert answer.status_code == 303
    assert place.startswith("/")
    assert place[1:2] not in {"/", "\\"}


async def test_a_line_of_a_journal_that_ends_the_event_and_begins_its_own() -> None:
    text = 'x\n\nid: 99\ndata: {"ended": true}\n\n'

    async def read(stream: str) -> list[tuple[str, dict[str, Any]]]:
        async def lines() -> AsyncIterator[str]:
            for line in stream.split("\n"):
                yield line

        return [event async for event in messages(lines())]

    assert await read(event_text({"steps": text}, "5")) == [("5", {"steps": text})]
    careless = "id: 5\ndata: " + json.dumps({"steps": "x"}).replace("x", 'x"}' + text[1:])
    assert ("99", {"ended": True}) in await read(careless)


async def test_a_task_that_looks_like_a_button(tmp_path: Path) -> None:
    scene = make_scene(tmp_path)
    task = TaskTaken('x" formaction="//evil.example', "t", "", "issue", 1)
    scene.journals.add(
        scene.dashboard.clock.now(),
        [*started("r", task, 'o/r"><form action=//evil.example>'), CycleEnded({"outcome": "failed"})],
    )
    tree = html.document_fromstring((await scene.get("/")).text)
    assert {form.get("action") for form in tree.xpath("//form")} == {"/confirm"}
    assert not tree.xpath("//@formaction")
