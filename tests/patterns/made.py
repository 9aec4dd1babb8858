"""What the code does not say of the program's patterns: examples of those made of values, and how long a text can be."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, TypeAlias

from orchestrator.app.doctor import repository as doctor
from orchestrator.bot.cycle import relevance
from orchestrator.bot.policy import change_checks, hidden_markup
from orchestrator.bot.verification import base as verification
from orchestrator.engine.environments import patterns
from orchestrator.engine.models import catalog, failures, openai_responses
from orchestrator.engine.policy import command_rules, destructive, secrets
from orchestrator.engine.policy.shell import STAR
from orchestrator.engine.session import history
from tests.plugins import is_of_absent_plugin

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

Examples: TypeAlias = "Callable[[], Iterable[Any]]"


def _kept() -> Iterable[Any]:
    """Return nothing: what is made is kept in a table of the module, and found there."""
    return ()


def _of_own_attacks() -> Iterable[Any]:
    """Return nothing: these are written in the program's own attacks, and search what its own stage shows."""
    return ()


def _of_a_limited_process() -> Iterable[Any]:
    """Return nothing: these are a model's or a server's own, and run in a process that has a time limit."""
    return ()


def _protected_paths() -> Iterable[Any]:
    for _, check in change_checks._rules().checks:
        owner = check.__self__  # type: ignore[attr-defined]
        if isinstance(owner, re.Pattern):
            yield owner
        else:
            yield from (one.regex for one in owner.patterns)


def _secrets() -> Iterable[Any]:
    return [compiled for group in secrets._compiled() for _, compiled, *_ in group.patterns]


def _rules() -> Iterable[Any]:
    words = ("git", f"git{STAR}", f"{STAR}a{STAR}b{STAR}c", f"{STAR}aa{STAR}aa{STAR}")
    return [command_rules._expression(word, letter) for word in words for letter in ("[^/]", ".")]


def _html_lines() -> Iterable[Any]:
    rule: Any = hidden_markup._html_rule()
    return [part for begin, end, _ in rule.__globals__["HTML_SEQUENCES"] for part in (begin, end)]


def _ignore_rules() -> Iterable[Any]:
    lines = (rb"*a*a*a*b", rb"a**/b/**/c*d*e", rb"**/a/**/b", rb"[a-z]*[!a]?*\*x", rb"a/**")
    return [re.compile(patterns._expression(line) or b"", re.DOTALL) for line in lines]


def _any_case(words: Iterable[str]) -> list[Any]:
    return [re.compile(one, re.IGNORECASE) for one in words]


MADE: dict[tuple[str, str], Examples] = {
    ("app.doctor.repository", "words"): lambda: _any_case(doctor._REFUSED),
    ("plugins.onboarding.files", "pattern"): lambda: [
        re.compile(one, re.MULTILINE)
        for one in (
            r"- uses: \$/\.github/actions/pullwright.*$",
            r'max-usd: "[^"]*"',
            r" *setup-command: \$\{\{[^{}\n]*\}\}\n",
            r"test-command: \$\{\{[^{}\n]*\}\}",
        )
    ],
    ("plugins.onboarding.files", "f'^{key}[ \\\\t]*=.*$'"): lambda: [
        re.compile(r"^model[ \t]*=.*$", re.MULTILINE)
    ],
    ("plugins.redteam.judge", "pattern"): _of_own_attacks,
    ("plugins.redteam.planted", "f'(?:\\\\b{form}\\\\s+){{4,}}'"): lambda: [
        rf"(?:\b{form}\s+){{4,}}" for form in ("[0-3][0-7]{2}", "[0-9a-f]{4}")
    ],
    ("bot.cycle.relevance", "_DEFINITION.format(re.escape(word))"): lambda: [
        relevance._DEFINITION.format("word")
    ],
    ("bot.cycle.repository_rules", "pattern"): _kept,
    ("plugins.backtest.past_changes", "f'(?<![\\\\w/])(?:GH-|#){real.pull}\\\\b'"): lambda: [
        r"(?<![\w/])(?:GH-|#)12\b"
    ],
    ("bot.git.hostgit", "pattern"): _kept,
    ("bot.verification.printed", "_NUMBER.sub('[0-9]{1,9}', pattern)"): _kept,
    (
        "bot.policy.change_checks",
        "'|'.join((*([f\"(?:^|/)(?:{'|'.join(names)})\"] if names else []), *others))",
    ): _protected_paths,
    ("bot.policy.hidden_markup", "pattern"): _html_lines,
    (
        "bot.policy.hidden_markup",
        "f'(?im)\\\\n[ \\\\t>]*+(?!{begins_block}){TAG}[ \\\\t\\\\f]*+$'",
    ): lambda: [hidden_markup._tag_line_pattern()],
    ("bot.policy.hidden_markup", "f'(?:[ \\\\t]*+>){{0,{most}}}+'"): lambda: [
        rf"(?:[ \t]*+>){{0,{most}}}+" for most in (1, 3, "")
    ],
    ("bot.policy.wording", "unsafe"): lambda: [r"[()@$\[\]*`|<>:]"],
    ("bot.verification.base", "f'\\\\b(?:{names})\\\\b'"): lambda: [
        rf"\b(?:{names})\b" for names, _ in verification._HOSTS_BY_INSTALLER
    ],
    ("bot.verification.suggest", "f'\\\\b{package}\\\\b'"): lambda: [r"\bpytest\b"],
    (
        "bot.verification.trees",
        "f'(?<![\\\\w./-])(?:\\\\./)?{re.escape(path)}(?![\\\\w/-]|\\\\.\\\\w)'",
    ): lambda: [r"(?<![\w./-])(?:\./)?run/tests\.sh(?![\w/-]|\.\w)"],
    ("bot.worker.candidates", "form"): lambda: [r"(?:review|line|comment)-[0-9]{1,20}", r"[0-9a-f]{40,64}"],
    ("engine.contracts.plan_json", "f'[^{kind}\\\\\\\\]*+(?>(?:\\\\\\\\.[^{kind}\\\\\\\\]*+)*)'"): _kept,
    ("engine.contracts.written_calls", "f'(?>(?:\\\\s{{1,99}}|{marks}|{_BETWEEN})*)'"): _kept,
    ("engine.environments.patterns", "expression"): _ignore_rules,
    ("engine.models.catalog", "row.pattern"): lambda: [row.pattern for row in catalog.KNOWN],
    ("engine.models.failures", "rule.words"): lambda: _any_case(
        rule.words for rule in (*failures._FIRST_RULES, *failures._REQUEST_RULES, *failures._STREAM_RULES)
    ),
    ("engine.models.openai_responses", "words"): lambda: _any_case(
        words for _, words in openai_responses._REFUSALS
    ),
    ("engine.models.refusals", "'|'.join(patterns)"): _kept,
    ("plugins.agents.protocols", "pattern"): _kept,
    ("engine.policy.command_rules", "f'{first}{parts}{letter}*{last}'"): _rules,
    ("engine.policy.command_rules", "first"): lambda: ["git"],
    ("engine.session.history", "_mention(names, kind)"): lambda: [
        history._mention(["wait", "run_it"], kind) for kind in history.TurnKind
    ],
    ("engine.policy.destructive", "again"): lambda: [
        destructive._again("a"),
        destructive._again(":"),
    ],
    (
        "engine.policy.secret_values",
        "b'\\\\x00*+'.join((re.escape(bytes((byte,))) for byte in needle))",
    ): lambda: [rb"p\x00*+a\x00*+s\x00*+s"],
    ("engine.policy.secrets", "one.regex"): _secrets,
    ("engine.policy.shell", "f'^\\\\t*{re.escape(name)}$'"): lambda: [re.compile(r"^\t*EOF$", re.MULTILINE)],
    ("engine.environments.limited_child", "pattern"): _of_a_limited_process,
    ("plugins.web.readable", "pattern"): _of_a_limited_process,
    ("engine.tools.patches.formats", 'f"""{re.escape(heredoc[\'word\'])}[\'\\\\")]*"""'): lambda: [
        r"EOF['\")]*"
    ],
}
MADE = {key: made for key, made in MADE.items() if not is_of_absent_plugin(f"{key[0].replace('.', '/')}/")}
"""For each pattern that a call of `re` makes, by its module and its text: patterns as it makes them."""

