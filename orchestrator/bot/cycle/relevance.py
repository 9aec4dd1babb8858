"""Ranks files by how likely a task concerns them: by what it names, then by the words it shares with them."""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

_IDENTIFIER = re.compile(r"[^\W\d]\w*")
_PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[^\W\d_A-Za-z]+")
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
"""A name that more files than this share points at none of them."""

# The usual constants of BM25: Robertson and Zaragoza, "The Probabilistic Relevance Framework" (2009).
_K1, _B = 1.2, 0.75
_PATH_WEIGHT = 4


@dataclass(frozen=True, slots=True)
class Query:
    """What a task says: how often each word, the paths and names it mentions, and its code words."""

    words: Mapping[str, int]
    mentions: frozenset[str]
    code_words: frozenset[str]


def query_of(title: str, body: str) -> Query:
    """Read a task. Its title counts twice."""
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
    """The words in an identifier, lower case: itself, and its parts by `_` and camelCase."""
    parts = [part.lower() for part in _PART.findall(identifier)]
    words = dict.fromkeys([identifier.lower(), *parts])
    return tuple(word for word in words if len(word) >= _SHORTEST_WORD and word not in _STOP_WORDS)


def named_files(query: Query, paths: Sequence[str]) -> dict[str, float]:
    """The files that a task names, and the tests of the modules that it names, with their weight."""
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


@dataclass(slots=True)
class _Names:
    """The files of a repository by their names."""

    paths: Sequence[str]
    all: frozenset[str] = field(init=False)
    by_name: dict[str, list[str]] = field(init=False)
    by_stem: dict[str, list[str]] = field(init=False)
    tests_of: dict[str, list[str]] = field(init=False)

    def __post_init__(self) -> None:
        self.all = frozenset(self.paths)
        self.by_name, self.by_stem, self.tests_of = defaultdict(list), defaultdict(list), defaultdict(list)
        for path in self.paths:
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
        """`package.module` or `package.module.function`: the file of the longest part that is one."""
        for length in range(len(parts), 1, -1):
            tail = "/".join(parts[:length])
            same = [
                path for path in self.by_stem.get(parts[length - 1].lower(), ()) if _is_module(path, tail)
            ]
            if same:
                return _raise_to(scores, same, _FOR_NAME)
        return None


def _is_module(path: str, tail: str) -> bool:
    without_suffix = path.removesuffix(PurePosixPath(path).suffix)
    return f"/{without_suffix}".endswith(f"/{tail}")


def _raise_to(scores: dict[str, float], paths: Iterable[str], weight: float) -> None:
    same = list(paths)
    weight = weight if len(same) <= _COMMON else _FOR_COMMON_NAME
    for path in same:
        scores[path] = max(scores.get(path, 0.0), weight)


def path_overlap(query: Query, path: str) -> int:
    """How many of the task's words are in a path."""
    return len(_words_in(path) & query.words.keys())


def _words_in(path: str) -> set[str]:
    return {word for identifier in _IDENTIFIER.findall(path) for word in split_identifier(identifier)}


def word_scores(query: Query, texts: Mapping[str, str]) -> dict[str, float]:
    """How well each text matches the task's words, from 0 to 90: BM25, and more for what is defined there."""
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
    """The files in which a code word of the task is defined, unless there are many of them."""
    found: set[str] = set()
    for word in query.code_words:
        pattern = re.compile(_DEFINITION.format(re.escape(word)))
        there = [path for path, text in texts.items() if word in text and pattern.search(text)]
        if len(there) <= _COMMON:
            found.update(there)
    return found
