"""Titles, commit messages and single lines command nobody. Git and an independent Markdown parser are the judges."""

from __future__ import annotations

import html
import re
import subprocess
from typing import TYPE_CHECKING

from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from orchestrator.bot.git.clone import clean_message
from orchestrator.bot.policy.wording import MESSAGE_CHARS, TITLE_CHARS, Wording, in_markdown, plain_line
from orchestrator.engine.policy.secrets import Redactor
from tests.fuzz.growth import grows
from tests.tables import table

if TYPE_CHECKING:
    from pathlib import Path

WORDING = Wording()
title, message = WORDING.title, WORDING.message

# What services look for in a commit's message or in the title that becomes it, each in its own documentation: GitHub
# Actions, GitLab, CircleCI, Travis, Azure Pipelines, AppVeyor, Netlify, Buildkite, Vercel, Cloudflare Pages, Bitbucket,
# Semaphore, Codemagic, Render, Amplify, pre-commit.ci, Drone.
DIRECTIVES = [
    "[skip ci]", "[ci skip]", "[no ci]", "[skip actions]", "[actions skip]", "[skip-ci]", "[ci-skip]",
    "[skip_ci]", "***NO_CI***", "[skip azp]", "[azurepipelines skip]", "[skip appveyor]", "[skip netlify]",
    "[netlify skip]", "[skip travis]", "[travis-ci skip]", "[Skip CI]", "[CI SKIP]", "[CI-Skip]",
    "[CF-Pages-Skip]", "[vercel skip]", "[skip codemagic]", "[skip render]", "[render skip]", "[skip-cd]",
    "[pre-commit.ci skip]", "[skip  buildkite]", "[\u200bskip ci]", "[skip&#32;ci]", "[skip&nbsp;ci]",
    "&lsqb;skip ci]", "\uff3bskip ci\uff3d", "[ skip\tci ]", "[noci]",
]  # fmt: skip
COMMANDS = [
    "/approve", "/lgtm cancel", ".deploy production", "!build", "/test:all", "@dependabot merge", "/retest",
    "-rf", "# x", "\u200b/approve", f"{' ' * 21}/approve", "&#47;approve", "\uff0fapprove", "\u202e/approve",
    "&amp;#47;approve", "::set-output name=a::b", "##[add-mask]x", "##vso[task.setvariable variable=a]b",
    "> /approve", "- /approve",
]  # fmt: skip
TRAILERS = [
    "Signed-off-by: A <a@b.example>", "Signed-off-by          : x", "skip-checks&colon; true",
    "Co-authored-by:x", "Change-Id\t: I0123", "Release-As: 9.9.9", "Reviewed-by:", "Fixes: 0123abc",
    "key: value", "a-b:c", "(cherry picked from commit 0123)", "\u200bSigned-off-by: x",
    "Signed&#45;off-by: x", " Signed-off-by: x",
]  # fmt: skip
ORDINARY = [
    "Make add() add",
    "feat(api)!: take `a` and 'b'",
    "fix: keep x[0], y[i+1] and [WIP]",
    "[api] Return 404, not 500",
    "C# and F# are languages; it's 50% faster",
    "Ünïcode, 日本語 and 👩\u200d💻 stay",
    "\u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645",
]
PIECES = [
    *DIRECTIVES, *COMMANDS, *TRAILERS, *ORDINARY, "@victim", "&#64;victim", "_@victim", "Fixes #99",
    "closes a/b#12", "GH-9", "#", "#close", "fixes &#35;12", "https://github.com/o/n/issues/99",
    "https://evil.example/x", "www.evil.example", "x@evil.example", "GH-", "-9", "[a](https://evil.example)",
    "![a](https://evil.example/i.png)", "<img src=x>", "<!--", "-->", "<b>", "[", "](", "`", "``", "```",
    "~~~", "```yaml", "\\", "\\[", "|", "_", "__a__", "*", "**a**", "~~a~~", "$a$", ":tada:", "&", "- ", "* ",
    "> ", "1. ", "    ", "\t", "# ", " ", " ", "\n", "\n", "\n", "\n\n", "\n\n", "---", "===", "\r", "\u00a0",
    "diff --git a/x b/x", "From 0123 Mon Sep 17 00:00:00 2001", "Index: x", "word", "'", '"', ":", "amp;",
    "\u2028",
]  # fmt: skip
documents = st.lists(st.sampled_from(PIECES) | st.text(max_size=3), max_size=20).map("".join)
lines = st.lists(st.sampled_from(PIECES) | st.text(max_size=3), max_size=8).map("".join)
OURS = "Assisted-by: Pullwright:model\nSigned-off-by: Pullwright <bot@example.com>"