ONLY_WHOLE = frozenset(
    {
        ("engine.environments.patterns", "expression"),
        ("engine.policy.command_rules", "f'{first}{parts}{letter}*{last}'"),
    }
)
"""The patterns that are made in one place and matched against whole texts elsewhere."""

SHORT_TEXTS = {
    "plugins.onboarding.files pattern": "in the program's own workflow",
    "bot.git.foreign._VALUE": "at one place: where it fails, reading ends",
    "bot.policy.change_checks '|'.join((*([f\"(?:^|/)(?:{'|'.join(names)})\"] if names else []), *others))": (
        "in a path of at most 4,096 characters, _MOST_PATH_CHARS"
    ),
    "bot.policy.hidden_markup._LOOSE_TAG": "the first `<` at which it fails ends the text: the tag is not closed",
    "bot.policy.hidden_markup._ANGLE_ADDRESS": "once behind each `](`, and a text with these ends at its `<`",
    "bot.policy.hidden_markup._TITLE_AND_END": "once behind each address, and a title ends at the next quote",
    "bot.verification.trees._RUST_TESTS": "at one place: the last `#[cfg(test)]` that begins a line",
    "engine.contracts.json_plan._OPEN_FENCE": "in the 20 characters before a plan, _FENCE_CHARS",
    "engine.contracts.json_plan._END_OF_ANSWER": "once behind each object, in the text up to the next one",
    "engine.contracts.json_plan._SENTENCE": "once behind each object, in the text up to the next one",
    "engine.contracts.plan_json._NUMBER": "at one place: where it fails, reading ends",
    "engine.contracts.plan_json._CUT_NUMBER": "at one place: where it fails, reading ends",
    "engine.environments.patterns._PIECES": "in a file pattern of at most 1,000 characters, _MAX_PATTERN_CHARS",
    "engine.models.failures rule.words": "in 8,000 characters of an error, _MAX_READ_CHARACTERS",
    "engine.models.refusals._TOO_LONG": "in 8,000 characters of an error, failures._MAX_READ_CHARACTERS",
    "engine.policy.secret_values._NAMED_LETTER": "in the name of a character in the Unicode tables",
    "engine.policy.secret_values._JWT_HEADER": "in a secret that the user himself set",
    "engine.policy.shell._TOKEN": "at one place: where it fails, reading ends",
}
SHORT_TEXTS = {
    where: why
    for where, why in SHORT_TEXTS.items()
    if not is_of_absent_plugin(f"{where.split()[0].replace('.', '/')}/")
}
"""Patterns that would take longer in a search over any text, each with what bounds the text that they meet."""
