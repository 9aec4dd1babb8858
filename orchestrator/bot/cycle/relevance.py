"""Selects the files for the first message: ranked by relevance to the task, and all of them as a map."""

from __future__ import annotations

import heapq
import math
import re
from collections import Counter, defaultdict
from dataclasses import dataclass
from functools import lru_cache
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

from orchestrator.core.errors import ToolError
from orchestrator.core.prompts import fenced, shown_path
from orchestrator.engine.profiles.base import OTHER_DOCUMENTS, counting_documents, documents_in_rule_folders
from orchestrator.engine.tools.textfile import decode_text

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence

    from orchestrator.bot.git.base import TrackedFile

_IDENTIFIER = re.compile(r"[^\W\d]\w*")
_PART = re.compile(r"(?:[A-Z](?![a-z]))+|[A-Z]?[a-z]+|[^\W\d_A-Za-z]+")
_MENTION = re.compile(r"[\w@+-]+(?:[./\\][\w@+-]+)*")
_CODE = re.compile(r"`([^`\n]{1,200})`")
_CODE_WORD = re.compile(r"\b(?:[a-z]+[A-Z]\w*|[A-Z][a-z0-9]+[A-Z]\w*|\w*[^\W_]_[^\W_]\w*|[^\W\d]\w*(?=\(\)))")
_DEFINITION = r"\b(?:class|const|def|enum|fn|func|function|interface|let|struct|trait|type|var)\s+{}\b"
_TEST_AFFIX = re.compile(r"^tests?[_.-]|[_.-](?:tests?|spec)$|(?<=[a-z0-9])Tests?$|^Test(?=[A-Z])")
# Words that say nothing about which file is meant.
_STOP_WORDS = frozenset(
    re.findall(
        r"\w+",
        "a an and are as at be but by can do does for from has have i if in is it its must no not of on or please "
        "should so that the their then there this to todo use was we when which will with would you",
    )
)
_SHORTEST_WORD = 2

# How much each kind of mention weighs, against at most `_MOST_FOR_WORDS` for shared words.
_FOR_PATH, _FOR_NAME, _FOR_TEST, _FOR_DEFINITION, _FOR_STEM = 100.0, 80.0, 60.0, 50.0, 50.0
_FOR_COMMON_NAME = 20.0
_MOST_FOR_WORDS = 40.0
_COMMON = 5
"""Most files that may share a name before the name identifies none of them."""

# The usual constants of BM25: Robertson and Zaragoza, "The Probabilistic Relevance Framework" (2009).
_K1, _B = 1.2, 0.75
_PATH_WEIGHT = 4


@dataclass(frozen=True, slots=True)
class Query:
    """The search terms of a task: word frequencies, mentioned paths and names, and code words."""

    words: Mapping[str, int]
    mentions: frozenset[str]
    code_words: frozenset[str]


def query_of(title: str, body: str) -> Query:
    """Extract the search terms of a task. Its title counts twice."""
    words: Counter[str] = Counter()
    for text, weight in ((title, 2), (body, 1)):
        for identifier in _IDENTIFIER.findall(text):
            for word in split_identifier(identifier):
                words[word] += weight
    text = f"{title}\n{body}"
    quoted = " ".join(_CODE.findall(text))
    code_words = frozenset(_CODE_WORD.findall(text)) | frozenset(_IDENTIFIER.findall(quoted))
    mentions = frozenset(mention.replace("\\", "/").removeprefix("./") for mention in _MENTION.findall(text))
    return Query(words, mentions, code_words)


@lru_cache(maxsize=20_000)
def split_identifier(identifier: str) -> tuple[str, ...]:
    """Return the words in an identifier, in lower case: itself, and its parts by `_` and camelCase."""
    parts = [part.lower() for part in _PART.findall(identifier)]
    words = dict.fromkeys([identifier.lower(), *parts])
    return tuple(word for word in words if len(word) >= _SHORTEST_WORD and word not in _STOP_WORDS)


def named_files(query: Query, paths: Iterable[str]) -> dict[str, float]:
    """Return the files that a task names, and the tests of modules that it names, with weights."""
    names = _Names(paths)
    scores: dict[str, float] = {}
    for mention in query.mentions:
        names.score_mention(mention, scores)
    for word in query.code_words:
        _raise_to(scores, names.by_stem.get(word.lower(), ()), _FOR_STEM)
    for path in [path for path, score in scores.items() if score > _FOR_COMMON_NAME]:
        stem = PurePosixPath(path).stem
        subject = _TEST_AFFIX.sub("", stem)
        relatives = (
            names.tests_of.get(stem.lower(), [])
            if subject == stem
            else names.by_stem.get(subject.lower(), [])
        )
        _raise_to(scores, relatives, _FOR_TEST)
    return scores