LIVE = (
    r"(?<![A-Za-z0-9])@\w",
    r"#\w",
    r"(?i)(?<![a-z0-9])gh-[0-9]",
    r"(?i)\[[^\[\]]*\b(?:skip|no)\b[^\[\]]*\]",
    r"(?i)\[[^\](\w]*(?:ci|cf|actions)[ _-]",
    r"\*\*\*",
    r"<!--",
    r"(?i)<img\s+src",
    r"\]\(",
    r"(?i)(?:close[sd]?|fix(?:e[sd])?|resolve[sd]?):?\s+\S*/(?:issues|pull)/[0-9]",
    r"##\w*\[",
)


def live(text: str) -> list[str]:
    """What is found anywhere in a commit's message or in a title by those who look there."""
    return [found[0] for pattern in LIVE if (found := re.search(pattern, text))]


def trailers(text: str) -> str:
    """What git takes for trailers. https://git-scm.com/docs/git-interpret-trailers"""
    command = ["git", "-c", "core.commentChar=;", "interpret-trailers", "--parse"]
    done = subprocess.run(command, input=text.encode(), capture_output=True, check=True, timeout=60)
    return done.stdout.decode().strip()


@table(
    ("text", "expected"),
    [
        ("Fix add()\n fixes #7 [skip ci]", "Fix add() fixes no. 7 (skip ci)"),
        ("See #12, a/b#3 and GH-9", "See no. 12, a/b no. 3 and GH 9"),
        ("Close https://github.com/o/n/issues/99#note", "Close o/n no. 99"),
        ("Thank @octocat", "Thank @ octocat"),
        ("@dependabot merge", "dependabot merge"),
        ("/approve", "`/approve`"),
        (f"\u200b{' ' * 21}/approve", "`/approve`"),
        (".gitignore: add build", "`.gitignore:` add build"),
        ("--help loads none", "`--help` loads none"),
        ("# Heading", "Heading"),
        ("- [ ] item", "[ ] item"),
        ("[[skip&#32;ci]]", "[(skip ci)]"),
        ("d[my_key] and x[0]", "d(my_key) and x[0]"),
        ("skip-checks&colon; true", "skip-checks - true"),
        ("&amp;amp;#64;victim", "victim"),
        ("[a](https://evil.example)", "[a] (`https://evil.example`)"),
        ("<!-- hidden --> a", "hidden --> a"),
        ("\u200b\u202e", ""),
        ("&#8203;", ""),
        ("", ""),
    ],
)
def test_a_title(text: str, expected: str) -> None:
    assert title(text) == expected


@table("text", ORDINARY)
def test_an_ordinary_title_stays_as_it_is(text: str) -> None:
    assert title(text) == text


@table("text", [*DIRECTIVES, *COMMANDS, *TRAILERS])
def test_nothing_is_left_of_a_directive_a_command_or_a_trailer(text: str) -> None:
    whole = message(title(text), (f"It adds.\n\n{text}\n\n```\n{text}\n```\n\n{text}",))
    assert live(title(text)) == []
    assert live(whole) == []
    assert trailers(whole) == ""
    for line in (title(text), *whole.split("\n")):
        assert not re.match(r"[@\\#]|-\w|\s*(?:[/!.]|::|[A-Za-z0-9]+-[A-Za-z0-9-]+\s*:)", line), line
    for line in whole.split("\n")[1:]:
        assert not re.match(r"[A-Za-z0-9-]+\s*:", line), line


@settings(max_examples=3 * settings().max_examples)
@given(lines)
@example("+semver: major")
@example("&am&#112;;#64;x")
@example("/a`b` c")
@example("`https://evil.example/x")
def test_a_title_is_inert_printable_and_stays_as_it_is(text: str) -> None:
    line = title(text)
    assert live(line) == []
    assert len(line) <= TITLE_CHARS
    assert not re.match(r"[!#-&)-/:;=->?@\\\]^_|}~]", line)
    assert all(char.isprintable() or char in "\u200c\u200d" for char in line)
    assert title(line) == line


@settings(max_examples=3 * settings().max_examples, deadline=None)
@given(documents, lines)
@example(
    "It adds.\n\nA: b\n(cherry picked from commit 0123)\nSigned-off-by: A <a@b.example>", "Signed-off-by: x"
)
@example("It adds.\n---\nx", "T")
@example("a\n\nkey:\n value", "T")
def test_git_finds_the_programs_trailers_and_no_other(text: str, headline: str) -> None:
    ours = message(title(headline), (text,), ("Fixes #7", OURS))
    assert trailers(clean_message(ours)) == OURS
    alone = message(title(headline) or "T", (text, ""))
    assert trailers(clean_message(alone)) == ""
    assert live(alone) == []


