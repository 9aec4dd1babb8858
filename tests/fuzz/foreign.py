"""Every hand-written reader of foreign text, by name, and texts that would be hard for one of them.

A reader must end with a value or one of the errors of `orchestrator.core.errors`, whatever the text, in time
that grows with the length of the text.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.app import words
from orchestrator.app.html import page as html_page
from orchestrator.bot.coordination.records import _checked as checked_ref
from orchestrator.bot.cycle import propose, relevance, repository_rules, tasks
from orchestrator.bot.forge import public_web
from orchestrator.bot.git import clone, hostgit
from orchestrator.bot.policy import change_checks, hidden_characters, incoming, test_listing
from orchestrator.bot.policy.wording import Wording, in_markdown, plain_line
from orchestrator.bot.verification import page, python_tests, reports, suggest
from orchestrator.bot.verification.trees import TestFiles
from orchestrator.core import changes, json_rpc, prompts, redaction
from orchestrator.core.changes import FileChange, FileVersion
from orchestrator.core.errors import PullwrightError
from orchestrator.engine.contracts import plan_json, whole_file
from orchestrator.engine.contracts.json_plan import _end_of_thoughts
from orchestrator.engine.contracts.written_calls import written_calls
from orchestrator.engine.environments.declared_encodings import (
    EDITORCONFIG,
    GITATTRIBUTES,
    DeclaredEncodings,
)
from orchestrator.engine.environments.patterns import PathPattern, _parsed
from orchestrator.engine.models import failures, refusals, wire
from orchestrator.engine.policy import file_syntax, secret_values, shell
from orchestrator.engine.policy.secrets import Redactor
from orchestrator.engine.session import compaction
from orchestrator.engine.tools import matching, textfile
from orchestrator.engine.tools.patches import formats
from tests.fuzz import commands, growth, plans

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tests.fuzz.growth import Reader

NOW = datetime(2026, 11, 27, tzinfo=UTC)
_WORDING = Wording()
_REDACTOR = Redactor(("zebra-quartz-mellow-finch-0123456789",))
_SOME_CODE = "def f(x):\n    return x + 1\n" * 50


def _version(text: str) -> FileVersion:
    data = text.encode("utf-8", "replace")
    return FileVersion("100644", data, len(data))


def _change(path: str, text: str) -> FileChange:
    return FileChange(path, _version(_SOME_CODE), _version(text))


def _tolerantly(text: str) -> None:
    for start in ("{", "["):
        with suppress(plan_json.BrokenJsonError):
            plan_json.read_tolerantly(start + text, 0)


def _strictly(text: str) -> None:
    with suppress(plan_json.BrokenJsonError):
        plan_json.flaws(plan_json.parse_json(text))


def _error_body(text: str) -> None:
    headers = {"retry-after": text[:1_000], "content-type": "application/json"}
    for body in (text, f'{{"error": {{"message": {text!r}}}}}', f'{{"error": "{text}"}}'):
        failures.error_from_body(400, headers, body.encode("utf-8", "replace"), NOW, "host")


def _error_text(text: str) -> None:
    refusals.is_overflow(400, text[: failures._MAX_READ_CHARACTERS], "")


def _report(text: str) -> None:
    starts = (
        "",
        "<testsuite>",
        '{"Action":"output","Package":"p","Output":"',
        '{"results":{"tests":[{"name":"',
    )
    for start in starts:
        with suppress(PullwrightError, ValueError):
            reports.read_report((start + text).encode("utf-8", "replace"))


def _suggested(path: str) -> Reader:
    return lambda text: suggest.suggest(
        [path, "tests/test_a.py", "src/a.py"], lambda p: text if p == path else None
    )


def _nearest(text: str) -> None:
    lines = text.split("\n")
    matching.describe_nearest(lines, [*lines[::2], "x"], "f", again=True)


def _places(text: str) -> None:
    for old in (text[: len(text) // 2], text[1:], "x" + text[:200], "\n".join(text.split("\n")[::2]) + "x"):
        if old:
            matching.find_text(text, old)


def _file_pattern(text: str) -> None:
    for make in (PathPattern.for_paths, PathPattern.for_filter):
        with suppress(PullwrightError):
            make(text[:1_000]).matches(("a" * 200, text[:200].replace("/", "a") or "b"))


def _ignored(text: str) -> None:
    for rule in _parsed(text.encode("utf-8", "replace")):
        rule.matches(b"a" * 250)
        rule.matches(text[:250].encode("utf-8", "replace"))


def _declared(name: str) -> Reader:
    """Read a text as `.editorconfig` or `.gitattributes`, and look up a deep path in it."""

    def read(text: str) -> None:
        content = (
            f"[*]\ncharset=latin1\n[{text}]\ncharset=utf-8\n{text}\n{text} working-tree-encoding=UTF-16LE\n"
        )
        data = content.encode("utf-8", "replace")
        found = DeclaredEncodings(lambda names: data if names == (name,) else b"")
        found.of(("a", "b", "deep", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa.txt"))

    return read


def _diff(text: str) -> None:
    head = "diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -0,0 +1,999999 @@\n"
    for diff in (text, head + text):
        with suppress(PullwrightError, ValueError):
            change_checks.places_of_secrets(diff, lambda part: "\0" in part)
        html_page.read_diff(diff)
        changes.diff_stat(diff)
        propose.quoted_patch(diff)


def _secrets(text: str) -> None:
    _REDACTOR.redact(text)


def _syntax(path: str) -> Reader:
    return lambda text: file_syntax.newly_unreadable(path, b"", text.encode("utf-8", "replace"))


def _shell(text: str) -> None:
    shell.scan_deep(text[:8_192])


def _markdown(text: str) -> None:
    _WORDING.text(text[:40_000], issue=1)


def _answer(text: str) -> None:
    tasks.with_choice(text, f"Which?\n\n1. {text[:1_000]}\n2. b")
    tasks.is_ours(text)


def _text_file(text: str) -> None:
    textfile.lines_of(textfile.decode_text("f", text.encode("utf-8", "replace")).text)


def _address(text: str) -> None:
    with suppress(PullwrightError):
        public_web.parse_address(f"http://{text}")


def _model_json(text: str) -> None:
    with suppress(ValueError):
        json_rpc.read_json(text)
    wire.read_arguments(text)


def _tests_of(text: str) -> None:
    test_listing.list_tests(
        [_change("tests/test_a.py", text), _change("a.test.ts", text), _change("a_test.go", text)]
    )
    python_tests.copy_tests("tests/test_a.py", text.encode("utf-8", "replace"), ["test_a"], ("a", "b"))


def _rust(text: str) -> None:
    TestFiles().merged_sources([_change("src/lib.rs", text)])


def _calls(text: str) -> None:
    python_tests.parse_pytest(text)
    with suppress(PullwrightError):
        python_tests.checked_ids([text], {"tests/test_a.py"})


_OWN: Mapping[str, Reader] = {
    # A model's reply and its calls.
    "plan, tolerantly": _tolerantly,
    "plan, strictly": _strictly,
    "plan in a reply": growth._plan,
    "calls in a reply": lambda text: written_calls(text, plans.TOOLS, 1),
    "whole files in a reply": whole_file.fenced_blocks,
    "thoughts in a reply": _end_of_thoughts,
    "arguments of a call": _model_json,
    "reply in words": words.reply_in_words,
    "patch": growth._patched,
    "patch around a patch": formats.unwrapped,
    "file pattern": _file_pattern,
    "places in a file": _places,
    "nearest lines": _nearest,
    "text of a file": lambda text: _suppressed(_text_file, text),
    "path": growth._path,
    "command, strictly": growth._strictly,
    "command, loosely": _shell,
    "command rules": lambda text: commands.RULES.refusal(text[:8_192]),
    "named paths": lambda text: [*compaction._NAMED_PATH.finditer(text)],
    # A server, and the web.
    "error body": _error_body,
    "error text": _error_text,
    "address": _address,
    "git's errors": lambda text: hostgit.error_for(text, "x"),
    "git's words": lambda text: (hostgit.server_words(text), hostgit.main_line(text), hostgit.without_trace(text)),
    # A person's text.
    "issue, cleaned": incoming.clean_words,
    "title, cleaned": incoming.clean_name,
    "hidden characters": hidden_characters.show_hidden,
    "all invisible": hidden_characters.without_invisible,
    "decoded text": hidden_characters.decoded_text,
    "query of an issue": lambda text: relevance.query_of(text[:500], text),
    "checklist": lambda text: [*tasks.checklist("f", text)],
    "slug": tasks.slug,
    "answer": _answer,
    "notes": propose.notes_in,
    "report in a text": page.find_block,
    # What leaves the process.
    "title": _WORDING.title,
    "inline text": _WORDING.inline,
    "Markdown": _markdown,
    "comment": lambda text: _WORDING.comment(text[:40_000], issue=None),
    "commit message": lambda text: _WORDING.message("a", [text]),
    "commit message, as git cleans it": clone.clean_message,
    "plain line": lambda text: (plain_line(text, 200), in_markdown(text, 300)),
    "terminal": words.clean,
    "secrets": _secrets,
    "escapes": lambda text: secret_values.decoded(text.encode("utf-8", "replace")),
    "known tokens": redaction.without_secrets,
    "fence": prompts.fenced,
    "one line": lambda text: prompts.one_line(text, limit=200),
    # A repository.
    "ignore rules": _ignored,
    "editorconfig": _declared(EDITORCONFIG),
    "attributes": _declared(GITATTRIBUTES),
    "template": lambda text: repository_rules.fill_template(text, text),
    "etiquette": lambda text: repository_rules.read_etiquette(["CONTRIBUTING.md"], {"CONTRIBUTING.md": text}),
    "owners": lambda text: repository_rules.owners_of(text, ["a" * 200, ascii(text[:200])]),
    "tests": _tests_of,
    "tests in Rust": _rust,
    "test command": _calls,
    "diff": _diff,
    "report of tests": _report,
    "ref": lambda text: _suppressed(checked_ref, f"refs/pullwright/{text}"),
    "JSON file": _syntax("a.json"),
    "TOML file": _syntax("a.toml"),
    "YAML file": _syntax("a.yaml"),
    "Python file": _syntax("a.py"),
    **{f"suggestion by {path}": _suggested(path) for path in (
        "package.json", "pyproject.toml", "setup.cfg", "tox.ini", "Cargo.toml", "go.mod", "pom.xml", "Gemfile",
        "composer.json", "Makefile", "README.md", "CONTRIBUTING.md", ".github/workflows/ci.yml", "noxfile.py",
        "requirements-dev.txt",
    )},
}  # fmt: skip
_OF_PLUGINS = [
    import_module(f"tests.plugins.{file.parent.name}.foreign")
    for file in sorted((Path(__file__).parents[1] / "plugins").glob("*/foreign.py"))
]
READERS: Mapping[str, Reader] = dict(_OWN) | {
    name: reader for one in _OF_PLUGINS for name, reader in one.READERS.items()
}
"""Each reader, by what it reads."""
KNOWN_OF_PLUGINS: list[tuple[str, tuple[str, str, str]]] = [
    known for one in _OF_PLUGINS for known in one.KNOWN
]


def _suppressed(reader: Callable[[str], Any], text: str) -> None:
    with suppress(PullwrightError):
        reader(text)


SIGNS = " \t\n\r`*_[]()<>{}&#-=+.,:;'\"\\/|!?@$%^~0a\u00e9\u4e2d\0\x1b\x90\u0301\u202e\ufeff\u200b\U000e0041"
PIECES = (
    *SIGNS,
    "<!--", "-->", "<!---->", "<!-- -->", "<![CDATA[", "<?", "<a ", "<a>", "</a>", "<a b=", "<a b='", '<a b="', "<details>",
    "<h1 ", "<!doctype ", "<svg>", "<pre>", "](", "[](", "[a](b ", "![", "[a]", "[^a]", "[a]: b\n", "][", "``", "`a", "```\n",
    "~~~\n", "```json\n", "> ", ">", "- ", "* ", "1. ", "- [ ] a\n", "* * ", "**a", "__a", "_a", "*a_", "~~", "&amp;", "&#", "&a",
    "&#x41;", "{{", "${", "${a:-", "$(", "$", '\\"', "\\'", "\\\\", "''", '""', '"a" ', "'a' ", '{"a":', '{"a', "[[", "[{", "{a:", "//\n",
    "//", "/*", "/**/", "#\n", "<<a\n", "<<<<<<< ", "@@ -1 +1 @@\n", "@@ a\n", "diff --git a/x b/x\n", "diff --git ", "+++ b/x\n", "--- a\n",
    "--- a/x\n+++ b/x\n", "*** Update File: a\n", "\x1b[", "\x1b]", "\x1b]8;;", "a\u0301", "\u0301\u0323", "\ud800", "http://", "http://a",
    "https://a/pull/1", "www.", "://", "a://", "@a", "#1", "a#1 ", "fixes #1 ", "fixes ", "[ci skip]", "[a ", "[a_", "GH-1", "|a", "|-", "|-|\n",
    "a|b\n", "\n\n", " \n", "\r\n", "a\n", "a ", "a b", "9", "1e9", "1.", "0x", "def f(", "def f():\n ", "class A:\n ", "((", "lambda:", "f'{",
    "not ", "1+", "a.", "a[", "@a\n", "a=", "a = 1\n", "a: ", "a:\n", "- a\n", "  a:\n", "&a ", "*a ", "<testcase>", "<testsuite>", "<testcase/>", "&lol;",
    "===\n", "---\n", "***\n", "run: ", "      - run: a\n", "A=b ", "--a ", "- ", "-a ", "a/", "../", "./", "**/", "*a", "{a,", "[a-", "eyJ", "sk-", "ghp_",
    "AKIA", "a@b", "a:b@", "exceed", "context ", "limit ", "max_", "retry after ", "1s", "1m ", "claude-", "name:\n\t", "\t\t\n", "error: ", "remote: ",
    "fatal: ", "#[cfg(test)]\n", "#[cfg(test)]\nmod a {\n", "#[", "Signed-off-by: a\n", "a: b\n", "::", "##[", "<tool>", "<tool_call>", "<think>",
    "</think>", "<function=a>", "<pullwright", "<!-- pullwright:", "we ban ", "do not use AI", "import pytest\n", "rem ", "s/a/b/;", "a(){ ", "`a`",
)  # fmt: skip
BEGINS = ("", "a ")
ENDS = ("", "\0!")
NOISE_S = {"Markdown": 2.0, "comment": 2.0, "nearest lines": 0.5, "owners": 0.5}
"""What a text may cost before growth is looked at, in seconds, if it is more than `USUAL_NOISE_S`.

The package that parses Markdown needs more than linear time for the 40,000 characters to which a text is cut. Nearest
lines are scored for at most 200 lines, and the owners of a path cost its depth times the lines.
"""
USUAL_NOISE_S = 0.1
