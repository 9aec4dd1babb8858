from __future__ import annotations

import base64
import difflib
import hashlib
import re
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import jinja2
import pytest
from hypothesis import given
from hypothesis import strategies as st
from lxml import html

from orchestrator.app.html.page import (
    Badge,
    Block,
    Code,
    DiffBlock,
    DiffPair,
    Facts,
    HtmlPage,
    Link,
    Moment,
    Notice,
    Output,
    PlainText,
    Section,
    Step,
    Table,
    cut_middle,
    html_from_template,
    read_diff,
    render_page,
)

AT = datetime(2026, 11, 23, 13, 30, 59, tzinfo=UTC)


def every_block(text: str) -> list[Block]:
    return [
        PlainText(text),
        Notice("warning", text),
        Facts([(text, text), (text, Code(text)), (text, Badge(text)), (text, Link(text, text))]),
        Table([text], [[text], [Moment(AT)]], caption=text),
        Table([text], []),
        Output(text, text),
        Step(text, "ok", text, AT, text, [Output(text, text)]),
        Step(text, is_heading=True),
        DiffBlock(text),
        DiffBlock(f"diff --git a/{text} b/{text}\n@@ -1 +1 @@\n-{text}\n+{text}"),
        DiffPair(text, text, text, text),
    ]


def page_of(text: str) -> str:
    blocks = every_block(text)
    page = HtmlPage(text, [Section(text, [*blocks, Section(text, blocks, text)], text)], text, Badge(text))
    return render_page(page, str)


def test_no_text_becomes_markup_wherever_it_stands() -> None:
    attack = (
        "\"'></title></style></pre></details><script>alert(1)</script><img src=x onerror=a>{{ 7*7 }}{% raw %}"
    )
    tags = {one.tag for one in html.document_fromstring(page_of("plain")).iter()}
    attacked = html.document_fromstring(page_of(attack))
    assert {one.tag for one in attacked.iter()} <= tags
    assert not [name for one in attacked.iter() for name in one.attrib if name.startswith("on")]
    assert "{{ 7*7 }}{% raw %}" in attacked.xpath("//h1")[0].text_content()


@given(st.text(max_size=40))
def test_any_text_leaves_the_structure_as_it_is(text: str) -> None:
    known = {"html", "head", "meta", "link", "title", "style", "body", "header", "main", "section", "span"}
    known |= {
        "h1",
        "h2",
        "h3",
        "p",
        "dl",
        "div",
        "dt",
        "dd",
        "code",
        "table",
        "thead",
        "tbody",
        "tr",
        "th",
        "td",
    }
    known |= {"details", "summary", "pre", "i", "time", "caption"}
    found = html.document_fromstring(page_of(text))
    assert {one.tag for one in found.iter() if isinstance(one.tag, str)} <= known


@pytest.mark.parametrize("hidden", ["\u202e", "\u2066", "\x1b", "\x00", "\u200b", "\x07"])
def test_what_a_person_cannot_see_is_not_in_the_page(hidden: str) -> None:
    assert hidden not in page_of(f"a{hidden}b")


@pytest.mark.parametrize(
    "url",
    ["javascript:alert(1)", "data:text/html,x", "//host/x", "/x", "http:x", "https://[", "https://x\n", ""],
)
def test_only_addresses_of_the_web_are_links(url: str) -> None:
    facts = Facts([("at", Link("text", url))])
    found = html.document_fromstring(render_page(HtmlPage("page", [Section("section", [facts])]), str))
    assert (found.xpath("//a"), found.xpath("//dd")[0].text_content()) == ([], "text")


def test_a_secret_that_cleaning_joins_is_taken_out() -> None:
    page = render_page(HtmlPage("pass\x1b[0mword"), lambda text: text.replace("password", "[redacted]"))
    assert "<h1>[redacted]</h1>" in page


def test_colours_of_a_terminal_are_no_text() -> None:
    output = Output("pytest", "\x1b[31mFAILED\x1b[0m a")
    assert "<pre>FAILED a</pre>" in render_page(HtmlPage("page", [Section("out", [output])]), str)


def test_the_policy_allows_this_style_sheet_and_nothing_else() -> None:
    page = page_of("text")
    (style,) = re.findall(r"<style>(.*?)</style>", page, re.DOTALL)
    (policy,) = html.document_fromstring(page).xpath("//meta[@http-equiv='Content-Security-Policy']/@content")
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    assert f"style-src 'sha256-{digest}'" in policy
    assert policy.startswith("default-src 'none'; ")
    assert "unsafe" not in policy
    assert not html.document_fromstring(page).xpath("//script | //@style | //@src")
    assert "@import" not in style
    assert "url(" not in style


