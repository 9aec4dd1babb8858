"""The contract of whole files: the reply is the corrected file itself, in a fenced block of Markdown."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from orchestrator.core.messages import FinishReason, Message, ToolCall
from orchestrator.core.prompts import fenced_unless_blank, one_line, render
from orchestrator.engine.contracts.base import THOUGHTS, Actions, Contract, Malformed, Running, problem_lines

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orchestrator.core.messages import JsonObject, ToolDefinition, ToolResult
    from orchestrator.engine.contracts.base import ReadReply
    from orchestrator.engine.models.base import Response

_FENCE = re.compile(r" {0,3}(`{3,}+|~{3,}+)[ \t]*+([^`\r\n]*)")
"""A line that begins or ends a fenced block; section "Fenced code blocks" of the CommonMark specification."""
_MARKUP = "`*#:\"'()[]<>,; \t"
"""Characters around a path in the line above a block."""
_ATTRIBUTE = re.compile(r"(?:title|file|filename|path|name)=", re.IGNORECASE)
_PATH = re.compile(r"[\w.@+-]+(?:/[\w.@+-]+)+|[\w@+-][\w.@+-]*\.[A-Za-z]\w*")
_MAY_BE_WRONG = re.compile(
    r"^\s*+(?!#|//|/?\*|import\b|from\b|def\b|class\b)[^#\n]*?(?:[-=+*/%<>]|\b(?:return|yield|if|while|for|not|and|or)\b)"
)
_MOST_LINES = 30
_MOST_REPEATS = 2
"""After so many replies that bring no other code, the question changes."""
_PATH_CHARS = 400
_TITLE_CHARS = 70


@dataclass(frozen=True, slots=True)
class FencedBlock:
    """A fenced block of a reply.

    Attributes:
        path: of the file that the block contains, if the reply names it; else empty.
        is_closed: whether its closing fence exists.
    """

    path: str
    text: str
    is_closed: bool


class WholeFile(Contract):
    """A block becomes a call of `write_file`; `create_pull_request` and `finish` are added.

    For models with few parameters, which write code correctly that they get wrong inside a JSON string. The
    model is told of no tool, and each request has only the task and its last attempt.

    Attributes:
        path: the file of a block that names none.
        title: of the pull request.
        tests: a text about the tests that fail without a change.
        replies: the number of replies that were read.
        repeats: the number of the last replies, one after another, that brought no other code: no file, one that was
            refused, or only the file of the task, as it was or as an earlier reply had it.
    """

    name = "whole_file"
    running = Running.IN_ORDER  # if a file cannot be written, nothing is proposed
    has_own_form = True
    forgets = True  # a small model repeats wrong files that it sees
    writes_whole_files = True
    tells_tools = False

    def __init__(self, path: str = "", title: str = "", tests: str = "", replies: int = 0) -> None:
        self.path, self.title, self.tests, self.replies = path, title, tests, replies
        self.repeats, self._old, self._is_repeated = 0, "", False
        self._wrong: list[list[str]] = []
        """What the file of the task must not be: as it was, and as earlier replies had it."""

    @property
    def leaves_out_reply(self) -> bool:
        """Whether to omit the last reply, which is done after every second one.

        A small model often repeats a wrong reply that it sees.
        """
        return self.replies % 2 == 0

    def go_on(self, tools: tuple[ToolDefinition, ...]) -> str:
        """Return the message that asks for the file."""
        del tools
        return render("contracts/whole_file_again", path=self.path)

    @property
    def wrap_up(self) -> str:
        """The message that this is the last reply."""
        return render("contracts/whole_file_last")

    def learn(self, *, title: str, path: str, tests: str, block: str = "") -> None:
        """Store the path, the tests and the old file, and the beginning of the title for the pull request."""
        self.title, self.path, self.tests = title[:_TITLE_CHARS], path, tests
        _, blocks = fenced_blocks(block)
        self._old = blocks[0].text if blocks else ""
        self._wrong = [_code(self._old)] if self._old else []

    def describe(self, tools: tuple[ToolDefinition, ...]) -> str:
        """Return the form of the reply, which is all that the model is told."""
        del tools
        return render("contracts/whole_file")

    def read(self, response: Response, tools: tuple[ToolDefinition, ...], *, round_number: int) -> ReadReply:
        """Return calls that write the files of a reply and propose them. Call ids are `r<round>c<index>`."""
        del tools
        self.replies += 1
        thoughts = THOUGHTS.match(response.text)
        said, blocks = fenced_blocks(response.text[thoughts.end() if thoughts else 0 :])
        if not blocks:
            is_thought = thoughts is not None and bool(fenced_blocks(thoughts[0])[1])
            where = " outside of its thoughts; end them with </think> above the block" if is_thought else ""
            return Malformed((f"reply: it has no code block with a file in it{where}",))
        if response.finish is FinishReason.LENGTH and not blocks[-1].is_closed:
            return Malformed(("reply: it was cut off before the file ended; write less before the file",))
        files = self._files(blocks)
        if not files:
            return Malformed(("reply: the code block names no file; write the file's path above it",))
        written = _code(files.get(self.path, ""))
        self._is_repeated = files.keys() == {self.path} and written in self._wrong
        self._wrong += [written] if self._old and not self._is_repeated else []
        body = said or "".join(f"Changes `{one_line(path, limit=_PATH_CHARS)}`.\n" for path in files)
        calls: list[tuple[str, JsonObject]] = [
            ("write_file", {"path": path, "content": text}) for path, text in files.items()
        ]
        calls.append(("create_pull_request", {"title": self.title or f"Change {min(files)}", "body": body}))
        calls.append(("finish", {"reason": "The change is proposed."}))
        return Actions(
            said,
            tuple(
                ToolCall(f"r{round_number}c{index}", name, arguments)
                for index, (name, arguments) in enumerate(calls, start=1)
            ),
        )

    def _files(self, blocks: list[FencedBlock]) -> dict[str, str]:
        """Return the text of each file: of several blocks for one the longest, as the others show a part of it."""
        files: dict[str, str] = {}
        for block in blocks:
            path = block.path or self.path
            if path and len(block.text) > len(files.get(path, "")):
                files[path] = block.text
        return files

    def answer(self, results: tuple[ToolResult, ...], note: str = "") -> Message:
        """Return the failure, in a fence that its text cannot close, and the request for the file."""
        failed = next((one for one in results if one.is_error), None)
        is_refused = failed is not None and failed.name == "write_file"
        if failed is not None and self._is_stuck(is_repeated=self._is_repeated or is_refused):
            return self._ask_otherwise(note)
        if failed is None or self._sends_tests_only:
            return self._ask(is_failed=failed is not None, note=note)
        block = fenced_unless_blank(failed.content)
        return self._ask(is_failed=True, block=block, has_tests=failed.name == "write_file", note=note)

    def complain(self, problems: tuple[str, ...]) -> Message:
        """Return the problems, a line each, and the request for the file."""
        if self._is_stuck(is_repeated=True):
            return self._ask_otherwise()
        if self._sends_tests_only:
            return self._ask(is_failed=True)
        return self._ask(problems=problem_lines(problems))

    def _is_stuck(self, *, is_repeated: bool) -> bool:
        """Count a reply that failed. Return whether the question has to change."""
        self.repeats = self.repeats + 1 if is_repeated and self._old else 0
        return self.repeats >= _MOST_REPEATS

    def _ask_otherwise(self, note: str = "") -> Message:
        """Return another question than the one that was answered by the old file twice.

        The first time the model follows the failing test's values through the code; then it chooses among the
        lines that can be wrong. In both, a line of the reply has to differ.
        """
        traces = (self.repeats - _MOST_REPEATS) % 2 == 0
        lines = [] if traces else _lines_with_code(self._old)
        return Message.user(
            render(
                "contracts/whole_file_repeated",
                path=self.path,
                tests=self.tests,
                lines=fenced_unless_blank("\n".join(lines)),
                note=note,
            )
        )

    @property
    def _sends_tests_only(self) -> bool:
        """Whether to send the tests in place of the problems, because the faulty reply is omitted."""
        return bool(self.tests) and self.leaves_out_reply

    def _ask(
        self,
        *,
        is_failed: bool = False,
        block: str = "",
        has_tests: bool = True,
        problems: Sequence[str] = (),
        note: str = "",
    ) -> Message:
        return Message.user(
            render(
                "contracts/whole_file_results",
                is_failed=is_failed,
                block=block,
                tests=self.tests if is_failed and has_tests else "",
                problems=problems,
                note=note,
                path=self.path,
            )
        )


def _code(text: str) -> list[str]:
    """Return the lines of a file that are not blank, without spaces at their ends."""
    return [line.rstrip() for line in text.splitlines() if line.strip()]


def _lines_with_code(text: str) -> list[str]:
    """Return the lines of a file that may hold a defect, each with its number: those that compute, compare or decide.

    Lines in long strings are left out, such as those of a docstring.
    """
    found, is_string = [], False
    for number, line in enumerate(text.splitlines(), start=1):
        marks = line.count('"""') + line.count("'''")
        if not (is_string or marks) and _MAY_BE_WRONG.search(line):
            found.append(f"{number}: {line.strip()}")
        is_string ^= marks % 2 == 1
    return found[:_MOST_LINES]


