"""Parses shell text, strictly or as far as possible.

`parse_line` is strict. It understands a small part of the language, which bash and every POSIX shell read in
the same way, and refuses everything else. Rules, and the commands that they grant, are parsed with it.

`parse_words` reads the same with the expansions of words (`~`, `{a,b}`, `[a-z]`, `$HOME`), whose places it marks.

`scan` reads any text with the same reader. It never fails, so it may be wrong: a shell can hide a command in
more ways than a reader can know (variables, `eval` of a file). It finds commands that are blocked at every
level. It is only a first barrier; the sandbox is the one to rely on.

The language: https://pubs.opengroup.org/onlinepubs/9799919799/utilities/V3_chap02.html

What is not understood raises `Unparsed`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from posixpath import basename
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

KEYWORDS = frozenset(
    "if then else elif fi for while until do done case esac select function time coproc in { } ! [[ ]]".split()  # noqa: SIM905  words read best without quotes
)
"""Words that are not programs at the beginning of a command."""

STAR = "\ue000"
QUESTION = "\ue001"
"""In `Word.pattern` and `Word.live`, an unquoted `*` and `?`.

Words of `parse_line` cannot contain these two characters otherwise.
"""
DOLLAR, QUOTED_DOLLAR, OPEN_BRACE, CLOSE_BRACE, COMMA, TILDE, OPEN_BRACKET, BLANK, OUTPUT = map(
    chr, range(0xE002, 0xE00B)
)
"""In `Word.live`, the other characters that the shell expands.

