"""What a model writes notifies nobody, commands nobody, closes nothing else, loads nothing and hides nothing.

GitHub's own parser reads what goes out, and git looks for trailers.
"""

from __future__ import annotations

import json
import re
import subprocess
import unicodedata
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from orchestrator.bot.policy.wording import BODY_CHARS, Hosts, Wording
from tests.doubles.github_page import github_page
from tests.tables import table

LINKED = ("github.com", "*.docs.example")
WORDING = Wording(LINKED)
HOSTS = Hosts.of(LINKED)
SPEC: list[str] = json.loads(
    (Path(__file__).parents[3] / "data" / "markdown" / "gfm-spec.json").read_text(encoding="utf-8")
)

TAGS = frozenset(
    re.findall(
        r"\w+",
        "p h1 h2 h3 h4 h5 h6 ul ol li input blockquote pre code table thead tbody tr th td strong em del a hr",
    )
)
DRAWN = frozenset({"mermaid", "geojson", "topojson", "stl", "math", "suggestion"})
DIRECTIVES = ("[skip ci]", "[ci skip]", "[no ci]", "[skip actions]", "[actions skip]", "***no_ci***")
CLOSING = re.compile(
    r"(?i)\b(?:close[sd]?|fix(?:e[sd])?|resolve[sd]?)(?:\s*:\s*|\s+)"
    r"((?:[\w.-]+/[\w.-]+)?#|gh-|https?://github\.com/[^\s/]+/[^\s/]+/(?:issues|pull)/)([0-9]+)"
)
MARKED = re.compile(r"[>|]|[-+] |#{1,6} |[0-9]+[.)] |\*\*\*$")
FOOTER = "What the program says below."

PIECES = [
    "a@-b.example", "a@.b.example", "a@_b.example", "xmpp:a@-b.example", "@victim", "@org/team", "a@b.example",
    "&#64;victim", "\\@victim", "_@victim", "@", "<a@b.example>", "https://evil.example/x", "www.evil.example",
    "https://github.com/a", "https://github.com@evil.example", "[a](https://evil.example)",
    "![a](https://evil.example/i.png)", "[a](//evil.example)", "[a](docs/a.md)", "[a]: https://evil.example",
    "[a]", "![a]", "[a](<https://evil.example`>)", "](https://evil.example)", "[",
    "[a](&#x68;ttps://evil.example)", "<https://evil.example>", "[a](javascript:alert)", "![a](x.png)",
    "[a](</x)(https://evil.example>)", "[![a](b.png)](docs/c)", "<https://github.com/b>", "(", ")", "!", "^",
    "<img src=https://evil.example>", "<details>", "</details>", "<b>", "<!--", "-->", "<summary>", "<pre>",
    "<table>", "<td>", "<script>", "&lt;", "&#96;", "<a href='https://evil.example'>", "<p>", "<code>", "<br>",
    "`", "``", "```", "```py", "~~~", "~~~ `", "    ```", "\t```", "   ~~~", "\\", "|", "\n|-|-|\n", "\\`",
    "- ", "> ", "1. ", "    ", "\t", "# ", " ", " ", "\n", "\n", "\n", "\n\n", "\r", "\u00a0", "'", '"',
    "word", "/merge", "/lgtm\n", "&#47;merge", "fixes #12", "Closes", ":", "#12", "fixes &#35;12", "\u200b",
    "\u202e", "[^1]:", "[^1]", "> [!NOTE]\n", "$", "$x$", "$$", "***", "**", "*", "_", "~~", "~", "NO_CI",
    "+ ", "2) ", "[skip ci]", "[skip&#32;ci]", "skip", "ci", "]", "[ ] ", "- [x] a", "\n---\n", "\n===\n",
    "&amp;", "&#10;", "\n|a|b|\n|-|-|\n|c|d|", "```mermaid\n", "Signed-off-by: X <x@y.example>", "bors r+",
    "!build", ".deploy", "https://github.com/owner/name/issues/12", "中文", "Upper", "<!-- pullwright:1 -->",
    "\n\n\n", "  \n",
]  # fmt: skip
documents = st.lists(st.sampled_from(PIECES), max_size=24).map("".join)