def test_times_are_shown_in_the_zone_that_is_named() -> None:
    facts = Facts([("at", Moment(AT))])
    page = render_page(HtmlPage("page", [Section("section", [facts])]), str, ZoneInfo("Europe/Berlin"))
    assert '<time datetime="2026-11-23T13:30:59+00:00">2026-11-23 14:30 CET</time>' in page


def test_the_middle_of_a_long_output_is_left_out_and_counted() -> None:
    text = "\n".join(f"line {number}" for number in range(1, 1_001))
    first, left_out, last = cut_middle(text)
    assert (first.split("\n")[-1], left_out, last.split("\n")[0]) == ("line 300", 600, "line 901")
    assert "600 lines are left out here" in render_page(
        HtmlPage("page", [Section("out", [Output("out", text)])]), str
    )
    assert cut_middle("short\n") == ("short", 0, "")
    assert cut_middle("x" * 200_010)[0].endswith("x… 10 more characters")


def test_a_value_that_is_missing_is_an_error() -> None:
    with pytest.raises(jinja2.UndefinedError):
        html_from_template("page.html", {}, str)


GIT = r"""diff --git a/calc.py b/calc.py
index 1..2 100644
--- a/calc.py
+++ b/calc.py
@@ -1,3 +1,4 @@ def add
 def add(a, b):
--- not a header
+++ neither is this
+    return a + b
 end
\ No newline at end of file
diff --git "a/gr\303\274n.txt" "b/gr\303\274n.txt"
new file mode 100644
Binary files /dev/null and b/x differ
"""

texts = st.lists(st.text(st.characters(exclude_characters="\r\n"), max_size=20), max_size=12)


def test_lines_have_their_kinds_and_numbers() -> None:
    first, second = read_diff(GIT)
    assert first.path == "calc.py"
    assert [(line.kind, line.sign + line.text, line.old, line.new) for line in first.lines] == [
        ("hunk", "@@ -1,3 +1,4 @@ def add", None, None),
        ("same", " def add(a, b):", 1, 1),
        ("removed", "--- not a header", 2, None),
        ("added", "+++ neither is this", None, 2),
        ("added", "+    return a + b", None, 3),
        ("same", " end", 3, 4),
        ("note", r"\ No newline at end of file", None, None),
    ]
    assert (first.added, first.removed) == (2, 1)
    assert second.path == r"gr\303\274n.txt"
    assert [line.kind for line in second.lines] == ["note", "note"]


@given(texts, texts)
def test_every_changed_line_of_any_diff_is_in_it(before: list[str], after: list[str]) -> None:
    diff = list(difflib.unified_diff(before, after, "a/x", "b/x", lineterm=""))
    files = read_diff("\n".join(diff))
    assert [one.path for one in files] == (["x"] if diff else [])
    shown = [line.sign + line.text for one in files for line in one.lines]
    assert shown == diff[2:]


@given(st.text(max_size=300))
def test_what_is_no_diff_is_still_shown(text: str) -> None:
    lines = [line for one in read_diff(text) for line in one.lines]
    assert len(lines) <= text.count("\n") + 1
    if "--- " not in text and "+++ " not in text and "index " not in text and text.strip():
        assert sum(len(line.text) + len(line.sign) for line in lines) >= len(text.replace("\n", "")) - 1


@pytest.mark.parametrize("most", [0, 1, 5])
def test_what_is_left_out_is_counted(most: int) -> None:
    whole = sum(len(one.lines) for one in read_diff(GIT))
    files = read_diff(GIT, most)
    assert sum(len(one.lines) for one in files) == most
    assert sum(one.left_out for one in files) == whole - most


def test_a_pair_has_the_files_of_both_first() -> None:
    def of(*names: str) -> str:
        return "".join(f"diff --git a/{name} b/{name}\n@@ -1 +1 @@\n-a\n+b\n" for name in names)

    pair = DiffPair(of("one", "two"), of("three", "two"), "left", "right")
    assert [(path, left is not None, right is not None) for path, left, right in pair.rows] == [
        ("two", True, True),
        ("one", True, False),
        ("three", False, True),
    ]