`BLANK` is a blank where the shell splits the output of a command into words, and `OUTPUT` stands for an output
that is not known.
"""

FREE_JOINS = frozenset({"|", "||"})
"""Operators that may join granted commands without a rule for it."""

SHELLS = frozenset({"sh", "bash", "dash", "zsh", "ksh", "ash", "fish"})
RUNNERS = frozenset(
    "sudo doas su env nohup nice ionice chrt taskset timeout stdbuf setsid command builtin exec xargs busybox "  # noqa: SIM905  words read best without quotes
    "toybox chroot unshare nsenter flock time script strace watch parallel eval find npx bunx uv uvx poetry pdm hatch "
    "pipenv runuser systemd-run setpriv prlimit gdb valgrind ltrace perf entr".split()
)
"""Programs that run the program that their arguments name."""

_DEEPEST = 5
"""The depth to which shells inside of shells are examined."""
_MOST_SCRIPTS = 20
"""The limit of scripts passed to shells in one command."""
_MOST_TAILS = 100
_PIPES = frozenset({"|", "|&"})
_LITERAL = dict.fromkeys(range(ord(STAR), ord(OUTPUT) + 1), "�")
_LIVE_IN_QUOTES = {**_LITERAL, ord("$"): QUOTED_DOLLAR}
_LIVE = _LITERAL | str.maketrans(
    "*?${},~[", f"{STAR}{QUESTION}{DOLLAR}{OPEN_BRACE}{CLOSE_BRACE}{COMMA}{TILDE}{OPEN_BRACKET}"
)
"""What the characters of a piece of text become in `Word.live`."""
_SUBSTITUTION = "$()"
"""Stands in a word for the output of a command."""
_HERE_DOCUMENT = "<<"

# The strict language. It is tried first, also by `scan`.
_TOKEN = re.compile(
    r"""
    (?P<blank>[ \t]+)
  | (?P<fd>[0-9]+(?=&?[<>]))
  | (?P<redirect>[<>]&(?=[0-9](?![^ \t|&;<>]))|>>(?![&|])|>(?![>&|(])|<(?![<>&(]))
  | (?P<join>\|\|(?!\|)|\|(?![|&])|&&(?!&)|;(?!;))
  | (?P<comment>(?<![\r`])\#)
  | (?P<plain>[A-Za-z0-9_./:=@%+,^\-\#~]+)
  | '(?P<quoted>[^'\x00-\x1f\x7f]*)'
  | "(?P<double>(?>(?:[^"$`\\\x00-\x1f\x7f]|\\(?=[^"$`\\\x00-\x1f\x7f])|\$(?=["\\ |/.,:;)%^~=+&<>\]}]))*))"
  | \\(?P<escaped>[\x20-\x7e])
  | (?P<glob>[*?])
    """,
    re.VERBOSE,
)
# The rest of the language and extensions of bash, which only `scan` reads.
_OTHER = re.compile(
    r"""
    (?P<blank>\r+)
  | (?P<newline>\n)
  | (?P<open>\$\(|[<>]\(|\()
  | (?P<close>\))
  | (?P<tick>`)
  | (?P<redirect>(?<!<)<<-?(?!<)|<<<|<>|>>|>\||[<>]&|&>>|&>|<|>)
  | (?P<join>[;&|]+)
  | (?P<ansi>\$'[^']*'?)
  | '(?P<quoted>[^']*)'?
  | (?P<quote>\$?")
  | \\(?P<escaped>[^\n])
  | (?P<line_end>\\\n?)
  | (?P<other>[^\s;&|()`<>'"\\$\#*?]+|[$\#\s])
    """,
    re.VERBOSE,
)
# Inside of double quotes with more than plain text.
_IN_QUOTES = re.compile(
    r"""(?P<open>\$\()|(?P<tick>`)|(?P<quote>")|\\(?P<escaped>["$`\\])|(?P<line_end>\\\n)|(?P<other>[^"$`\\]+|[$\\])"""
)
# What `parse_words` reads beyond the strict language.
_VARIABLE = r"\$(?:[A-Za-z_][A-Za-z0-9_]*+|\{[A-Za-z_][A-Za-z0-9_]*+\})"
_EXPANDED = re.compile(rf"""(?P<other>{_VARIABLE}|[\[\]{{}}!]|\$(?=[ \t|]|\Z))|(?P<quote>")""")
_EXPANDED_IN_QUOTES = re.compile(
    rf"""(?P<other>{_VARIABLE}|[^"$`\\\x00-\x1f\x7f]++|\$(?![A-Za-z0-9_{{(\[@*#?$!\-])|\\(?=[^"$`\\\x00-\x1f\x7f]))"""
    r"""|\\(?P<escaped>["$`\\])|(?P<quote>")"""
)
_BRACES = re.compile(
    rf"(?<![{DOLLAR}{QUOTED_DOLLAR}]){OPEN_BRACE}([^{OPEN_BRACE}{CLOSE_BRACE}]*+){CLOSE_BRACE}"
)
_COMMENT_END = re.compile(r"\n")
_COMMENT_END_IN_TICKS = re.compile(r"[\n`]")
_ANSI_ESCAPE = re.compile(r"\\(?:x([0-9a-fA-F]{1,2})|([0-7]{1,3})|(.))", re.DOTALL)
_ECHO_OPTION = re.compile(r"-[neE]+")
_TILDE = re.compile(r"(?:^|[=:])~")
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\+?=")
_CLUSTER_WITH_C = re.compile(r"[-+](?>[A-Za-z]*?c)[A-Za-z]*")

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


class Unparsed(ValueError):  # noqa: N818  a result for the caller, which writes its own message
    """The text is not in the strict language. The message briefly says why."""


class TooManyShells(ValueError):  # noqa: N818  the same
    """The text runs more shells, or deeper ones, than are examined."""


class TooManyWords(ValueError):  # noqa: N818  the same
    """The braces of a word make more words than are examined."""


@dataclass(frozen=True, slots=True)
class Word:
    """One word of a command.

    Attributes:
        text: the argument that the program gets, unless there are files that match.
        pattern: the same with `STAR` and `QUESTION` in place of unquoted `*` and `?`.
        live: the same with the other characters, too, that the shell expands; filled in by the reader.
    """

    text: str
    pattern: str
    live: str = field(default="", compare=False)

    @property
    def is_glob(self) -> bool:
        """Whether the shell searches for files that match."""
        return self.text != self.pattern


@dataclass(frozen=True, slots=True)
class Redirect:
    """A redirection.

    `operator` is `<`, `>`, `>>`, `<&` or `>&`, after the descriptor's number if one is given.
    """

    operator: str
    target: Word

    @property
    def copies(self) -> bool:
        """Whether it copies a descriptor, as `2>&1` does, and opens no file."""
        return self.operator.endswith("&")


@dataclass(frozen=True, slots=True)
class SimpleCommand:
    """A program with its arguments, the variables set only for it, and its redirections.

    Attributes:
        source: the command whose output it reads through a pipe.
    """

    words: tuple[Word, ...]
    assignments: tuple[Word, ...] = ()
    redirects: tuple[Redirect, ...] = ()
    source: SimpleCommand | None = field(default=None, compare=False, repr=False)

    @property
    def argv(self) -> tuple[str, ...]:
        """The texts of the words."""
        return tuple(word.text for word in self.words)


@dataclass(frozen=True, slots=True)
class CommandLine:
    """Commands, and the operators that join each to the next: `|`, `||`, `&&` or `;`."""

    commands: tuple[SimpleCommand, ...]
    joins: tuple[str, ...]


class FoundCommand(NamedTuple):
    """A command that a text may run, and the files that its redirections name."""

    argv: tuple[str, ...]
    targets: tuple[str, ...] = ()


_SHOWN_CHARS = 60


def shortened(word: str) -> str:
    """Return as much of a word or a path as messages show."""
    return word[:_SHOWN_CHARS]


def parse_line(text: str) -> CommandLine:
    """Parse a line of commands in the strict language.

    Raises:
        Unparsed: the line has an expansion, a subshell, a keyword, a here-document, a comment, a line break,
            a letter that is not ASCII outside of quotes, or anything else that is not understood.
    """
    reader = _Reader(text.strip(" \t\n"), strict=True)
    return CommandLine(tuple(reader.read()), tuple(reader.joins))


def parse_words(text: str) -> CommandLine:
    """Parse a line of commands whose words may be expanded by the shell; see `Word.live`.

    Raises:
        Unparsed: the line has a command in a word, a subshell, a keyword, a here-document, a comment, a line
            break, a letter that is not ASCII outside of quotes, or anything else that is not understood.
    """
    reader = _Reader(text.strip(" \t\n"), strict=True, expands=True)
    return CommandLine(tuple(reader.read()), tuple(reader.joins))


def scan(text: str) -> list[SimpleCommand]:
    """Return the commands of any text in the order of their ends, also those in substitutions and subshells."""
    return _Reader(text, strict=False).read()


def scan_deep(text: str) -> Iterator[FoundCommand]:
    """Yield the commands of a text, and those that `sudo`, `env`, `sh -c`, `eval` and others like them run.

    For a program that runs others, every tail of its words is yielded, because its options are not known.

    Raises:
        TooManyShells: some of the commands were not examined.
    """
    yield from _deep(text, 0, iter(range(_MOST_SCRIPTS)))


def _deep(text: str, depth: int, left: Iterator[int]) -> Iterator[FoundCommand]:
    for command in scan(text):
        argv = command.argv
        yield FoundCommand(argv, tuple(redirect.target.text for redirect in command.redirects))
        for words in tails(argv):
            if words is not argv:
                yield FoundCommand(tuple(words))
            if script := _script(words):
                if depth == _DEEPEST or next(left, None) is None:
                    raise TooManyShells
                yield from _deep(script, depth + 1, left)


def tails(words: Sequence[str]) -> Iterator[Sequence[str]]:
    """Yield the words, and every tail of them that may be a command."""
    start = 0
    while start < len(words) and (words[start] in KEYWORDS or _ASSIGNMENT.match(words[start])):
        start += 1
    if start:
        words = tuple(words[start:])
    if not words:
        return
    yield words
    if basename(words[0]) in RUNNERS:
        for begin in range(1, min(len(words), _MOST_TAILS)):
            yield words[begin:]


def _script(words: Sequence[str]) -> str:
    """Return the script that a shell, or `eval`, is told to run; empty if there is none."""
    name = basename(words[0])
    if name == "eval":
        return " ".join(words[1:])
    if name in SHELLS:
        for place, word in enumerate(words[1:], 1):
            if _CLUSTER_WITH_C.fullmatch(word):
                return next((text for text in words[place + 1 :] if not text.startswith("-")), "")
    return ""


@dataclass(slots=True)
class _Draft:
    """A word that is being read. `bare` is its text up to the first quote."""

    text: list[str] = field(default_factory=list)
    pattern: list[str] = field(default_factory=list)
    live: list[str] = field(default_factory=list)
    bare: str = ""
    is_quoted: bool = False
    has_tilde: bool = False


@dataclass(slots=True)
class _Frame:
    """A command that is being read, inside of others. `end` is the text that closes the frame.

    Attributes:
        first: the place of the frame's first command among all.
        is_substitution: whether the output of the commands becomes a part of the outer frame's word.
        piped: the last command, if its output goes to the next one.
    """

    end: str = ""
    first: int = 0
    is_substitution: bool = False
    piped: SimpleCommand | None = None
    in_quotes: bool = False
    words: list[Word] = field(default_factory=list)
    assignments: list[Word] = field(default_factory=list)
    redirects: list[Redirect] = field(default_factory=list)
    draft: _Draft | None = None
    descriptor: str = ""
    operator: str = ""
    documents: list[str] = field(default_factory=list)


class _Reader:
    """One pass over a text. Each character is read once, except in the search for the ends of here-documents."""

    def __init__(self, text: str, *, strict: bool, expands: bool = False) -> None:
        self.text, self.strict, self.expands, self.at = text, strict, expands, 0
        self.stack = [_Frame()]
        self.commands: list[SimpleCommand] = []
        self.joins: list[str] = []
        self.shell: Word | None = None
        self.unclosed_documents: set[str] = set()

    def read(self) -> list[SimpleCommand]:
        while self.at < len(self.text):
            frame = self.stack[-1]
            token = None if frame.in_quotes else _TOKEN.match(self.text, self.at)
            if token is None and self.strict:
                token = self.expansion(frame)
            token = token or (_IN_QUOTES if frame.in_quotes else _OTHER).match(self.text, self.at)
            if token is None:  # does not happen: the expressions cover every character
                self.at += 1
                continue
            self.at = token.end()
            kind = token.lastgroup or ""
            self.take(frame, kind, token[kind])
        if self.strict and self.stack[-1].in_quotes:
            raise Unparsed(_REASONS['"'])
        while self.stack:
            self.end_command(self.stack.pop())
        return self.commands

    def expansion(self, frame: _Frame) -> re.Match[str]:
        """Return the token here, of those that `parse_words` reads beyond the strict language."""
        letter = self.text[self.at]
        pattern = _EXPANDED_IN_QUOTES if frame.in_quotes else _EXPANDED
        token = pattern.match(self.text, self.at) if self.expands else None
        if token is None:
            raise Unparsed(_REASONS.get(letter, f"the character {letter!r} is not understood here"))
        return token

    def take(self, frame: _Frame, kind: str, text: str) -> None:  # noqa: C901  one arm for each token
        match kind:
            case "blank":
                self.end_word(frame)
            case "fd" if frame.draft is None:
                if self.strict and len(text) > 1:
                    raise Unparsed("the number of a redirected descriptor is above 9")
                frame.descriptor = text
            case "redirect":
                self.end_word(frame)
                if self.strict and frame.operator:
                    raise Unparsed("a redirection has no target")
                is_document = text in {"<<", "<<-"}
                frame.operator = _HERE_DOCUMENT if is_document else frame.descriptor + text
                frame.descriptor = ""
            case "join":
                self.end_command(frame)
                frame.piped = self.last_command() if text in _PIPES else None
                self.joins.append(text)
            case "newline":
                self.end_command(frame)
                self.skip_documents(frame)
            case "comment" if frame.draft is None and (self.strict or not frame.operator):
                self.skip_comment()
            case "open" | "tick" | "close":
                self.nest(frame, kind, text)
            case "quote":
                self.add(frame, "quoted", "")
                frame.in_quotes = not frame.in_quotes
            case "line_end":
                pass
            case _:
                self.add(frame, kind, text)

    def add(self, frame: _Frame, kind: str, text: str) -> None:
        """Append a piece of text to the word that is being read."""
        draft = frame.draft = frame.draft or _Draft()
        if kind in {"plain", "fd", "comment"}:
            if not draft.is_quoted:
                draft.bare += text
            draft.has_tilde = draft.has_tilde or "~" in text
        else:
            draft.is_quoted = True
            if self.strict and not text.isprintable():
                raise Unparsed("a character inside quotes is not printable")
        if kind == "ansi":
            text = _ANSI_ESCAPE.sub(_ansi_letter, text.removeprefix("$'").removesuffix("'"))
        draft.text.append(text)
        draft.pattern.append({"*": STAR, "?": QUESTION}[text] if kind == "glob" else text)
        live = kind in {"plain", "other", "fd", "comment", "glob"}
        table = _LITERAL if not live else _LIVE_IN_QUOTES if frame.in_quotes else _LIVE
        draft.live.append(text.translate(table))

    def nest(self, frame: _Frame, kind: str, text: str) -> None:
        """Begin or end a command inside of another."""
        if kind == "close" or (
            kind == "tick" and not frame.in_quotes and any(outer.end == "`" for outer in self.stack)
        ):
            self.end_command(frame)
            if frame.end == text and len(self.stack) > 1:
                self.stack.pop()
                if frame.is_substitution and (draft := self.stack[-1].draft):
                    output = _printed(self.commands, frame.first)
                    draft.live[-1] = output if self.stack[-1].in_quotes else output.replace(" ", BLANK)
            return
        if text == "(":
            self.end_command(frame)
        else:
            self.add(frame, "quoted", _SUBSTITUTION)
            if draft := frame.draft:
                draft.live[-1] = OUTPUT
        self.stack.append(_Frame("`" if kind == "tick" else ")", len(self.commands), text != "("))

    def end_word(self, frame: _Frame) -> None:
        draft, frame.draft = frame.draft, None
        if draft is None:
            return
        word = Word("".join(draft.text), "".join(draft.pattern), "".join(draft.live))
        if self.strict and not self.expands and draft.has_tilde and _TILDE.search(word.text):
            raise Unparsed("~ is expanded by the shell; write the path out")
        if frame.operator == _HERE_DOCUMENT:
            frame.documents.append(word.text)
        elif frame.operator:
            frame.redirects.append(Redirect(frame.operator, word))
        elif not frame.words and _ASSIGNMENT.match(draft.bare):
            frame.assignments.append(word)
        elif self.strict and not frame.words and "=" in word.text:
            raise Unparsed("the name of a program has a =")
        else:
            frame.words.append(word)
            if basename(word.text) in SHELLS:
                self.shell = word
        frame.operator = ""

    def end_command(self, frame: _Frame) -> None:
        self.end_word(frame)
        if self.strict:
            _check(frame)
        if frame.words or frame.assignments or frame.redirects:
            self.commands.append(
                SimpleCommand(
                    tuple(frame.words), tuple(frame.assignments), tuple(frame.redirects), frame.piped
                )
            )
            frame.piped = None
        frame.words, frame.assignments, frame.redirects = [], [], []
        frame.operator = frame.descriptor = ""

    def last_command(self) -> SimpleCommand | None:
        """Return the last command; the end of a group, such as `}`, is none."""
        last = self.commands[-2:][::-1]
        return next((one for one in last if any(word.text not in KEYWORDS for word in one.words)), None)

    def skip_comment(self) -> None:
        if self.strict:
            raise Unparsed("# begins a comment")
        in_ticks = any(frame.end == "`" for frame in self.stack)
        end = (_COMMENT_END_IN_TICKS if in_ticks else _COMMENT_END).search(self.text, self.at)
        self.at = end.start() if end else len(self.text)

    def skip_documents(self, frame: _Frame) -> None:
        """Skip the here-documents of a line that has ended; if it runs a shell, they are scripts of that shell."""
        for name in frame.documents:
            if name in self.unclosed_documents:
                continue
            end = re.compile(rf"^\t*{re.escape(name)}$", re.MULTILINE).search(self.text, self.at)
            if end is None:
                self.unclosed_documents.add(name)
                continue
            if self.shell:
                script = f"\n{self.text[self.at : end.start()]}"
                words = self.shell, Word("-c", "-c", "-c"), Word(script, script, script)
                self.commands.append(SimpleCommand(words))
            self.at = end.end()
        frame.documents = []
        if len(self.stack) == 1:
            self.shell = None


def _printed(commands: Sequence[SimpleCommand], first: int) -> str:
    """Return what the commands of a substitution print, if that is plain to see; else `OUTPUT`."""
    words = commands[first].words if len(commands) == first + 1 else ()
    return printed_words(words) if words and not commands[first].redirects else OUTPUT


def printed_words(words: Sequence[Word]) -> str:
    """Return what `echo`, `printf` or `which` prints, unexpanded; `OUTPUT` for other programs."""
    while len(words) > 1 and words[0].text in KEYWORDS:
        words = words[1:]
    name, rest = basename(words[0].text), [word.live for word in words[1:]]
    if rest and (name == "which" or (name == "command" and rest[0] == "-v")):
        return rest[-1]
    if name == "echo":
        while rest and _ECHO_OPTION.fullmatch(rest[0]):
            rest.pop(0)
        return " ".join(rest)
    if name == "printf" and rest:
        pieces, values = rest[0].split("%s"), iter([*rest[1:], *[""] * len(rest[0])])
        return (pieces[0] + "".join(next(values) + piece for piece in pieces[1:])).replace("\\n", "\n")
    return OUTPUT


def expand_braces(text: str, most: int) -> list[str]:
    """Return the words that the braces of a word make (see `Word.live`); some may be there twice.

    Raises:
        TooManyWords: there are more than `most`.
    """
    made: list[str] = []
    waiting = [text]
    for _ in range(2 * most):
        if not waiting:
            return made
        word = waiting.pop()
        group = next((one for one in _BRACES.finditer(word) if COMMA in one[0]), None)
        if group is None:
            made.append(word)
        else:
            parts = group[1].split(COMMA)
            if len(parts) + len(waiting) + len(made) > most:
                break
            waiting += [word[: group.start()] + part + word[group.end() :] for part in reversed(parts)]
    raise TooManyWords


def _check(frame: _Frame) -> None:
    """Check that a command is complete."""
    if frame.operator:
        raise Unparsed("a redirection has no target")
    if not frame.words:
        raise Unparsed("a command is missing")
    name = frame.words[0]
    if not name.text or name.is_glob:
        raise Unparsed("the name of the program is empty or has a wildcard")
    if name.text in KEYWORDS:
        raise Unparsed(f"{name.text} is a keyword of the shell")


def _ansi_letter(escape: re.Match[str]) -> str:
    sixteen, eight, other = escape.groups()
    if sixteen or eight:
        return chr(int(sixteen, 16) if sixteen else int(eight, 8))
    return str(other)
