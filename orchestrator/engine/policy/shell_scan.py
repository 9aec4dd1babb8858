"""Finds the commands in any shell text, also where the strict parser gives up. It never fails, so it may be wrong.

What is blocked everywhere is looked for with it. That is a seat belt: a shell can hide a command in
more ways than a reader can know (variables, `eval` of a file). The sandbox is the wall.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from posixpath import basename
from typing import TYPE_CHECKING

from orchestrator.engine.policy.shell_syntax import KEYWORDS

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

SUBSTITUTION = "$()"
"""Stands in a word for a command whose output would be there."""

DEEPEST = 5
"""Shells inside of shells that are looked into."""
MOST_SCRIPTS = 20
"""That the shells of one command are told to run."""

SHELLS = frozenset({"sh", "bash", "dash", "zsh", "ksh", "ash", "fish"})

RUNNERS = frozenset(
    "sudo doas su env nohup nice ionice chrt taskset timeout stdbuf setsid command builtin exec xargs busybox "  # noqa: SIM905  words read best without quotes
    "toybox chroot unshare nsenter flock time script strace watch parallel eval find npx bunx uv uvx poetry pdm hatch "
    "pipenv runuser setpriv prlimit gdb valgrind ltrace perf entr".split()
)
"""Programs that run the program that their arguments name."""

_TOKEN = re.compile(
    r"""
    (?P<blank>[ \t\r]+)
  | (?P<newline>\n)
  | (?P<comment>(?<![^ \t\r\n;&|()])\#[^\n]*)
  | (?P<open>\$\(|[<>]\(|\()
  | (?P<close>\))
  | (?P<tick>`)
  | (?P<heredoc>(?<!<)<<-?(?!<))
  | (?P<redirect>[0-9]*(?:<<<|<>|>>|>\||[<>]&|&>>|&>|<|>))
  | (?P<join>[;&|]+)
  | \$?'(?P<single>[^']*)'?
  | (?P<dquote>\$?")
  | \\(?P<escaped>.)
  | (?P<line_end>\\\n?)
  | (?P<plain>[^\s;&|()`<>'"\\$\#]+|[$\#\s])
    """,
    re.VERBOSE,
)
_QUOTED = re.compile(
    r"""(?P<open>\$\()|(?P<tick>`)|(?P<dquote>")|\\(?P<escaped>["$`\\])|(?P<line_end>\\\n)|(?P<plain>[^"$`\\]+|[$\\])"""
)
_ANSI_ESCAPE = re.compile(r"\\(?:x([0-9a-fA-F]{1,2})|([0-7]{1,3})|(.))", re.DOTALL)
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*\+?=")
_CLUSTER_WITH_C = re.compile(r"[-+][A-Za-z]*c[A-Za-z]*")


@dataclass(frozen=True, slots=True)
class Found:
    """A command in a text: its words with quotes removed, and what its redirections name."""

    words: tuple[str, ...]
    targets: tuple[str, ...] = ()


@dataclass(slots=True)
class _Frame:
    """A command that is being read, inside of others. `end` closes the frame."""

    end: str = ""
    in_quotes: bool = False
    words: list[str] = field(default_factory=list)
    targets: list[str] = field(default_factory=list)
    word: list[str] | None = None
    redirects: bool = False
    ends_document: bool = False
    documents: list[str] = field(default_factory=list)

    def add(self, text: str) -> None:
        if self.word is None:
            self.word = []
        self.word.append(text)

    def end_word(self) -> None:
        if self.word is None:
            return
        text, self.word = "".join(self.word), None
        if self.ends_document:
            if not (self.words and basename(self.words[0]) in SHELLS):
                self.documents.append(text)
        elif self.redirects:
            self.targets.append(text)
        else:
            self.words.append(text)
        self.redirects = self.ends_document = False


class _Scan:
    """One pass over a text; each character is looked at once, but for the ends of here-documents."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.stack = [_Frame()]
        self.found: list[Found] = []
        self.endless: set[str] = set()

    def run(self) -> list[Found]:
        while self.at < len(self.text):
            frame = self.stack[-1]
            token = (_QUOTED if frame.in_quotes else _TOKEN).match(self.text, self.at)
            if token is None:  # neither expression leaves a character out; should one, it is passed over
                self.at += 1
                continue
            self.at = token.end()
            self.take(frame, token.lastgroup or "", token)
        while self.stack:
            self.flush(self.stack.pop())
        return self.found

    def take(self, frame: _Frame, kind: str, token: re.Match[str]) -> None:  # noqa: C901, PLR0912  one arm for each token
        text = token[kind] if kind else ""
        match kind:
            case "plain" | "escaped":
                frame.add(text)
            case "single":
                frame.add(_ansi(text) if token[0].startswith("$") else text)
            case "dquote":
                frame.add("")
                frame.in_quotes = not frame.in_quotes
            case "open":
                if text == "(":
                    self.flush(frame)
                else:
                    frame.add(SUBSTITUTION)
                self.stack.append(_Frame(")"))
            case "close":
                self.close(frame, ")")
            case "tick":
                if not frame.in_quotes and any(outer.end == "`" for outer in self.stack):
                    self.close(frame, "`")
                else:
                    frame.add(SUBSTITUTION)
                    self.stack.append(_Frame("`"))
            case "blank":
                frame.end_word()
            case "redirect":
                if frame.word is not None:
                    frame.add(text.rstrip("<>&|"))  # digits that end a word name no descriptor
                frame.end_word()
                frame.redirects = True
            case "heredoc":
                frame.end_word()
                frame.ends_document = True
            case "join":
                self.flush(frame)
            case "newline":
                self.flush(frame)
                self.pass_documents(frame)
            case _:
                pass  # a comment, or the end of a line that goes on

    def close(self, frame: _Frame, end: str) -> None:
        self.flush(frame)
        if frame.end == end and len(self.stack) > 1:
            self.stack.pop()

    def flush(self, frame: _Frame) -> None:
        frame.end_word()
        if frame.words or frame.targets:
            self.found.append(Found(tuple(frame.words), tuple(frame.targets)))
        frame.words, frame.targets = [], []
        frame.redirects = frame.ends_document = False

    def pass_documents(self, frame: _Frame) -> None:
        """Skip what is the input of a program, unless the program is a shell or the text has no end."""
        for name in frame.documents:
            if name in self.endless:
                continue
            end = re.compile(rf"^\t*{re.escape(name)}$", re.MULTILINE).search(self.text, self.at)
            if end:
                self.at = end.end()
            else:
                self.endless.add(name)
        frame.documents = []


def _ansi(text: str) -> str:
    def said(escape: re.Match[str]) -> str:
        sixteen, eight, other = escape.groups()
        if sixteen or eight:
            return chr(int(sixteen, 16) if sixteen else int(eight, 8))
        return other

    return _ANSI_ESCAPE.sub(said, text)


def scan(text: str) -> list[Found]:
    """The commands of a text in the order of their ends, those in substitutions and subshells too."""
    return _Scan(text).run()


class TooManyShells(ValueError):  # noqa: N818  a verdict on a text, which the caller turns into its own words
    """The text runs shells in more or deeper ways than are looked into."""


def scan_deep(text: str) -> Iterator[Found]:
    """The same, with the commands that other programs run: `sudo`, `env`, `sh -c`, `eval` and their kin.

    Of a program that runs others every tail of its words is given, because nobody knows all options.

    Raises:
        TooManyShells: some of the commands are not looked at.
    """
    yield from _deep(text, 0, iter(range(MOST_SCRIPTS)))


def _deep(text: str, depth: int, left: Iterator[int]) -> Iterator[Found]:
    for found in scan(text):
        yield found
        for words in tails(found.words):
            if words is not found.words:
                yield Found(tuple(words))
            if script := _script(words):
                if depth == DEEPEST or next(left, None) is None:
                    raise TooManyShells
                yield from _deep(script, depth + 1, left)


def tails(words: Sequence[str]) -> Iterator[Sequence[str]]:
    """The words, and what may be a command inside of them."""
    start = 0
    while start < len(words) and (words[start] in KEYWORDS or _ASSIGNMENT.match(words[start])):
        start += 1
    if start:
        words = tuple(words[start:])
    if not words:
        return
    yield words
    if basename(words[0]) in RUNNERS:
        for begin in range(1, min(len(words), 100)):
            yield words[begin:]


def _script(words: Sequence[str]) -> str:
    """The text that a shell, or `eval`, is told to run; empty if it is none."""
    name = basename(words[0])
    if name == "eval":
        return " ".join(words[1:])
    if name in SHELLS:
        for place, word in enumerate(words[1:], 1):
            if _CLUSTER_WITH_C.fullmatch(word):
                return next((text for text in words[place + 1 :] if not text.startswith("-")), "")
    return ""
