"""What happened in a run is computed in one place: every other module that looks into events is named, with its reason.

A module that wants to know what a run did asks `RunFacts` (`orchestrator/bot/journal/run_facts.py`). A second answer to
the same question drifts from the first: replies to a subagent's subagent were once paid for on one page and free on
another.
"""

from __future__ import annotations

import ast

from tests.architecture.modules import Module, modules, parsed
from tests.plugins import is_of_absent_plugin

UNIONS = ("core/events.py", "core/cycle_events.py")

MATCHES = {
    "computes what happened": ("bot/journal/run_facts.py",),
    "shows each event, or passes it on in another form": (
        "app/event_lines.py",
        "app/cli/live.py",
        "app/cli/show.py",
        "app/html/story.py",
        "plugins/acp/agent.py",
        "plugins/chat/conversation.py",
        "plugins/chat/view.py",
        "plugins/mcp/command.py",
        "plugins/tracing/spans.py",
        "plugins/verify_pr/command.py",
    ),
    "writes and reads records: how deep an event is, where the session began, what a replay repeats": (
        "bot/journal/index.py",
        "bot/journal/reader.py",
        "bot/journal/records.py",
    ),
    "rebuilds the conversation, or its state record, for the model": (
        "bot/cycle/briefing.py",
        "bot/cycle/earlier.py",
        "engine/session/history.py",
        "engine/session/state_record.py",
    ),
    "repeats recorded results in their order": ("app/wiring/foreign_tools.py", "bot/cycle/parts.py"),
    "acts while the call runs": ("bot/cycle/act.py", "bot/cycle/propose.py"),
    "ends what is open: calls at an interruption, a limit that was told": (
        "engine/session/event_bus.py",
        "engine/session/loop.py",
    ),
    "quotes the event that stopped an attack": ("plugins/redteam/agents.py", "plugins/redteam/judge.py"),
}


def _events() -> set[str]:
    """Return the names of the classes of events."""
    trees = (module.tree for module in modules() if module.name in UNIONS)
    classes = (node for tree in trees for node in tree.body if isinstance(node, ast.ClassDef))
    return {one.name for one in classes if any("dataclass" in ast.dump(mark) for mark in one.decorator_list)}


def _names_in(node: ast.AST) -> set[str]:
    ends = (getattr(part, "id", None) or getattr(part, "attr", None) for part in ast.walk(node))
    return {name for name in ends if name}


def matched_events(module: Module, events: set[str]) -> set[str]:
    """Return the kinds of events that a module tells apart, by `case` or by `isinstance`."""
    found = set[str]()
    for node in module.nodes:
        match node:
            case ast.MatchClass(cls=kind):
                found |= _names_in(kind)
            case ast.Call(func=ast.Name(id="isinstance"), args=[_, kinds]):
                found |= _names_in(kinds)
            case _:
                pass
    return found & events


def test_a_module_that_looks_into_events_is_named() -> None:
    events = _events()
    named = {name for names in MATCHES.values() for name in names}
    assert len(named) == sum(map(len, MATCHES.values()))
    found = {one.name for one in modules() if one.name not in UNIONS and matched_events(one, events)}
    assert found - named == set(), "ask RunFacts what happened; or name the module above, with a reason"
    assert {name for name in named - found if not is_of_absent_plugin(name)} == set(), (
        "no longer look into events"
    )


def test_each_way_to_tell_events_apart_is_seen() -> None:
    events = {"Proposed", "Cloned", "Warned"}
    source = b"match e:\n case Proposed(): ...\n case events.Cloned(): ...\nisinstance(e, Warned | Other)\n"
    assert matched_events(parsed(source), events) == events