@table(
    ("text", "expected"),
    [
        ("Ask @octocat.", "Ask @ octocat."),
        ("Fixes #7\n\ncloses #8.", "> Fixes no. 7\n\ncloses no. 8."),
        ("Signed-off-by: A <a@b.example>", "> Signed-off-by - A <a@b.example>"),
        ("## Why ##\n\nNote: it\nExample:\nis so", "*Why*\n\nNote - it\nExample\nis so"),
        ("- a: b\n- /merge", "- a: b\n- `/merge`"),
        ("see\nhttps://docs.example/x\n10:30 it was", "see\n`https://docs.example/x`\n`10:30` it was"),
        ("\\[x\\] \\_a\\_ `a\\_b`", "[x] _a_ `a\\_b`"),
        ("`a\\_b` and \\_c\\_ `d\\_e` \\_f", "> `a\\_b` and _c_ `d\\_e` _f"),
        ("a\n\n---\n\nb", "a\n\n\n\nb"),
        ("```yaml\nkey: value\n/merge\n```", "key: value\n    `/merge`"),
        ("a <b> & `c`", "a <b> & `c`"),
        ("- item\n\n* item", "- item\n\n* item"),
        ("&lt;b&gt; &amp; c.", "<b> & c."),
        ("> recheck", "> recheck"),
        ("It adds.\n\nbors r+\n\nIt does.", "It adds.\n\n> bors r+\n\nIt does."),
        (
            "I have read the CLA Document and I hereby sign the CLA",
            "> I have read the CLA Document and I hereby sign the CLA",
        ),
        ("See www.evil.example/x, please.", "See `www.evil.example/x`, please."),
    ],
)
def test_the_words_of_a_commit(text: str, expected: str) -> None:
    assert message("", (text,)) == expected


def test_a_mail_with_the_message_is_one_mail_and_has_no_patch_but_its_own(tmp_path: Path) -> None:
    words = (
        "It adds.\n\ndiff --git a/x b/x\nFrom 0123456789 Mon Sep 17 00:00:00 2001\nIndex: x\n--- a/x\n+++ b/x"
    )
    mail = f"From 0123456789 Mon Sep 17 00:00:00 2001\nFrom: A <a@b.example>\nSubject: T\n\n{message('', (words,))}\n"
    box = tmp_path / "box"
    box.write_text(f"{mail}\n---\n")
    split = subprocess.run(
        ["git", "mailsplit", f"-o{tmp_path}", str(box)],
        capture_output=True,
        check=True,
        text=True,
        timeout=60,
    )
    assert split.stdout.strip() == "1"
    subprocess.run(
        ["git", "mailinfo", str(tmp_path / "message"), str(tmp_path / "patch")],
        input=(tmp_path / "0001").read_bytes(),
        capture_output=True,
        check=True,
        timeout=60,
    )
    assert (tmp_path / "message").read_text().split()[-1] == "b/x"
    assert (tmp_path / "patch").read_text().strip() == "---"


def test_long_texts_are_cut_and_the_programs_words_are_not() -> None:
    for text in (
        "x" * 60_000,
        "<" * 60_000,
        "word @a " * 9_000,
        "y\n" * 30_000,
        "&#64;" * 20_000,
        "&amp;" * 9_000,
    ):
        whole = message(title(text), (text,), (OURS,))
        assert len(title(text)) <= TITLE_CHARS
        assert len(whole) <= MESSAGE_CHARS + TITLE_CHARS + len(OURS) + 4
        assert trailers(clean_message(whole)) == OURS


PARSER = MarkdownIt("gfm-like", {"html": True, "linkify": False})


def shown(markdown: str) -> tuple[str, str, set[str]]:
    """What is seen of a list's item, what of it is no code, and what it is made of."""
    (inline,) = [token for token in PARSER.parse(f"- reason: {markdown}") if token.type == "inline"]
    children = inline.children or []
    words = "".join(token.content for token in children)
    return (
        words,
        "".join(token.content for token in children if token.type == "text"),
        {t.type for t in children},
    )


@settings(max_examples=3 * settings().max_examples)
@given(documents)
@example("![x](https://evil.example) **a** _b_ ~~c~~ `d")
@example("a|b\n|-|-|")
@example("a_b_ _c d_e")
def test_a_line_in_markdown_shows_the_words_and_nothing_else(text: str) -> None:
    line = in_markdown(text, 300)
    words, free, kinds = shown(line)
    assert kinds <= {"text", "code_inline"}
    assert words == f"reason: {plain_line(text, 300).replace('`', chr(39))}".rstrip()
    assert not re.search(r"@|#|//|www\.|<|&\w|(?i:gh-[0-9])|:\w+:|\$", free)
    assert len(line.splitlines()) <= 1