def fenced_blocks(text: str) -> tuple[str, list[FencedBlock]]:
    """Return the text outside of a reply's blocks, and the blocks. An unclosed block extends to the end.

    A fence with a word after it, inside a block with the same fence, begins a nested block of the file, as in
    a README.
    """
    said: list[str] = []
    blocks: list[FencedBlock] = []
    lines: list[str] = []
    fence, path, depth = "", "", 0
    for line in text.replace("\r\n", "\n").split("\n"):
        match = _FENCE.fullmatch(line)
        if match is None or (fence and not match[1].startswith(fence)):
            (lines if fence else said).append(line)
        elif not fence:
            fence, path, depth, lines = match[1], _path_of(match[2].rstrip(" \t"), said), 0, []
        elif match[2]:
            depth += 1
            lines.append(line)
        elif depth:
            depth -= 1
            lines.append(line)
        else:
            blocks.append(FencedBlock(path, _joined(lines), is_closed=True))
            fence = ""
    if fence:
        blocks.append(FencedBlock(path, _joined(lines), is_closed=False))
    return "\n".join(said).strip(), blocks


def _joined(lines: list[str]) -> str:
    text = "\n".join(lines).rstrip("\n")
    return f"{text}\n" if text else ""


def _path_of(info: str, above: list[str]) -> str:
    """Return the path after a block's fence, or alone in the line above, which is removed; else empty."""
    for word in info.replace(":", " ").split():
        bare = _ATTRIBUTE.sub("", word).strip(_MARKUP)
        if _PATH.fullmatch(bare):
            return bare
    while above and not above[-1].strip():
        above.pop()
    words = above[-1].strip(_MARKUP).split() if above else []
    bare = words[-1].strip(_MARKUP) if words and len(words) <= 2 else ""  # noqa: PLR2004  "File: gcd.py"
    if not _PATH.fullmatch(bare):
        return ""
    above.pop()
    return bare