class _Names:
    """Index of a repository's files by name."""

    def __init__(self, paths: Iterable[str]) -> None:
        self.all = frozenset(paths)
        self.by_name: dict[str, list[str]] = defaultdict(list)
        self.by_stem: dict[str, list[str]] = defaultdict(list)
        self.tests_of: dict[str, list[str]] = defaultdict(list)
        for path in sorted(self.all):
            name = path.rpartition("/")[2]
            stem = PurePosixPath(name).stem
            self.by_name[name].append(path)
            self.by_stem[stem.lower()].append(path)
            subject = _TEST_AFFIX.sub("", stem)
            if subject != stem:
                self.tests_of[subject.lower()].append(path)

    def score_mention(self, mention: str, scores: dict[str, float]) -> None:
        if mention in self.all:
            _raise_to(scores, [mention], _FOR_PATH)
        name = mention.rpartition("/")[2]
        if "." in name:
            same = [path for path in self.by_name.get(name, ()) if f"/{path}".endswith(f"/{mention}")]
            _raise_to(scores, same, _FOR_NAME)
        if "." in mention and "/" not in mention:
            self._score_module(mention.split("."), scores)

    def _score_module(self, parts: list[str], scores: dict[str, float]) -> None:
        """Score the file of `package.module` or `package.module.function`, using the longest part that is a file."""
        for length in range(len(parts), 1, -1):
            tail = "/".join(parts[:length])
            same = [
                path
                for path in self.by_stem.get(parts[length - 1].lower(), ())
                if f"/{PurePosixPath(path).with_suffix('')}".endswith(f"/{tail}")
            ]
            if same:
                _raise_to(scores, same, _FOR_NAME)
                return


def _raise_to(scores: dict[str, float], paths: Sequence[str], weight: float) -> None:
    """Raise the scores of files to a weight, or to a low one if there are too many of them to be meant."""
    weight = weight if len(paths) <= _COMMON else _FOR_COMMON_NAME
    for path in paths:
        scores[path] = max(scores.get(path, 0.0), weight)


def path_overlap(query: Query, path: str) -> int:
    """Count the task's words in a path."""
    return len(_words_in(path) & query.words.keys())


def _words_in(path: str) -> set[str]:
    return {word for identifier in _IDENTIFIER.findall(path) for word in split_identifier(identifier)}


def word_scores(query: Query, texts: Mapping[str, str]) -> dict[str, float]:
    """Score how well each text matches the task's words, from 0 to 90: BM25, with a bonus for definitions."""
    counts = {path: _counts(query, path, text) for path, text in texts.items()}
    found_in = Counter(word for words in counts.values() for word in words)
    mean_length = sum(map(len, texts.values())) / max(len(texts), 1) or 1.0
    scores = {}
    for path, words in counts.items():
        length = _K1 * (1 - _B + _B * len(texts[path]) / mean_length)
        scores[path] = sum(
            min(query.words[word], 3)
            * math.log(1 + (len(texts) - found_in[word] + 0.5) / (found_in[word] + 0.5))
            * count * (_K1 + 1) / (count + length)
            for word, count in words.items()
        )  # fmt: skip
    best = max(scores.values(), default=0.0) or 1.0
    scores = {path: score / best * _MOST_FOR_WORDS for path, score in scores.items()}
    for path in _defining(query, texts):
        scores[path] += _FOR_DEFINITION
    return scores


def _counts(query: Query, path: str, text: str) -> dict[str, int]:
    counts = dict.fromkeys(_words_in(path) & query.words.keys(), _PATH_WEIGHT)
    for identifier, times in Counter(_IDENTIFIER.findall(text)).items():
        for word in split_identifier(identifier):
            if word in query.words:
                counts[word] = counts.get(word, 0) + times
    return counts


def _defining(query: Query, texts: Mapping[str, str]) -> set[str]:
    """Return the files that define a code word of the task, unless there are many of them."""
    found: set[str] = set()
    for word in query.code_words:
        pattern = re.compile(_DEFINITION.format(re.escape(word)))
        there = [path for path, text in texts.items() if word in text and pattern.search(text)]
        if len(there) <= _COMMON:
            found.update(there)
    return found


NAMES = "the names of files"
"""Files that are judged by their names, because they have no text."""
_MOST_SCORED = 300
_MOST_SCORED_CHARS = 1_000_000
_HEADING_CHARS = 20
"""Most characters that the template adds around a file's path and text."""
_WORTH_SHOWING = 0.25
"""Least score, as a share of the best one, of a file that is shown."""
_LANGUAGES = {
    "py": "python",
    "js": "javascript",
    "ts": "typescript",
    "rb": "ruby",
    "rs": "rust",
    "md": "markdown",
}
_FOR_SOURCE = 1_000.0
"""Higher than any score by words and name."""


