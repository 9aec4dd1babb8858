from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from orchestrator.bot.policy.hidden_characters import Cleaned, Removed
from orchestrator.bot.policy.hidden_markup import LONGEST_MARKDOWN_CHARS, Page
from orchestrator.bot.policy.incoming import clean_words
from tests.fuzz.growth import grows
from tests.tables import table

EVIL = "EVIL"


def left(text: str) -> str:
    return clean_words(text).text


@table(
    ("text", "shown", "kind"),
    [
        ("a <!-- EVIL --> b", "a  b", "HTML comment"),
        ("a <!-- EVIL", "a ", "HTML comment"),
        ("<!--> EVIL -->b", "b", "HTML comment"),
        ("<!---> EVIL -->b", "b", "HTML comment"),
        ("a <!-- EVIL --!> b", "a  b", "HTML comment"),
        ("<!-- <!-- EVIL --> b", " b", "HTML comment"),
        ("<!-- EVIL\n\nEVIL\n--> b", " b", "HTML comment"),
        ("<!-\u200b- EVIL --> b", " b", "HTML comment"),
        ("<!<!-- x -->-- EVIL -->b", "b", "HTML comment"),
        ("a <? EVIL ?> b", "a  b", "processing instruction"),
        ("a <![CDATA[ EVIL ]]> b", "a  b", "processing instruction"),
        ("<!DOCTYPE EVIL> b", " b", "HTML comment"),
        ("<div>\n</ EVIL>\n</div>", "<div>\n\n</div>", "HTML comment"),
        ("<div>\n<! EVIL>\n</div>", "<div>\n\n</div>", "HTML comment"),
        ("a <b hidden>EVIL</b> c", "a  c", "hidden element"),
        ("a <b HIDDEN=''>EVIL</b> c", "a  c", "hidden element"),
        ("a <b aria-hidden=true>EVIL</b> c", "a  c", "hidden element"),
        ("<div hidden><div>EVIL</div>EVIL</div>c", "c", "hidden element"),
        ("<div hidden>EVIL", "", "hidden element"),
        ("<div hidden\n>EVIL</div>c", "c", "hidden element"),
        ("<div hidden>\n\n`</div>` EVIL\n\n</div>c", "c", "hidden element"),
        ("<div hidden>\n\n\\</div> EVIL\n\n</div>c", "c", "hidden element"),
        ("<div hidden><!-- </div> -->EVIL</div>c", "c", "hidden element"),
        ('<div hidden><b title="</div>">EVIL</b></div>c', "c", "hidden element"),
        ("<div hidden><table><td></div>EVIL</table></div>", "", "hidden element"),
        ("a <i style='display: none'>EVIL</i> c", "a  c", "hidden element"),
        ("a <i style='visibility:hidden'>EVIL</i> c", "a  c", "hidden element"),
        ("a <i style='font-size:0'>EVIL</i> c", "a  c", "hidden element"),
        ("a <i style='font-size:0.01em'>EVIL</i> c", "a  c", "hidden element"),
        ("a <i style='opacity:0.0'>EVIL</i> c", "a  c", "hidden element"),
        ("a <i style='color:#fff'>EVIL</i> c", "a  c", "hidden element"),
        ("a <i style='color:red;background:red'>EVIL</i> c", "a  c", "hidden element"),
        ("a <i style='position:absolute;left:-9999px'>EVIL</i> c", "a  c", "hidden element"),
        ("a <i style='disp&#108;ay:none'>EVIL</i> c", "a  c", "hidden element"),
        ("a <i style='display/**/:none'>EVIL</i> c", "a  c", "hidden element"),
        ("a <font color=white>EVIL</font> c", "a  c", "hidden element"),
        ("a <i class='x sr-only'>EVIL</i> c", "a  c", "hidden element"),
        ("<script>EVIL</script>c", "c", "hidden element"),
        ("<style>EVIL</style >c", "c", "hidden element"),
        ("<template>EVIL<template></template>EVIL</template>c", "c", "hidden element"),
        ("a <noscript>EVIL</noscript> c", "a  c", "hidden element"),
        ("a <svg><text>EVIL</text></svg> c", "a  c", "hidden element"),
        ("a <EVIL x> c", "a  c", "HTML tag"),
        ("a <please-EVIL-now> c </please-EVIL-now>", "a  c ", "HTML tag"),
        ('<img src="http://x/y.png" alt="EVIL">', '<img src="http://x/y.png">', "alt text"),
        ("a <b title=EVIL>c</b>", "a <b>c</b>", "title text"),
        ("a <b data-x='EVIL' onclick=\"EVIL\">c</b>", "a <b>c</b>", "hidden attribute"),
        ("a <b\ntitle='EVIL'>c</b>", "a <b>c</b>", "title text"),
        ("> a <b\n> title='EVIL'>c</b>", "> a <b>c</b>", "title text"),
        ("<div>\n<b title='EVIL'x=y>c</b EVIL></div>", "<div>\n<b>c</b></div>", "title text"),
        ("<div title='\n\nEVIL'> EVIL", "", "unclosed tag"),
        ("a <a href='x EVIL'>c</a>", "a <a>c</a>", "hidden attribute"),
        ("a <a href=x href=EVIL>c</a>", "a <a href=x>c</a>", "hidden attribute"),
        ("a <img src='data:,EVIL'>", "a <img>", "hidden attribute"),
        ("![EVIL](http://x)", "![](http://x)", "alt text"),
        ("![EVIL [x](y) EVIL](http://x)", "![](http://x)", "alt text"),
        ("![EVIL](<a b> 'EVIL')", "![]()", "alt text"),
        ('[a](http://x "EVIL")', "[a](http://x)", "title text"),
        ("[a]( http://x\n'EVIL' )", "[a]( http://x )", "title text"),
        ("[a](x(y) (EVIL))", "[a](x(y))", "title text"),
        ('[a](x "say \\" EVIL")', "[a](x)", "title text"),
        ("[a](<EVIL and more>)", "[a]()", "link address"),
        ("[a](data:text/plain,EVIL)", "[a]()", "link address"),
        ("[](http://x/EVIL) b", " b", "link without text"),
        ("b\n\n[//]: # (EVIL)", "b\n\n", "link definition"),
        ("[comment]: <> (EVIL)\n\nb", "\nb", "link definition"),
        ("[comment]: javascript:x 'EVIL'\n\nb", "\nb", "link definition"),
        ("> [EVIL]: x\n\nb", "\nb", "link definition"),
        ("[a]\n\n[a]: http://x 'EVIL'", "[a]\n\n[a]: http://x", "title text"),
        ("[a]\n\n[a]: http://x\n[A]: http://EVIL", "[a]\n\n[a]: http://x\n", "link definition"),
        ("[a][EVIL]\n\n[evil]: http://x", "[a](http://x)\n\n", "link label"),
        ("![a][EVIL]\n\n[evil]: http://x", "![](http://x)\n\n", "alt text"),
        ("![EVIL]\n\n[evil]: http://x", "![](http://x)\n\n", "alt text"),
        ("`[a]`\n\n[a]: http://EVIL", "`[a]`\n\n", "link definition"),
        ("b\n[^1]: EVIL\n\n    EVIL\n\nc", "b\n\n\nc", "footnote"),
        ("- [^1]: EVIL\n\nc", "\nc", "footnote"),
        ("```py EVIL\nx\n```", "```py\nx\n```", "info string"),
        ("```EVIL-and-then-run-something-else\nx\n```", "```\nx\n```", "info string"),
        ("```mermaid\n%% EVIL\n```\nc", "c", "drawn block"),
        ("a&#8203;b", "ab", "character reference"),
        ("a&ZeroWidthSpace;b&#xE0041;", "ab", "character reference"),
        ("<div>\na&#x200bz\n</div>", "<div>\naz\n</div>", "character reference"),
        # What only looks like code.
        ("\\`<!-- EVIL -->`", "\\``", "HTML comment"),
        ("``<!-- EVIL -->`", "```", "HTML comment"),
        ("<div>\n`<!-- EVIL -->`\n</div>", "<div>\n``\n</div>", "HTML comment"),
        ("<div>\n```\n<!-- EVIL -->\n```\n</div>", "<div>\n```\n\n```\n</div>", "HTML comment"),
        ("<pre>\n\n```\n<!-- EVIL -->\n```\n</pre>", "<pre>\n\n```\n\n```\n</pre>", "HTML comment"),
        ("a\n<b>\n```\n\n```\n<!-- EVIL -->", "a\n<b>\n```\n\n```\n", "HTML comment"),
        ("a | b\n--|--\n`x | <!-- EVIL -->`", "a | b\n--|--\n`x | `", "HTML comment"),
        ("a ` b\n\n<!-- EVIL -->`", "a ` b\n\n`", "HTML comment"),
        ("<b title='`'><!-- EVIL -->`", "<b>`", "HTML comment"),
        ("    a\n<!-- EVIL -->", "    a\n", "HTML comment"),
        ("- ```\n<!-- EVIL -->", "- ```\n", "HTML comment"),
        ("a\n<source>\n```\n<!-- EVIL -->\n```", "a\n<source>\n```\n\n```", "HTML comment"),
        ("a | b\r--|--\r`x | <!-- EVIL -->`", "a | b\r--|--\r`x | `", "HTML comment"),
        ("a\n:-\n`x | <!-- EVIL -->`", "a\n:-\n`x |", "table cell"),
        ("| a |\n|---|\n| x | EVIL |\n", "| a |\n|---|\n| x |\n", "table cell"),
        ("a\n-|-\nb|c|EVIL\n", "a\n-|-\nb|c|\n", "table cell"),
        ("a\n-|-\nb|c|E\n", "a\n-|-\nb|c|\n", "table cell"),
        ("<div>\n![EVIL](x 'EVIL')\n</div>", "<div>\n![](x)\n</div>", "alt text"),
        ("[![EVIL](x)](y 'EVIL')", "[![](x)](y)", "alt text"),
        ("> " * 25 + "<img\n" + "> " * 25 + "alt='EVIL'>", "> " * 25 + "<img>", "alt text"),
        ("b\r[^1]: EVIL", "b\r", "footnote"),
        ("a <!-- b\n<div hidden>\n\n> --> EVIL", "a ", "HTML comment"),
        ("x <i hidden>\na | b\n--|--\n</i> EVIL | c", "x ", "hidden element"),
        ("a <!-- x --!> <b title=' --> EVIL", "a ", "HTML comment"),
        ("a <? x > <b hidden> ?> EVIL", "a ", "processing instruction"),
        ("[^1]: x\n\n\tEVIL\nEVIL\n\nc", "\n\nc", "footnote"),
        ("[^1]: x\n\n    x\n[a]: b 'EVIL'\n\nc", "\n\nc", "footnote"),
        ("b\n[^1]: x\n===\nEVIL\n\nc", "b\n\nc", "footnote"),
        ("[^1]: x\n|a|b|\nEVIL\n\nc", "\nc", "footnote"),
        ("- a\n<b>\n```\n<!-- EVIL -->\n```", "- a\n<b>\n```\n\n```", "HTML comment"),
        ("[a [b](u) ](<div hidden>) EVIL </div>c", "[a [b](u) ](c", "hidden element"),
        ("](<div hidden> EVIL </div>c", "](c", "hidden element"),
        ("a <![CDATA[ x <b hidden> EVIL", "a <![CDATA[ x ", "hidden element"),
        ("<i hidden>\n\na | b\n--|--\n</i> EVIL | c", "", "hidden element"),
        ("\tx\n[a](y\r\n'EVIL')", "\tx\n[a](y)", "title text"),
        ("[^1]: <p\n<table>..<!--<div hidden>x\n\nEVIL", "", "footnote"),
        ("[^1]: <p\n<b hidden>\n\nEVIL", "", "hidden element"),
        ("[^a b]: x <b hidden>\n\nEVIL", "", "hidden element"),
        ("<div hidden>\n\n1.[^1]: <div>\n\n</div>EVIL", "", "hidden element"),
        ("<div hidden>\n\n[^1]: </div>\n\nEVIL</div>b", "b", "hidden element"),
        ("[^1]: see <https://x.y> and <b>c</b>\n\nd", "\nd", "footnote"),
        ("[a]\n\n[a]: http://x/(y)z 'EVIL'", "[a]\n\n[a]: http://x/(y)z", "title text"),
        ("[a]\n\n[a]: http://x/(y 'EVIL'", "[a]\n\n[a]: http://x/(y", "title text"),
        ("- a\n  <x-y>\n  ```mermaid\n  %% EVIL\n  ```\n", "- a\n  \n", "drawn block"),
        ("- a\n  <x-y>\n  ```py EVIL\n  x\n  ```\n", "- a\n  \n  ```py\n  x\n  ```\n", "info string"),
        ("<div>\n<! EVIL", "<div>\n", "HTML comment"),
        ("see http://x`<!-- EVIL -->`", "see http://x``", "HTML comment"),
        ("http://a b http://x`<!-- EVIL -->`", "http://a b http://x``", "HTML comment"),
        ("\\\\![EVIL](http://x)", "\\\\![](http://x)", "alt text"),
        ("<b hidden><i>EVIL</i></b><u title='EVIL'>c</u>", "<u>c</u>", "title text"),
        ("<b hidden><i title='EVIL'>EVIL</i></b> <!-- EVIL -->x", " x", "HTML comment"),
        ("[a](b\n'x\n\nmid\n\ny')\n\n<!-- EVIL -->", "[a](b)\n\n", "HTML comment"),
        ("[a]: b\n    EVIL\n\nc", "\nc", "link definition"),
        ("[a]: b\n    EVIL <b>\n\nc", "", "link definition"),
        ("&<b hidden>EVIL</b>c", "&c", "hidden element"),
        ("<div>\n&<b hidden>EVIL</b>c\n</div>", "<div>\n&c\n</div>", "hidden element"),
        ("a <?<b hidden>EVIL</b> c", "a <? c", "hidden element"),
        ("[a](http://x/((y)z) 'EVIL')", "[a](http://x/((y)z))", "title text"),
        ("[a](x\\)y 'EVIL')", "[a]()", "title text"),
        (
            "<sub>a</sub><b hidden><sub>EVIL</sub></b><sub><sub>b</sub></sub>",
            "<sub>a</sub><sub><sub>b</sub></sub>",
            "hidden element",
        ),
        ("a <b class=hidden-x>EVIL</b> c", "a <b>EVIL</b> c", "hidden attribute"),
        ("a <b id=hidden>c</b>", "a <b>c</b>", "hidden attribute"),
        ("a <pre lang=mermaid>EVIL</pre> c", "a  c", "hidden element"),
        ("a <b lang=mermaid>c</b>", "a <b>c</b>", "hidden attribute"),
        ("<b hidden>EVIL<br>EVIL</b>c", "c", "hidden element"),
        ("<img hidden>c", "c", "hidden element"),
        ("<b aria-hidden=false>c</b>", "<b>c</b>", "hidden attribute"),
        ("<font color=red>c</font>", "<font>c</font>", "hidden attribute"),
        ("<b hidden>x</i>EVIL</b>c", "c", "hidden element"),
        ("a <b hidden><script></b></script>EVIL</b>c", "a c", "hidden element"),
        ("[a]\n\n[a]: <http://x y> 'EVIL'", "[a]\n\n", "link definition"),
        ("[a]: http://x 'EVIL'\n\n[a]", "[a]: http://x\n\n[a]", "title text"),
        ("![image][b]\n\n[b]: http://x", "![](http://x)\n\n", "alt text"),
    ],
)
def test_what_github_does_not_show_is_taken_out_and_named(text: str, shown: str, kind: str) -> None:
    cleaned = clean_words(text)
    assert cleaned.text == shown
    assert kind in {item.kind for item in cleaned.removed}
    assert (clean_words(shown).text, clean_words(shown).removed) == (shown, ())


