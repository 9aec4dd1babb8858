"""What a text does where a forge shows it: read by a Markdown parser, line by line as bots read it, and for reports."""

from __future__ import annotations

import json
import re
import unicodedata
from html import unescape
from typing import TYPE_CHECKING

from orchestrator.bot.verification.page import read_block

if TYPE_CHECKING:
    from collections.abc import Iterator

    from markdown_it.token import Token

_MENTION = re.compile(r"(?<!\w)@([A-Za-z0-9][\w/-]*)")
_BARE = re.compile(r"(?:https?://|www\.)\S+", re.IGNORECASE)
_DRAWN = frozenset({"mermaid", "geojson", "topojson", "stl", "math"})


_BLOCK = re.compile(r"^[> ]*`{3,}json[ \t]*\n(.*?)^[> ]*`{3,}", re.MULTILINE | re.DOTALL)


def host_reports(body: str) -> list[str]:
    """The host's report on the tests, as a program finds it in a pull request's text; none or one."""
    block = read_block(body, "")
    return [json.dumps(block.statement)] if block else []


def any_reports(body: str) -> list[str]:
    """What a careless program takes for a report: each block of JSON, wherever it stands and whoever wrote it, quoted or not."""
    return [found.group(1) for found in _BLOCK.finditer(body.replace("\r\n", "\n"))]


def effects(text: str) -> list[str]:
    """What happens, each on a line: `mentions`, `links to`, `loads`, `html`, `math`, `draws`, and every `line`.

    A line is decoded, in plain letters, without what nobody sees and without the blanks at its ends.
    """
    from markdown_it import MarkdownIt

    found = [f"line {line}" for line in map(_plain, text.splitlines()) if line]
    for block in MarkdownIt("commonmark").enable(["table", "strikethrough"]).parse(text):
        if block.type == "html_block":
            found += [f"html {' '.join(block.content.split())}", *_in_words(unescape(block.content))]
        elif block.type == "fence" and block.info.strip() in _DRAWN:
            found.append(f"draws {block.info.strip()}")
        words = [token.content for token in block.children or () if token.type == "text"]
        if "".join(words).count("$") > 1:
            found.append(f"math {block.content}")
        for token in block.children or ():
            found += _in_line(token)
    return found


def _plain(line: str) -> str:
    seen = "".join(char for char in unescape(line) if unicodedata.category(char) != "Cf")
    return " ".join(unicodedata.normalize("NFKC", seen).split())


def _in_line(token: Token) -> Iterator[str]:
    match token.type:
        case "text":
            yield from _in_words(token.content)
        case "html_inline":
            yield f"html {token.content}"
        case "link_open":
            yield f"links to {token.attrs['href']}"
        case "image":
            yield f"loads {token.attrs['src']}"
        case _:
            pass


def _in_words(text: str) -> Iterator[str]:
    yield from (f"mentions {match[1]}" for match in _MENTION.finditer(text))
    yield from (f"links to {match[0]}" for match in _BARE.finditer(text))
