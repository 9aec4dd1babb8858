"""A small part of the shell's language, read exactly as bash and every POSIX shell read it.

Whatever is outside of it is not guessed at: it raises `Unparsed`. The language:
https://pubs.opengroup.org/onlinepubs/9799919799/utilities/V3_chap02.html
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

JOINS = frozenset({"|", "||", "&&", ";"})
"""What may stand between two commands of a line."""

KEYWORDS = frozenset(
    "if then else elif fi for while until do done case esac select function time coproc in { } ! [[ ]]".split()  # noqa: SIM905  words read best without quotes
)
"""Words that are no program where a command begins."""

STAR = "\ue000"
QUESTION = "\ue001"
"""In `Word.pattern`, an unquoted `*` and `?`: no other character of a word can be these."""

_TOKEN = re.compile(
    r"""
    (?P<blank>[ \t]+)
  | (?P<fd>(?<![^ \t|&;<>])[0-9]+(?=[<>]))
  | (?P<redirect>[<>]&(?=[0-9](?![^ \t|&;<>]))|>>(?![&|])|>(?![>&|(])|<(?![<>&(]))
  | (?P<join>\|\|(?!\|)|\|(?![|&])|&&(?!&)|;(?!;))
  | (?P<plain>[A-Za-z0-9_./:=@%+,^\-\#~]+)
  | '(?P<single>[^'\x00-\x1f\x7f]*)'
  | "(?P<double>[^"$`\\\x00-\x1f\x7f]*)"
  | \\(?P<escaped>[\x20-\x7e])
  | (?P<glob>[*?])
    """,
    re.VERBOSE,
)
_TILDE = re.compile(r"(?:^|[=:])~")
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\+?=")

_REASONS = {
    "$": "$ is expanded by the shell",
    "`": "a backtick runs a command inside a command",
    "\n": "a line break begins another command",
    "\r": "a line break begins another command",
    "&": "& runs a command in the background",
    "(": "( begins a subshell",
    ")": ") ends a subshell",
    "{": "{ is expanded by the shell; put the word in single quotes",
    "}": "} is expanded by the shell; put the word in single quotes",
    "[": "[ is expanded by the shell; put the word in single quotes",
    "]": "] is expanded by the shell; put the word in single quotes",
    "!": "! has a meaning to the shell; put the word in single quotes",
    "<": "this redirection is not understood",
    ">": "this redirection is not understood",
    "|": "this use of | is not understood",
    ";": "this use of ; is not understood",
    "'": "a single quote is not closed, or holds a line break",
    '"': "a double quote is not closed, or holds $, `, \\ or a line break; use single quotes",
    "\\": "a backslash stands at the end of a line, or before a letter that is not ASCII",
}


class Unparsed(ValueError):  # noqa: N818  a verdict on a text, which the caller turns into its own words
    """The text is outside of the language. The message says why, in a few words."""


@dataclass(frozen=True, slots=True)
class Word:
    """One word of a command.

    Attributes:
        text: what the program is given, unless there are files that match.
        pattern: the same with `STAR` and `QUESTION` in place of unquoted `*` and `?`.
    """

    text: str
    pattern: str

    @property
    def is_glob(self) -> bool:
        """Whether the shell looks for files that match."""
        return self.text != self.pattern


@dataclass(frozen=True, slots=True)
class Redirect:
    """A redirection. `operator` is `<`, `>`, `>>`, `<&` or `>&`, with the descriptor's number before it if given."""

    operator: str
    target: Word

    @property
    def copies(self) -> bool:
        """Whether it opens no file, as `2>&1`."""
        return self.operator.endswith("&")


@dataclass(frozen=True, slots=True)
class SimpleCommand:
    """A program with its arguments, the variables set for it alone, and its redirections."""

    words: tuple[Word, ...]
    assignments: tuple[Word, ...] = ()
    redirects: tuple[Redirect, ...] = ()

    @property
    def argv(self) -> tuple[str, ...]:
        """The texts of the words."""
        return tuple(word.text for word in self.words)


@dataclass(frozen=True, slots=True)
class Line:
    """Commands, and what joins each to the next."""

    commands: tuple[SimpleCommand, ...]
    joins: tuple[str, ...]


@dataclass(slots=True)
class _Draft:
    """A word as far as it is read. `bare` is its text up to the first quote."""

    pattern: list[str] = field(default_factory=list)
    bare: str = ""
    quoted: bool = False
    tilde: bool = False

    def word(self) -> Word:
        pattern = "".join(self.pattern)
        return Word(pattern.replace(STAR, "*").replace(QUESTION, "?"), pattern)


@dataclass(slots=True)
class _Reader:
    """Reads one line from left to right; each character is looked at once."""

    commands: list[SimpleCommand] = field(default_factory=list)
    joins: list[str] = field(default_factory=list)
    words: list[Word] = field(default_factory=list)
    assignments: list[Word] = field(default_factory=list)
    redirects: list[Redirect] = field(default_factory=list)
    draft: _Draft | None = None
    operator: str = ""
    descriptor: str = ""

    def take(self, kind: str, text: str) -> None:
        match kind:
            case "blank":
                self.end_word()
            case "fd" if self.draft is None:
                if len(text) > 1:
                    raise Unparsed("a redirection of a descriptor above 9")
                self.descriptor = text
            case "redirect":
                self.end_word()
                if self.operator:
                    raise Unparsed("a redirection has no target")
                self.operator, self.descriptor = self.descriptor + text, ""
            case "join":
                self.end_command()
                self.joins.append(text)
            case _:
                self.add("plain" if kind == "fd" else kind, text)

    def add(self, kind: str, text: str) -> None:
        draft = self.draft = self.draft or _Draft()
        if kind == "plain":
            if text[0] == "#" and not (draft.pattern or draft.quoted):
                raise Unparsed("# begins a comment")
            if not draft.quoted:
                draft.bare += text
            draft.pattern.append(text)
            draft.tilde = draft.tilde or "~" in text
        elif kind == "glob":
            draft.quoted = True
            draft.pattern.append(STAR if text == "*" else QUESTION)
        else:
            if not text.isprintable():
                raise Unparsed("a character inside quotes is not printable")
            draft.quoted = True
            draft.pattern.append(text)

    def end_word(self) -> None:
        draft, self.draft = self.draft, None
        if draft is None:
            return
        word = draft.word()
        if draft.tilde and _TILDE.search(word.text):
            raise Unparsed("~ is expanded by the shell; write the path out")
        if self.operator:
            self.redirects.append(Redirect(self.operator, word))
            self.operator = ""
        elif not self.words and "=" in word.text:
            if not _ASSIGNMENT.match(draft.bare):
                raise Unparsed("= in the name of a program")
            self.assignments.append(word)
        else:
            self.words.append(word)

    def end_command(self) -> None:
        self.end_word()
        if self.operator:
            raise Unparsed("a redirection has no target")
        if not self.words:
            raise Unparsed("a command is missing")
        name = self.words[0]
        if not name.text or name.is_glob:
            raise Unparsed("the name of a program is not plain")
        if name.text in KEYWORDS:
            raise Unparsed(f"{name.text} is a word of the shell's language")
        self.commands.append(SimpleCommand(tuple(self.words), tuple(self.assignments), tuple(self.redirects)))
        self.words, self.assignments, self.redirects = [], [], []


def parse_line(text: str) -> Line:
    """Read a line of commands.

    Raises:
        Unparsed: it is outside of the language: an expansion, a subshell, a keyword, a here-document, a
            comment, a line break, a letter that is not ASCII outside of quotes, and everything not known.
    """
    text = text.strip(" \t\n")
    reader, at = _Reader(), 0
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None:
            raise Unparsed(_REASONS.get(text[at], f"the character {text[at]!r} is not understood here"))
        kind = found.lastgroup or ""
        reader.take(kind, found[kind])
        at = found.end()
    reader.end_command()
    return Line(tuple(reader.commands), tuple(reader.joins))
