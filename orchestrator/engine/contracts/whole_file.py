"""The contract of whole files: the reply is the corrected file itself, in a fenced block of Markdown."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from orchestrator.core.fence import fenced_unless_blank, one_line
from orchestrator.core.messages import FinishReason, Message, ToolCall
from orchestrator.core.prompts import render
from orchestrator.engine.contracts.base import THOUGHTS, Actions, Malformed, Running

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orchestrator.core.messages import JsonObject, ToolDefinition, ToolResult
    from orchestrator.engine.contracts.base import Contract, ReadReply
    from orchestrator.engine.models.base import Request, Response

_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})[ \t]*([^`\r\n]*?)[ \t]*")
"""A line that begins or ends a fenced block; section "Fenced code blocks" of the CommonMark specification."""
_MARKUP = "`*#:\"'()[]<>,; \t"
"""What stands around a path in the line above a block."""
_ATTRIBUTE = re.compile(r"(?:title|file|filename|path|name)=", re.IGNORECASE)
_PATH = re.compile(r"[\w.@+-]+(?:/[\w.@+-]+)+|[\w@+-][\w.@+-]*\.[A-Za-z]\w*")
_PROBLEM_CHARS = 400
_TITLE_CHARS = 70


@dataclass(frozen=True, slots=True)
class FileBlock:
    """A fenced block of a reply.

    Attributes:
        path: of the file that its text is, where the reply says so; else empty.
        text: its lines.
        is_closed: the fence that ends it is there.
    """

    path: str
    text: str
    is_closed: bool


@dataclass(slots=True)
class WholeFile:
    """A block becomes `write_file`, and `create_pull_request` and `finish` follow by themselves.

    For models of few parameters, which write down code correctly that they get wrong inside a JSON string. The model
    is told of no tool, and each request has the task and its last attempt only.

    Attributes:
        path: the file that a block is taken for which names none.
        title: of the pull request.
        tests: what is said of the tests that fail without a change.
        replies: how many were read.
    """

    name: ClassVar = "whole_file"
    running: ClassVar = Running.IN_ORDER  # a file that is not written is not proposed
    has_own_form: ClassVar = True
    text_ends: ClassVar = False
    prunes: ClassVar = False
    forgets: ClassVar = True  # a small model repeats the wrong files that it sees
    writes_whole_files: ClassVar = True

    path: str = ""
    title: str = ""
    tests: str = ""
    replies: int = 0

    @property
    def leaves_out_reply(self) -> bool:
        """After each second reply: a small model often repeats the wrong one that it sees."""
        return self.replies % 2 == 0

    @property
    def go_on(self) -> str:
        """Asks for the file."""
        return render("contracts/whole_file_again", path=self.path)

    @property
    def wrap_up(self) -> str:
        """Only that it is the last reply."""
        return render("contracts/whole_file_last")

    def learn(self, *, title: str, path: str, tests: str) -> None:
        """Take the beginning of the title for the pull request's, and the file and the tests as they are."""
        self.title, self.path, self.tests = title[:_TITLE_CHARS], path, tests

    def shape(self, request: Request, tools: tuple[ToolDefinition, ...]) -> Request:
        """The request as it is."""
        del tools
        return request

    def describe(self, tools: tuple[ToolDefinition, ...]) -> str:
        """The form of the reply, which is all that the model is told."""
        del tools
        return render("contracts/whole_file")

    def read(self, response: Response, tools: tuple[ToolDefinition, ...], *, round_number: int) -> ReadReply:
        """The calls that write the files of a reply and propose them. Call ids are `r<round>c<index>`."""
        del tools
        self.replies += 1
        thoughts = THOUGHTS.match(response.text)
        said, blocks = _blocks(response.text[thoughts.end() if thoughts else 0 :])
        if not blocks:
            return Malformed(("reply: it has no code block with a file in it",))
        if response.finish is FinishReason.LENGTH and not blocks[-1].is_closed:
            return Malformed(("reply: it was cut off before the file ended; write less before the file",))
        files = self._files(blocks)
        if not files:
            return Malformed(("reply: nothing says which file the code block is; write its path above it",))
        body = said or "".join(f"Changes `{one_line(path, limit=_PROBLEM_CHARS)}`.\n" for path in files)
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

    def _files(self, blocks: list[FileBlock]) -> dict[str, str]:
        """The text of each file. Of several blocks that may be the same one, the longest: the others show a part of it."""
        files: dict[str, str] = {}
        for block in blocks:
            path = block.path or self.path
            if path and len(block.text) > len(files.get(path, "")):
                files[path] = block.text
        return files

    def answer(self, results: tuple[ToolResult, ...], note: str = "") -> Message:
        """What failed, in a block which its text cannot close, and the request for the file."""
        failed = next((one for one in results if one.is_error), None)
        if failed is None or self._says_tests_only:
            return self._ask(is_failed=failed is not None, note=note)
        block = fenced_unless_blank(failed.content)
        return self._ask(is_failed=True, block=block, has_tests=failed.name == "write_file", note=note)

    def complain(self, problems: tuple[str, ...]) -> Message:
        """The problems, a line each, and the request for the file."""
        if self._says_tests_only:
            return self._ask(is_failed=True)
        return self._ask(problems=[one_line(problem, limit=_PROBLEM_CHARS, keep="`") for problem in problems])

    @property
    def _says_tests_only(self) -> bool:
        """Whether the tests are said in the place of what was wrong with a reply that is left out."""
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


def _blocks(text: str) -> tuple[str, list[FileBlock]]:
    """What a reply says outside of its blocks, and the blocks. One without an end goes on to the end of the reply.

    A fence with a word behind it, inside a block with an equal one, begins a block of the file, as in a README.
    """
    said: list[str] = []
    blocks: list[FileBlock] = []
    lines: list[str] = []
    fence, path, depth = "", "", 0
    for line in text.replace("\r\n", "\n").split("\n"):
        match = _FENCE.fullmatch(line)
        if match is None or (fence and not match[1].startswith(fence)):
            (lines if fence else said).append(line)
        elif not fence:
            fence, path, depth, lines = match[1], _path_of(match[2], said), 0, []
        elif match[2]:
            depth += 1
            lines.append(line)
        elif depth:
            depth -= 1
            lines.append(line)
        else:
            blocks.append(_block(path, lines, is_closed=True))
            fence = ""
    if fence:
        blocks.append(_block(path, lines, is_closed=False))
    return "\n".join(said).strip(), blocks


def _block(path: str, lines: list[str], *, is_closed: bool) -> FileBlock:
    text = "\n".join(lines).rstrip("\n")
    return FileBlock(path, f"{text}\n" if text else "", is_closed)


def _path_of(info: str, above: list[str]) -> str:
    """The path that a block is given behind its fence or alone in the line above, which is then not said; else empty."""
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


if TYPE_CHECKING:
    _conforms: Contract = WholeFile()
