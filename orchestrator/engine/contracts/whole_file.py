"""The contract of whole files: the reply is the corrected file itself, in a fenced block of Markdown."""

from __future__ import annotations

import re
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import TYPE_CHECKING

from orchestrator.core.messages import FinishReason, Message, ToolCall
from orchestrator.core.prompts import fenced, fenced_unless_blank, one_line, render
from orchestrator.engine.contracts.base import THOUGHTS, Actions, Contract, Malformed, Running, problem_lines

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

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
    r"^\s*+(?!#|//|/?\*|import\b|from\b|def\b|class\b)[^#\n]*?(?:[-=+*/%<>]|\w\(|\b(?:return|yield|if|while|for|not|and|or)\b)"
)
_MOST_LINES = 30
_MOST_REPEATS = 2
"""After so many replies that bring no other code, the question changes."""
_GAP = "???"
"""Stands for a line that is left out of a file."""
_GAPS, _MOST_QUESTIONS = 2, 5
"""So many lines are left out at once, or more if it would take too many questions to leave out each line once."""
_GAP_COMMENT = " \t#/*-"
"""What stands between a line and a remark of the model that it was a gap."""
_MOST_WAYS = 12
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
        failures: the number of replies that failed.
    """

    name = "whole_file"
    running = Running.IN_ORDER  # if a file cannot be written, nothing is proposed
    has_own_form = True
    forgets = True  # a small model repeats wrong files that it sees
    writes_whole_files = True
    tells_tools = False

    def __init__(self, path: str = "", title: str = "", tests: str = "", replies: int = 0) -> None:
        self.path, self.title, self.tests, self.replies = path, title, tests, replies
        self.repeats, self.failures, self._old, self._is_repeated = 0, 0, "", False
        self._names_failing, self._questions, self._is_first = False, 0, True
        self._gaps: list[int] = []
        """The lines that the last question leaves out; empty if it is another one."""
        self._wrong: list[list[str]] = []
        """What the file of the task must not be: as it was, and as earlier replies had it."""

    @property
    def leaves_out_reply(self) -> bool:
        """Whether to omit the last reply, which is done after every second one.

        A small model often repeats a wrong reply that it sees.
        """
        return self.replies % 2 == 0 or self._is_tried

    @property
    def guesses(self) -> bool:
        """Whether the last question leaves lines out. A small model repeats a wrong line that it sees."""
        return bool(self._gaps)

    @property
    def asks_anew(self) -> bool:
        """Whether the last question leaves lines out for the first time."""
        return self.guesses and self._is_first

    def go_on(self, tools: tuple[ToolDefinition, ...]) -> str:
        """Return the message that asks for the file."""
        del tools
        return render("contracts/whole_file_again", path=self.path)

    @property
    def wrap_up(self) -> str:
        """The message that this is the last reply."""
        return render("contracts/whole_file_last")

    def learn(
        self, *, title: str, path: str, tests: str, block: str = "", names_failing: bool = False
    ) -> None:
        """Store the path, the tests and the old file, and the beginning of the title for the pull request."""
        self._names_failing = names_failing
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
        if self._gaps and self.path in files:
            return self._tries(files[self.path], round_number)
        written = _code(files.get(self.path, ""))
        self._is_repeated = files.keys() == {self.path} and written in self._wrong
        self._wrong += [written] if self._old and not self._is_repeated else []
        body = said or "".join(f"Changes `{one_line(path, limit=_PATH_CHARS)}`.\n" for path in files)
        return Actions(said, _numbered(self._calls(files, body), round_number))

    def _calls(self, files: Mapping[str, str], body: str) -> list[tuple[str, JsonObject]]:
        """Return calls that write files and propose them."""
        calls: list[tuple[str, JsonObject]] = [
            ("write_file", {"path": path, "content": text}) for path, text in files.items()
        ]
        calls.append(("create_pull_request", {"title": self.title or f"Change {min(files)}", "body": body}))
        calls.append(("finish", {"reason": "The change is proposed."}))
        return calls

    def _tries(self, text: str, round_number: int) -> ReadReply:
        """Return calls that propose a reply to a question with gaps: each of its changes alone, then all of them."""
        found = _changed_files(self._old, text, _end_of_code(self._old)) or [self._old]
        ways = [one for one in found if _code(one) not in self._wrong] or found[-1:]
        self._wrong += [_code(one) for one in ways]
        body = render(
            "contracts/whole_file_guessed", path=one_line(self.path, limit=_PATH_CHARS), numbers=self._gaps
        )
        calls: list[tuple[str, JsonObject]] = []
        begins = []
        for one in ways:
            begins.append(len(calls))
            calls += self._calls({self.path: one}, body)
        return Actions("", _numbered(calls, round_number), ways=tuple(begins[1:]))

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
        if not results and self._gaps:
            return Message.user(note)
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
        """Count a reply that failed. Return whether the question has to change.

        Where tests can tell which line was wrong, it changes after any two replies.
        """
        self.failures += 1
        self.repeats = self.repeats + 1 if is_repeated and self._old else 0
        return self._is_tried or self.repeats >= _MOST_REPEATS

    @property
    def _is_tried(self) -> bool:
        """Whether two replies failed where tests can tell which line was wrong."""
        return self._names_failing and bool(self._old) and self.failures >= _MOST_REPEATS

    def _ask_otherwise(self, note: str = "") -> Message:
        """Return another question than the one that was answered by the old file twice.

        Where tests can tell which line was wrong, the model writes lines that it is not shown, until each was left
        out once. Else, and then, it follows the failing test's values through the code; the next time it chooses among
        the lines that can be wrong. In both, a line of the reply has to differ.
        """
        if asked := self._ask_for_gaps(note):
            return asked
        traces = self._names_failing or (self.repeats - _MOST_REPEATS) % 2 == 0
        shown = self._old.splitlines()
        numbers = [] if traces else _lines_with_code(self._old)[:_MOST_LINES]
        lines = [f"{number}: {shown[number - 1].strip()}" for number in numbers]
        return Message.user(
            render(
                "contracts/whole_file_repeated",
                path=self.path,
                tests=self.tests,
                lines=fenced_unless_blank("\n".join(lines)),
                note=note,
            )
        )

    def _ask_for_gaps(self, note: str) -> Message | None:
        """Return the question with the next lines left out; None if each was left out since the last other question."""
        numbers = _lines_with_code(self._old)[:_MOST_LINES] if self._names_failing else []
        count = min(max(-(-len(numbers) // _GAPS), 1), _MOST_QUESTIONS)
        cycle, place = divmod(self._questions, count + 1)
        self._questions, self._is_first = self._questions + 1, cycle == 0
        self._gaps = numbers[place::count] if place < count else []
        if not self._gaps:
            return None
        lines, end = self._old.splitlines(), _end_of_code(self._old)
        left = [_with_gap(line) if at in self._gaps else line for at, line in enumerate(lines[:end], start=1)]
        return Message.user(
            render(
                "contracts/whole_file_gaps",
                path=self.path,
                gap=_GAP,
                block=fenced("\n".join(left)),
                below=fenced_unless_blank("\n".join(lines[end:]).strip("\n")),
                tests=self.tests,
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


def _with_gap(line: str) -> str:
    return line[: len(line) - len(line.lstrip())] + _GAP


def _numbered(calls: Sequence[tuple[str, JsonObject]], round_number: int) -> tuple[ToolCall, ...]:
    return tuple(
        ToolCall(f"r{round_number}c{index}", name, arguments)
        for index, (name, arguments) in enumerate(calls, start=1)
    )


def _end_of_code(text: str) -> int:
    """Return the number of the line after which a file has no code: the end of the paragraph of its last line of code."""
    lines = text.splitlines()
    last = max(_lines_with_code(text), default=len(lines))
    return next((at for at in range(last, len(lines)) if not lines[at].strip()), len(lines))


def _changed_files(old: str, text: str, most_lines: int) -> list[str]:
    """Return a file with each change that a text makes to it alone, and with all of them.

    The file stays as it was after its first `most_lines`, and where a line is still missing in the text.
    """
    before, after = old.splitlines(), [_without_gap(line) for line in text.rstrip().splitlines()]
    bare = [line.rstrip() for line in before]
    changes: list[tuple[int, int, list[str]]] = []
    for tag, begin, end, start, stop in SequenceMatcher(None, bare, after, autojunk=False).get_opcodes():
        put = [line for line in after[start:stop] if line.strip()]
        if tag == "equal" or put == [line for line in bare[begin:end] if line.strip()]:
            continue
        if begin >= most_lines or (not put and stop == len(after)):
            continue
        if end - begin == stop - start:
            changes += [
                (at, at + 1, [line])
                for at, line in enumerate(after[start:stop], start=begin)
                if line != bare[at]
            ]
        else:
            changes.append((begin, end, after[start:stop]))
    changes = [one for one in changes if _GAP not in one[2]]
    several = [[one] for one in changes[:_MOST_WAYS]] + ([changes] if len(changes) > 1 else [])
    return [_with_changes(before, some) for some in several]


def _without_gap(line: str) -> str:
    """Return a line of a reply without a comment that names its gap; a gap that is still there alone."""
    code, gap, _ = line.partition(_GAP)
    return (code.rstrip(_GAP_COMMENT) or gap) if gap else line.rstrip()


def _with_changes(lines: Sequence[str], changes: Sequence[tuple[int, int, list[str]]]) -> str:
    changed = list(lines)
    for begin, end, put in reversed(changes):
        changed[begin:end] = put
    return "\n".join([*changed, ""])


def _lines_with_code(text: str) -> list[int]:
    """Return the numbers of the lines of a file that may hold a defect: those that compute, call, compare or decide.

    Lines in long strings are left out, such as those of a docstring.
    """
    found: list[int] = []
    is_string = False
    for number, line in enumerate(text.splitlines(), start=1):
        marks = line.count('"""') + line.count("'''")
        if not (is_string or marks) and _MAY_BE_WRONG.search(line):
            found.append(number)
        is_string ^= marks % 2 == 1
    return found


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
