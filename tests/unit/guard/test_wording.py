"""What a model writes notifies nobody, commands nobody, closes nothing else and loads nothing; an independent
Markdown parser is the judge."""

from __future__ import annotations

import re
from html import unescape

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from orchestrator.guard.wording import BODY_CHARS, Wording
from orchestrator.guard.wording_links import Hosts

REPOSITORY = "https://github.com/owner/name"
WORDING = Wording(("github.com", "*.docs.example"), REPOSITORY)
HOSTS = Hosts.of(WORDING.hosts)
PARSER = MarkdownIt("commonmark", {"html": True}).enable("table").enable("strikethrough")

PIECES = [
    *("@victim", "@org/team", "a@b.example", "&#64;victim", "\\@victim", "_@victim", "@"),
    *(
        "https://evil.example/x",
        "www.evil.example",
        "https://github.com/a",
        "https://github.com@evil.example",
    ),
    *(
        "[a](https://evil.example)",
        "![a](https://evil.example/i.png)",
        "[a](//evil.example)",
        "[a](docs/a.md)",
    ),
    *(
        "[a]: https://evil.example",
        "[a]",
        "![a]",
        "[a](<https://evil.example`>)",
        "](https://evil.example)",
        "[",
    ),
    *("[a](&#x68;ttps://evil.example)", "<https://evil.example>", "[a](javascript:alert)", "![a](x.png)"),
    *(
        "<img src=https://evil.example>",
        "<details>",
        "</details>",
        "<b>",
        "<!--",
        "-->",
        "<summary>",
        "<pre>",
    ),
    *("<table>", "<td>", "<script>", "&lt;", "&#96;", "<a href='https://evil.example'>", "<p>", "<code>"),
    *("`", "``", "```", "```py", "~~~", "~~~ `", "    ```", "\t```", "   ~~~", "\\", "|", "|-|-|", "\\`"),
    *(
        "- ",
        "> ",
        "1. ",
        "    ",
        "\t",
        "# ",
        " ",
        " ",
        "\n",
        "\n",
        "\n",
        "\n\n",
        "\r",
        "\u00a0",
        "'",
        '"',
        "word",
    ),
    *(
        "/merge",
        "/lgtm\n",
        "&#47;merge",
        "fixes #12",
        "Closes",
        ":",
        "#12",
        "fixes &#35;12",
        "\u200b",
        "\u202e",
        "[^1]:",
    ),
]
documents = st.lists(st.sampled_from(PIECES), max_size=24).map("".join)


def live_text(markdown: str) -> tuple[list[str], list[str], list[str]]:
    """Text outside of code, targets of links and images, and raw HTML."""
    words: list[str] = []
    targets: list[str] = []
    html: list[str] = []
    for block in PARSER.parse(markdown):
        if block.type == "html_block":
            html.append(block.content)
        for token in block.children or []:
            if token.type == "text":
                words.append(token.content)
            elif token.type == "html_inline":
                html.append(token.content)
            targets += [str(value) for name, value in token.attrs.items() if name in ("href", "src")]
        if block.type == "inline":
            words.append("\n")
    return words, targets, html


def problems(markdown: str) -> list[str]:
    """What a forge would do with it."""
    words, targets, html = live_text(markdown)
    live = [*words, *(unescape(text) for text in html)]
    found = [text for text in live if re.search(r"(?<![A-Za-z0-9])@[A-Za-z0-9]", text)]
    found += [target for target in targets if not HOSTS.allow_target(target)]
    for (
        text
    ) in words:  # addresses within HTML are no links: https://github.github.com/gfm/#autolinks-extension-
        for match in re.finditer(r"(?:\w+://|\bwww\.)[^\s<]*", text):
            if not HOSTS.allow(match[0].rstrip("?!.,:*_~'\")];|")):
                found.append(match[0])
    tags = re.findall(r"<[!/?A-Za-z][^>]*>?", "\n".join(html))
    found += [tag for tag in tags if not re.fullmatch(r"</?[a-z]+>", tag) or "img" in tag]
    found += re.findall(r"^[\s>*+-]*/(?:merge|lgtm)(?=\s|$)", markdown, re.MULTILINE)
    found += re.findall(r"(?i)(?<![A-Za-z0-9])(?:fixes|closes):?\s*\\?#12", "".join(words))
    return found


@settings(max_examples=500)
@given(documents)
@example("- x\n  ```\n@victim")
@example("~~~ `\n~~~\n@victim")
@example("   ~~~\n~~~\n@victim")
@example("```\n\t```\n@a\n```\n@victim\n```")
@example("<details>\n```\n@victim\n```")
@example("| a | b |\n|-|-|\n| `a|b` `@victim |")
@example("a ` b\nc ` @victim ` d")
@example("[a`]: https://evil.example '`'\n\n[a`]")
@example("1. 1. <details> `@victim`")
@example("\\`@victim`")
@example("[a](<https://evil.example`>) `")
def test_nothing_happens_on_the_forge_and_a_second_time_changes_nothing(text: str) -> None:
    harmless = WORDING.text(text, issue=7)
    assert problems(harmless) == [], harmless
    assert WORDING.text(harmless, issue=7) == harmless


