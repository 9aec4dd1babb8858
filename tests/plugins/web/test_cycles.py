"""`run --web`: the web tools in a cycle, and what one without them has."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.doubles.model_server import calls

if TYPE_CHECKING:
    from pathlib import Path

    from tests.scenarios.stage import Stage

TASK = ("--task", "Fix add() in calc.py")


@pytest.mark.slow(reason="whole cycles; the like of them is in the default tier")
@pytest.mark.parametrize("profile", ["planner", "openai", "anthropic", "gemini", "minimal"])
def test_web_tools_only_with_a_search_engine_and_its_key(
    stage: Stage, repository: Path, profile: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    flags = ("--contract", "native", "--profile", profile)
    monkeypatch.delenv("EXA_API_KEY", raising=False)
    refused = stage.run("--repo", str(repository), *TASK, *flags, "--web", "exa")
    assert (refused.code, stage.model.requests) == (2, [])
    assert "EXA_API_KEY" in refused.err
    monkeypatch.setenv("EXA_API_KEY", "made-up-key-0123456789")
    stage.script(*[calls(("finish", {"reason": "nothing to do"}))] * 2)
    stage.run("--repo", str(repository), *TASK, *flags)
    stage.run("--repo", str(repository), *TASK, *flags, "--web", "exa")
    without, online = (
        {entry["function"]["name"] for entry in request.body["tools"]} for request in stage.model.requests
    )
    assert online - without == (
        {"web_search", "web_fetch"} if profile == "gemini" else {"web_search", "web_open", "web_find"}
    )
    assert "made-up-key" not in str(stage.model.requests[1].body)


def test_pages_can_be_read_without_a_search_engine(stage: Stage, repository: Path) -> None:
    stage.script(calls(("finish", {"reason": "nothing to do"})))
    flags = ("--contract", "native", "--profile", "assistant", "--web", "pages")
    stage.run("--repo", str(repository), *TASK, *flags)
    names = {entry["function"]["name"] for entry in stage.model.requests[0].body["tools"]}
    assert "web_fetch" in names
    assert "web_search" not in names
