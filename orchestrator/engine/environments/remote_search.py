"""`grep` and `glob` on the other side: candidates are found there, and decided here by the local rules."""

from __future__ import annotations

import asyncio
import re
import shlex
from typing import TYPE_CHECKING

from orchestrator.core.errors import FileMissingError, FileUnreadableError, ToolError
from orchestrator.engine.environments import remote_scripts as scripts
from orchestrator.engine.environments.base import GrepMatch
from orchestrator.engine.environments.globs import PathPattern
from orchestrator.engine.environments.ignored import MAX_RULES_BYTES, IgnoreRules
from orchestrator.engine.environments.query import (
    MAX_FILE_BYTES,
    Search,
    check_pattern,
    cut_line,
    invalid_pattern,
    rules_for,
    too_slow,
)
from orchestrator.engine.environments.remote_tree import SEARCH_SECONDS, spelled
from orchestrator.engine.environments.ripgrep import (
    MAX_JSON_LINE_BYTES,
    TROUBLE,
    complain,
    matches_in,
    ripgrep_arguments,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from orchestrator.engine.environments.base import GrepOptions
    from orchestrator.engine.environments.remote_tree import Answer, Found, RemoteTree

_BAD_PATTERN = 49
_IGNORE_FILE = ".gitignore"
_UNTRANSLATABLE = re.compile(r"\(\?|\\[pPkAzZG]|[*+?}][?+]")
_CLASSES = {"d": "0-9", "s": "[:space:]", "w": "[:alnum:]_"}


class _FetchedFiles:
    """The `.gitignore` files that were brought over, in the form that `IgnoreRules` asks for."""

    def __init__(self, contents: Mapping[tuple[str, ...], bytes]) -> None:
        self._contents = contents

    def read_names(self, names: tuple[str, ...], *, max_bytes: int) -> bytes:
        content = self._contents.get(names)
        if content is None or len(content) > max_bytes:
            raise FileMissingError(f"{spelled(names)} does not exist")
        return content


async def glob_there(tree: RemoteTree, pattern: str, path: str) -> list[str]:
    """See `search.glob_files`."""
    wanted = PathPattern.for_paths(pattern)
    base = tree.split(path)
    files = [found for found in await tree.below(path) if found.kind == "f"]
    rules = await _rules(tree, base, files)
    kept = [
        (-found.modified, spelled(found.names))
        for found in files
        if wanted.matches(found.names[len(base) :])
        and not (rules is not None and rules.ignored(found.names, is_dir=False))
    ]
    return [name for _, name in sorted(kept)]


async def grep_there(tree: RemoteTree, pattern: str, path: str, options: GrepOptions) -> list[GrepMatch]:
    """See `search.grep`. Without ripgrep there, `grep -E` searches, with its simpler expressions.

    Raises:
        ToolError: the expression is invalid or not known to `grep -E`, or the time limit passed.
    """
    check_pattern(pattern)
    kind = await tree.kind(path)
    if kind not in {"f", "d"}:
        raise FileUnreadableError(f"{path} is neither a file nor a folder")
    base, is_file = tree.split(path), kind == "f"
    wanted = PathPattern.for_filter(options.glob_filter) if options.glob_filter else None
    files = [] if is_file else [found for found in await tree.below(path) if found.kind == "f"]
    rules = None if is_file else await _rules(tree, base, files)
    search = Search(pattern, options, base, is_file, rules, wanted)
    if tree.facts.ripgrep:
        return await _with_ripgrep(tree, search)
    return await _with_grep(tree, search, files)


async def _with_ripgrep(tree: RemoteTree, search: Search) -> list[GrepMatch]:
    command = shlex.join([tree.facts.ripgrep, *ripgrep_arguments(search)])
    answer = await _ask(tree, search, scripts.RIPGREP, command=command)
    output = asyncio.StreamReader(limit=MAX_JSON_LINE_BYTES)
    output.feed_data(answer.stdout[: answer.stdout.rfind(b"\n") + 1])  # a cut line is no JSON
    output.feed_eof()
    found = [match async for match in matches_in(output, search)]
    if answer.ending.exit_code == TROUBLE and not found:
        complain(answer.stderr.decode("utf-8", "replace"))
    return found[: search.options.max_results]


async def _with_grep(tree: RemoteTree, search: Search, files: Sequence[Found]) -> list[GrepMatch]:
    accepted = [
        found.names for found in files if found.size <= MAX_FILE_BYTES and search.accepts(found.names)
    ]
    paths = [search.base] if search.is_file else accepted
    most = search.options.max_results
    answer = await _ask(
        tree,
        search,
        scripts.GREP,
        data=_listed(paths),
        pattern=to_extended(search.pattern),
        most=str(most),
        case="-i" if search.options.case_insensitive else "",
    )
    if answer.ending.exit_code == _BAD_PATTERN:
        raise invalid_pattern(answer.stdout.decode("utf-8", "replace").strip().removeprefix("grep: "))
    return list(_grep_lines(answer.stdout))[:most]


async def _ask(
    tree: RemoteTree, search: Search, script: str, *, data: bytes = b"", **variables: str
) -> Answer:
    answer = await tree.ask(search.base, script, variables, data=data, seconds=SEARCH_SECONDS)
    if answer.ending.timed_out:
        raise too_slow()
    if answer.ending.exit_code in scripts.VERDICTS:
        raise scripts.refusal(answer.ending.exit_code, spelled(search.base), "searched")
    return answer


async def _rules(tree: RemoteTree, base: tuple[str, ...], files: Sequence[Found]) -> IgnoreRules | None:
    above = [(*base[:depth], _IGNORE_FILE) for depth in range(len(base))]
    paths = above + [found.names for found in files if found.names[-1] == _IGNORE_FILE]
    limit = {"limit": str(MAX_RULES_BYTES + 1)}
    answer = await tree.ask((), scripts.FETCH, limit, data=_listed(paths), seconds=SEARCH_SECONDS)
    if answer.ending.timed_out or answer.cut:
        raise too_slow()
    return rules_for(_FetchedFiles(dict(_fetched(answer.stdout))), base)


def _listed(paths: Sequence[tuple[str, ...]]) -> bytes:
    return b"".join(b"./" + "/".join(names).encode("utf-8", "surrogateescape") + b"\0" for names in paths)


def _names(path: bytes) -> tuple[str, ...]:
    return tuple(path.decode("utf-8", "surrogateescape").removeprefix("./").split("/"))


def _fetched(stream: bytes) -> Iterator[tuple[tuple[str, ...], bytes]]:
    start = 0
    while (end := stream.find(b"\0", start)) >= 0:
        size, _, path = stream[start:end].partition(b" ")
        start = end + 1 + int(size)
        yield _names(path), stream[end + 1 : start]


def _grep_lines(stream: bytes) -> Iterator[GrepMatch]:
    pieces = stream.split(b"\0")
    for path, lines in zip(pieces[0:-1:2], pieces[1::2], strict=False):
        for line in lines.decode("utf-8", "replace").removesuffix("\n").split("\n"):
            number, _, text = line.partition(":")
            if number.isdecimal():
                yield GrepMatch(spelled(_names(path)), int(number), cut_line(text.removesuffix("\r")))


def to_extended(pattern: str) -> str:
    r"""The expression for `grep -E`: `\d`, `\s`, `\w` and their opposites are written out, `(?:` becomes `(`.

    Raises:
        ToolError: it uses what `grep -E` does not have.
    """
    pattern = pattern.replace("(?:", "(")
    if _UNTRANSLATABLE.search(re.sub(r"\\[^pPkAzZG]", "..", pattern)):
        raise ToolError(
            "this expression needs ripgrep, which is not installed there: do without (?...), lazy "
            r"repeats and \p{...}"
        )
    done, in_class, position = [], False, 0
    while position < len(pattern):
        char = pattern[position]
        following = pattern[position + 1 : position + 2]
        if char == "\\" and following:
            done.append(_escape(following, in_class=in_class))
            position += 2
            continue
        if char in "[]":
            in_class = char == "["
        done.append(char)
        position += 1
    return "".join(done)


def _escape(char: str, *, in_class: bool) -> str:
    inner = _CLASSES.get(char.lower())
    if inner is None:
        return {"t": "\t"}.get(char, char if in_class else f"\\{char}")
    if in_class:
        return inner
    return f"[^{inner}]" if char.isupper() else f"[{inner}]"
