"""Whether settings of tests, coverage, linters and type checkers demand less than before."""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Any

from orchestrator.guard.integrity_formats import read, reader_for
from orchestrator.guard.integrity_patterns import added_lines, lines_of
from orchestrator.guard.integrity_tests import Finding

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_NAMES = re.compile(
    r"pyproject\.toml|setup\.cfg|tox\.ini|pytest\.ini|\.?pytest\.toml|\.coveragerc|\.?mypy\.ini|\.?ruff\.toml|\.flake8|\.?pylintrc|"
    r"pylintrc\.toml|pyrightconfig\.json|package\.json|tsconfig[\w.-]*\.json|\.nycrc(?:\.json|\.ya?ml)?|\.eslintrc(?:\.\w+)?|"
    r"eslint\.config\.[cm]?[jt]s|(?:jest|vitest|vite|playwright|karma)\.config\.[cm]?[jt]sx?|\.mocharc(?:\.\w+)?|\.?codecov\.ya?ml|"
    r"\.golangci\.(?:ya?ml|toml|json)|\.?clippy\.toml|Cargo\.toml|phpunit\.xml(?:\.dist)?|phpstan\.neon(?:\.dist)?|"
    r"\.rubocop\.ya?ml|\.rspec|\.simplecov|biome\.jsonc?|\.importlinter|noxfile\.py|conftest\.py|\.c8rc(?:\.json)?|\.jshintrc",
    re.DOTALL,
)
_SECTIONS = re.compile(
    r"(?:tool[.:])?(?:pytest|coverage|mypy|ruff|pylint|pyright|flake8|hypothesis|importlinter|tox|isort|bandit|pydocstyle)"
    r"|run|report|jest|nyc|c8|scripts|eslintConfig|mocha|ava|lints|compilerOptions|testenv|MASTER|MAIN|MESSAGES|"
    r"lint|format|rules|overrides|select|ignore|extend|check-coverage|branches|lines|functions|statements|strict|report\w+|"
    r"MESSAGES CONTROL|type\w+|ignorePatterns|linter"
)
_THRESHOLD = re.compile(
    r"(?:^|\.)(?:fail[_-]under|coverageThreshold\..+|thresholds?\..+|lines|branches|functions|statements|target|fail_under)$",
    re.IGNORECASE,
)
_STRICT = re.compile(
    r"(?:^|\.)(?:strict\w*|xfail_strict|warn_\w+|disallow_\w+|no_implicit_\w+|check_untyped_defs|extra_checks|"
    r"noImplicit\w+|noUnused\w+|noUnchecked\w+|noFallthrough\w+|exactOptional\w+|alwaysStrict|branch|"
    r"check-coverage|checkCoverage|exhaustive|forbidOnly|typeCheckingMode|all)$"
)
_LENIENT = re.compile(
    r"(?:^|\.)(?:ignore_errors|ignore_missing_imports|follow_imports_for_stubs|skipLibCheck|allow_\w+|exit-zero|"
    r"passWithNoTests|implicit_reexport|skip_covered|bail_out_ok|allow-\w+|derandomize)$"
)
_GROWS = re.compile(
    r"(?:^|\.)(?:omit|exclude(?:_lines|_also|Files)?|extend[_-]exclude|ignore|extend[_-]ignore|per[_-]file[_-]ignores(?:\.[^\n]+)?|"
    r"extend-per-file-ignores(?:\..+)?|disable\w*|norecursedirs|testPathIgnorePatterns|coveragePathIgnorePatterns|modulePathIgnorePatterns|"
    r"ignorePatterns|ignore_imports|skips|disable_error_code|per_rule_ignores\.\w+|filterwarnings|unfixable_ignored)$"
)
_SHRINKS = re.compile(
    r"(?:^|\.)(?:select|extend[_-]select|enable|enable_error_code|source|source_pkgs|testpaths|testMatch|collectCoverageFrom|"
    r"python_files|python_classes|python_functions)$"
)
_OVERRIDES = re.compile(r"(?:^|\.)overrides\[(?P<module>.*)\]\.(?P<key>\w+)$")
_WEAK_WORDS = re.compile(
    r"--deselect\b|--ignore(?:-glob)?[ =]\S*|-[km][ =]?[\"']?not\b[^\"']*|--passWithNoTests|--exit-zero|--no-cov\b|-p[ =]?no:\S+|"
    r"(?:\|\||;)\s*(?:true|:|exit 0)(?!\w)|--no-strict\S*|--allow-\w+|-x test\b|-W[ =]?ignore\S*"
)
_NUMBER_WORDS = re.compile(
    r"--(?:cov-fail-under|fail-under|max-warnings|lines|branches)[= ]\"?(\d+(?:\.\d+)?)"
)
_LEVELS = {"off": 0, "0": 0, "allow": 0, "basic": 0, "warn": 1, "1": 1, "standard": 1, "error": 2, "2": 2, "deny": 2,
           "strict": 2, "forbid": 3}  # fmt: skip
