"""Every reader of foreign text ends, with a value or an error of the program, in time that grows with the text."""

from __future__ import annotations

import itertools
import os

import pytest

from tests.fuzz.foreign import BEGINS, ENDS, KNOWN_OF_PLUGINS, NOISE_S, PIECES, READERS, USUAL_NOISE_S
from tests.fuzz.growth import grows
from tests.tables import table

SMALL_CHARS = 1_500


def texts(share: int, first: int) -> list[tuple[str, str, str]]:
    chosen = itertools.product(BEGINS, PIECES, ENDS)
    return list(itertools.islice(chosen, first % share, None, share))


@table("name", READERS)
def test_some_texts(name: str) -> None:
    for parts in texts(60, sum(map(ord, name))):
        grows(READERS[name], parts, NOISE_S.get(name, USUAL_NOISE_S), small_chars=SMALL_CHARS)


@pytest.mark.slow(reason="growth: each reader with many texts in two sizes; all of them take six minutes")
@pytest.mark.parametrize("name", READERS)
def test_more_texts(name: str) -> None:
    """With `HYPOTHESIS_PROFILE=thorough`, all texts."""
    share = 1 if os.environ.get("HYPOTHESIS_PROFILE") == "thorough" else 10
    for parts in texts(share, sum(map(ord, name)) + share // 2):
        grows(READERS[name], parts, NOISE_S.get(name, USUAL_NOISE_S), small_chars=SMALL_CHARS)


@table(
    "name, parts",
    [
        ("plan, tolerantly", ("", "/*", "")),
        ("Markdown", ("[a", "_", "")),
        ("Markdown", ("[", "_", "]")),
        ("page of the web", ("", "<!---->", "<x")),
        ("error body", ("", "1", "")),
        ("error body", ("again in ", "1", "")),
        ("ref", ("", "a", "!")),
        ("suggestion by README.md", ("```\nuv run ", "--a ", "!\n```\n")),
        ("issue, cleaned", ("<a", " ", "/>x")),
        ("issue, cleaned", ("<a ", "b", "=>x")),
        ("owners", ("", "*a", "b")),
        ("ignore rules", ("", "*a", "b")),
        ("path", ("", "\u0301\u0323", "")),
        ("slug", ("", "\u0301\u0323", "")),
        ("tests in Rust", ("", "#[cfg(test)]\n", "x")),
        ("terminal", ("", "\x90", "é")),
        ("suggestion by go.mod", ("", "\n", "x")),
        ("template", ("# a", " ", "x")),
        ("template", ("", "<!--", "")),
        ("whole files in a reply", ("~", "~", "`")),
        ("commit message", ("# ", " #", "x")),
        *KNOWN_OF_PLUGINS,
    ],
    ids=str,
)
def test_what_once_took_long(name: str, parts: tuple[str, str, str]) -> None:
    grows(READERS[name], parts, small_chars=5_000)


DIGITS = "9" * 5_000
"""More than Python turns into an integer."""


@pytest.mark.slow(reason="each reader with some long texts")
@table("name", READERS)
def test_numbers_and_nesting_without_end(name: str) -> None:
    for text in (
        *(form.format(DIGITS) for form in NUMBERS),
        *(
            opening * 20_000
            for opening in ("[", "{", '{"a":', "(", "<a>", "> ", "- ", "not ", "-", "a.", "f(", "${", "$(")
        ),
        "\ud800",
        "\udfff{",
    ):
        READERS[name](text)


NUMBERS = (
    "@@ -{0} +1 @@\n+x\n",
    "diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1,{0} +{0},{0} @@\n+x\n",
    "fixes #{0}",
    "https://github.com/a/b/issues/{0}",
    "{0}. a\n",
    '{{"a": {0}}}',
    '{{"plan": "", "tool_calls": [{0}]}}',
    "a = {0}\n",
    "&#{0};&#x{0};",
    "a:{0}/",
    "retry after {0} seconds, try again in {0}m, limit: {0} requested: {0}, {0} + {0} > {0}",
    "10:10:10.{0} http.c:{0} <= Recv header: retry-after: {0}",
    "10:10:10.1 http.c:1 <= Recv header: retry-after: {0}",
    '<testsuite tests="{0}"><testcase name="a" line="{0}" time="{0}"/></testsuite>',
    '{{"Action":"pass","Package":"p","Elapsed":{0}}}',
    '{{"numTotalTests":{0},"testResults":[]}}',
    "def test_a():\n    assert x == {0}\n",
    "pytest -n {0} --maxfail={0}",
)
