"""What another assistant has in its folder: settings of embeddings, memories and documents."""

from __future__ import annotations

import json
import os
import time
from typing import TYPE_CHECKING

from orchestrator.app.cli import main
from orchestrator.app.cli.arguments import DONE
from orchestrator.app.config.foreign import read_foreign

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


def test_the_embeddings_of_the_document_become_options(tmp_path: Path) -> None:
    """Appendix B of the assistant's specification."""
    embeddings = {
        "embedding_api_url": "https://api.openai.com/v1/embeddings",
        "embedding_model": "text-embedding-3-small",
    }
    (tmp_path / "ralph.config.json").write_text(json.dumps(embeddings), encoding="utf-8")
    assert read_foreign(tmp_path / "ralph.config.json", lambda _text: False).values == embeddings


def test_a_folder_of_another_assistant_is_taken_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Settings, memories and documents; what is not taken is named, and a second time nothing is added."""
    monkeypatch.setenv("PULLWRIGHT_EMBEDDING_MODEL", "letters")
    monkeypatch.setenv("PULLWRIGHT_CONFIG", str(tmp_path / "config.toml"))
    monkeypatch.setenv("PULLWRIGHT_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "config.toml").touch()
    there, now = tmp_path / "ralph", int(time.time())
    texts = {
        "config.json": {"model": "gpt-5.2", "mcpServers": {"a": {}}},
        "metadata/long_term_memory/chunk_1.json": {
            "chunk_id": 1, "content": "Never use mocks", "index_name": "long_term_memory", "type": "correction",
            "source": "conversation", "importance": "critical", "timestamp": now - 200 * 86_400,
        },
        "metadata/long_term_memory/chunk_2.json": {
            "chunk_id": 2, "content": "Old news", "type": "fact", "importance": "low", "timestamp": now - 200 * 86_400,
        },
        "documents/long_term_memory/doc_1.json": {
            "id": 1, "content": "Never use mocks", "type": "correction", "source": "x", "timestamp": now,
        },
        "documents/manual/doc_0.json": {
            "id": 0, "content": "The manual says so.", "type": "pdf", "source": "manual.pdf", "timestamp": now,
            "metadata": {"page": 3},
        },
        "documents/conversations/doc_0.json": {"id": 0, "content": "hello", "timestamp": now},
    }  # fmt: skip
    for name, value in texts.items():
        (there / name).parent.mkdir(parents=True, exist_ok=True)
        (there / name).write_text(json.dumps(value))
    (there / "documents/manual/doc_1.json").write_text("{")
    (there / "documents/manual/doc_2.json").write_text("[" * 100_000)
    os.mkfifo(there / "documents/manual/doc_3.json")
    (there / "manual.idx").touch()
    assert main(["config", "import", str(there)]) == DONE
    said = capsys.readouterr()
    assert 'model = "openai:gpt-5.2"' in said.out
    assert "Remembered: 2 memories or documents." in said.out
    for note in (
        "mcpServers: 1 not imported",
        "doc_1.json is not in the form",
        "doc_2.json is not in the form",
        "conversations: not imported",
        "*.idx: not imported",
        "1 memories or documents are known already or expired",
    ):
        assert note in said.err
    assert main(["memory", "search", "mocks", "--json"]) == DONE
    (memory,) = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert (memory["type"], memory["importance"], memory["expires_at"]) == ("correction", "critical", None)
    assert main(["memory", "list", "manual", "--json"]) == DONE
    assert json.loads(capsys.readouterr().out)["metadata"] == {"page": 3}
    assert main(["config", "import", str(there), "--json"]) == DONE
    again = json.loads(capsys.readouterr().out)
    assert (again["added"], again["memories"]) == ({}, 0)