@dataclass(frozen=True, slots=True)
class ShownFile:
    """A file in the form that the template shows."""

    path: str
    block: str

    @property
    def chars(self) -> int:
        """The number of characters that it takes in the message."""
        return len(self.path) + len(self.block) + _HEADING_CHARS


class Library:
    """The files that can be shown. Each is read once.

    Args:
        restored: files that an earlier cycle wrote. They are never instructions, because a model wrote them.
        links: links of the repository, each with the file of it that it leads to.

    Attributes:
        instructions: the instruction files, by the names that they have in their folders.
    """

    def __init__(  # noqa: PLR0913, PLR0917  what there is, and how it is read
        self,
        files: Sequence[TrackedFile],
        read: Callable[[str, int], Awaitable[bytes]],
        documents: Sequence[str],
        visible: Callable[[str, str], str],
        restored: Collection[str] = (),
        links: Mapping[str, str] | None = None,
    ) -> None:
        links = links or {}
        shown = _plainly_named([file for file in files if may_show(file)], visible)
        rules = documents_in_rule_folders(file.path for file in files if file.kind == "file")
        self.documents = (*documents, *OTHER_DOCUMENTS, *rules) if documents else ()
        self.known = {file.path for file in files if file.kind == "file"}.difference(restored)
        here = {path: path for path in self.known} | {
            link: to for link, to in links.items() if to in self.known
        }
        counting = counting_documents(
            [file.path for file in files if file.kind == "file"] + [*links], documents
        )
        self.instructions = {name: here[name] for name in counting if name in here}
        instructing = {*counting, *self.instructions.values()}
        self.files = {file.path: file for file in shown if file.path not in instructing}
        self._read, self._visible = read, visible
        self._texts: dict[str, str | None] = {}

    async def text(self, path: str) -> str | None:
        """Return the file's text, or None if it cannot be shown."""
        if path not in self._texts:
            try:
                self._texts[path] = shown_text(await self._read(path, LARGEST_SHOWN_BYTES))
            except ToolError:
                self._texts[path] = None
        return self._texts[path]

    async def page(self, path: str) -> str | None:
        """Return the file's sanitized text, or None if it cannot be shown."""
        text = await self.text(path)
        return None if text is None else self._visible(path, text)


def _plainly_named(files: Sequence[TrackedFile], visible: Callable[[str, str], str]) -> list[TrackedFile]:
    """Return the files whose names need no sanitizing. The others appear in the map only."""
    names = [file.path for file in files]
    seen = visible(NAMES, "\n".join(names)).split("\n")
    if len(seen) != len(names):
        return []
    return [file for file, name in zip(files, seen, strict=True) if file.path == name]


async def most_likely(title: str, body: str, source: str, library: Library) -> list[str]:
    """Return the files that a task names, then the best matches of its words. `source` may be the task's own file."""
    query = query_of(title, body)
    scores = named_files(query, library.files)
    if source in library.files:
        scores[source] = _FOR_SOURCE
    texts: dict[str, str] = {}
    left = _MOST_SCORED_CHARS
    by_name = sorted(
        library.files, key=lambda path: (-scores.get(path, 0.0), -path_overlap(query, path), path)
    )
    for path in by_name[:_MOST_SCORED]:
        if left <= 0:
            break
        if (text := await library.text(path)) is not None:
            texts[path] = text
            left -= len(text)
    by_words = word_scores(query, texts)
    least = max(by_words.values(), default=0.0) * _WORTH_SHOWING
    total = {
        path: scores.get(path, 0.0) + score for path, score in by_words.items() if score or path in scores
    }
    likely = [path for path in total if path in scores or by_words[path] >= least]
    return sorted(likely, key=lambda path: (-total[path], path))


def _language(path: str) -> str:
    """Return the name of a file's language for a Markdown fence."""
    suffix = path.rpartition("/")[2].rpartition(".")[2]
    return _LANGUAGES.get(suffix, suffix if suffix.isalnum() and suffix.isascii() else "")


async def pages_within(
    library: Library, order: Sequence[str], budget: int, *, languages: bool = False
) -> list[ShownFile]:
    """Return as many complete files as fit, in this order. `languages` adds the language to each fence."""
    pages: list[ShownFile] = []
    left = budget
    for path in order:
        if library.files[path].size > 4 * left:  # UTF-8 has at most four bytes a character
            continue
        text = await library.page(path)
        if text is None:
            continue
        page = ShownFile(path, fenced(text, _language(path) if languages else ""))
        if page.chars <= left:
            pages.append(page)
            left -= page.chars
    return pages