_RULE = re.compile(r"(?:^|\.)(?:rules|lints)\.|(?:^|\.)(?:typeCheckingMode|report\w+)$")
_TAKES_OVER = frozenset({"pytest.ini", ".pytest.ini", "pytest.toml", ".pytest.toml", "mypy.ini", ".mypy.ini", "ruff.toml",
                         ".ruff.toml", ".coveragerc"})  # fmt: skip
"""Their tools read these and no others: https://docs.pytest.org/en/stable/reference/customize.html"""


def is_settings(path: str) -> bool:
    """Whether a file of this name sets what tests and checks demand."""
    return _NAMES.fullmatch(path.rpartition("/")[2]) is not None


def weaker_settings(path: str, before: bytes, after: bytes) -> Iterator[Finding]:
    """Where settings demand less. A file that could be read and cannot be any more is a finding."""
    name = path.rpartition("/")[2]
    if not before and name in _TAKES_OVER:
        yield Finding(path, 1, "new settings take the place of those in other files")
    reader = reader_for(name)
    old = None if reader is None else read(reader, before)
    if reader is None or old is None:
        for line, what in _by_pattern(before, after):
            yield Finding(path, line, what)
        return
    new = read(reader, after)
    if new is None:
        yield Finding(path, 1, "cannot be read any more")
        return
    lines = lines_of(after or before)
    for key, what in _compared(old, new):
        # A new file has nothing to compare with but commands and overrides.
        if before or what.endswith("added") or what.startswith("override"):
            yield Finding(path, _line_of(key, lines), what)


