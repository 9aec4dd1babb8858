"""`pullwright help` and `completion`: a short page, a manual page and shell completion, from the parser."""

from __future__ import annotations

import argparse
import shutil
import textwrap
from typing import TYPE_CHECKING, NamedTuple

from orchestrator.app.cli.arguments import DONE, MEANINGS, build_parser, short_help, subparsers
from orchestrator.app.cli.commands import commands, commands_in_groups
from orchestrator.app.terminal import print_fixed
from orchestrator.bot.suggestions import PROGRAM
from orchestrator.core.version import __version__

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

_FIRST = "Takes a task from a backlog, changes the repository, opens a pull request."
_BEGIN_WITH = {
    "pullwright run --demo": "try it: no key, no network",
    "pullwright init": "set this repository up",
    "pullwright run --repo . --task 'Fix ...'": "one task, or owner/name on GitHub",
}
_ROFF_CHARS = 70
_MAN_DATE = "2026-11-23"
_PATHS = frozenset({"REPO", "FILE", "PATH", "CONFIG"})


def help(options: argparse.Namespace) -> int:  # noqa: A001  the command's name
    """Print the short page, the help of a command, or the manual page."""
    if options.man:
        print_fixed(manual())
    elif options.topic:
        parser = subparsers(build_parser(options.topic))[options.topic]
        print_fixed(parser.format_help() if options.all else short_help(parser))
    else:
        print_fixed(short_page())
    return DONE


def completion(options: argparse.Namespace) -> int:
    """Print a completion script for a shell."""
    write = {"bash": _bash, "zsh": _zsh, "fish": _fish}[options.shell]
    print_fixed("\n".join(write(_commands())) + "\n")
    return DONE


def short_page() -> str:
    """Return the commands in groups, on one screen."""
    columns = shutil.get_terminal_size().columns
    first = textwrap.fill(_FIRST, columns, break_on_hyphens=False)
    width = max(map(len, _BEGIN_WITH))
    beside = [f"  {command:{width}}   {text}" for command, text in _BEGIN_WITH.items()]
    below = [line for command, text in _BEGIN_WITH.items() for line in (f"  {command}", f"      {text}")]
    last = "\n".join(beside if max(map(len, beside)) <= columns else below)
    return f"{first}\n{commands_in_groups()}\nbegin with:\n{last}\n"


# The commands and flags of the parser.


class _Flag(NamedTuple):
    names: tuple[str, ...]
    text: str
    metavar: str
    values: tuple[str, ...]

    @property
    def is_path(self) -> bool:
        return self.metavar in _PATHS


class _Command(NamedTuple):
    name: str
    text: str
    flags: tuple[_Flag, ...]
    words: tuple[str, ...]
    """Possible first arguments: the command's actions, or the choices of its argument."""


def _commands() -> list[_Command]:
    return [_command(name, parser) for name, parser in subparsers(build_parser()).items()]


def _command(name: str, parser: argparse.ArgumentParser) -> _Command:
    flags: dict[str, _Flag] = {}
    words: list[str] = []
    for action in parser._actions:  # noqa: SLF001  argparse has no public way to list them
        if not action.option_strings:
            words += action.choices or ()
        elif action.help != argparse.SUPPRESS:
            flag = _flag(action)
            flags[flag.names[0]] = flag
    for one in subparsers(parser).values():
        flags |= {flag.names[0]: flag for flag in _command("", one).flags}
    text = commands()[name].text if name else ""
    return _Command(name, text, tuple(flags.values()), tuple(words))


def _flag(action: argparse.Action) -> _Flag:
    metavar = str(action.metavar or "") if action.nargs != 0 else ""
    values = tuple(metavar.split("|")) if "|" in metavar else ()
    return _Flag(tuple(action.option_strings), (action.help or "").replace("%%", "%"), metavar, values)


def _bash(commands: list[_Command]) -> Iterator[str]:
    yield "# Completion of bash; made by `pullwright completion bash`. To use it: source <(pullwright completion bash)"
    yield "_pullwright() {"
    yield "    local current=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]} command= words= i"
    yield "    for ((i = 1; i < COMP_CWORD; i++)); do"
    yield "        if [[ ${COMP_WORDS[i]} != -* ]]; then command=${COMP_WORDS[i]}; break; fi"
    yield "    done"
    yield "    case $command in"
    yield f"        '') words='{' '.join(one.name for one in commands)} --help --version' ;;"
    for one in commands:
        names = " ".join((*one.words, *(name for flag in one.flags for name in flag.names)))
        yield f"        {one.name}) words='{names}'"
        yield "            case $previous in"
        for flag in one.flags:
            if flag.values:
                yield f"                {'|'.join(flag.names)}) words='{' '.join(flag.values)}' ;;"
            elif flag.is_path:
                yield f'                {"|".join(flag.names)}) COMPREPLY=($(compgen -f -- "$current")); return ;;'
            elif flag.metavar:
                yield f"                {'|'.join(flag.names)}) return ;;"
        yield "            esac ;;"
    yield "    esac"
    yield '    COMPREPLY=($(compgen -W "$words" -- "$current"))'
    yield "}"
    yield f"complete -o filenames -F _pullwright {PROGRAM}"