@table(
    "text",
    [
        "`<!-- shown -->` and ``<b title='`'>``",
        "```html\n<!-- shown --><b title='x'>\n[//]: # (shown)\n```\n",
        "~~~\n&#8203;\n\n<!-- shown -->\n~~~",
        "- a\n\n  ```\n  <!-- shown -->\n  ```\n\n1. b\n   ```\n   <c d>\n   ```\n",
        "> ```\n> <!-- shown -->\n> ```\n",
        "text\n\n    <!-- shown -->\n",
        "<details><summary>More</summary>\n\nshown\n\n</details>",
        "<details open>shown</details>",
        "[http://x/y_(z)](http://x/y_(z)) <https://x.y/z> <a@b.c>",
        "[shown] (not a link) [x] done [ ] todo a[0][1]",
        "a < b && c > d, x <y, 1<2, <3, a <= b, <>",
        "R&D &amp; &lt;!-- shown --&gt; &nbsp; &copy; AT&T ?a=1&shy=2",
        "\\<!-- shown -->",
        "![shown]\n\n[shown]:",
        "![shown]\n\n[shown]: h http",
        "| a |\n---\n| x | shown |\n",
        "| a |\n ---\n| x | shown |\n",
        "[a]\n\n[a]: http://x/y)z 'shown'",
        "$`\\phantom{shown}` shown",
        "`\\phantom{shown}`$",
        "$`x + y`$",
        "a[^x] b",
        "http://x `<!-- shown -->`",
        "\\<b title='shown'>",
        '<p align="center"><img width="300" height=20></p>',
        "<b>shown</b> <sub>x</sub><br/>H<sup>2</sup> <kbd>Ctrl</kbd>",
        "| a | b |\n|---|---|\n| `<x>` | `<!-- shown -->` |\n",
        'Open file://C:\\temp and use `List<Foo bar>` then `<add key="a" value="b"/>`.',
        "plain\n\n# Heading\n\n* list\n> quote\n",
    ],
)
def test_what_github_shows_stays(text: str) -> None:
    assert clean_words(text) == Cleaned(text)
    assert clean_words(text).text is text


