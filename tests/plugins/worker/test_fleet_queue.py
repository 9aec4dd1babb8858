"""`pullwright fleet`: several workers in processes of their own and one queue, on SQLite and on PostgreSQL."""

from __future__ import annotations

import hmac
import json
import os
import re
import signal
import sqlite3
import threading
import urllib.request
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any

import psycopg
import pytest

from tests.doubles import forked
from tests.doubles.collector import Collector
from tests.doubles.model_server import gated
from tests.scenarios.stage import FILES, FINISH, FIX_IT, Stage, add_commit, branches, do, make_repository

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.doubles.forked import Forked
    from tests.doubles.github.server import GitHub
    from tests.doubles.model_server import RecordedRequest, Step

SECRETS = {"OPENAI_API_KEY": "sk-" + "a1B2" * 10, "ONE_TOKEN": "ghp_" + "x9Y8" * 9}
WRITE = ("write_file", {"path": "a.txt", "content": "a\n"})
PROPOSE = do(WRITE, ("create_pull_request", {"title": "Write a", "body": ""}), FINISH)


@contextmanager
def worker(
    file: Path, url: str, *options: str, traces: str = ""
) -> Iterator[tuple[Forked, IO[str], IO[str]]]:
    """A worker of the fleet in a process of its own, once it takes turns. `traces` is a collector's address."""
    told = {"PULLWRIGHT_DATABASE_URL": url, "OTEL_EXPORTER_OTLP_ENDPOINT": traces}
    words = ("fleet", "run", "--config", str(file), "--json", *options)
    with forked.piped(*words, environ={**os.environ, **SECRETS, **told}) as (process, out, err):
        said = err.readline()
        assert "takes turns from" in said, said + err.read()
        yield process, out, err


def results(out: IO[str], number: int) -> list[dict[str, Any]]:
    """The next results."""
    return [json.loads(out.readline()) for _ in range(number)]


def end(process: Forked) -> None:
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 130


@pytest.fixture
def file(stage: Stage, tmp_path: Path) -> Path:
    """A fleet of two repositories with a task each."""
    for name in ("one", "two"):
        add_commit(make_repository(tmp_path / name), {"BACKLOG.md": f"- [ ] Task of {name}\n"}, "Plan")
    file = tmp_path / "fleet.toml"
    file.write_text(
        f'[defaults]\nmodel = "openai-chat:scripted-1"\napi_url = "{stage.model.url}"\n'
        '[[repository]]\nname = "./one"\ntoken_env = "ONE_TOKEN"\n[[repository]]\nname = "./two"\n'
    )
    return file


def contents(url: str) -> str:
    """All that a database holds, as text."""
    if url.startswith("sqlite"):
        with sqlite3.connect(url.removeprefix("sqlite:///")) as connection:
            return "\n".join(connection.iterdump())
    with psycopg.connect(url) as connection:
        tables = connection.execute(
            "SELECT format('%I.%I', schemaname, tablename) FROM pg_tables "
            "WHERE schemaname NOT IN ('pg_catalog', 'information_schema')"
        ).fetchall()
        rows = [connection.execute(f"SELECT * FROM {name}".encode()).fetchall() for (name,) in tables]  # noqa: S608
        return repr(rows)