def _zsh(commands: list[_Command]) -> Iterator[str]:
    yield f"#compdef {PROGRAM}"
    yield "# Completion of zsh; made by `pullwright completion zsh`. To use it: source <(pullwright completion zsh)"
    yield "_pullwright() {"
    yield "    local state line"
    yield "    local -a commands=("
    yield from (f"        {_quoted(f'{one.name}:{one.text}')}" for one in commands)
    yield "    )"
    yield "    _arguments -C '--help[print help]' '--version[print the version]' '1: :->command' '*:: :->rest'"
    yield "    case $state in"
    yield "        command) _describe command commands ;;"
    yield "        rest) case $line[1] in"
    for one in commands:
        specs = [_quoted(_zsh_flag(name, flag)) for flag in one.flags for name in flag.names]
        if one.words:
            specs.append(_quoted(f"1:argument:({' '.join(one.words)})"))
        yield f"            {one.name}) _arguments {' '.join(specs)} ;;"
    yield "        esac ;;"
    yield "    esac"
    yield "}"
    yield f"compdef _pullwright {PROGRAM}"


def _zsh_flag(name: str, flag: _Flag) -> str:
    text = flag.text.replace("\\", "").replace("[", "(").replace("]", ")").replace(":", " -")
    spec = f"{name}[{text}]"
    if not flag.metavar:
        return spec
    action = f"({' '.join(flag.values)})" if flag.values else "_files" if flag.is_path else " "
    return f"{spec}:{flag.metavar if not flag.values else 'value'}:{action}"


def _fish(commands: list[_Command]) -> Iterator[str]:
    yield "# Completion of fish; made by `pullwright completion fish`. To use it: pullwright completion fish | source"
    start = f"complete -c {PROGRAM}"
    yield f"{start} -f"
    yield f"{start} -n __fish_use_subcommand -l help -d 'print help'"
    yield f"{start} -n __fish_use_subcommand -l version -d 'print the version'"
    for one in commands:
        yield f"{start} -n __fish_use_subcommand -a {one.name} -d {_quoted(one.text)}"
    for one in commands:
        here = f"{start} -n '__fish_seen_subcommand_from {one.name}'"
        if one.words:
            yield f"{here} -a {_quoted(' '.join(one.words))}"
        for flag in one.flags:
            names = " ".join(
                f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" for name in flag.names
            )
            takes = (
                f" -xa {_quoted(' '.join(flag.values))}" if flag.values else " -rF" if flag.is_path else " -x"
            )
            yield f"{here} {names}{takes if flag.metavar else ''} -d {_quoted(flag.text)}"


def _quoted(text: str) -> str:
    """Quote text for zsh and fish.

    Quotes and backslashes are replaced, because the two shells treat them differently inside single quotes.
    """
    return "'" + text.replace("'", '"').replace("\\", "/") + "'"


# The manual page, in the macros of man(7).


def manual() -> str:
    """Return the manual page as roff."""
    return "\n".join(_manual()) + "\n"


def _manual() -> Iterator[str]:
    yield f'.TH {PROGRAM.upper()} 1 "{_MAN_DATE}" "{PROGRAM} {__version__}" "User Commands"'
    yield ".SH NAME"
    yield f"{PROGRAM} \\- a bot that opens pull requests from a backlog"
    yield ".SH SYNOPSIS"
    yield f".B {PROGRAM}"
    yield ".I COMMAND"
    yield "[\\fIFLAG\\fR ...]"
    yield ".SH COMMANDS"
    yield from _terms((one.name, one.text) for one in _commands())
    for one in _commands():
        if one.flags:
            yield f".SH OPTIONS OF {one.name.upper()}"
            yield from _terms(
                (f"{', '.join(flag.names)}{f' {flag.metavar}' if flag.metavar else ''}", flag.text)
                for flag in one.flags
            )
    yield ".SH EXIT STATUS"
    yield from _terms((str(code), text) for code, text in MEANINGS.items())
    yield ".SH FILES"
    yield from _terms(
        (
            ("pullwright.toml", "options of this folder; on a repository's default branch, its rules"),
            ("config.toml", "your own options, in the platform's folder of configuration"),
        )
    )


def _terms(terms: Iterable[tuple[str, str]]) -> Iterator[str]:
    import textwrap

    for term, text in terms:
        yield ".TP"
        yield f"\\fB{_roff(term)}\\fR"
        yield from map(_roff, textwrap.wrap(text or "See above.", _ROFF_CHARS, break_on_hyphens=False))


def _roff(line: str) -> str:
    escaped = line.replace("\\", "\\e").replace("-", "\\-")
    return f"\\&{escaped}" if escaped.startswith((".", "'")) else escaped