@table(
    "text",
    [
        "$\\phantom{\\text{EVIL}}$", "a $\\hskip-9999pt EVIL$ b", "$$a % EVIL$$", "$$\na % EVIL\n$$", "$`\\phantom{EVIL}`$", "$x % EVIL$",
        "$\\color{white}{EVIL}$", "$\\def\\x{EVIL}$", "$\\alpha\\label{EVIL}$", "$\\href{EVIL}{x}$", "$\\sqrtx{EVIL}$", "&#36;\\phantom{EVIL}&dollar;",
        "$&bsol;phantom{EVIL}$", "\\$\\phantom{EVIL}\\$", "$a\\% EVIL$", "(${}\\phantom{EVIL}$)", "$\\phantom\n{EVIL}$", "> $\\phantom\n> {EVIL}$",
        "- $\\phantom{EVIL}$", "| a |\n|---|\n| $\\phantom{EVIL}$ |", "<div>\n$\\phantom{EVIL}$\n</div>", "$**\\phantom{EVIL}**$", "$$a % $ EVIL $$",
        "```math\nEVIL\n```", "~~~ MATH\nEVIL\n~~~", "```&#109;ath\nEVIL\n```", "```\\math\nEVIL\n```",
    ],
)  # fmt: skip
def test_mathematics_that_hides_something_is_taken_out(text: str) -> None:
    cleaned = clean_words(text)
    assert EVIL not in cleaned.text
    assert {item.kind for item in cleaned.removed} <= {"mathematics", "drawn block"}


