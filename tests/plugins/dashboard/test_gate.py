"""Who is let in, and what every answer says."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.plugins.dashboard.scene import NAME, ORIGIN, PORT, make_scene

if TYPE_CHECKING:
    from pathlib import Path

PATHS = ("/", "/runs", "/style.css", "/live.js", "/stream", "/run/x", "/repository", "/confirm", "/none")


async def test_the_address_with_its_token_is_exchanged_for_a_cookie_at_once(tmp_path: Path) -> None:
    scene = make_scene(tmp_path)
    async with scene.browser(knows_the_token=False) as browser:
        answer = await browser.get("/runs?token=the-token&before=x")
        assert (answer.status_code, answer.headers["location"]) == (303, "/runs?before=x")
        cookie = answer.headers["set-cookie"]
        assert cookie == "pullwright=the-session; Path=/; HttpOnly; SameSite=Strict"
        assert "the-token" not in cookie + answer.text
        assert (await browser.get("/")).status_code == 200


@pytest.mark.parametrize(
    "query", ["", "?token=", "?token=the-toke", "?token=the-session", "?token=the-token&token=x"]
)
async def test_without_the_token_there_is_nothing(tmp_path: Path, query: str) -> None:
    scene = make_scene(tmp_path)
    async with scene.browser(knows_the_token=False) as browser:
        for path in PATHS:
            answer = await browser.get(path + query)
            assert answer.status_code == 401
            assert "set-cookie" not in answer.headers


@pytest.mark.parametrize("cookie", ["", "the-token", "the-sessio", "the-session2", '"'])
async def test_a_wrong_cookie_is_none(tmp_path: Path, cookie: str) -> None:
    scene = make_scene(tmp_path)
    async with scene.browser(knows_the_token=False) as browser:
        answer = await browser.get("/", headers={"Cookie": f"pullwright={cookie}"})
    assert answer.status_code == 401


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        f"evil.example:{PORT}",
        "localhost.evil.example:8799",
        f"{NAME}.evil.example:{PORT}",
        "",
        "[",
    ],
)
async def test_a_name_of_somebody_else_is_refused_even_with_the_token(tmp_path: Path, host: str) -> None:
    scene = make_scene(tmp_path)
    async with scene.browser() as browser:
        answer = await browser.get("/?token=the-token", headers={"Host": host})
    assert (answer.status_code, answer.text) == (403, "this address is for programs of this machine\n")


@pytest.mark.parametrize(
    "host",
    [
        *(
            f"127.0.0.1:{PORT}",
            f"localhost:{PORT}",
            f"[::1]:{PORT}",
            "127.0.0.1",
            "localhost",
            f"{NAME}:1",
            NAME,
        ),
        *(f"an-earlier-start.localhost:{PORT}", f"x.{NAME}:{PORT}"),
    ],
)
async def test_a_name_that_other_servers_share_gets_the_closed_page_and_no_cookie(
    tmp_path: Path, host: str
) -> None:
    scene = make_scene(tmp_path)
    form = {"form": scene.dashboard.secrets.form, "verb": "stop", "run": "x"}
    headers = {"Host": host, "Origin": f"http://{host}"}
    async with scene.browser() as browser:
        answers = [await browser.get(path, headers=headers) for path in ("/", "/?token=the-token", "/runs")]
        answers.append(await browser.post("/do", data=form, headers=headers))
    for answer in answers:
        assert answer.status_code == 403
        assert "This page is closed" in answer.text
        assert "set-cookie" not in answer.headers


@pytest.mark.parametrize(
    "origin",
    [
        *(None, "null", "http://evil.example", "http://127.0.0.1:1", f"http://127.0.0.1:{PORT}"),
        *(f"http://localhost:{PORT}", f"http://{NAME}:1", f"http://{NAME}", f"https://{NAME}:{PORT}"),
    ],
)
async def test_a_form_of_another_page_is_refused(tmp_path: Path, origin: str | None) -> None:
    scene = make_scene(tmp_path)
    headers = {"Origin": origin} if origin else {}
    form = {"form": scene.dashboard.secrets.form, "verb": "stop", "run": "x"}
    async with scene.browser() as browser:
        answer = await browser.post("/do", data=form, headers=headers)
    assert (answer.status_code, answer.text) == (403, "this was sent by another page\n")


@pytest.mark.parametrize("form", ["", "0" * 64, "ä"])
async def test_a_form_without_its_own_word_is_refused(tmp_path: Path, form: str) -> None:
    scene = make_scene(tmp_path)
    for path in ("/do", "/look", "/confirm"):
        answer = await scene.post(path, {"form": form, "verb": "stop", "run": "x"})
        assert answer.status_code == 403


async def test_every_answer_has_the_policy(tmp_path: Path) -> None:
    scene = make_scene(tmp_path)
    async with scene.browser() as known, scene.browser(knows_the_token=False) as stranger:
        answers = [await known.get(path) for path in PATHS if path != "/stream"]
        answers += [await stranger.get("/"), await stranger.get("/?token=the-token")]
        answers.append(await known.post("/do", headers={"Origin": ORIGIN}))
    for answer in answers:
        policy = answer.headers["content-security-policy"]
        assert policy.startswith(
            "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; "
        )
        assert "unsafe" not in policy
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["x-frame-options"] == "DENY"
        assert answer.headers["referrer-policy"] == "same-origin"


async def test_a_form_without_end_is_refused(tmp_path: Path) -> None:
    scene = make_scene(tmp_path)
    assert (await scene.post("/do", {"verb": "answer", "answer": "x" * 200_000})).status_code == 403