def test_the_judge_finds_each_kind_of_harm() -> None:
    for text in (
        *("hi @victim", "![a](https://evil.example/i.png)", "[a](https://evil.example)", "www.evil.example"),
        *("<img src=x>", "/merge", "Fixes #12", "[a]: https://evil.example\n\n[a]", "<details>\n`@victim`"),
    ):
        assert problems(text), text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Thanks @octocat and @org/team.", "Thanks @&#8203;octocat and @&#8203;org/team."),
        ("mail a@b.example", "mail a@b.example"),
        ("use `@property` here", "use `@property` here"),
        ("```python\n@property\n```", "```python\n@property\n```"),
        ("Fixes #7.", "Fixes #7."),
        ("Fixes #8.", "Fixes issue 8."),
        ("closes: other/repo#7", "closes: other/repo issue 7"),
        ("RESOLVED GH-9", "RESOLVED issue 9"),
        ("fixed\nhttps://github.com/owner/name/issues/12", "fixed\nowner/name issue 12"),
        ("fixes https://github.com/owner/name/issues/7", "fixes https://github.com/owner/name/issues/7"),
        ("See #12 for more.", "See #12 for more."),
        ("/merge", "&#8203;/merge"),
        ("> /lgtm now", "> &#8203;/lgtm now"),
        ("/usr/bin/env", "/usr/bin/env"),
        ("![Logo](https://evil.example/l.png)", "Logo (an image at `evil.example`)"),
        ("![Logo](https://github.com/l.png)", "![Logo](https://github.com/l.png)"),
        ("[x](https://evil.example/y)", "x (`https://evil.example/y`)"),
        ("[x](https://a.docs.example/y 'title')", "[x](https://a.docs.example/y)"),
        ("[x](https://docs.example.evil.example)", "x (`https://docs.example.evil.example`)"),
        ("[x](src/a.py#L3)", "[x](src/a.py#L3)"),
        ("see https://evil.example/a.", "see `https://evil.example/a`."),
        ("see https://github.com/a/b.", "see https://github.com/a/b."),
        ("a <!-- hidden\n words --> b", "a  b"),
        ("<details>\n\ntext\n\n</details>", "<details>\n\ntext\n\n</details>"),
        ("<img src=x onerror=y>", "&lt;img src=x onerror=y>"),
        ("a < b && c", "a &lt; b && c"),
        ("open\n```\ncode", "open\n```\ncode\n```"),
        ("1. one\n   ```sh\n   ls\n   ```", "1. one\n```sh\nls\n```"),
        ("```mermaid\nx\n```", "```text\nx\n```"),
        ("Co-authored-by: X", "Co-authored-by - X"),
        ("a [skip ci] [ci skip] ***NO_CI***", "a (skip ci) (ci skip) (NO_CI)"),
        ("hid\u200bden\u202e", "hidden"),
        ("👩\u200d💻 ✔️", "👩\u200d💻 ✔️"),
        ("a\r\nb", "a\nb"),
        ("", ""),
    ],
)
def test_markdown(text: str, expected: str) -> None:
    assert WORDING.text(text, issue=7) == expected


@pytest.mark.parametrize(
    "text", ["<!-- pullwright: 1 -->", "```\n<!-- pullwright:1 -->\n```", "`<!--Pullwright-->`"]
)
def test_a_model_cannot_write_our_own_marker(text: str) -> None:
    for harmless in (WORDING.text(text, issue=None), WORDING.message("", (text,)), WORDING.title(text)):
        assert not re.search(r"<!--\s*pullwright", harmless, re.IGNORECASE)


def test_lengths_have_limits() -> None:
    for text in (
        "x" * 200_000,
        "<" * 200_000,
        "word @a " * 30_000,
        "```\n" + "y\n" * 60_000,
        "&#64;" * 20_000,
    ):
        body = WORDING.text(text, issue=None)
        assert len(body) <= BODY_CHARS
        assert body.endswith("longer than 40,000 characters.)")
        assert problems(body) == []
        assert WORDING.text(body, issue=None) == body


def test_without_a_repository_only_plain_numbers_are_its_own() -> None:
    wording = Wording(("github.com",))
    assert wording.text("fixes #7, fixes a/b#7", issue=7) == "fixes #7, fixes a/b issue 7"


@pytest.mark.timeout(120)
@pytest.mark.parametrize(
    "piece",
    [
        "<!--",
        "[",
        "](",
        "`",
        "`` ` ",
        "@a",
        "&#64;",
        "a://",
        "fixes ",
        "<b>",
        "- ",
        "\\",
        "~~~\n",
        "[a](",
        "1. ",
        "a/",
    ],
)
def test_time_is_linear(piece: str) -> None:
    text = piece * (BODY_CHARS // len(piece))
    WORDING.text(text, issue=7)


@pytest.mark.parametrize(
    ("address", "allowed"),
    [
        ("https://github.com", True),
        ("https://GitHub.com:443/a", True),
        ("https://a.b.docs.example/x", True),
        ("https://docs.example/x", False),
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
    assert HOSTS.allow(address) is allowed


@pytest.mark.parametrize(
    "target", ["javascript:x", "data:text/html,x", "//evil.example", "\\\\evil", "/\\evil", "a:b"]
)
def test_targets_that_leave_the_repository(target: str) -> None:
    assert not HOSTS.allow_target(target)


@pytest.mark.parametrize(
    ("text", "end"),
    [
        ("<details><summary>a</summary>\n\nb", "b\n\n</details>"),
        ("<details>\n\n```\n</details>\n```", "```\n\n</details>"),
        ("<details>\n\nsee `</details>` there", "there\n\n</details>"),
        ("<DEL>a<b>b", "b\n\n</b></del>"),
        ("<ul><li>a</ul>", "\n\n</li>"),
        ("a<br>b<p>c</p>", "b<p>c</p>"),
        ("a</details>b", "a</details>b"),
    ],
)
def test_what_follows_is_not_folded_away(text: str, end: str) -> None:
    done = Wording().text(text, issue=None)
    assert done.endswith(end)
    assert Wording().text(done, issue=None) == done