@table(
    "text",
    [
        "It costs $5 and $10, or 10% of $50.", "$HOME, $PATH:$HOME and $x", "5$ or 10% of 6$", "`$x` \\o/ `$y`", "$x + y$ and $\\frac{\\alpha}{2}$",
        "$ % $ and $ \\x $", "```sh\n$ a % b $\n```", "    $\\phantom{x}$", "$\\text{seen}$", 'echo "$HOME" | sed "s/\\n/ /" > "$OUT"', "100 % of $PATH\\x",
    ],
)  # fmt: skip
def test_dollars_that_hide_nothing_stay(text: str) -> None:
    assert clean_words(text) == Cleaned(text)


@table(
    ("text", "kept"),
    [
        ("a List<String> b", {"HTML tag": "<String>"}),
        ('File "x.py", line 3, in <module>', {"HTML tag": "<module>"}),
        ("[text](http://x/y)", {"link address": "http://x/y"}),
        ("[text](#anchor)", {"link address": "#anchor"}),
        ("[a]\n\n[a]: http://x\n", {"link definition": "[a]: http://x"}),
        ("[a][EVIL]\n\n[evil]: http://x\n", {"link address": "http://x"}),
        ('<a href="http://x">b</a>', {"link address": 'href="http://x"'}),
        ("\\![shown](http://x)", {"link address": "http://x"}),
        ("[x [b] y](http://z 'shown')\n\n[b]: http://q", {"link definition": "[b]: http://q"}),
        ("[a][1]\n\n[1]: http://x", {"link definition": "[1]: http://x"}),
        ("[a][a]\n\n[a]: http://x", {"link definition": "[a]: http://x"}),
    ],
)
def test_what_stays_and_is_not_on_the_page_is_reported(text: str, kept: dict[str, str]) -> None:
    assert {item.kind: item.text for item in clean_words(text).kept} == kept


