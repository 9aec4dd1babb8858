"""The message that replaces earlier turns of a conversation: the known facts, within a size limit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from orchestrator.core.prompts import fenced, one_line, render, shown_path
from orchestrator.engine.models.base import size_of_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from orchestrator.engine.session.history import RanCommand

LEAST_BYTES = 1_024
"""Minimum size of the known facts, however small the room is."""

WEIGHTS: Mapping[str, int] = {
    "task": 6,
    "orders": 6,
    "files": 6,
    "commands": 6,
    "todos": 4,
    "skills": 4,
    "more": 4,
    "plan": 1,
    "summary": 5,
    "missing": 1,
}
"""Weight of each part. A part that wants less than its share of the room leaves the rest to the others."""

_LEAST_TEXT_BYTES = 80
"""Minimum size of one text among several; if there is less room for each, fewer texts are shown."""
_LEAST_COMMAND_BYTES = 120
_LEAST_BLOCK_BYTES = 16
_MARKED_CUT_BYTES = 200
_MARK_BYTES = 60
_NAME_CHARS = 200
_MARKUP_BYTES = 24
"""Size of the markup around a file or a command in the list."""
_BETWEEN_BYTES = 2
_CONTINUES_MASK, _CONTINUES = 0b1100_0000, 0b1000_0000
"""What tells a byte that continues a character in UTF-8."""

_Name = TypeVar("_Name")


@dataclass(frozen=True, slots=True)
class KnownFacts:
    """The known facts about the replaced turns.

    Attributes:
        orders: user messages after the task, oldest first.
        files: paths that were changed, each with its state in words.
        commands: in the order in which they ran.
        plan: the last plan that the model stated.
        todos: open items of the model's to-do list.
        skills: the skill texts that the model was given, newest first; each is shown whole or not at all.
        more: facts of the host program, as Markdown.
        summary: in the model's words.
        missing: paths in the summary at which there is no file.
        images: number of users' images that are sent with the message; `images_left_out` do not.
    """

    task: str = ""
    orders: Sequence[str] = ()
    files: Sequence[tuple[str, str]] = ()
    commands: Sequence[RanCommand] = ()
    plan: str = ""
    todos: Sequence[str] = ()
    skills: Sequence[str] = ()
    more: str = ""
    summary: str = ""
    missing: Sequence[str] = ()
    images: int = 0
    images_left_out: int = 0


def message_within(known: KnownFacts, room: int) -> str:
    """Return the message in at most `room` bytes, with at least `LEAST_BYTES` of facts in a tiny room."""
    files = [_FileLine(shown_path(path), state) for path, state in known.files]
    commands = [
        _CommandLine(one_line(ran.command, limit=_NAME_CHARS), ran.ok, fenced(ran.ending), ran.ending)
        for ran in known.commands
    ]
    all_orders = [order for order in known.orders if order.strip()]
    missing = [_Line(f"`{shown_path(path)}`") for path in known.missing]
    skills = [_Line(words) for words in known.skills]
    listed: dict[str, Sequence[_Line | _FileLine | _CommandLine]] = {
        "files": files,
        "commands": commands,
        "skills": skills,
        "missing": missing,
    }
    most = _shares(known, all_orders, listed, room)
    orders = blocks_within(all_orders, most["orders"])
    shown_files = _first_within(files, most["files"])
    shown_commands = _newest_within(commands, most["commands"])
    todos = _lines_within(known.todos, most["todos"])
    return _rendered(
        task=block_within(known.task, most["task"]),
        orders=orders,
        more_orders=len(all_orders) - len(orders),
        files=shown_files,
        more_files=len(files) - len(shown_files),
        commands=shown_commands,
        more_commands=len(commands) - len(shown_commands),
        plan=block_within(known.plan, most["plan"]),
        todos=block_within("\n".join(todos), most["todos"]),
        more_todos=len(known.todos) - len(todos),
        skills=[line.text for line in _first_within(skills, most["skills"])],
        more=known.more
        if size_of_text(known.more) <= most["more"]
        else block_within(known.more, most["more"]),
        summary=block_within(known.summary, most["summary"]),
        missing=[line.text for line in _first_within(missing, most["missing"])],
        images=known.images,
        images_left_out=known.images_left_out,
    )


def _shares(
    known: KnownFacts,
    orders: Sequence[str],
    listed: Mapping[str, Sequence[_Line | _FileLine | _CommandLine]],
    room: int,
) -> dict[str, int]:
    wanted = {
        "task": _block_size(known.task),
        "orders": sum(_block_size(order) + _BETWEEN_BYTES for order in orders),
        "todos": _block_size("\n".join(known.todos)),
        "more": size_of_text(known.more),
        "plan": _block_size(known.plan),
        "summary": _block_size(known.summary),
        **{name: sum(line.size for line in lines) for name, lines in listed.items()},
    }
    return fair_shares(wanted, WEIGHTS, max(room - _frame_bytes(wanted), LEAST_BYTES))


def fair_shares(wanted: Mapping[_Name, int], weights: Mapping[_Name, int], room: int) -> dict[_Name, int]:
    """Return how much of the room each part gets: all that it wants, or at least its weight's share.

    No part gets more than it wants, and the sum is at most the room. No room is unused while a part wants
    more.
    """
    given: dict[_Name, int] = {}
    open_parts, left = dict(wanted), max(room, 0)
    while open_parts:
        weight = sum(weights[name] for name in open_parts)
        fitting = [name for name, size in open_parts.items() if size * weight <= left * weights[name]]
        if not fitting:
            return given | {name: left * weights[name] // weight for name in open_parts}
        for name in fitting:
            given[name] = open_parts.pop(name)
        left = max(room, 0) - sum(given.values())
    return given


def both_ends(text: str, most: int) -> str:
    """Return both ends of a text that is longer than `most` bytes, and the number of missing characters."""
    if size_of_text(text) <= most:
        return text
    if most < _MARKED_CUT_BYTES:
        return _beginning(text, most)
    half = (most - _MARK_BYTES) // 2
    head, tail = _beginning(text, half), _beginning(text[::-1], half)[::-1]
    return f"{head}\n[... {len(text) - len(head) - len(tail):,} characters are left out here ...]\n{tail}"


def _beginning(text: str, most: int) -> str:
    """Return as many whole characters as fit into `most` bytes."""
    data = text[: max(most, 0)].encode("utf-8", "surrogatepass")
    end = min(max(most, 0), len(data))
    while end < len(data) and data[end] & _CONTINUES_MASK == _CONTINUES:
        end -= 1
    return data[:end].decode("utf-8", "surrogatepass")


def block_within(text: str, most: int) -> str:
    """Return the text in a fence that it cannot close, in at most `most` bytes; empty if little would fit."""
    if not text.strip():
        return ""
    room, block = most, fenced(text)
    while size_of_text(block) > most:
        if room < _LEAST_BLOCK_BYTES:
            return ""
        block = fenced(both_ends(text, room))
        room -= max(size_of_text(block) - most, 1)
    return block


def _equal_shares(sizes: Sequence[int], least: int, most: int) -> list[int]:
    """Return the room of as many texts, in their order, as fit if each needs at most `least` bytes."""
    count, left = 0, most
    for size in sizes:
        left -= min(size, least)
        if left < 0:
            break
        count += 1
    wanted = dict(enumerate(sizes[:count]))
    shares = fair_shares(wanted, dict.fromkeys(wanted, 1), most)
    return [shares[index] for index in range(count)]


def blocks_within(texts: Sequence[str], most: int) -> list[str]:
    """Return texts as fenced blocks, in at most `most` bytes altogether.

    Long texts are cut before short ones, and the oldest are dropped first.
    """
    newest_first = texts[::-1]
    sizes = [_block_size(text) + _BETWEEN_BYTES for text in newest_first]
    shares = _equal_shares(sizes, _LEAST_TEXT_BYTES, most)
    blocks = [
        block_within(text, share - _BETWEEN_BYTES) for text, share in zip(newest_first, shares, strict=False)
    ]
    return [block for block in reversed(blocks) if block]


def _lines_within(lines: Sequence[str], most: int) -> list[str]:
    """Return the first lines that fit; the longest ones are cut at their end."""
    if _block_size("\n".join(lines)) <= most:
        return list(lines)
    sizes = [size_of_text(line) + 1 for line in lines]
    shares = _equal_shares(sizes, _LEAST_TEXT_BYTES, most - _LEAST_BLOCK_BYTES)
    return [_cut(line, share - 1) for line, share in zip(lines, shares, strict=False)]


def _cut(line: str, most: int) -> str:
    if size_of_text(line) <= most:
        return line
    return f"{_beginning(line, most - 3)}…"


@dataclass(frozen=True, slots=True)
class _Line:
    text: str

    @property
    def size(self) -> int:
        return size_of_text(self.text) + _BETWEEN_BYTES


@dataclass(frozen=True, slots=True)
class _FileLine:
    path: str
    state: str

    @property
    def size(self) -> int:
        return size_of_text(self.path) + size_of_text(self.state) + _MARKUP_BYTES


@dataclass(frozen=True, slots=True)
class _CommandLine:
    command: str
    ok: bool
    block: str
    ending: str

    @property
    def size(self) -> int:
        return size_of_text(self.command) + size_of_text(self.block) + _MARKUP_BYTES

    def within(self, most: int) -> _CommandLine:
        """Return the line with less output, and with less of the command if that alone is too long."""
        if self.size <= most:
            return self
        command = _cut(self.command, most - _MARKUP_BYTES)
        left = most - _MARKUP_BYTES - size_of_text(command)
        ending = _beginning(self.ending[::-1], left - _LEAST_BLOCK_BYTES)[::-1]
        return _CommandLine(command, self.ok, block_within(ending, left), ending)


_Listed = TypeVar("_Listed", _Line, _FileLine)


def _first_within(lines: Iterable[_Listed], most: int) -> list[_Listed]:
    """Return as many of the first lines as fit."""
    kept: list[_Listed] = []
    for line in lines:
        most -= line.size
        if most < 0:
            break
        kept.append(line)
    return kept


def _newest_within(lines: Sequence[_CommandLine], most: int) -> list[_CommandLine]:
    """Return the newest commands that have room for a line, each with as much of its output's end as fits."""
    newest_first = lines[::-1]
    shares = _equal_shares([line.size for line in newest_first], _LEAST_COMMAND_BYTES, most)
    return [line.within(share) for line, share in zip(newest_first, shares, strict=False)][::-1]


def _block_size(text: str) -> int:
    return size_of_text(fenced(text)) if text.strip() else 0


def _rendered(**values: Any) -> str:
    facts = render("agent/host_facts", **values)
    return render("agent/compacted", facts=facts, **values)


def _frame_bytes(wanted: Mapping[str, int]) -> int:
    """Return the size of a message that has these parts, without the parts."""
    many = 10**9
    has = {name: bool(size) for name, size in wanted.items()}
    return size_of_text(
        _rendered(
            task="-" * has["task"],
            orders=["-"] * has["orders"],
            more_orders=many * has["orders"],
            files=[_FileLine("-", "-")] * has["files"],
            more_files=many * has["files"],
            commands=[_CommandLine("-", ok=False, block="-", ending="-")] * has["commands"],
            more_commands=many * has["commands"],
            plan="-" * has["plan"],
            todos="-" * has["todos"],
            more_todos=many * has["todos"],
            skills=["-"] * has["skills"],
            more="-" * has["more"],
            summary="-" * has["summary"],
            missing=["-"] * has["missing"],
            images=many,
            images_left_out=many,
        )
    )
