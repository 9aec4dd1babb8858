"""What the README and the pages in `docs/` say of the program is so."""

from __future__ import annotations

import contextlib
import io
import re
import shlex
from functools import cache
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from orchestrator.app.cli.arguments import MEANINGS, UsageError, parse
from orchestrator.app.cli.commands import commands as all_commands
from orchestrator.app.config import CONFIG_VARIABLE
from orchestrator.app.config.settings import PREFIX, SUITE_VARIABLES
from orchestrator.app.options import all_options, choices, flag_of
from orchestrator.app.plugins import HOMES, absence_of, own_names
from orchestrator.engine.models.keys import VARIABLES
from orchestrator.engine.models.listing import MODEL_PORTS
from orchestrator.engine.profiles.base import profile_names
from tests.architecture.test_extending import FILES as EXAMPLES
from tests.pages import TABLES, table_text
from tests.plugins import is_of_absent_plugin
from tests.readme_commands import commands
from tests.site import stage

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
DOCS = ROOT / "docs"
PAGES = [README, ROOT / "AGENTS.md", *sorted(DOCS.glob("*.md"))]
MOST_LINES = 200
MOST_ROW_CHARACTERS = 500
MOST_TERMS = 20

page = pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)


@cache
def text(path: Path) -> str:
    return path.read_text(encoding="utf-8")


@cache
def code(path: Path) -> list[str]:
    """What stands between backticks on a page."""
    inline = (token for token in MarkdownIt().enable("table").parse(text(path)) if token.children)
    return [
        child.content for token in inline for child in token.children or () if child.type == "code_inline"
    ]


@cache
def blocks(path: Path, *languages: str) -> list[str]:
    """The blocks of code in these languages; no language is the empty one."""
    tokens = MarkdownIt().parse(text(path))
    return [token.content for token in tokens if token.type == "fence" and token.info in languages]


def typed(path: Path) -> list[list[str]]:
    """The arguments of each command of the program that a page shows to be typed, as the program gets them."""
    lines = [
        line.removeprefix("$ ")
        for block in blocks(path, "", "console")
        for line in block.replace("\\\n", "").splitlines()
    ]
    lines += [span for span in code(path) if span.startswith("pullwright ")]
    programs = [line.partition(" | ")[0] for line in lines if line.startswith("pullwright ")]
    return [shlex.split(re.sub(r"\bN\b", "1", line))[1:] for line in programs]


@cache
def help_of(command: str) -> str:
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), contextlib.suppress(SystemExit):
        parse([command, "--help", "all"])
    return printed.getvalue()


COMPLETE = pytest.mark.skipif(
    set(HOMES) != set(own_names()), reason="the pages describe the program with all its plug-ins"
)


def is_absent_page(path: Path) -> bool:
    """Return whether this is the page of a plug-in whose folder is not there."""
    return path.parent.name == "docs" and path.stem in HOMES and path.stem not in own_names()


@cache
def flags() -> frozenset[str]:
    return frozenset(re.findall(r"--[a-z][a-z-]+", "".join(map(help_of, all_commands()))))