@table("text", [*COMMANDS, *TRAILERS, *DIRECTIVES])
def test_a_line_in_markdown_is_behind_a_word_of_ours_and_commands_nobody(text: str) -> None:
    _, free, _ = shown(in_markdown(text, 300))
    assert not re.search(r"(?:^|\s)[/!.@]\w", free)


@table(
    ("text", "expected"),
    [
        ("Fix `add` in a.py (was: 'sub')", "Fix `'add'` in a.py (was: 'sub')"),
        ("[a](https://evil.example) b", "`[a](https://evil.example)` b"),
        ("cc @a @b now", "cc `@a @b` now"),
        ("snake_case and __init__", "snake_case and `__init__`"),
        ("日本語 & ok", "日本語 & ok"),
        ("", ""),
    ],
)
def test_a_line_in_markdown(text: str, expected: str) -> None:
    assert in_markdown(text, 300) == expected


@table("piece", ["<!--", "[", "](", "`", "@a", "&#64;", "a://", "#1", "- ", "\\", "&amp;", "[skip ", "_"])
def test_time_is_linear(piece: str) -> None:
    def read(text: str) -> None:
        message(title(text), (text,))
        in_markdown(text, 300)

    grows(read, ("", piece, ""), small_chars=MESSAGE_CHARS // 2)


@given(documents)
@example("It adds.\n\nSigned-off-by: A <a@b.example>")
@example("Signed-off-by          : A <a@b.example>\nCo-authored-by: B <b@b.example>")
def test_a_squashed_pull_request_has_no_trailer_of_the_models(text: str) -> None:
    body = WORDING.text(text, issue=None)
    assert trailers(clean_message(f"T (#7)\n\n{body}")) == ""
    assert trailers(f"T (#7)\n\nIt adds.\n\n***\n\n{body}\n\n{OURS}") == OURS


_SIGNS = "*_`<>&\\|#[]()!~$@:\"'-+=.;{}^%/"


def _as_read(text: str) -> str:
    """A text as a person reads it: without escapes, and without what Markdown and the program put between."""
    return re.sub(r"\\(?=[^A-Za-z0-9\s])", "", html.unescape(text))


@given(st.data())
@settings(max_examples=100, deadline=None)
def test_no_form_of_a_text_shows_a_secret_whatever_signs_it_has(data: st.DataObject) -> None:
    """What writes to the forge redacts, too, but cannot recognize a password whose signs are escaped."""
    secret = data.draw(st.text(f"abcXYZ0189{_SIGNS}", min_size=8, max_size=40))
    known = Redactor([secret])
    assume(known.redact(secret) != secret)  # else it is an ordinary word
    wording = Wording(redact=known.redact)
    text = f"{data.draw(st.text(max_size=20))} {secret} {data.draw(st.text(max_size=20))}"
    for form in (
        wording.title(text),
        wording.inline(text),
        wording.text(text, issue=None),
        wording.comment(text, issue=None),
        wording.message("It is", [text]),
        wording.title(f"{'x ' * (TITLE_CHARS // 2 - 3)}{secret}"),
    ):
        assert secret not in _as_read(known.redact(form))
        letters = re.sub(r"[^A-Za-z0-9]", "", secret)
        assert len(letters) < 6 or letters not in re.sub(r"[^A-Za-z0-9]", "", _as_read(known.redact(form)))


@table("extra", [0, 1])
def test_a_message_is_cut_where_it_is_too_long_and_not_before(extra: int) -> None:
    lines = ["x" * 99] * 200
    words = "\n".join(lines)[: MESSAGE_CHARS - 1] + "y" + "z" * extra
    assert len(words) == MESSAGE_CHARS + extra
    _, body = WORDING.message("Title", [words]).split("\n\n", 1)
    if not extra:
        assert body == words
        return
    kept, note = body.split("\n\n")
    assert note == "(Cut here: the text was longer than 20,000 characters.)"
    assert kept == "\n".join(lines[:199]), "whole lines, and as many as there is room for"
    assert len(body) <= MESSAGE_CHARS


def test_as_much_of_a_message_is_kept_as_its_bound_allows() -> None:
    note = "(Cut here: the text was longer than 20,000 characters.)"
    room = MESSAGE_CHARS - len(f"\n\n{note}")
    for end, fits in ((room - 1, True), (room, False), (room + 2, False)):
        first = "a" * 10
        second = "b" * (end - 11)
        body = WORDING.message("", [f"{first}\n{second}\n{'c' * 1000}"])
        assert body == (f"{first}\n{second}\n\n{note}" if fits else f"{first}\n\n{note}")
        assert len(body) <= MESSAGE_CHARS
