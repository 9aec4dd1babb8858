"""The session of a cycle: how a call of `create_pull_request` is answered, and what is taken from commits of a model.

Commit messages are texts, as few and as short as is bearable, whatever is in them.
"""

from __future__ import annotations

import asyncio
import inspect
import shutil
from typing import TYPE_CHECKING

import pytest

from orchestrator.bot.cycle.act import ProposalRequest
from orchestrator.bot.cycle.model_commits import ModelCommits
from orchestrator.core.events import Defence, Guarded
from orchestrator.engine.environments.local import LocalEnvironment
from tests.unit.bot.git.plants import STATUS, Field
from tests.unit.bot.git.rig import git, make_source, write
from tests.unit.bot.git.test_attacks import CONFIGURED, plant_in

if TYPE_CHECKING:
    from pathlib import Path

    from orchestrator.core.events import Event

TITLE = "Make add() add"


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    return make_source(tmp_path / "tree", {"a.txt": "a"})


def commits_of(tree: Path, *messages: str, base: str | None = None) -> tuple[ModelCommits, list[Event]]:
    """Without a sandbox, where what git runs would be seen."""
    base = base or git(tree, "rev-parse", "HEAD")
    for message in messages:
        git(
            tree,
            "commit",
            "-q",
            "--allow-empty",
            "--cleanup=verbatim",
            "-F",
            "-",
            stdin=message.encode("utf-8", "surrogateescape"),
        )
    told: list[Event] = []
    environment = LocalEnvironment(tree, sandbox="off", own_repository=True)
    return ModelCommits(environment, base, lambda text: "secret" in text, told.append), told


async def words(tree: Path, *messages: str) -> str:
    commits, _ = commits_of(tree, *messages)
    await commits.look()
    return commits.as_list(TITLE)


async def test_the_oldest_first_each_once_and_without_the_title(tree: Path) -> None:
    assert await words(tree) == ""
    assert await words(tree, "One", "MAKE add() add\n", "Two\n\nWhy.\n", "One", f"{TITLE}\n\nBecause.\n") == (
        "* One\n\n* Two\n\nWhy.\n\n* Because."
    )


async def test_a_long_history_has_an_end(tree: Path) -> None:
    text = await words(tree, *(f"{number} {'x' * 1_000}" for number in range(12)))
    assert len(text) < 9_000
    assert text.startswith("* 0 x")
    assert text.endswith("\n\n* 5 more")
    assert await words(tree, "y" * 50_000) == f"* {'y' * 1_998}", "and so has a message"
    assert await words(tree, "z" * 100_000) == "", "one that git takes long to tell is not told"


@pytest.mark.parametrize("odd", ["\udcff", "\x1e\x1f", "a\r\nb", "\u202e", "* x", "-- \n"])
async def test_odd_texts(tree: Path, odd: str) -> None:
    assert (await words(tree, f"Odd {odd}")).startswith("* Odd")


async def test_secrets_are_left_out_and_that_is_told_once(tree: Path) -> None:
    commits, told = commits_of(tree, "Plain", "A secret")
    await commits.look()
    assert commits.as_list(TITLE) == commits.as_list(TITLE) == "* Plain"
    assert [event.defence for event in told if isinstance(event, Guarded)] == [Defence.SECRETS]


async def test_what_was_told_is_not_told_again(tree: Path) -> None:
    commits, _ = commits_of(tree, "One")
    commits.earlier = ("Before",)
    await commits.look()
    assert commits.messages == ["Before", "One"]
    commits.mark_committed()
    git(tree, "commit", "-q", "--allow-empty", "-m", "Two")
    await commits.look()
    assert commits.messages == ["Two"]


async def test_what_was_amended_or_taken_back_is_not_told(tree: Path) -> None:
    commits, told = commits_of(tree, "One", "A secret")
    await commits.look()
    git(tree, "commit", "-q", "--allow-empty", "--amend", "-m", "Without it")
    git(tree, "commit", "-q", "--allow-empty", "-m", "Three")
    git(tree, "reset", "-q", "--hard", "HEAD~1")
    await commits.look()
    assert commits.messages == ["One", "Without it"]
    assert told == []


@pytest.mark.parametrize(
    "breakage", ["no repository", "no base", "broken", "a file", "nothing", "merges", "a new branch"]
)
async def test_what_git_does_not_give_is_not_there(tree: Path, tmp_path: Path, breakage: str) -> None:
    commits, _ = commits_of(tree, "One", base="0" * 40 if breakage == "no base" else None)
    match breakage:
        case "no repository":
            shutil.rmtree(tree / ".git")
            make_source(tmp_path / "other", {"b": "b"})
            shutil.copytree(tmp_path / "other" / ".git", tmp_path / ".git")  # of whoever has the folder above
        case "broken":
            (tree / ".git" / "config").write_text("[x")
        case "a file":
            shutil.rmtree(tree / ".git")
            (tree / ".git").write_text("gitdir: /nowhere\n")
        case "nothing":
            shutil.rmtree(tree)
            tree.mkdir()
        case "merges":
            git(tree, "checkout", "-q", "-b", "side", "HEAD~1")
            git(tree, "merge", "-q", "--no-ff", "-m", "A merge", "main")
        case "a new branch":
            git(tree, "checkout", "-q", "--detach")
        case _:
            pass
    await commits.look()
    assert commits.messages == (["One"] if breakage in {"merges", "a new branch"} else [])


async def test_asking_runs_nothing_that_is_planted_there(tree: Path, tmp_path: Path) -> None:
    field = Field(tmp_path / "field", CONFIGURED)
    write(field.folder, {"home/.gitconfig": ""})
    commits, _ = commits_of(tree, "One")
    plant_in(tree, field)
    signed = "[log]\n\tshowSignature = true\n"
    with (tree / ".git" / "config").open("a") as file:
        file.write(signed)
    await commits.look()
    assert commits.messages == ["One"]
    assert not field.ran()
    field.run(tree, STATUS)
    assert field.ran(), "the plants are dead"


async def _say(words: str) -> str:
    return words


async def test_a_call_gets_what_the_cycle_answers() -> None:
    asked = ProposalRequest("Title", "Body", asyncio.get_running_loop().create_future())
    call = asyncio.create_task(asked.answered())
    await asyncio.sleep(0)
    asked.answer(_say("Pull request #1 is open"))
    assert await call == "Pull request #1 is open"


@pytest.mark.parametrize("answered_first", [False, True])
async def test_work_for_a_call_that_was_stopped_is_not_begun(*, answered_first: bool) -> None:
    """Without a warning that nobody awaited it."""
    asked = ProposalRequest("Title", "Body", asyncio.get_running_loop().create_future())
    call, work = asyncio.create_task(asked.answered()), _say("nobody hears this")
    await asyncio.sleep(0)
    if answered_first:
        asked.answer(work)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    if not answered_first:
        asked.answer(work)
    assert inspect.getcoroutinestate(work) == inspect.CORO_CLOSED


async def test_work_ends_with_the_call_that_waits_for_it() -> None:
    asked, stopped = ProposalRequest("Title", "Body", asyncio.get_running_loop().create_future()), []

    async def work() -> str:
        try:
            await asyncio.Event().wait()
        finally:
            stopped.append("work")
        return ""

    call = asyncio.create_task(asked.answered())
    asked.answer(work())
    await asyncio.sleep(0)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert stopped == ["work"]
