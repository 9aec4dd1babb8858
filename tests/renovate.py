"""Writes `orchestrator/bot/policy/renovate.toml` anew: which files Renovate's managers look for.

    npm pack renovate@VERSION && tar xf renovate-VERSION.tgz
    npm view renovate time --json
    python -m tests.renovate package DATE > orchestrator/bot/policy/renovate.toml

Only the patterns are taken, as facts. A pattern between slashes is a regular expression, any other is one of
minimatch: https://docs.renovatebot.com/string-pattern-matching/. Here all are regular expressions.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

_HEAD = """\
# Which files the managers of Renovate look for: regular expressions on the path, by manager.
# From https://github.com/renovatebot/renovate, lib/modules/manager/*/index.ts, `managerFilePatterns`.
# Facts only: no text and no code of Renovate, whose licence is AGPL-3.0, is here.
# Written by `python -m tests.renovate`, which says how; what does not wait is in protected.toml.
"""
_WIDTH = 110
_TEXT = r"\"(?:[^\"\\]|\\.)*\"|`[^`]*`"
_PATTERNS = re.compile(rf"managerFilePatterns: (\[(?:\s|,|{_TEXT})*\]|[\w$.()]+)")
_ITEM = re.compile(r"\"((?:[^\"\\]|\\.)*)\"|`([^`]*)`")
_CONSTANT = re.compile(r"const (\w+) = \"((?:[^\"\\]|\\.)*)\";")
_NAMES = re.compile(r"const configFileNames = (\[.*?\])", re.DOTALL)
_BRACES = re.compile(r"\{([^{}]*)\}")


def patterns(package: Path) -> dict[str, list[str]]:
    """Read the patterns of every manager that has some out of an unpacked npm package."""
    found = {}
    for folder in sorted((package / "dist/modules/manager").iterdir()):
        if folder.is_dir() and folder.name != "custom":
            texts = _patterns(package, folder)
            if texts:
                found[folder.name] = [one for text in texts for one in _expressions(text)]
    return found


def _patterns(package: Path, folder: Path) -> list[str]:
    text = (folder / "index.js").read_text(encoding="utf-8")
    found = _PATTERNS.search(text)
    if found is None:
        raise SystemExit(f"{folder.name}: no managerFilePatterns")
    if found[1].startswith("getConfigFileNames"):
        names = _NAMES.search((package / "dist/config/app-strings.js").read_text(encoding="utf-8"))
        return [] if names is None else [name for name in json.loads(names[1]) if name != "package.json"]
    if not found[1].startswith("["):
        text = (folder / "default-config.js").read_text(encoding="utf-8")
        found = _PATTERNS.search(text)
        if found is None:
            raise SystemExit(f"{folder.name}: no managerFilePatterns")
    constants = {
        match[1]: json.loads(f'"{match[2]}"')
        for file in folder.glob("*.js")
        for match in _CONSTANT.finditer(file.read_text(encoding="utf-8"))
    }
    return [
        json.loads(f'"{quoted}"') if quoted else _filled(template.replace("\\\\", "\\"), constants)
        for quoted, template in _ITEM.findall(found[1])
    ]


def _filled(template: str, constants: dict[str, str]) -> str:
    return re.sub(r"\$\{(\w+)\}", lambda match: constants[match[1]], template)


def _expressions(pattern: str) -> list[str]:
    if pattern.startswith("/"):
        return [pattern[1:-1].replace(r"\/", "/")]
    within = _BRACES.search(pattern)
    if within is not None:
        start, end = pattern[: within.start()], pattern[within.end() :]
        return [one for part in within[1].split(",") for one in _expressions(f"{start}{part}{end}")]
    whole = re.sub(r"([.+()$^|\\])", r"\\\1", pattern).replace("*", "[^/]*")
    return [f"^{whole}$".replace("^[^/]*[^/]*/", "(^|/)")]


def main() -> None:
    """Print the file."""
    package, date = Path(sys.argv[1]), sys.argv[2]
    version = json.loads((package / "package.json").read_text(encoding="utf-8"))["version"]
    lines = [_HEAD, f'version = "{version}"', f"date = {date}", "", "[managers]"]
    for manager, expressions in patterns(package).items():
        texts = [f"'{one}'" for one in expressions]
        line = f"{manager} = [{', '.join(texts)}]"
        lines.append(line if len(line) <= _WIDTH else f"{manager} = [\n    " + ",\n    ".join(texts) + ",\n]")
    sys.stdout.write("\n".join((*lines, "")))


if __name__ == "__main__":
    main()
