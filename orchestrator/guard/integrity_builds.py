"""Reads builds, scripts and remarks in source files, line by line: do they still run and heed the checks?"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from orchestrator.guard.integrity_patterns import CONSTANT, LANGUAGES, added_lines, lines_of

if TYPE_CHECKING:
    from collections.abc import Iterator

_BUILD_NAMES = re.compile(
    r"(?:GNU)?[Mm]akefile|.*\.mk|justfile|Justfile|Rakefile|Taskfile\.ya?ml|package\.json|tox\.ini|noxfile\.py|"
    r"\.travis\.yml|appveyor\.yml|azure-pipelines\.yml|\.gitlab-ci\.yml|Jenkinsfile|\.pre-commit-config\.yaml|"
    r"cloudbuild\.ya?ml|bitbucket-pipelines\.yml|lefthook\.ya?ml|build\.gradle(?:\.kts)?|pom\.xml",
    re.DOTALL,
)
_BUILD_FOLDERS = frozenset(
    {".github", ".ci", "ci", ".circleci", ".gitlab", ".buildkite", ".husky", ".travis"}
)
_TESTING = re.compile(
    r"\b(?:pytest|test\w*|unittest|lint\w*|check\w*|mypy|pyright|ruff|flake8|tsc|jest|vitest|mocha|eslint|cargo|go vet"
    r"|clippy|make|npm|yarn|pnpm|tox|nox|coverage|ctest|mvn|gradlew?|rspec|rake|phpunit|dotnet|bats|verify)\b"
)
_IGNORED_FAILURE = re.compile(r"(?:\|\||;)\s*(?:true|:|exit 0|/bin/true|echo\b)(?![\w-])")
_HARMLESS = re.compile(
    r"\s*(?:[@-]|sudo |then |do |\$\(|\")*(?:rm|kill|pkill|killall|mkdir|umount|mount|grep|egrep|cat|ls|cp|mv|which|command -v|type|"
    r"docker (?:rm|stop|kill|rmi|logs)|echo|printf|wait|read|id|sleep|tail|head|ln|chmod|chown|useradd|groupadd|adduser|"
    r"service|systemctl|stop|start|git (?:branch|tag|config|remote|fetch|stash)|rmdir|unlink|curl|wget|diff|expr|let|\(\()\b"
)
_BUILD_WEAK = (
    (re.compile(r"\bcontinue-on-error\s*:\s*[\"']?true|\ballow_failure\s*:\s*true"), "failures are allowed"),
    (re.compile(r"^\s*-?\s*if\s*:\s*[\"']?(?:\$\{\{\s*)?false\b"), "a step that never runs"),
    (re.compile(r"--passWithNoTests|--pass-with-no-tests"), "no tests count as a pass"),
    (re.compile(r"-[km][ =]?[\"'\\]*not\b|--deselect\b|--ignore(?:-glob)?[ =][^ ]*test|--testPathIgnorePatterns"
                r"|--skip[ =]\S|-skip[ =]|-DskipTests|-Dmaven\.test\.skip|-x test\b"), "tests are left out"),
    (re.compile(r"--exit-zero\b|--no-fail\b|-Dmaven\.test\.failure\.ignore|--no-verify\b"), "failures are allowed"),
)  # fmt: skip
_RUNNER = re.compile(
    r"\b(?:pytest|python3? -m unittest|tox|nox|npm (?:run )?(?:test|lint)|yarn (?:test|lint)|pnpm (?:test|lint)|jest|vitest|mocha"
    r"|go test|go vet|cargo (?:test|clippy)|mypy|pyright|ruff check|flake8|eslint|make (?:test|check|lint)|ctest|mvn (?:test|verify)"
    r"|gradlew? (?:test|check)|rspec|rake test|phpunit|dotnet test|coverage report)\b"
)
_SET_PLUS_E = re.compile(r"^\s*(?:-\s*)?set \+(?:e\b|o (?:errexit|pipefail))")


def is_build_file(path: str) -> bool:
    """Whether a file says how tests and checks are run."""
    *folders, name = path.split("/")
    return _BUILD_NAMES.fullmatch(name) is not None or bool(_BUILD_FOLDERS.intersection(folders))


def lost_runs(before: bytes, after: bytes) -> str | None:
    """The first line that ran tests or checks, where a build has fewer such lines than before."""
    old, new = _runs(before), _runs(after)
    if len(new) >= len(old):
        return None
    return next((line for line in old if line not in new), None)


def _runs(source: bytes) -> list[str]:
    lines = (line.strip() for line in lines_of(source))
    return [line for line in lines if not line.startswith(("#", "- name:", "name:")) and _RUNNER.search(line)]


def weak_build_lines(before: bytes, after: bytes, *, every_command: bool) -> Iterator[tuple[int, str]]:
    """Lines that a build did not have, and that let failures pass.

    Args:
        before: the old file.
        after: the new file.
        every_command: the file is there to run tests and checks; elsewhere only lines that name one count.
    """
    for number, line in added_lines(before, after):
        bare = line.strip()
        if bare.startswith(("#", "//", "echo ")):
            continue
        if (match := _IGNORED_FAILURE.search(line)) and (every_command or _TESTING.search(line)):
            command = re.split(r"[;|&(`]", line[: match.start()].rstrip())[-1]
            if not _HARMLESS.match(command) and (match.group().startswith("||") or _TESTING.search(command)):
                yield number, f"`{match.group()}` added"
        if every_command and _SET_PLUS_E.search(line):
            yield number, "`set +e` added"
        for pattern, what in _BUILD_WEAK:
            if (match := pattern.search(line)) and (every_command or _TESTING.search(line)):
                yield number, f"{what}: `{match.group().strip()}` added"


_BLANKET = re.compile(
    r"#\s*(?:ruff|flake8)\s*:\s*noqa|#\s*mypy\s*:\s*(?:ignore-errors|disable-error-code|allow)|#\s*pylint\s*:\s*(?:skip-file|disable=all)"
    r"|#\s*noqa\b(?!\s*:\s*[A-Z])|#\s*type\s*:\s*ignore(?!\[)|#\s*pyright\s*:\s*(?:ignore(?!\[)|basic)"
)
_BLANKET_OTHER = re.compile(
    r"@ts-nocheck|@ts-ignore|eslint-disable(?!-(?:next-)?line)|/[*/]\s*(?:istanbul|c8|v8) ignore|//\s*nolint\b(?!:)"
    r"|#!\[allow\(|#\[allow\((?:warnings|clippy::all|unused)\b|@SuppressWarnings\(\"all\"\)|#\s*rubocop:disable (?:all|Lint)"
    r"|@codeCoverageIgnore|phpcs:disable|#pragma warning disable\s*$|:nocov:"
)
_UNCOVERED = re.compile(r"#\s*pragma\s*:\s*no cover")
_AWARE = re.compile(
    r"PYTEST_CURRENT_TEST|[\"']pytest[\"'] in sys\.modules|[\"']unittest[\"'] in sys\.modules|JEST_WORKER_ID"
)


def weak_source_lines(before: bytes, after: bytes, suffix: str, *, test: bool) -> Iterator[tuple[int, str]]:
    """Lines that switch checks off without naming which one, and code that knows when it is tested."""
    if suffix in {"py", "pyi"}:
        pattern = _BLANKET
    elif suffix in LANGUAGES:
        pattern = _BLANKET_OTHER
    else:
        return
    patterns = [pattern] if test else [pattern, _UNCOVERED, _AWARE]
    text = after.decode("utf-8", "replace")
    if not any(one.search(text) for one in patterns):
        return
    for number, line in added_lines(before, after):
        for one in patterns:
            match = one.search(line)
            if match is None or (one is not _AWARE and _in_quotes(line[: match.start()])):
                continue
            what = "code that knows when it is tested" if one is _AWARE else "checks switched off"
            yield number, f"{what}: `{match.group().strip()}` added"


def _in_quotes(before: str) -> bool:
    """Whether what follows stands in a string that began on this line."""
    bare = CONSTANT.sub("", before)
    return any(quote in bare for quote in "\"'`") or bare.lstrip().startswith("|")
