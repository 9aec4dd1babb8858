"""A text as GitHub shows it: its own parser with its extensions, read by a parser of HTML."""

from __future__ import annotations

from dataclasses import dataclass, field
from html.parser import HTMLParser

from cmarkgfm import markdown_to_html_with_extensions
from cmarkgfm.cmark import Options

_EXTENSIONS = ["table", "autolink", "strikethrough", "tasklist"]
# Comments on GitHub keep line breaks, and have footnotes.
_OPTIONS = Options.CMARK_OPT_UNSAFE | Options.CMARK_OPT_HARDBREAKS | Options.CMARK_OPT_FOOTNOTES
_BLOCKS = frozenset({"p", "h1", "h2", "h3", "h4", "h5", "h6", "li", "pre", "td", "th", "br"})
_EMPTY = frozenset({"br", "hr", "input", "img"})


@dataclass
class Page:
    """What somebody sees, and what a browser and GitHub do with it.

    Attributes:
        words: text outside of code. A line feed stands before each block, NUL where an element begins or ends.
        code: text within code.
        top: the text of each paragraph that is in nothing else.
        links: targets of links.
        tags: names of all elements.
        odd: comments, declarations and attributes that no Markdown makes.
        languages: of blocks of code.
    """

    html: str
    words: str = ""
    code: str = ""
    top: list[str] = field(default_factory=list)
    links: list[str] = field(default_factory=list)
    tags: set[str] = field(default_factory=set)
    odd: list[str] = field(default_factory=list)
    languages: list[str] = field(default_factory=list)


class _Reader(HTMLParser):
    def __init__(self, page: Page) -> None:
        super().__init__()
        self.page = page
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.page.tags.add(tag)
        for name, value in attrs:
            if tag == "a" and name == "href":
                self.page.links.append(value or "")
            elif tag == "code" and name == "class":
                self.page.languages.append((value or "").removeprefix("language-"))
            elif name not in {"align", "start", "type", "checked", "disabled"}:
                self.page.odd.append(f"{name}={value}")
        if tag not in _EMPTY:
            self.open.append(tag)
        if self.open == ["p"]:
            self.page.top.append("")
        self.page.words += "\n" if tag in _BLOCKS else "\0"

    def handle_endtag(self, tag: str) -> None:
        self.page.words += "\0"
        if tag in self.open:
            while self.open.pop() != tag:
                pass

    def handle_data(self, data: str) -> None:
        if "code" in self.open:
            self.page.code += f"{data} "
        else:
            self.page.words += data
        if self.open[:1] == ["p"]:
            self.page.top[-1] += data

    def handle_comment(self, data: str) -> None:
        self.page.odd.append(data)

    def handle_decl(self, decl: str) -> None:
        self.page.odd.append(decl)

    def handle_pi(self, data: str) -> None:
        self.page.odd.append(data)

    def unknown_decl(self, data: str) -> None:
        self.page.odd.append(data)


def github_page(markdown: str) -> Page:
    """The page that GitHub makes of a text."""
    page = Page(markdown_to_html_with_extensions(markdown, _OPTIONS, _EXTENSIONS))
    reader = _Reader(page)
    reader.feed(page.html)
    reader.close()
    return page
