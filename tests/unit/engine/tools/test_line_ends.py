"""An edit changes no line end that it does not name, whatever tool makes it and whatever line ends the file has."""

from __future__ import annotations

import asyncio
import difflib
import re
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from hypothesis import assume, given
from hypothesis import strategies as st

from orchestrator.engine.environments.local import LocalEnvironment
from orchestrator.engine.tools.base import Ledger, Ok, ToolContext
from orchestrator.engine.tools.edit import edit_file
from orchestrator.engine.tools.files import write_file
from orchestrator.engine.tools.patches import apply_patch, apply_unified_patch

if TYPE_CHECKING:
    from orchestrator.engine.tools.base import Tool, ToolOutcome

_WORDS = [f"line{number}." for number in range(30)]
_NEW = [f"new{number}." for number in range(5)]


@st.composite
def _files(draw: st.DrawFn) -> bytes:
    ends = draw(st.lists(st.sampled_from(["\n", "\r\n"]), min_size=1, max_size=12))
    text = "".join(word + end for word, end in zip(_WORDS, ends, strict=False))
    return (text if draw(st.booleans()) else text.removesuffix(ends[-1])).encode()


@st.composite
def _edits(draw: st.DrawFn) -> tuple[bytes, str]:
    """Return a file, and its text with LF after some lines got an `x`, or some were removed and others put in."""
    data = draw(_files())
    lines = [line for line in _plain(data).split("\n") if line]
    if draw(st.booleans()):
        lines = [f"{line}{'x' * draw(st.booleans())}" for line in lines]
    else:
        lines = [line for line in lines if draw(st.integers(0, 3))]
        for line in _NEW[: draw(st.integers(0, 4))]:
            lines.insert(draw(st.integers(0, len(lines))), line)
    text = "\n".join(lines) + ("\n" if data.endswith(b"\n") and lines else "")
    assume(text != _plain(data))
    return data, text


def _plain(data: bytes) -> str:
    return data.replace(b"\r\n", b"\n").decode()


def _ends(data: bytes) -> dict[str, str]:
    parts = re.split(r"(\r\n|\n|\r)", data.decode().replace("x", ""))
    return dict(zip(parts[::2], parts[1::2], strict=False))


def _run(tool: Tool, data: bytes, **arguments: object) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "a")
        path.write_bytes(data)
        context = ToolContext(LocalEnvironment(Path(folder)), Ledger(), lambda _text: None)
        context.ledger.shown.add("a")
        outcome = asyncio.run(_execute(tool, arguments, context))
        assert isinstance(outcome, Ok), outcome
        return path.read_bytes()


async def _execute(tool: Tool, arguments: dict[str, object], context: ToolContext) -> ToolOutcome:
    return await tool.execute(arguments, context)


def _check(before: bytes, after: bytes, text: str) -> None:
    """Check that a file has this text, that each old line has its line end, and a new one that of an old one."""
    assert _plain(after) == text, (before, after)
    was, has = _ends(before), _ends(after)
    assert {line: end for line, end in has.items() if line in was} == {
        line: end for line, end in was.items() if line in has
    }, (before, after)
    assert {*has.values()} <= ({*was.values()} or {"\n"}), (before, after)


@given(_edits())
def test_a_patch_keeps_the_line_ends(edit: tuple[bytes, str]) -> None:
    data, text = edit
    diff = [*difflib.unified_diff(_plain(data).splitlines(), text.splitlines(), "a/a", "b/a", lineterm="")]
    if data.endswith(b"\n"):
        _check(data, _run(apply_unified_patch(), data, patch="\n".join(diff) + "\n"), text)
    body = "\n".join("@@" if line.startswith("@@") else line for line in diff[2:])
    patch = f"*** Begin Patch\n*** Update File: a\n{body}\n*** End Patch"
    if all(line[0] != "+" or "@@" not in line for line in diff) and any(line[0] in " -" for line in diff[3:]):
        _check(data, _run(apply_patch(), data, patch=patch), text)


@given(_edits())
def test_a_whole_file_keeps_the_line_ends(edit: tuple[bytes, str]) -> None:
    data, text = edit
    assume(text)
    _check(data, _run(write_file(), data, path="a", content=text), text)


@given(_edits(), st.data())
def test_an_edit_keeps_the_line_ends(edit: tuple[bytes, str], draw: st.DataObject) -> None:
    data, text = edit
    plain = _plain(data)
    head = len(_common(plain, text))
    tail = min(len(_common(plain[::-1], text[::-1])), len(plain) - head, len(text) - head)
    head, tail = draw.draw(st.integers(0, head)), draw.draw(st.integers(0, tail))
    old, new = plain[head : len(plain) - tail], text[head : len(text) - tail]
    assume(old.strip() and plain.count(old) == 1)
    if draw.draw(st.booleans()):
        old, new = old.replace("\n", "\r\n"), new.replace("\n", "\r\n")
    _check(data, _run(edit_file(), data, path="a", old_text=old, new_text=new), text)


def _common(one: str, two: str) -> str:
    pairs = zip(one, two, strict=False)
    length = next(
        (place for place, (left, right) in enumerate(pairs) if left != right), min(len(one), len(two))
    )
    return one[:length]
