"""Attacks on single parts of the page. Those on the whole are the attacks `dashboard-*` of `pullwright redteam`."""

from __future__ import annotations

import json
import re
from contextvars import copy_context
from typing import TYPE_CHECKING, Any

import httpx2
import pytest
from lxml import html

from orchestrator.app.html import page as html_page
from orchestrator.app.html.page import Output, Step
from orchestrator.plugins.dashboard.pages import TEMPLATES
from orchestrator.plugins.dashboard.server import event_text
from orchestrator.plugins.dashboard.serving import BrowserSecrets
from tests.plugins.dashboard.scene import ORIGIN, make_scene, messages

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


SCRIPT = "</pre><script>alert(1)</script>"


def test_a_script_in_what_a_run_says() -> None:
    steps = [
        Step(SCRIPT, "ok", "+", body=SCRIPT, folded=[Output(SCRIPT, SCRIPT)]),
        Step(SCRIPT, is_heading=True),
    ]

    def scripts(**changed: Any) -> int:
        html_page._redact.set(str)
        template = html_page._environment(TEMPLATES).overlay(**changed).get_template("steps.html")
        return len(html.document_fromstring(template.render(steps=steps, zone=None)).xpath("//script"))

    assert copy_context().run(scripts) == 0
    assert copy_context().run(scripts, autoescape=False) > 0


def test_a_token_is_too_long_to_be_guessed() -> None:
    assert len({BrowserSecrets().token for _ in range(100)}) == 100
    assert len(BrowserSecrets().token) == len(BrowserSecrets().session) == 43  # 256 bits


def test_each_start_has_a_host_of_its_own() -> None:
    names = {BrowserSecrets().name for _ in range(100)}
    assert len(names) == 100
    assert all(re.fullmatch(r"[0-9a-f]{32}\.localhost", name) for name in names)  # 128 bits


@pytest.mark.parametrize("path", ["//evil.example/x", "/\\evil.example", "///evil.example"])
async def test_an_address_that_leads_away_with_its_token(tmp_path: Path, path: str) -> None:
    scene = make_scene(tmp_path)
    request = httpx2.Request("GET", ORIGIN)
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