def status(stage: Stage, file: Path, url: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.setenv("PULLWRIGHT_DATABASE_URL", url)
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    return stage.command("fleet", "status", "--config", str(file), "--json").result


@pytest.mark.slow(reason="a worker in a process of its own")
def test_each_repository_has_its_turn_and_no_secret_gets_into_the_database(
    stage: Stage, file: Path, fleet_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage.script(PROPOSE, PROPOSE)
    with Collector() as collector, worker(file, fleet_database, traces=collector.root) as (process, out, _):
        # A look for the next task comes before the other's task; each is looked at again by its schedule.
        done = [(one["repository"], one["outcome"]) for one in results(out, 4)]
        assert done == [
            (str(file.parent / name), what) for name in ("one", "two") for what in ("proposed", "no_task")
        ]
        state = status(stage, file, fleet_database, monkeypatch)
        end(process)
        traced = [one.attributes["pullwright.outcome"] for one in collector.roots]
    assert sorted(traced) == [
        "no_task",
        "no_task",
        "proposed",
        "proposed",
    ]  # a look that found a task has none
    assert all(branches(file.parent / name) for name in ("one", "two"))
    assert [one["version"] for one in state["workers"]]
    assert {one["repository"]: one["cycles_today"] for one in state["repositories"]} == {
        str(file.parent / name): 1 for name in ("one", "two")
    }
    assert [(one["task"], one["state"]) for one in state["queue"]] == [(None, "delayed")] * 2
    held = contents(fleet_database)
    assert "Task of one" in held
    password = (
        psycopg.conninfo.conninfo_to_dict(fleet_database)["password"] if "://fleet:" in fleet_database else ""
    )
    assert not [name for name in (*SECRETS.values(), password) if name and str(name) in held]
    assert status(stage, file, fleet_database, monkeypatch)["workers"] == []


def test_a_password_on_the_command_line_is_refused(
    stage: Stage, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = "postgresql://fleet:a-password-1@127.0.0.1/fleet"
    monkeypatch.setenv("ONE_TOKEN", SECRETS["ONE_TOKEN"])
    done = stage.command("fleet", "list", "--config", str(file), "--database-url", url)
    assert done.code == 2
    assert "a-password-1" not in done.err
    assert len(done.err.splitlines()) == 1


def test_a_new_fleet_has_an_empty_queue(stage: Stage, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ONE_TOKEN", SECRETS["ONE_TOKEN"])
    done = stage.command("fleet", "list", "--config", str(file))
    assert (done.code, done.out) == (3, "the queue is empty\n")


@pytest.mark.slow(reason="a worker in a process of its own")
def test_a_person_steers_what_a_worker_does(
    stage: Stage, file: Path, fleet_database: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PULLWRIGHT_DATABASE_URL", fleet_database)
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    asked, gate = threading.Event(), threading.Event()

    def hangs(_request: RecordedRequest) -> Step:
        asked.set()
        return gated(do(FINISH).text, gate)

    def said(*words: str) -> str:
        return stage.command("fleet", *words, "--config", str(file)).out

    stage.script(do(WRITE), hangs, PROPOSE)
    with worker(file, fleet_database) as (process, out, err):
        assert asked.wait(60)
        assert "is paused" in said("pause", "./two")
        assert "continues with another task" in said("cancel", "./one")
        (cancelled,) = results(out, 1)
        assert (cancelled["outcome"], bool(cancelled["saved"])) == ("interrupted", True)
        gate.set()
        (idle,) = results(out, 1)  # its only task was cancelled, and the other repository is paused
        assert (idle["repository"], idle["outcome"]) == (str(file.parent / "one"), "no_task")
        assert "continues" in said("resume", "./two")
        assert [one["outcome"] for one in results(out, 2)] == ["proposed", "no_task"]
        name = re.findall(r"(\S+) +\S+ +1 +20", said("status"))[0]
        assert "ends after the current rounds" in said("drain", name)
        assert process.wait(60) == 130
        assert "a person asked this worker to end" in err.read()
    assert "is not a worker; the workers are: none" in said("drain", name)
    assert "unknown to the fleet" not in said("add", "./two")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["add", "./oen"], "names no repository ./oen; the nearest one is "),
        (["add", "./one", "issue 5"], "issue 5"),
        (["add", "./one"], "start a worker with pullwright fleet run"),
        (["stop", "./one"], "invalid choice: 'stop'"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line(
    stage: Stage, file: Path, words: list[str], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ONE_TOKEN", SECRETS["ONE_TOKEN"])
    done = stage.command("fleet", *words, "--config", str(file))
    assert done.code != 0
    assert said in done.out + done.err
    assert len((done.out + done.err).splitlines()) == 1


@pytest.mark.slow(reason="a worker in a process of its own")
def test_an_issue_is_worked_on_when_github_tells_of_it_and_not_at_the_next_poll(
    stage: Stage, github: GitHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repo = github.add_repository("octo/calc", FILES, private=True)
    monkeypatch.setenv("GITHUB_TOKEN", github.token())
    monkeypatch.setenv("PULLWRIGHT_WEBHOOK_SECRET", "a-long-random-text")
    file = tmp_path / "fleet.toml"
    file.write_text(
        f'[fleet]\nwebhook = "127.0.0.1:0"\n[defaults]\nmodel = "openai-chat:scripted-1"\nevery = "1d"\n'
        f'api_url = "{stage.model.url}"\ngithub_url = "{github.web_url}"\n[[repository]]\nname = "octo/calc"\n'
    )
    stage.script(FIX_IT)
    with worker(file, f"sqlite:///{tmp_path}/fleet.db") as (process, out, err):
        assert results(out, 1)[0]["outcome"] == "no_task"
        github.add_issue(repo, "add() subtracts", "Please fix `add`.", ["pullwright"])
        deliver(github, err.readline())
        assert [one["outcome"] for one in results(out, 2)] == ["proposed", "no_task"]
        end(process)
    assert [pull.title for pull in repo.pulls.values()] == ["Make add() add"]


def deliver(github: GitHub, said: str) -> None:
    """GitHub tells the worker, which said where it listens, of an event in `octo/calc`."""
    port = re.findall(r"webhooks at port (\d+)", said)[0]
    body = json.dumps(
        {"action": "labeled", "repository": {"html_url": f"{github.web_url}/octo/calc"}}
    ).encode()
    digest = hmac.new(b"a-long-random-text", body, "sha256").hexdigest()
    headers = {"X-Hub-Signature-256": f"sha256={digest}", "X-GitHub-Event": "issues"}
    posted = urllib.request.Request(f"http://127.0.0.1:{port}/webhook", body, headers)
    with urllib.request.urlopen(posted) as answer:  # noqa: S310  loopback
        assert answer.status == 202


@pytest.mark.slow(reason="a worker in a process of its own")
def test_a_worker_alone_takes_webhooks_too(
    stage: Stage, github: GitHub, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    repo = github.add_repository("octo/calc", FILES, private=True)
    monkeypatch.setenv("GITHUB_TOKEN", github.token())
    file = tmp_path / "fleet.toml"
    file.write_text(
        f'[defaults]\nmodel = "openai-chat:scripted-1"\nevery = "1d"\napi_url = "{stage.model.url}"\n'
        f'github_url = "{github.web_url}"\n[[repository]]\nname = "octo/calc"\n'
    )
    words = ("worker", "--config", str(file), "--json", "--webhook")
    with forked.piped(*words, "127.0.0.1:0", environ={**os.environ}) as (process, _, err):
        assert "--webhook needs a secret: set PULLWRIGHT_WEBHOOK_SECRET" in err.read()
        assert process.wait(60) != 0
    with forked.piped(*words, "nowhere", environ={**os.environ}) as (process, _, err):
        assert "--webhook must be an address such as 127.0.0.1:8787" in err.read()
        assert process.wait(60) != 0
    stage.script(FIX_IT)
    told = {**os.environ, "PULLWRIGHT_WEBHOOK_SECRET": "a-long-random-text"}
    with forked.piped(*words, "127.0.0.1:0", environ=told) as (process, out, err):
        assert results(out, 1)[0]["outcome"] == "no_task"
        github.add_issue(repo, "add() subtracts", "Please fix `add`.", ["pullwright"])
        deliver(github, err.readline())
        assert results(out, 1)[0]["outcome"] == "proposed"
        end(process)
    assert [pull.title for pull in repo.pulls.values()] == ["Make add() add"]