def _compared(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for key in sorted({*old, *new}):
        before, after = old.get(key), new.get(key)
        if before == after or not _SECTIONS.match(key):
            continue
        if before is None and _new_table(key, old):
            what = _override(key, before, after)
        else:
            what = _override(key, before, after) or _loosened(key, before, after)
        if what:
            yield key, what


def _new_table(key: str, old: Mapping[str, Any]) -> bool:
    """A table of an array that was not there is a new check, not a loosened one."""
    table, found, _ = key.rpartition("]")
    return bool(found) and not any(one.startswith(table + found) for one in old)


def _override(key: str, before: Any, after: Any) -> str | None:
    """A part of the code that a type checker treats more kindly than the rest."""
    match = _OVERRIDES.search(key)
    if match is None:
        return None
    name = match["key"]
    kind = (_STRICT.search(name) and after is False) or (_LENIENT.search(name) and after is True)
    if name == "ignore_missing_imports" or not kind or before == after:
        return None
    return f"override added: {name} for {match['module']}"


def _loosened(key: str, before: Any, after: Any) -> str | None:
    if _THRESHOLD.search(key) and not key.startswith("scripts"):
        return _lower(key, before, after)
    if what := _switched(key, before, after):
        return what
    if _GROWS.search(key):
        return _grown(key, before, after)
    if _SHRINKS.search(key):
        return _shrunk(key, before, after)
    return _words(key.rpartition(".")[2], before, after)


def _switched(key: str, before: Any, after: Any) -> str | None:
    """A switch or a level that was turned down."""
    last = key.rpartition(".")[2]
    if _RULE.search(key) and (ranked := _rank(before)) is not None and ranked > (_rank(after) or 0):
        return f"{last} lowered from {_told(before)} to {_told(after)}"
    if _STRICT.search(key) and _truth(before) is True and _truth(after) is not True:
        return f"{last} is no longer set"
    if _STRICT.search(key) and before is None and _truth(after) is False and "strict" not in key:
        return f"{last} switched off"
    if _LENIENT.search(key) and _truth(after) is True and _truth(before) is not True:
        return f"{last} switched on"
    return None


def _lower(key: str, before: Any, after: Any) -> str | None:
    was, now = _as_number(before), _as_number(after)
    if was is None or (now is not None and now >= was):
        return None
    return f"coverage threshold {key.rpartition('.')[2]} lowered from {_told(before)} to {_told(after)}"


def _rank(value: Any) -> int | None:
    if isinstance(value, list) and value:
        value = value[0]
    return _LEVELS.get(str(value).lower()) if isinstance(value, str | int) else None


def _truth(value: Any) -> bool | None:
    if isinstance(value, str):
        return {
            "true": True,
            "1": True,
            "yes": True,
            "on": True,
            "false": False,
            "0": False,
            "no": False,
            "off": False,
        }.get(value.strip().lower())
    return value if isinstance(value, bool) else None


def _as_number(value: Any) -> float | None:
    try:
        return float(str(value).strip().rstrip("%")) if value is not None else None
    except ValueError:
        return None


def _told(value: Any) -> str:
    return "nothing" if value is None else str(value)[:40]


def _entries(value: Any) -> list[str]:
    if value is None:
        return []
    if isinstance(value, list):
        return [str(one) for one in value]
    return [one for one in re.split(r"[\s,]+", re.sub(r"#[^\n]*", "", str(value))) if one]


def _grown(key: str, before: Any, after: Any) -> str | None:
    added = Counter(_entries(after)) - Counter(_entries(before))
    last = key.rpartition(".")[2]
    if last == "filterwarnings":
        lost = Counter(_entries(before)) - Counter(_entries(after))
        added = Counter({one: 1 for one in added if one.startswith(("ignore", "default", "once"))})
        added += Counter({one: 1 for one in lost if one.startswith("error")})
    if not added or (before is None and after is None):
        return None
    return f"{_short(key)} has more: {', '.join(sorted(added))[:80]}"


def _shrunk(key: str, before: Any, after: Any) -> str | None:
    now = _entries(after)
    lost = Counter(_entries(before)) - Counter(now)
    if not lost or "ALL" in now or (after is None and key.endswith(("source", "testpaths"))):
        return None
    return f"{_short(key)} has less: {', '.join(sorted(lost))[:80]}"


def _short(key: str) -> str:
    return key.removeprefix("tool.")[:60]


def _words(last: str, before: Any, after: Any) -> str | None:
    """Options inside commands."""
    was, now = _joined(before), _joined(after)
    lowered = _NUMBER_WORDS.search(was)
    if lowered is not None:
        still = _NUMBER_WORDS.search(now)
        loose_up = "max-warnings" in lowered.group()
        if still is None or (
            float(still[1]) > float(lowered[1]) if loose_up else float(still[1]) < float(lowered[1])
        ):
            return f"coverage threshold lowered: {lowered.group()} became {still.group() if still else 'nothing'}"
    added = Counter(one.group() for one in _WEAK_WORDS.finditer(now)) - Counter(
        one.group() for one in _WEAK_WORDS.finditer(was)
    )
    if added:
        return f"{last}: `{next(iter(added)).strip()[:60]}` added"
    for strict in ("--strict", "--strict-markers", "-W error", "-Werror", "--cov-branch", "--strict-config"):
        if strict in was.split() and strict not in now.split() and now:
            return f"{last}: `{strict}` removed"
    return None


def _joined(value: Any) -> str:
    if isinstance(value, list):
        return " ".join(map(str, value))
    return value if isinstance(value, str) else ""


def _line_of(key: str, lines: list[str]) -> int:
    """The first line that has the last part of the key."""
    last = key.rpartition(".")[2].partition("[")[0].strip("\"'")
    return next((number for number, line in enumerate(lines, 1) if last and last in line), 1)


# A setting with a number in a file that no parser here reads: YAML and programs.
_NUMBER_LINE = re.compile(
    r"^\s*[\"']?(lines|branches|functions|statements|target|minimum_coverage|fail_under|timeout|max_examples|testTimeout)[\"']?"
    r"\s*[:=( ]\s*[\"']?(\d+(?:\.\d+)?)%?"
)
_WEAK_LINES = (
    (re.compile(r"^\s*[\"']?[@\w/-]+[\"']?\s*:\s*\[?\s*[\"'](?:off|allow)[\"']|^\s*[\"']?[@\w]+/[\w/-]+[\"']?\s*:\s*\[?0\b"), "rule switched off"),
    (re.compile(r"^\s*[\"']?(?:strict\w*|noImplicitAny|forbidOnly|check-coverage)[\"']?\s*:\s*false"), "switched off"),
    (re.compile(r"^\s*[\"']?passWithNoTests[\"']?\s*:\s*true"), "no tests count as a pass"),
    (re.compile(r"^\s*Enabled\s*:\s*false"), "rule switched off"),
    (re.compile(r"^\s*[\"']?informational[\"']?\s*:\s*true|^\s*require_ci_to_pass\s*:\s*(?:no|false)"), "coverage does not count"),
)  # fmt: skip


def _by_pattern(before: bytes, after: bytes) -> Iterator[tuple[int, str]]:
    for number, line in added_lines(before, after):
        for pattern, what in _WEAK_LINES:
            if pattern.search(line) is not None and before:
                yield number, f"{what}: `{line.strip()[:60]}` added"
    old = _numbers(before)
    for name, values in _numbers(after).items():
        for (was, _), (now, number) in zip(old.get(name, ()), values, strict=False):
            if name in {"timeout", "testTimeout"}:
                if now > was * 2:
                    yield number, f"{name} raised from {was:g} to {now:g}"
            elif now < was:
                yield number, f"coverage threshold {name} lowered from {was:g} to {now:g}"


def _numbers(source: bytes) -> dict[str, list[tuple[float, int]]]:
    found: dict[str, list[tuple[float, int]]] = {}
    for number, line in enumerate(lines_of(source), 1):
        if (match := _NUMBER_LINE.match(line)) is not None:
            found.setdefault(match[1], []).append((float(match[2]), number))
    return found