TEMPLATE = """\
### Bug

```console
$ run <it> --all 100% $HOME
Traceback: in <module>
```

<details open><summary>Log</summary>
<p>

~~~
2026-01-01 [INFO] <main> \\n $x %
~~~

</p>
</details>

<img width="1234" height="567" alt="Image" src="https://github.com/user-attachments/assets/0b8b1c6e-1111-4a2b-9c3d-0123456789ab" />
![image](https://github.com/user-attachments/assets/0b8b1c6e-1111-4a2b-9c3d-0123456789ab)

| a | b |
|---|:--|
| x \\| y | `z` |

- [x] done, see #12 and https://github.com/o/r/issues/3
> [!NOTE]
> x <= y && z -> 3, ~~old~~, H<sub>2</sub>O :tada:
"""


def test_an_ordinary_report_stays_as_it_is() -> None:
    assert clean_words(TEMPLATE) == Cleaned(TEMPLATE)


def test_letters_too_small_to_be_read_are_hidden() -> None:
    assert left("a<sup>b<sub>c<sub>EVIL</sub></sub></sup>d") == "a<sup>b<sub>c</sub></sup>d"
    assert (
        left("<sup>a<sub>b</sub><sub>c<sub>EVIL</sub></sub></sup>") == "<sup>a<sub>b</sub><sub>c</sub></sup>"
    )