def anchors(path: Path) -> set[str]:
    """The anchors that GitHub gives the headings of a page."""
    headings = re.findall(r"^#+ (.+)$", text(path), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_the_readme_is_short() -> None:
    assert len(text(README).splitlines()) <= MOST_LINES


def test_the_set_up_is_two_commands() -> None:
    first, second = commands(text(README))
    assert "run --demo" in first
    assert "pytest" in second


def test_the_readme_leads_to_every_page() -> None:
    assert [path.name for path in DOCS.glob("*.md") if f"(docs/{path.name})" not in text(README)] == []


@COMPLETE
def test_the_site_leads_to_every_page(tmp_path: Path) -> None:
    stage(tmp_path)
    navigation = text(DOCS / "zensical.toml").partition("nav = [")[2].partition("\n]\n")[0]
    named = re.findall(r'"([\w-]+\.md)"', navigation)
    assert sorted(named) == sorted({"index.md", "CHANGELOG.md", *(path.name for path in DOCS.glob("*.md"))})
    for target in re.findall(r"\]\((?!https?://|#)([^)#]*)", text(tmp_path / "docs/index.md")):
        assert (tmp_path / "docs" / target).is_file(), target


@page
def test_every_link_leads_somewhere(page: Path) -> None:
    links = re.findall(r"\]\((?!https?://)([^)#]*)(?:#([^)]*))?\)", text(page))
    for target, anchor in links:
        path = page.parent / target if target else page
        if is_absent_page(path):
            continue
        assert path.exists(), target
        assert not anchor or anchor in anchors(path), f"{target}#{anchor}"


@page
def test_every_command_that_is_shown_is_understood(page: Path) -> None:
    for argv in typed(page):
        if len(argv) == 1:  # it is talked about
            assert argv[0] in all_commands() or absence_of(argv[0])
            continue
        try:
            with contextlib.suppress(SystemExit):  # the help was printed
                parse(argv)
        except UsageError as error:
            if "belongs to the plug-in" not in str(error):
                pytest.fail(f"{argv}: {error}")


@COMPLETE
def test_the_messages_of_the_page_of_troubles_are_the_programs() -> None:
    """The words in the first column occur in a message, which may go over several lines of the source."""
    shown = text(DOCS / "troubleshooting.md")
    sources = (path.read_text(encoding="utf-8") for path in (ROOT / "orchestrator").rglob("*.py"))
    program = re.sub(r'"\s*f?"', "", " ".join(sources))
    messages = re.findall(r"^\| `([^`]+)`", shown, re.MULTILINE)
    assert len(messages) > 10
    assert [message for message in messages if message not in program] == []


@page
@COMPLETE
def test_every_flag_is_one(page: Path) -> None:
    named = {found for span in code(page) if (found := re.match(r"--[a-z][a-z-]+", span))}
    assert {found.group() for found in named} - flags() == set()


@page
def test_every_variable_is_one(page: Path) -> None:
    known = (
        {f"{PREFIX}{key.upper()}" for key in all_options()}
        | {CONFIG_VARIABLE, MODEL_PORTS, "PULLWRIGHT_HOME"}
        | SUITE_VARIABLES
    )
    known |= {name for names in VARIABLES.values() for name in names}
    workflow = text(ROOT / ".github/workflows/pullwright.yml")
    named = set(re.findall(r"\bPULLWRIGHT_[A-Z_]+[A-Z]\b", text(page)))
    named = {name for name in named - known if name not in workflow}
    assert [name for name in named if not absence_of(flag_of(name.removeprefix(PREFIX).lower()))] == []


@page
def test_every_path_that_is_named_is_there(page: Path) -> None:
    named = [span.partition(":")[0] for span in code(page)]
    paths = [
        name for name in named if re.fullmatch(r"(tests|orchestrator|prompts|docs|\.ci)/[\w/*.\[\]-]*", name)
    ]
    made = [*EXAMPLES, "orchestrator/engine/models/NAME.py", "orchestrator/bot/forge/NAME.py"]
    missing = [name for name in paths if name not in made and not any(ROOT.glob(name.rstrip("/")))]
    missing = [name for name in missing if not is_absent_page(ROOT / name)]
    assert [name for name in missing if not is_of_absent_plugin(f"{name}/")] == []


@page
def test_every_module_that_is_named_is_there(page: Path) -> None:
    named = [span for span in code(page) if re.fullmatch(r"(orchestrator|tests)(\.\w+)+", span)]
    paths = [name.replace(".", "/") for name in named]
    assert [
        name for name in paths if not any(ROOT.glob(f"{name}*")) and not is_of_absent_plugin(f"{name}/")
    ] == []


@COMPLETE
def test_the_tables_that_are_made_from_the_code_are_the_truth() -> None:
    for head, (path, _) in TABLES.items():
        assert table_text(head) in text(path), f"{head}: write it anew: python -m tests.pages"


def test_every_exit_status_is_explained() -> None:
    assert [code for code in MEANINGS if f"\n| {code} | " not in text(DOCS / "options.md")] == []


def test_every_key_is_named() -> None:
    names = [name for group in VARIABLES.values() for name in group]
    assert [name for name in names if f"`{name}`" not in text(DOCS / "options.md")] == []


def test_every_contract_and_profile_is_explained() -> None:
    assert {*choices("contract"), *profile_names()} - {*code(DOCS / "how-it-works.md")} == set()


def test_every_guarantee_names_its_tests() -> None:
    page = text(DOCS / "guarantees.md")
    rows = [line.split(" | ") for line in page.splitlines() if line.startswith("| ")]
    cells = [cells[-1] for cells in rows if cells[0] != "| guarantee"]
    assert len(cells) > 20
    assert [cell for cell in cells if "`tests/" not in cell and cell != "the same |"] == []
    lists = re.findall(r"^### (.+)\n\n(?:- .+\n)+\n(.*)$", page, re.MULTILINE)
    assert len(lists) == page.count("\n### ")
    assert [name for name, tests in lists if not tests.startswith("Tests: `tests/")] == []


def test_a_long_guarantee_is_a_list() -> None:
    rows = [line.split(" | ")[0] for line in text(DOCS / "guarantees.md").splitlines()]
    assert [row[:60] for row in rows if row.startswith("| ") and len(row) > MOST_ROW_CHARACTERS] == []


def test_the_glossary_is_short_and_in_order() -> None:
    terms = re.findall(r"^\| (?!term)(\w[^|]*) \|", text(DOCS / "glossary.md"), re.MULTILINE)
    assert 10 < len(terms) <= MOST_TERMS
    assert terms == sorted(terms)