def is_ours(target: str) -> bool:
    """Whether a browser stays on the hosts that are allowed."""
    address = urlsplit(target)
    host = address.netloc.lower()
    if not address.scheme and not host:
        return not target.startswith("//")
    return address.scheme in {"http", "https"} and (host == "github.com" or host.endswith(".docs.example"))


def problems(markdown: str) -> list[str]:
    """What a forge, programs that read raw text, and git would do with it."""
    page = github_page(f"{markdown}\n\n{FOOTER}")
    found = [*(page.tags - TAGS), *page.odd, *DRAWN.intersection(page.languages)]
    found += [target for target in page.links if not is_ours(target)]
    found += re.findall(r"(?<!\w)@[^\W_]\S*", page.words)
    found += [line for line in page.words.split("\n") if line.count("$") > 1]
    for text in (markdown, page.words.replace("\0", ""), page.code):
        closed = CLOSING.finditer(text)
        found += [match[0] for match in closed if match[2] != "7" or "other/" in match[1]]
    raw = unicodedata.normalize("NFKC", markdown).lower()
    found += [directive for directive in DIRECTIVES if directive in raw]
    found += re.findall(r"<!--\s*pullwright", raw)
    found += [] if page.top[-1:] == [FOOTER] else ["the footer is hidden"]
    lines = [line.strip() for line in markdown.split("\n") if line.strip()]
    found += [line for line in lines if not MARKED.match(line) and (len(line) < 100 or line[0] in "/!.@")]
    return found


def trailers(text: str) -> str:
    command = ["git", "interpret-trailers", "--parse"]
    return subprocess.run(
        command, input=f"Title\n\n{text}\n", capture_output=True, text=True, check=True
    ).stdout


def words(markdown: str, *, targets: bool) -> str:
    """What somebody reads, and where links lead."""
    page = github_page(markdown)
    return f"{page.words} {page.code} {' '.join(page.links if targets else ())}".replace("\0", "")


@table(
    "text",
    [
        "hi @victim", "![a](https://evil.example/i.png)", "[a](https://evil.example)", "www.evil.example",
        "<img src=x>", "/merge", "Fixes #12", "[a]: https://evil.example\n\n[a]", "<details>\n`@victim`",
        "a@b.example", "<!--", "<details>", "```", "$a$", "```mermaid\n```", "[skip ci]", "- x\n\n  bors r+",
        "x [^1]\n\n[^1]: y", "<p>", "a <!-- b --> c", "`<!-- pullwright:1 -->`", "> ```\n> fixes #12\n> ```",
    ],
)  # fmt: skip
def test_the_judge_finds_each_kind_of_harm(text: str) -> None:
    assert problems(text)
    assert trailers("Signed-off-by          : X <x@y.example>")


@settings(max_examples=3 * settings().max_examples)
@given(documents)
@example("a@-b.example a@.b.example xmpp:a@_b.example")
@example("- x\n  ```\n@victim")
@example("~~~ `\n~~~\n@victim")
@example("   ~~~\n~~~\n@victim")
@example("```\n\t```\n@a\n```\n@victim\n```")
@example("<details>\n```\n@victim\n```")
@example("| a | b |\n|-|-|\n| `a|b` `@victim |")
@example("a ` b\nc ` @victim ` d")
@example("[a`]: https://evil.example '`'\n\n[a`]")
@example("1. 1. <details> `@victim`")
@example("[a](<https://evil.example`>) `")
@example("&#8203;<p> `<img src=https://evil.example>` @victim")
@example("<!--\n\n**Opened by nobody**")
@example("~~~\n@victim\n~~~")
@example("[a](</x)(https://evil.example>)")
@example("\u200b" + " " * 21 + "/approve")
@example("| a |\n|-|\n| `a\\|b` `\\\\|` |")
def test_nothing_happens_on_the_forge_and_a_second_time_changes_nothing(text: str) -> None:
    body, comment = WORDING.text(text, issue=7), WORDING.comment(text, issue=7)
    assert problems(body) == [], body
    assert problems(comment) == [], comment
    assert all(line.startswith(">") for line in comment.splitlines())
    assert WORDING.text(body, issue=7) == body
    assert WORDING.comment(comment, issue=7) == comment