def test_what_is_taken_out_as_a_whole_is_reported_once() -> None:
    assert [item.kind for item in clean_words("[^1]: <p").removed] == ["footnote"]


def test_visible_styles_keep_their_words() -> None:
    assert left("a <i style='color: red; font-weight: bold'>b</i>") == "a <i>b</i>"


@table("before", ["", "words " * 400])
@table(("label", "is_cut"), [("1", False), ("123", False), ("1234", True), ("EVIL", True)])
def test_a_footnote_s_label_stays_only_where_it_is_a_number(before: str, label: str, *, is_cut: bool) -> None:
    """Wherever it stands in the text."""
    cleaned = clean_words(f"{before}a[^{label}] b\n\n[^{label}]: EVIL\n")
    assert cleaned.text.strip() == (f"{before}a b" if is_cut else f"{before}a[^{label}] b")
    assert EVIL not in cleaned.text


@table(
    ("text", "shown"),
    [
        ("a" * 120, "a" * 120),
        ("a" * 121, "a" * 120 + "..."),
        ("a" + " " * 239, "a"),
        ("a" + " " * 240, "a..."),
    ],
)
def test_a_report_shows_as_much_as_fits_and_says_where_more_is(text: str, shown: str) -> None:
    assert str(Removed(3, "alt text", text)) == f'alt text at 3: "{shown}"'


def test_a_report_says_what_and_where() -> None:
    text = "\u200b one <!-- two --> ![three](x) <b title='four'>"
    assert [(item.offset, item.kind, item.text) for item in clean_words(text).removed] == [
        (0, "format characters", "<U+200B>"),
        (6, "HTML comment", "<!-- two -->"),
        (21, "alt text", "three"),
        (33, "title text", "title='four'"),
    ]


def test_offsets_count_in_the_original_after_several_rounds() -> None:
    text = "\u200b<!<!-- x -->-- y -->"
    assert [item.offset for item in clean_words(text).removed] == [0, 1, 3]


def test_what_never_comes_to_rest_is_cut_from_its_beginning() -> None:
    text = "a "
    for _ in range(30):
        text += "<!"
    text += "<!-- EVIL -->" + "-- EVIL -->" * 30
    assert EVIL not in left(text)
    assert left(text).startswith("a ")


def test_a_tag_in_a_list_or_quote_makes_its_rest_doubtful_and_not_more() -> None:
    """The list may end at the tag: then what follows in it is at the level of the page, and no code."""
    for inside in ("- a\n  <x-y>\n", "\n", "- b\n", "\n"), ("> a\n> <x-y>\n", ">\n", "> b\n", "\n"):
        text = f"{''.join(inside)}after\n"
        blocks = [(text[block.start : block.end], block.mode) for block in Page(text).blocks]
        modes = ("doubtful", "html", "doubtful", "html", "words")
        assert blocks == list(zip((*inside, "after\n"), modes, strict=True))


