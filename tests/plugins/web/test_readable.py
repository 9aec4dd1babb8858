"""What a page of HTML becomes for a model: Markdown of its main part, with links, and nothing that nobody sees."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.plugins.web.readable import MAIN_CHARACTERS, extract
from tests.tables import table

LONG = "word " * (MAIN_CHARACTERS // 4)
PAGE = "https://docs.example.org/guide/page.html"
TAGS = [
    "a",
    "b",
    "br",
    "p",
    "div",
    "ul",
    "li",
    "table",
    "tr",
    "td",
    "pre",
    "code",
    "h2",
    "main",
    "nav",
    "script",
    "title",
    "blockquote",
]


@table(
    "html, text",
    [
        ("<h1>One<h2>Two</h2>text", "# One\n\n## Two\n\ntext"),
        ("<h1>One <span>more</span><button>copy</button></h1>", "# One more"),
        ("<p>a\n b&amp;c<br>d<p>e", "a b&c\nd\n\ne"),
        ("a <a href='../x'> b </a> c", "a [b](https://docs.example.org/x) c"),
        ("<base href=/v2/><a href=y>b</a>", "[b](https://docs.example.org/v2/y)"),
        ("<a href='#x'>a</a><a href=javascript:x>b</a><a>c</a><a href='http://[x'>d</a>", "abcd"),
        ("<h2>Title<a href='#title'>¶</a></h2>", "## Title"),
        ("<a href=/x><h3>Card</h3><p>text</p></a>", "### [Card](https://docs.example.org/x)\n\ntext"),
        ("use <code>a  b</code><code></code>", "use `a b`"),
        ("<pre><code>if x:\n    y\n</code></pre>", "```\nif x:\n    y\n```"),
        ("<pre>```</pre>", "````\n```\n````"),
        ("<pre><div>a</div><div>b</div></pre>", "```\na\nb\n```"),
        ("<ul><li>a<ul><li>b</ul><li><p>c<p>d</ul>", "- a\n  - b\n- c\n\n  d"),
        ("<ol><li>a<li>b</ol>", "1. a\n2. b"),
        ("<blockquote><p>a<p>b</blockquote>c", "> a\n\n> b\n\nc"),
        (
            "<table><tr><th>n<th>v<tr><td><p>a</p>b<td>1</table>",
            "| n | v |\n| --- | --- |\n| a b | 1 |",
        ),
        ("<table><tr><td>1<td><pre>a\nb</pre></table>", "1\n\n```\na\nb\n```"),
        ("a<![if IE]>b<![endif]><![foo[c]]>d<!-- <p>e -->f<!-- g>", "abdf"),
        ("a<p hidden>b</p><p style='color: red; display : none'>c</p><p aria-hidden=true>d</p>e", "a\n\ne"),
        (
            "a<script>b</script><style>c</style><noscript>d</noscript><svg><title>e</title><path/>f</svg>g",
            "ag",
        ),
        ("</p></div>a</table></li><td>b", "a\n\nb"),
    ],
)
def test_html_becomes_markdown(html: str, text: str) -> None:
    assert extract(html, PAGE)["text"] == text


@table(
    "html, is_shown",
    [
        (f"<nav>around</nav><main>{LONG}</main>", False),
        (f"<p>around</p><div role=main>{LONG}</div>", False),
        (f"<div role=navigation>around</div><p>{LONG}</p><footer>around</footer>", False),
        ("<nav>around</nav><main>short</main>", True),
        (f"<main><header>around</header>{LONG}</main>", True),
    ],
)
def test_the_main_part_is_shown_where_it_is_long_enough(html: str, is_shown: bool) -> None:  # noqa: FBT001
    assert ("around" in extract(html, PAGE)["text"]) == is_shown


def test_a_title_is_one_line() -> None:
    assert extract("<title>a\n &lt; b</title><svg><title>c</title></svg>", PAGE)["title"] == "a < b"


@given(st.lists(st.sampled_from([*TAGS, *(f"/{tag}" for tag in TAGS), "!--", "![x[", "!x", ""]), max_size=40))
def test_no_order_of_tags_breaks_it_or_loses_plain_text(tags: list[str]) -> None:
    html = "".join(f"<{tag}>x" if tag else "x" for tag in tags)
    assert set(extract(html, PAGE)["text"]) <= set("x`#-|> \n.0123456789<![")
    assert "seen" in extract("".join(f"<{tag}></{tag}>" for tag in TAGS) + "<p>seen", PAGE)["text"]
