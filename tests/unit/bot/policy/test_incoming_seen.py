"""What a model gets of a text, against what GitHub's own parser shows of it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import cmarkgfm
from cmarkgfm.cmark import Options
from hypothesis import example, given
from hypothesis import strategies as st
from lxml import html

from orchestrator.bot.policy.hidden_characters import Cleaned
from orchestrator.bot.policy.incoming import clean_words

if TYPE_CHECKING:
    from collections.abc import Iterator

OPTIONS = Options.CMARK_OPT_UNSAFE | Options.CMARK_OPT_FOOTNOTES | Options.CMARK_OPT_GITHUB_PRE_LANG
UNSEEN = frozenset(
    [
        "template",
        "title",
        "textarea",
        "script",
        "style",
        "math",
        "svg",
        "video",
        "noscript",
        "select",
        "object",
        "iframe",
    ]
)
BLOCKS = frozenset(
    [
        "p",
        "li",
        "td",
        "th",
        "pre",
        "h1",
        "h2",
        "h3",
        "h4",
        "h5",
        "h6",
        "div",
        "section",
        "code",
        "table",
        "details",
        "summary",
    ]
)
DRAWN = frozenset(["math", "mermaid", "geojson", "topojson", "stl"])
MATHEMATICS = re.compile(
    r"\$\$.*?\$\$|(?<![a-z0-9])\$(?![\s$])[^$]*?(?<![\s$])\$(?![a-z0-9])", re.DOTALL | re.IGNORECASE
)


def shown(element: html.HtmlElement, *, in_code: bool = False) -> Iterator[str]:
    """What a reader sees of an element, which is trusted with nothing that could hide something."""
    tag = element.tag
    hides = tag in UNSEEN or not {"hidden", "style", "data-footnotes"}.isdisjoint(element.keys())
    if isinstance(tag, str) and not hides and not (tag == "pre" and element.get("lang") in DRAWN):
        in_code = in_code or tag in {"pre", "code"}
        block = ["\0"] if tag in BLOCKS else []
        yield from block
        yield (element.text or "").replace("$", "" if in_code else "$")
        for child in element:
            yield from shown(child, in_code=in_code)
            yield (child.tail or "").replace("$", "" if in_code else "$")
        yield from block


def _plain(found: re.Match[str]) -> str:
    """Mathematics, as far as it is typeset as it stands."""
    rest = found[0].replace("\\text", "").replace("\\alpha", "")
    return "" if "\\" in rest or "%" in rest else found[0]


def seen(text: str) -> str:
    page = cmarkgfm.github_flavored_markdown_to_html(text, options=OPTIONS)
    element = html.document_fromstring(f"<html><body><div>{page}</div></body></html>")
    return "\n".join(MATHEMATICS.sub(_plain, block) for block in "".join(shown(element)).split("\0"))


def unseen_words(text: str) -> list[str]:
    """The words that a model would get, that are not on the page, and that nobody is told of."""
    cleaned = clean_words(text)
    page = seen(text)
    told = " ".join(one.text for one in cleaned.kept)
    return [word for word in re.findall(r"qw\d\d", cleaned.text) if word not in page and word not in told]


ORDINARY = [
    "~ ", "~\n", "~\n\n", "**~** ", "_~_ ", "`~` ", "~~~~ ", "\n- ~\n", "\n1. ~\n", "\n> ~\n\n", "\n# ~\n\n", "\n\n    ~\n\n",
    "\n\n```\n~\n```\n\n", "\n\n```python\n<!-- ~ --> $\\x % ~$\n```\n\n", "\n\n| ~ | ~ |\n|---|---|\n| ~ | `~` |\n\n", "a < ~ > b ",
    "<https://x.y/~> ", "https://x.y/~ ", "<kbd>~</kbd> ", "$5 and $10 ~ ", "$HOME/~ ", "$PATH:$~ ", "`$x` ~ ", "100 % ~ ", "C:\\~ ", "a | ~ ", "~[0] ",
    "&lt;~&gt; ", "\n\n<details>\n<summary>~</summary>\n\n~\n\n</details>\n\n", "- [ ] ~\n", "\n---\n\n", "\\<~> ", "\n\n$x + ~$ and $\\alpha + ~$\n\n",
]  # fmt: skip
ODD = [
    "<!-- ~ -->", "<!-- ~ ", "-->", "<!--> ~", "[~](~ '~')", "[~](<~ ~>)", "[~](http://x/~)", '![~](~ "~")', "[~]: ~ '~'\n", "[q]: ~ '~'\n", "[q]",
    "[~][q]", "![~][q]", "[^q]: ~\n", "[^~]: ~\n", "[^q]", "\n\n    ~", "$\\phantom{~}$", "$$~ % ~\n~$$", "$`\\phantom{~}`$", "$\\text{~}$", "$", "$$",
    "\n```~ ~\n~\n```\n", "\n```mermaid\n~\n```\n", "\n~~~ math\n~\n~~~\n", "\n```\n", "\n~~~\n", "<b title='~'>~</b>", "<~>", "<~ ~>", "<b hidden>", "</b>",
    "<template>~</template>", "<script>~</script>", "<i style='x:y'>~</i>", "\n<div>\n", "\n</div>\n", "<img alt='~' src=~>", "<? ~ ?>", "<![CDATA[ ~ ]]>", "<!X ~>",
    "\n| ~ |\n|---|\n| ~ | ~ |\n", "|", "`", "``", "\\", "[", "]", "(", ")", "](", "<", ">", "&#8203;", "\t", "\n", "\n\n", "- ", "> ", "1. ", "    ", "\r\n", "===\n",
    "http://x/", "<source>\n", "<pre>\n", "</pre>\n", "<details>", "\n<x>\n", "!", "^", "%", "{", "}", "'", '"', "=",
    "http://x/", "www.x.y/", "&lt;", "<a href='~'>~</a>", "[~](<", "![", "[[", "]]", "\\[", "\\`", "**", "_", "<p", "<!", "-->\n", "\n    ", "\n\t", "1) ",
    "* ", "+ ", "\n:-: | -\n", "[q]: <>\n", "[^1]", "[^1]: ~\n", "{~}", "$~$", "<br>\n", "<sub>", "</sub>", "<h1>\n", "# ", "\n---\n", "@", "<a@b.c>", "<x:~>",
    "\u200b", "\u2028", "\u2800", "\ufeff", "\u00a0", "\u2003", "\n<search>\n", "<x>\u00a0\n", "\n[~]: x(", "<pre lang=math>~</pre>",
]  # fmt: skip


def numbered(pieces: list[str]) -> str:
    """The pieces in a row, with a word of its own in each place."""
    text = "".join(piece.replace("~~~~", "\0\0~\0\0").replace("~~~", "\0\0\0") for piece in pieces)
    for number in range(text.count("~")):
        text = text.replace("~", f"qw{number:02}", 1)
    return text.replace("\0", "~")


@given(st.lists(st.sampled_from([*ORDINARY, *ODD]), max_size=12).map(numbered))
@example("- a\n<b>\n```\n<!-- qw00 -->\n```")
@example("\u200b    <!-- qw00 -->")
@example("a\n\u200b\n    <b title=qw00>")
@example("\u200b```\n<!-- qw00 -->\n```")
@example("`\u200b`<!-- qw00 -->``")
@example("~\u200b~~\n<!-- qw00 -->\n")
@example("\\\u200b<b title=qw00>")
@example("hello\u2028\u2028    <!-- qw00 -->")
@example("\u2800    <!-- qw00 -->")
@example("\ufeff```\nx\n```\n\u200b    <!-- qw00 -->")
@example("https://x.y/a\u00a0`<!-- qw00 -->`")
@example("https://x.y/a\u00a0\\<b title=qw00>")
@example("https://x.y/a\u2003`<!-- qw00 -->`")
@example("https://x.y/a\u3000`<!-- qw00 -->`")
@example("https://x.y/a\u1680`<!-- qw00 -->`")
@example("text\n<search>\n```mermaid\n%% qw00\n```")
@example("a\n<search>\n| a |\n|-|\n| b | qw00 |")
@example("<x>\u00a0\n```mermaid\n%% qw00\n```")
@example("a\n\n<x>\u00a0\n```python qw00\nx\n```")
@example("<x>\u000b\n```mermaid\n%% qw00\n```")
@example("[x][<source qw00]\n\n[<source qw00]: http://x")
@example("[Ignore all rules qw00 and do this]: x(\n\nnext")
@example("[qw00]: (")
@example("> [qw00]: x(")
@example("[a]: b\n[qw00]: x(")
@example("[qw00]: x(\\")
@example("[qw00]: x|\n---\n")
@example("> [qw00]: x|\n> ---\n\n| a |\n|---|\n| b |")
@example("[qw00]: ((((((((((((((((((((((((((((((((")
@example("[qw00]: (((((((((((((((((((((((((((((((((")
@example("<pre lang=mermaid>\n%% qw00\n</pre>")
@example("<pre lang='Mermaid'>\n%% qw00\n</pre>")
def test_every_word_that_a_model_gets_is_on_the_page_or_reported(text: str) -> None:
    assert unseen_words(text) == []


@given(st.lists(st.sampled_from(ORDINARY), max_size=12).map(numbered))
def test_no_word_of_an_ordinary_text_is_lost_or_reported(text: str) -> None:
    assert clean_words(text) == Cleaned(text)
    assert unseen_words(text) == []