def test_a_text_longer_than_github_takes_has_no_code() -> None:
    text = "`<!-- EVIL -->`" + "x" * LONGEST_MARKDOWN_CHARS
    assert EVIL not in left(text)


PIECES = [
    *"<>[]()!`~\\&;\"'=-/:# \n\t>*|^1ab",
    "<!--", "-->", "--!>", "<div hidden>", "</div>", "<b title='x'>", "</b>", "<script>", "</script>", "<x>", "```", "~~~",
    "![", "](", "](x 'y')", "[a]: b 'c'\n", "[a]", "[^1]: x\n", "    ", "\n\n", "> ", "- ", "&#8203;", "&zwj;", "<?", "?>",
    "<![CDATA[", "]]>", "style='display:none'", "\u200b", "\U000e0041", "|---|---|\n", "<pre>", "</pre>", "\r\n", "<p", 'href="',
]  # fmt: skip
MARKUP = st.lists(st.sampled_from(PIECES), max_size=30).map("".join)


@given(MARKUP | st.text(st.characters()))
@example("<!<!-- x -->-- y -->")
def test_cleaning_twice_changes_nothing(text: str) -> None:
    cleaned = clean_words(text)
    again = clean_words(cleaned.text)
    assert (again.text, again.removed) == (cleaned.text, ())
    assert bool(cleaned.removed) == (cleaned.text != text)


@given(MARKUP)
def test_offsets_are_in_the_text_and_in_order(text: str) -> None:
    offsets = [item.offset for item in clean_words(text).removed]
    assert offsets == sorted(offsets)
    assert all(0 <= offset < max(len(text), 1) for offset in offsets)


@given(MARKUP)
def test_nothing_but_comments_hides_in_a_comment(text: str) -> None:
    inside = text.replace("-->", "").replace("--!>", "").replace("\u200b", "")
    cleaned = clean_words(f"a\n\n<!-- {EVIL} {inside}-->")
    assert EVIL not in cleaned.text


PATTERNS = [
    "<!--", "<!----!>", '<a b="', "<a b='\"", "](a '", '](a "', "](](", "![", "[a](", "[", "]", "`", "`` ` ", "<a ", "<a b=c ", "&#",
    "<", "<?", "<!x", "<div hidden>", "<div hidden></div>", "<div\n\n", "[a]: b\n", "[x][y]\n\n", "[^a]: b\n", "<p>\n", "> ", "- ",
    "a | b\n-|-\n", "a\u200b", "\u200d", "e\u0301\u0327", "\U0001f468\u200d", "\u0628\u064e\u200c", "a\n> b\n- c\n", "  - a\n",
    "$", "$$", "$a", "$\\a$ ", "$a%b$ ", "$`\\a`$ ", "|", "http://x", "http://x`", "&dollar;", "- a\n<b>\n", "[a]: b\n    ", "</b><b>", "<sub>",
    "<b style=a:b>", "[^a]: b\n<b hidden>\n",
]  # fmt: skip


LARGE_CHARS = (LONGEST_MARKDOWN_CHARS, 200_000)
"""The longest that is read as Markdown, and what is only searched."""
SMALL_CHARS = (5_000, LONGEST_MARKDOWN_CHARS + 1_000)
"""With four times as much both texts are read as Markdown, or both are only searched."""


@pytest.mark.slow(reason="growth: each piece of Markdown in four sizes, up to 300,000 characters")
@pytest.mark.parametrize("small_chars", SMALL_CHARS)
@pytest.mark.parametrize("pattern", PATTERNS)
def test_time_grows_with_the_text_and_not_with_its_square(pattern: str, small_chars: int) -> None:
    grows(clean_words, ("", pattern, ""), small_chars=small_chars)


MOST_BYTES = 50_000_000


@pytest.mark.slow(reason="growth: thousands of levels")
def test_images_in_images_take_no_memory_for_each_level() -> None:
    text = "![" * 16_000 + "](" * 16_000
    tracemalloc.start()
    try:
        clean_words(text)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < MOST_BYTES


@pytest.mark.parametrize("size", LARGE_CHARS)
def test_much_of_everything_is_read(size: int) -> None:
    text = "".join(pattern * 60 for pattern in PATTERNS)
    clean_words((text * 100)[:size])
