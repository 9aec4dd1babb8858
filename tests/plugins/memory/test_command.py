"""`pullwright memory` on a real file: a store that a session wrote, and a person at the terminal."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest

from orchestrator.app.cli import main
from orchestrator.app.cli.arguments import DONE, FAILED, NOTHING, USAGE
from orchestrator.core.clock import ManualClock
from orchestrator.plugins.memory.embedding import LexicalEmbedder
from orchestrator.plugins.memory.items import Author, Importance, MemoryType
from orchestrator.plugins.memory.memory import LongTermMemory
from orchestrator.plugins.memory.store import MEMORIES, MemoryStore
from tests.plugins.memory.embedding_server import EmbeddingServer
from tests.tables import table

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

NOW = datetime(
    2099, 11, 23, 12, tzinfo=UTC
)  # so that nothing is expired where the program takes the time of now


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PULLWRIGHT_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PULLWRIGHT_EMBEDDING_MODEL", "letters")
    monkeypatch.chdir(tmp_path)
    return tmp_path / "home"


@pytest.fixture
def filled(home: Path) -> Path:
    async def fill() -> None:
        memory = LongTermMemory(MemoryStore(home / "memory.db", str), LexicalEmbedder(), ManualClock(NOW))
        await memory.remember(
            "Never use mocks here", type_=MemoryType.CORRECTION, importance=Importance.HIGH, source="review"
        )
        await memory.remember("Releases are cut on \x1b[31mFridays", author=Author.MODEL)
        await memory.aclose()

    asyncio.run(fill())
    return home


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str]]:
    def run(*argv: str) -> tuple[int, str]:
        status = main(["memory", *argv])
        said = capsys.readouterr()
        return status, said.out + said.err

    return run


Run = Any


def lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


@pytest.mark.parametrize(
    "argv",
    [
        ["list"],
        ["search", "x"],
        ["show", "1"],
        ["forget", "1"],
        ["indices"],
        ["stats"],
        ["export"],
        ["embed"],
    ],
)
def test_looking_makes_no_file(home: Path, run: Run, argv: list[str]) -> None:
    assert run(*argv)[0] == NOTHING
    assert run(*argv, "--json") == (NOTHING, "")
    assert not home.exists()


def test_the_list_has_the_newest_first_and_nothing_that_moves_the_cursor(filled: Path, run: Run) -> None:
    assert filled.exists()
    status, text = run("list")
    assert status == DONE
    assert text.index("Releases") < text.index("Never use mocks here")
    assert "correction, high, by a person, 2099-11-23; from review" in text
    assert "general, normal, by a model, 2099-11-23, until 2100-02-21; from conversation" in text
    assert "\x1b" not in text
    assert [one["memory_id"] for one in lines(run("list", MEMORIES, "--json")[1])] == [2, 1]


def test_a_search_finds_by_words_and_says_so(filled: Path, run: Run) -> None:
    assert filled.exists()
    status, text = run("search", "may I mock this?")
    assert status == DONE
    assert "Never use mocks" in text
    assert "Fridays" not in text
    assert "Only words were compared" in text
    assert run("search", "zebra")[0] == NOTHING


def test_a_memory_is_shown_edited_and_forgotten(filled: Path, run: Run) -> None:
    assert filled.exists()
    status, text = run("show", "1")
    assert (status, text.splitlines()[-1]) == (DONE, "Never use mocks here")
    assert "source: review\n" in text
    (shown,) = lines(run("show", "1", "--json")[1])
    assert (shown["type"], shown["importance"], shown["expires_at"]) == ("correction", "high", None)
    assert run("edit", "1", "content", "Use fakes, never mocks")[0] == DONE
    assert run("edit", "1", "importance", "critical")[0] == DONE
    (found,) = lines(run("show", "1", "--json")[1])
    assert (found["content"], found["importance"]) == ("Use fakes, never mocks", "critical")
    assert "Use fakes" in run("search", "fakes")[1]
    assert run("edit", "1", "colour", "red") == (
        FAILED,
        "pullwright: 'colour' is not a field of a memory; use one of: content, type, source, importance, expires_at\n",
    )
    assert run("edit", "1", "type", "order")[0] == FAILED
    status, text = run("forget", "1", "2", "9")
    assert status == NOTHING
    assert "forgot 1: Use fakes" in text
    assert "there is no memory 9" in text
    assert run("show", "1")[0] == NOTHING


@table(
    "argv, kept",
    [
        (["Use", "tabs"], ("general", "normal", 90)),
        (["Use tabs", "--type", "correction"], ("correction", "normal", 90)),
        (["--importance", "critical", "Use", "tabs"], ("general", "critical", None)),
        (["Use tabs", "--importance", "low", "--ttl", "0"], ("general", "low", None)),
        (["Use tabs", "--ttl", "86400"], ("general", "normal", 1)),
    ],
)
def test_a_person_adds_a_memory(home: Path, run: Run, argv: list[str], kept: tuple[object, ...]) -> None:
    assert not home.exists()
    status, text = run("add", *argv)
    assert (status, "Use tabs" in text) == (DONE, True)
    (stored,) = lines(run("list", "--json")[1])
    days = stored["ttl"] and stored["ttl"] // 86_400
    assert (stored["type"], stored["importance"], days) == kept
    assert stored["author"] == "person"
    assert "says this already" in run("add", "use tabs")[1]
    shutil.rmtree(home)


def test_what_can_be_added_is_what_a_memory_can_be(run: Run) -> None:
    listed = re.findall(r"--(?:type|importance) {([^}]*)}", run("add", "--help")[1])
    assert [one.split(",") for one in listed[-2:]] == [[*MemoryType], [*Importance]]


def test_another_importance_is_another_lifetime(filled: Path, run: Run) -> None:
    assert filled.exists()
    for importance, is_permanent in (("critical", True), ("low", False), ("high", True), ("normal", False)):
        assert run("edit", "2", "importance", importance)[0] == DONE
        (found,) = lines(run("show", "2", "--json")[1])
        assert (found["expires_at"] is None) is is_permanent, importance


def test_indices_and_figures(filled: Path, run: Run) -> None:
    assert filled.exists()
    assert run("indices")[1] == "long_term_memory: 2 items, 2 vectors of 512 numbers by letters\n"
    (index,) = lines(run("indices", "--json")[1])
    assert (index["name"], index["items"]) == (MEMORIES, 2)
    (figures,) = lines(run("stats", "--json")[1])
    assert figures["by_type"] == {"general": 1, "correction": 1}
    assert figures["by_author"] == {"model": 1, "person": 1}
    assert figures["permanent"] == 1
    assert "by type: general 1, correction 1\n" in run("stats")[1]
    assert run("stats", "other")[0] == USAGE


def test_an_export_is_imported_on_another_machine(
    filled: Path, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert filled.exists()
    status, text = run("export")
    assert status == DONE
    (tmp_path / "memories.jsonl").write_text(text, encoding="utf-8")
    monkeypatch.setenv("PULLWRIGHT_HOME", str(tmp_path / "other"))
    assert run("import", "memories.jsonl") == (DONE, "stored: 2 items\n")
    assert run("import", "memories.jsonl", "--json") == (NOTHING, '{"stored": 0}\n')
    kept = [{**one, "memory_id": 0} for one in lines(run("export")[1])]
    assert kept == [{**one, "memory_id": 0} for one in lines(text)]
    assert run("import", "missing.jsonl")[0] == USAGE


def test_other_embeddings_want_the_vectors_made_anew(
    filled: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert filled.exists()
    with EmbeddingServer(lambda text: [1.0, float("mock" in text or "stand-in" in text)]) as server:
        monkeypatch.delenv("PULLWRIGHT_EMBEDDING_MODEL")
        monkeypatch.setenv("PULLWRIGHT_EMBEDDING_API_URL", f"{server.root}/v1")
        monkeypatch.setenv("PULLWRIGHT_EMBEDDING_API_KEY", "made-up-key-123456")
        monkeypatch.setenv("OPENAI_API_KEY", "another-key-123456")
        assert "has vectors of letters" in run("search", "stand-in")[1]
        assert server.asked == []
        assert run("embed") == (DONE, "embedded: 2 items\n")
        status, text = run("search", "stand-in")
        assert status == DONE
        assert text.index("Never use mocks") < text.index("Fridays")
        assert "Only words" not in text
    assert {authorization for _, authorization, _ in server.asked} == {"Bearer made-up-key-123456"}
    assert {body["model"] for _, _, body in server.asked} == {"text-embedding-3-small"}


def test_a_model_without_a_server_is_a_mistake(
    filled: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert filled.exists()
    monkeypatch.setenv("PULLWRIGHT_EMBEDDING_MODEL", "text-embedding-3-large")
    status, text = run("list")
    assert status == USAGE
    assert "embedding_model needs a server" in text


def test_without_a_server_the_model_of_the_extra_makes_the_vectors(
    filled: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert filled.exists()
    monkeypatch.delenv("PULLWRIGHT_EMBEDDING_MODEL")
    assert "has vectors of letters, not of all-MiniLM-L6-v2-int8" in run("search", "weekday of a release")[1]
    assert run("embed") == (DONE, "embedded: 2 items\n")
    status, text = run("search", "when do we publish a new version?")
    assert status == DONE
    assert "Fridays" in text
    assert "Only words" not in text
    assert "2 vectors of 384 numbers by all-MiniLM-L6-v2-int8" in run("indices")[1]
