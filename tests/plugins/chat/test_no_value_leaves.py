"""No command of a conversation shows a planted value, whatever is typed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.plugins.chat.slash import slash_commands
from tests.doubles.collector import Collector
from tests.scenarios.stage import git
from tests.scenarios.test_no_secret_leaves import IN_ONE, SHORT, VALUES, WORDS, Walk, leaks, walk

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["walk"]


def spoken() -> Iterator[str]:
    """What a person may type into a conversation, a line each: every command with the values, in every place."""
    actions = (
        f"/memory {action}"
        for action in ("add", "add --repo", "search", "list", "show", "edit", "forget", "export")
    )
    yield f"/{WORDS}"
    yield f"say {IN_ONE}"
    yield f"look at @{WORDS} and @{SHORT}"
    for name in (*actions, *slash_commands()):
        yield name
        for values in (IN_ONE, *VALUES, f'"{WORDS}" x', f"--{WORDS}", f"--all --repo {SHORT}"):
            yield f"{name} {values}"
        yield "/submit"  # ends /paste


def test_no_command_of_a_conversation_shows_a_value_that_is_typed(walk: Walk) -> None:
    git(walk.folder, "init", "-q")
    (walk.folder / "notes.txt").write_text("nothing\n")
    assert len(slash_commands()) > 10
    with Collector() as collector:
        walk.environ["OTEL_EXPORTER_OTLP_ENDPOINT"] = collector.root
        (told,) = walk.run([("chat", "--model", "echo", "--sandbox", "off")], "\n".join([*spoken(), ""]))
    assert told.count("pullwright: ") > len(slash_commands()) / 2
    assert told.count("[redacted]") > len(slash_commands())
    assert leaks(told) == []
    assert [name for name, text in walk.left() if leaks(text)] == []
    assert collector.bodies
    assert [
        leaks(body.decode("utf-8", "replace"))
        for body in collector.bodies
        if leaks(body.decode("utf-8", "replace"))
    ] == []
