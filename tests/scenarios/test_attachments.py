"""An issue with a screenshot and a PDF document, on GitHub, through the whole program."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING

import pytest

from tests.doubles.pdf_files import pdf
from tests.scenarios.stage import FILES, FIX_IT, Stage
from tests.unit.engine.tools.test_reading import png

if TYPE_CHECKING:
    from tests.doubles.github.server import GitHub

SHOT = "/user-attachments/assets/12345678-1234-1234-1234-123456789abc"
MANUAL = "/user-attachments/files/77/manual.pdf"


@pytest.fixture
def hosted(github: GitHub, stage: Stage, monkeypatch: pytest.MonkeyPatch) -> Stage:
    repo = github.add_repository("octo/calc", FILES)
    github.attachments |= {SHOT: png(), MANUAL: pdf(["add(a, b) gives the sum."])}
    body = f"![shot]({github.web_url}{SHOT})\n\nSee [manual.pdf]({github.web_url}{MANUAL}), page 1."
    github.add_issue(repo, "add() subtracts", body, labels=["pullwright"])
    monkeypatch.setenv("GITHUB_TOKEN", github.token())
    stage.flags = ["--github-url", github.web_url, "--repo", "octo/calc", "--contract", "json-plan"]
    stage.script(FIX_IT)
    return stage


def test_a_model_that_reads_images_gets_them(hosted: Stage, github: GitHub) -> None:
    assert hosted.run("--model", "openai-chat:gpt-4o").code == 0
    text, image = hosted.asked()[-1]["content"]
    assert "=== page 1 of 1 ===\nadd(a, b) gives the sum." in text["text"]
    assert "The image `12345678-1234-1234-1234-123456789abc`, which is attached to it" in text["text"]
    data = base64.b64encode(png()).decode()
    assert image == {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}}
    asked = [bool(request.token) for request in github.requests if request.path == SHOT]
    assert asked == [False, True]
    assert github.violations == []


def test_a_model_that_reads_none_is_told_of_them(hosted: Stage) -> None:
    assert hosted.run().code == 0
    assert "add(a, b) gives the sum." in hosted.told()
    assert "not shown: an image, and you are not known to read images." in hosted.told()
    assert "image_url" not in json.dumps(hosted.asked())