LARGEST_SHOWN_BYTES = 200_000
_LONGEST_LINE_CHARS = 5_000
_KILO = 1_000
# Names of files that hold no text, or text that no person wrote.
_UNREADABLE_NAME = re.compile(
    r"(?:\.(?:7z|a|avif|bin|bmp|bz2|class|db|dll|dylib|eot|exe|gif|gz|ico|jar|jpeg|jpg|lib|mo|mov|mp[34]|npy|o|ogg"
    r"|onnx|otf|parquet|pdf|pkl|png|pyc|so|sqlite|svgz|tar|tgz|tiff?|ttf|wasm|wav|web[mp]|whl|woff2?|xlsx?|xz|zip|zst"
    r"|lock|lockb|lockfile|min\.(?:js|mjs|css)|map)"
    r"|^(?:go\.sum|npm-shrinkwrap\.json|(?:package-lock|packages\.lock)\.json|pnpm-lock\.yaml))$"
)


def may_show(file: TrackedFile) -> bool:
    """Return whether the file is probably text written by a person, judged by name and size."""
    name = file.path.rpartition("/")[2].lower()
    return (
        file.kind == "file"
        and 0 < file.size <= LARGEST_SHOWN_BYTES
        and not _UNREADABLE_NAME.search(name)
        and shown_path(file.path) == file.path
    )


def shown_text(content: bytes) -> str | None:
    """Return the text of a file; None if it is binary, generated, or in an encoding that is not sure."""
    try:
        text = decode_text("", content).text.replace("\r\n", "\n")
    except ToolError:
        return None
    return None if max(map(len, text.split("\n"))) > _LONGEST_LINE_CHARS else text


def size_words(size: int) -> str:
    """Return a size in bytes in words for a person."""
    if size < _KILO:
        return f"{size} B"
    return f"{size / _KILO:.1f} kB" if size < _KILO * _KILO else f"{size / _KILO / _KILO:.1f} MB"


def repository_map(files: Sequence[TrackedFile], limit_chars: int) -> tuple[str, int]:
    """List all files with their sizes, one per line; folders that do not fit become one line.

    Returns:
        The lines, at most `limit_chars` characters together, and the number of files without a line.
    """
    tree = _Map(files, limit_chars)
    # Folders near the root are opened first, and of those the ones with the fewest files.
    waiting = [(0, 0, "")]
    too_large: list[str] = []
    while waiting:
        _, _, folder = heapq.heappop(waiting)
        if not tree.open(folder):
            too_large.append(folder)
            continue
        for child in tree.folders[folder]:
            heapq.heappush(waiting, (child.count("/"), tree.count[child], child))
    for folder in too_large:
        tree.fill(folder)
    return "\n".join(tree.lines[path] for path in sorted(tree.lines)), len(files) - tree.listed


class _Map:
    """The files of a repository by folder, and the lines of its map.

    Attributes:
        folders: the folders in each folder. The path of the root is empty, others end with `/`.
        count: the number of files below each folder.
        lines: the map's lines, by path.
        listed: the number of files with a line.
    """

    def __init__(self, files: Iterable[TrackedFile], limit_chars: int) -> None:
        self.folders: dict[str, dict[str, None]] = defaultdict(dict)
        self.count: dict[str, int] = defaultdict(int)
        self.lines: dict[str, str] = {}
        self.listed = 0
        self._left = limit_chars
        self._files: dict[str, dict[str, str]] = defaultdict(dict)
        self._size: dict[str, int] = defaultdict(int)
        for file in files:
            folder = file.path[: file.path.rfind("/") + 1]
            note = size_words(file.size) if file.kind == "file" else file.kind
            self._files[folder][file.path] = f"{shown_path(file.path)} ({note})"
            while folder:
                self.count[folder] += 1
                self._size[folder] += file.size
                above = folder[: folder.rfind("/", 0, -1) + 1]
                self.folders[above][folder] = None
                folder = above

    def open(self, folder: str) -> bool:
        """Replace a folder's line by its content, if all of it fits."""
        content = self._content(folder)
        own = len(self.lines[folder]) + 1 if folder in self.lines else 0
        cost = sum(len(line) + 1 for line in content.values()) - own
        if cost > self._left:
            return False
        self.lines.pop(folder, None)
        self.lines.update(content)
        self._left -= cost
        self.listed += len(self._files[folder])
        return True

    def fill(self, folder: str) -> None:
        """Add as much of a folder's content as fits, below the folder's own line."""
        for path, line in self._content(folder).items():
            if len(line) + 1 > self._left:
                return
            self.lines[path] = line
            self._left -= len(line) + 1
            self.listed += not path.endswith("/")

    def _content(self, folder: str) -> dict[str, str]:
        """Return one line for each file and each folder in a folder."""
        lines = dict(self._files[folder])
        for child in self.folders[folder]:
            files = "1 file" if self.count[child] == 1 else f"{self.count[child]} files"
            lines[child] = f"{shown_path(child)} ({files}, {size_words(self._size[child])})"
        return lines