@settings(max_examples=settings().max_examples // 2)
@given(documents)
def test_git_finds_no_trailer(text: str) -> None:
    assert trailers(WORDING.text(text, issue=7)) == ""


def test_the_examples_of_githubs_specification() -> None:
    lost = []
    for text in SPEC:
        body, comment = WORDING.text(text, issue=7), WORDING.comment(text, issue=7)
        assert problems(body) == [], body
        assert problems(comment) == [], comment
        assert WORDING.text(body, issue=7) == body
        before, after = words(text, targets=False), words(body, targets=True)
        kept = "".join(re.findall(r"[^\W_]+", after))
        if not all(word in kept for word in re.findall(r"[^\W_]+", before)):
            lost.append(text)
    # A reference to a reference is decoded to the end, and the parsers differ about a backtick in an address.
    assert len(lost) <= 3, lost


@table(
    "line",
    [
        "/approve", "&#8203;/approve", "\u200b" + " " * 21 + "/approve", "/test:all", "!build",
        ".deploy production", "bors r+", "ok to test", "recheck", "@dependabot merge", "- x\n\n  recheck",
        "```\nrecheck\n```", "::error::x", "I have read the CLA Document and I hereby sign the CLA",
        "/approve " + "and here are many more words, so that it looks like a sentence " * 3,
    ],
)  # fmt: skip
def test_no_command_stands_alone(line: str) -> None:
    word = re.findall(r"[/!.@:]*\w+", line)[-1]
    for text in (WORDING.text(line, issue=7), WORDING.comment(line, issue=7)):
        assert word.strip("/!@") in text
        assert all(raw.lstrip().startswith((">", "- ")) for raw in text.splitlines() if raw), text
        assert "```" in text or "/approve" not in text


@table(
    "text",
    [
        "Signed-off-by          : X <x@y.example>", "Co-authored-by: X <x@y.example>",
        "Change-Id: I0123456789", "skip-checks&colon; true", "Release-As: 9.0.0", "- : x", "Fixes: 0123abc",
        "```\nSigned-off-by: X\n```",
        "BREAKING-CHANGE: " + "and here are many more words, so that it looks like a sentence " * 3,
        "- a\n\n  Signed-off-by: X <x@y.example>\n  Signed-off-by: Y <x@y.example>",
    ],
)  # fmt: skip
def test_trailers(text: str) -> None:
    assert trailers(WORDING.text(text, issue=7)) == ""
    assert trailers(WORDING.comment(text, issue=7)) == ""


@table(
    ("text", "expected"),
    [
        ("Thanks @octocat and @org/team.", "Thanks @&#8203;octocat and @&#8203;org/team."),
        ("mail a@b.example", "mail a@&#8203;b.example"),
        ("use `@property` here", "use `@property` here"),
        ("Fixes #7.", "Fixes #7."),
        ("Fixes #8.", "Fixes issue 8."),
        ("Fixes **#8**", "Fixes **issue 8**"),
        ("`fixes #8`", "`fixes issue 8`"),
        ("closes: other/repo#7", "closes: other/repo issue 7"),
        ("RESOLVED GH-9", "RESOLVED issue 9"),
        ("fixed\nhttps://github.com/owner/name/issues/12", "fixed owner/name issue 12"),
        (
            "fixes https://github.com/owner/name/issues/7",
            "fixes owner/name issue 7",
        ),
        ("See #12 and other/repo#3.", "See #12 and other/repo#3."),
        ("/merge", "&#47;merge"),
        ("/usr/bin/env", "&#47;usr/bin/env"),
        ("![Logo](https://evil.example/l.png)", "Logo (`https://evil.example/l.png`)"),
        ("![Logo](https://github.com/l.png)", "[Logo](https://github.com/l.png)"),
        ("[x](https://evil.example/y)", "x (`https://evil.example/y`)"),
        ("[x](https://a.docs.example/y 'title')", "[x](https://a.docs.example/y)"),
        ("[x](https://docs.example.evil.example)", "x (`https://docs.example.evil.example`)"),
        ("[x](src/a.py#L3)", "[x](src/a.py#L3)"),
        ("wow\\![x](src/a.py)", "wow\\![x](src/a.py)"),
        ("[a](</x)(https://evil.example>)", "[a](/x%29%28https%3A//evil.example)"),
        ("see https://evil.example/a.", "see `https://evil.example/a`."),
        ("see https://github.com/a/b.", "see <https://github.com/a/b>."),
        ("a <!-- hidden\n words --> b", "a b"),
        ("<img src=x onerror=y>", "&lt;img src=x onerror=y>"),
        ("a < b && c", "a &lt; b && c"),
        ("a List<String> and H<sub>2</sub>O", "a List&lt;String> and H2O"),
        ("costs $5, was $6", "costs `$5,` was `$6`"),
        ("costs $5", "costs $5"),
        ("a [skip ci] [ci skip] ***NO_CI***", "a (skip ci) (ci skip) _**NO_CI**_"),
        ("[skip&#32;ci] \uff3bskip ci\uff3d `[CF-Pages-Skip]`", "(skip ci) (skip ci) `(CF-Pages-Skip)`"),
        ("[skip ci](docs/a.md)", "skip ci"),
        ("`a[0]` and `[tool.ruff]` [x] and [2]", "`a[0]` and `[tool.ruff]` \\[x\\] and \\[2\\]"),
        ("hid\u200bden\u202e", "hidden"),
        ("👩\u200d💻 ✔️", "👩\u200d💻 ✔️"),
        ("snake_case **bold** _em_ ~~no~~ `a``b`", "snake_case **bold** _em_ ~~no~~ ```a``b```"),
        ("`&lt;` is &lt; and &amp;lt;", "`&lt;` is &lt; and &lt;"),
        ("a\r\nb  \nc\\\nd", "a b c d"),
    ],
)
def test_lines(text: str, expected: str) -> None:
    assert WORDING.text(text, issue=7) == f"> {expected}"
    assert WORDING.text(f"- {text}", issue=7) == f"- {expected}" or "\n" in text
    assert WORDING.comment(text, issue=7) == f"> {expected}"


LONG = (
    "This sentence is long enough to stand for itself, because nobody would take it for a command; "
    "it only goes on for a while."
)


@table(
    ("text", "expected"),
    [
        (LONG, LONG),
        (LONG.replace("; ", ":\n"), LONG.replace("; ", ": ")),
        (f"Note: {LONG}", f"Note\\: {LONG}"),
        (f"{LONG}\n\nRun it:\n\n```sh\nls\n```", f"{LONG}\n\n> Run it:\n>\n> ```sh\n> ls\n> ```"),
        ("Title\n=====\n\n## Two ##", "# Title\n\n## Two"),
        ("```python\n@property\n```", "> ```python\n> @property\n> ```"),
        ("    indented\n\tcode", "> ```\n> indented\n> code\n> ```"),
        ("open\n```\ncode", "> open\n>\n> ```\n> code\n> ```"),
        ("1. one\n   ```sh\n   ls\n   ```\n2. two", "1. one\n\n   > ```sh\n   > ls\n   > ```\n\n2. two"),
        ("```mermaid\nx\n```", "> ```text\n> x\n> ```"),
        ("````\n```\n````", "> ````\n> ```\n> ````"),
        ("* a\n* b\n    * c\n\n+ d", "- a\n- b\n  - c\n\n+ d"),
        ("- a\n\n- b", "- a\n\n- b"),
        ("3. a\n4. b", "3. a\n4. b"),
        ("999999998. a\n1. b", "999999998. a\n999999999. b"),
        ("999999999. a\n1. b", "1. a\n2. b"),
        ("- a\n  1. b", "- a\n  1. b"),
        ("- a\n\n  2. b", "- a\n\n  2. b"),
        ("- [ ] a\n- [X] b", "- [ ] a\n- [X] b"),
        ("|a|b|\n|:-|-:|\n|`x\\|y`|1 \\| 2|", "| a | b |\n| :-- | --: |\n| `x\\|y` | 1 &#124; 2 |"),
        ("<details>\n<summary>Log</summary>\n\n- text\n\n</details>", "> Log\n\n- text"),
        ("<!--\nhidden\n-->\n# a", "# a"),
        ("> a\n> b\n\n---", "> a b\n\n***"),
        ("**Notes**\n\n- a\n\n**Use C#**", "#### Notes\n\n- a\n\n> **Use C#**"),
        ("> [!NOTE]\n> a", "> **Note:** a"),
        (f"# 标题\n\n{'很长的句子' * 7}", f"# 标题\n\n{'很长的句子' * 7}"),
        ("", ""),
        ("<!-- -->", ""),
    ],
)
def test_blocks(text: str, expected: str) -> None:
    assert WORDING.text(text, issue=7) == expected


def test_a_comment_is_one_quote() -> None:
    text = "# Done\n\n- a\n- b\n\n```py\nx\n```"
    assert WORDING.comment(text, issue=7) == "> # Done\n>\n> - a\n> - b\n>\n> ```py\n> x\n> ```"


@table("text", ["<!-- pullwright: 1 -->", "```\n<!-- pullwright:1 -->\n```", "`<!--Pullwright-->`"])
def test_a_model_cannot_write_our_own_marker(text: str) -> None:
    for harmless in (WORDING.text(text, issue=None), WORDING.message("", (text,)), WORDING.title(text)):
        assert not re.search(r"<!--\s*pullwright", harmless, re.IGNORECASE)


@pytest.mark.parametrize("text", [f"{'> ' * 200}@victim", f"{'- ' * 200}@victim"])
def test_what_cannot_be_shown_to_be_harmless_is_code(text: str) -> None:
    harmless = WORDING.text(text, issue=7)
    assert harmless == "\n".join(["> ```text", *(f"> {line}".rstrip() for line in text.split("\n")), "> ```"])
    assert problems(harmless) == []
    assert WORDING.text(harmless, issue=7) == harmless


@table("text", ["x" * 40_001, "&#64;" * 9_000])
def test_a_text_just_too_long_is_cut_and_says_so(text: str) -> None:
    body = WORDING.text(text, issue=None)
    assert BODY_CHARS // 2 < len(body) <= BODY_CHARS
    assert body.endswith("longer than 40,000 characters.)")


@pytest.mark.slow(reason="growth: texts of hundreds of thousands of characters")
@table(
    "text", ["x" * 200_000, "<" * 200_000, "word @a " * 30_000, "```\n" + "y\n" * 60_000, "&#64;" * 20_000]
)
def test_lengths_have_limits(text: str) -> None:
    for make in (WORDING.text, WORDING.comment):
        body = make(text, issue=None)
        assert len(body) <= BODY_CHARS
        assert body.endswith("longer than 40,000 characters.)")
        assert problems(body) == []
        assert make(body, issue=None) == body


def test_only_plain_numbers_are_its_own() -> None:
    assert WORDING.text("- fixes #7, fixes a/b#7", issue=7) == "- fixes #7, fixes a/b issue 7"


@pytest.mark.slow(reason="growth: hostile texts of hundreds of thousands of characters")
@table(
    "piece",
    [
        "<!--", "[", "](", "`", "`` ` ", "@a", "&#64;", "a://", "fixes ", "<b>", "- ", "\\", "~~~\n", "[a](",
        "1. ", "a/", "![", "[a][", "**a", "*a* ", "> ", "> a\n", "- a\n", "|a|b|\n|-|-|\n", "$a ", "# a\n",
        "[a]: b\n",
    ],
)  # fmt: skip
def test_hostile_texts_are_read_to_the_end(piece: str) -> None:
    """Exponential time would need hours for some of these, deep nesting the whole stack."""
    assert len(WORDING.text(piece * (10_000 // len(piece)), issue=7)) <= BODY_CHARS


@table(
    ("address", "allowed"),
    [
        ("https://github.com", True),
        ("https://GitHub.com:443/a", True),
        ("https://a.b.docs.example/x", True),
        ("https://docs.example/x", False),
        ("https://evildocs.example/x", False),
        ("https://github.com.evil.example", False),
        ("https://evilgithub.com", False),
        ("https://github.com@evil.example", False),
        ("https://github.com\\@evil.example", False),
        ("https://github.com:8080/", False),
        ("https://xn--gthub-n4a.com", False),
        ("https://g\u0131thub.com", False),
        ("//github.com", False),
        ("ftp://github.com", False),
    ],
)
def test_hosts(address: str, allowed: bool) -> None:  # noqa: FBT001  a case of the table
    assert Hosts.of(LINKED).allow(address) is allowed


@table("target", ["javascript:x", "data:text/html,x", "//evil.example", "\\\\evil", "/\\evil", "a:b"])
def test_targets_that_leave_the_repository(target: str) -> None:
    assert not HOSTS.allow_target(target)
