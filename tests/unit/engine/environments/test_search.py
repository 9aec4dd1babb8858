"""grep and glob: with ripgrep and without, the same answers."""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.core.clock import SystemClock
from orchestrator.core.errors import FileMissingError, FileUnreadableError, PathRefusedError, ToolError
from orchestrator.engine.environments.base import GrepMatch, GrepOptions
from orchestrator.engine.environments.files import ConfinedTree
from orchestrator.engine.environments.local import LocalEnvironment
from orchestrator.engine.environments.patterns import IgnoreRules, PathPattern
from orchestrator.engine.environments.search import find_ripgrep, grep_tree
from tests.tables import table

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

FILES: dict[str, bytes] = {
    ".gitignore": b"*.log\n!keep.log\n/build/\nnode_modules\n\xef\xbb\xbfodd\n# a comment\n\\#hash\nlogs/*\n!logs/why.txt\n[\n",
    "README.md": b"# Needle\nneedle in a README\n",
    "a.log": b"needle ignored\n",
    "keep.log": b"needle kept\n",
    "odd": b"needle behind a mark\n",
    "#hash": b"needle in hash\n",
    ".hidden/conf.ini": b"needle hidden\n",
    ".github/workflows/ci.yml": b"run: needle\n",
    ".git/config": b"needle in git\n",
    "sub/.GIT/config": b"needle in capitals\n",
    "sub/git~1/config": b"needle in a short name\n",
    "build/out.txt": b"needle built\n",
    "sub/build/in.txt": b"needle not at the root\n",
    "logs/a.txt": b"needle\n",
    "logs/why.txt": b"needle why\n",
    "node_modules/x/index.js": b"needle\n",
    "sub/node_modules/y.js": b"needle\n",
    "sub/.gitignore": b"*.txt\n!build/\n!*.keep.txt\nout.py\n",
    "sub/a.txt": b"needle\n",
    "sub/a.keep.txt": b"needle kept by the inner file\n",
    "sub/b.log": b"needle\n",
    "sub/out.py": b"needle\n",
    "sub/deep/.gitignore": b"!b.txt\n!c.log\n",
    "sub/deep/b.txt": b"needle again\n",
    "sub/deep/c.log": b"needle log\n",
    "sub/deep/d.txt": b"needle\n",
    "src/a.py": b"x = 1\ndef needle():\n    return 'Needle'\n",
    "src/b.ts": b"const needle = 1\n",
    "src/c.tsx": b"// needle\n",
    "src/a b.py": b"needle with a blank\n",
    "crlf.txt": b"one\r\nneedle\r\n",
    "bom.txt": b"\xef\xbb\xbfneedle first\n",
    "utf16.txt": "needle wide\n".encode("utf-16"),
    "latin.txt": b"caf\xe9 needle\n",
    "binary.bin": b"needle\n\0\0\n",
    "late.bin": b"needle\n" + b"x" * 200_000 + b"\0",
    "nofinal.txt": b"needle",
    "empty.txt": b"",
    "long.txt": b"needle " + b"y" * 5_000 + b"\n",
    "many.txt": b"needle\n" * 300,
}

UNDECODABLE = b"n\xff.txt"


@pytest.fixture(scope="module")
def sample(tmp_path_factory: pytest.TempPathFactory) -> Path:
    above = tmp_path_factory.mktemp("above")
    (above / ".gitignore").write_text("README.md\n")
    (above / ".ignore").write_text("*.py\n")
    root = above / "clone"
    for name, content in FILES.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    Path(os.fsdecode(os.fsencode(root) + b"/" + UNDECODABLE)).write_bytes(b"needle\n")
    (root / ".ignore").write_text("*.ts\n")
    (root / "link.txt").symlink_to("README.md")
    (root / "linked").symlink_to("src")
    os.mkfifo(root / "pipe.txt")
    return root


@pytest.fixture
async def quick(sample: Path) -> AsyncIterator[LocalEnvironment]:
    assert find_ripgrep() is not None
    environment = LocalEnvironment(sample, clock=SystemClock())
    yield environment
    await environment.cleanup()


@pytest.fixture
async def plain(sample: Path) -> AsyncIterator[LocalEnvironment]:
    environment = LocalEnvironment(sample, clock=SystemClock(), use_ripgrep=False)
    yield environment
    await environment.cleanup()


EXPECTED = {
    ".github/workflows/ci.yml",
    ".hidden/conf.ini",
    "README.md",
    "bom.txt",
    "crlf.txt",
    "keep.log",
    "latin.txt",
    "logs/why.txt",
    "long.txt",
    "many.txt",
    "n\\xff.txt",
    "nofinal.txt",
    "odd",
    "src/a b.py",
    "src/a.py",
    "src/b.ts",
    "src/c.tsx",
    "sub/a.keep.txt",
    "sub/deep/b.txt",
    "sub/deep/c.log",
    "utf16.txt",
}

SEARCHES = [
    ("needle", ".", GrepOptions(max_results=10_000)),
    ("needle", ".", GrepOptions(max_results=7)),
    ("^needle", ".", GrepOptions(max_results=10_000)),
    ("needle$", ".", GrepOptions(max_results=10_000)),
    ("NEEDLE", ".", GrepOptions()),
    ("NEEDLE", ".", GrepOptions(case_insensitive=True, max_results=20)),
    (r"def \w+\(\):", ".", GrepOptions()),
    ("absent", ".", GrepOptions()),
    ("-e", ".", GrepOptions()),
    ("needle", "src", GrepOptions()),
    ("needle", "./sub/", GrepOptions()),
    ("needle", "sub/deep", GrepOptions()),
    ("needle", "src/a.py", GrepOptions()),
    ("needle", "a.log", GrepOptions()),
    ("needle", "build", GrepOptions()),
    ("needle", "node_modules/x", GrepOptions()),
    ("needle", ".", GrepOptions(glob_filter="*.py")),
    ("needle", ".", GrepOptions(glob_filter="*", max_results=10_000)),
    ("needle", ".", GrepOptions(glob_filter="*.log")),
    ("needle", ".", GrepOptions(glob_filter="*.{ts,tsx}")),
    ("needle", ".", GrepOptions(glob_filter="src/*.py")),
    ("needle", ".", GrepOptions(glob_filter="/src/*.py")),
    ("needle", ".", GrepOptions(glob_filter="sub/**/*.txt")),
    ("needle", "sub", GrepOptions(glob_filter="deep/*.txt")),
    ("needle", ".", GrepOptions(glob_filter="!*.txt")),
    ("needle", ".", GrepOptions(glob_filter="[a-c]*.txt")),
]


@pytest.mark.parametrize(("pattern", "path", "options"), SEARCHES, ids=repr)
async def test_both_ways_give_the_same_answer(
    pattern: str, path: str, options: GrepOptions, quick: LocalEnvironment, plain: LocalEnvironment
) -> None:
    found = await quick.grep(pattern, path, options)
    assert found == await plain.grep(pattern, path, options)
    assert len(found) <= options.max_results


async def test_what_is_searched(quick: LocalEnvironment) -> None:
    found = await quick.grep("needle", ".", GrepOptions(max_results=10_000))
    assert {match.path for match in found} == EXPECTED


async def test_lines_are_whole_or_cut_with_a_marker(quick: LocalEnvironment) -> None:
    assert await quick.grep("needle", "crlf.txt", GrepOptions()) == [GrepMatch("crlf.txt", 2, "needle")]
    assert await quick.grep("needle", "latin.txt", GrepOptions()) == [
        GrepMatch("latin.txt", 1, "café needle")
    ]
    [long] = await quick.grep("needle", "long.txt", GrepOptions())
    assert long.text.endswith("[... 4507 more characters]")


async def test_an_ignored_place_that_is_named_is_searched(quick: LocalEnvironment) -> None:
    assert [match.path for match in await quick.grep("needle", "a.log", GrepOptions())] == ["a.log"]
    assert [match.path for match in await quick.grep("needle", "node_modules", GrepOptions())] == [
        "node_modules/x/index.js"
    ]


async def test_the_most_results_are_the_first(plain: LocalEnvironment, quick: LocalEnvironment) -> None:
    all_of_it = await quick.grep("needle", ".", GrepOptions(max_results=10_000))
    assert await plain.grep("needle", ".", GrepOptions(max_results=9)) == all_of_it[:9]


@pytest.mark.parametrize(
    ("pattern", "path", "options", "error"),
    [
        ("(", ".", GrepOptions(), ToolError),
        ("[z-a]", ".", GrepOptions(), ToolError),
        ("", ".", GrepOptions(), ToolError),
        ("a\nb", ".", GrepOptions(), ToolError),
        ("a\0b", ".", GrepOptions(), ToolError),
        ("\ud800", ".", GrepOptions(), ToolError),
        ("x", "missing", GrepOptions(), FileMissingError),
        ("x", "..", GrepOptions(), PathRefusedError),
        ("x", "/etc", GrepOptions(), PathRefusedError),
        ("x", ".git", GrepOptions(), PathRefusedError),
        ("x", "linked", GrepOptions(), PathRefusedError),
        ("x", "link.txt", GrepOptions(), PathRefusedError),
        ("x", "pipe.txt", GrepOptions(), FileUnreadableError),
        ("x", ".", GrepOptions(glob_filter="../*"), ToolError),
    ],
    ids=repr,
)
async def test_a_place_that_cannot_be_searched_is_an_error(  # noqa: PLR0913, PLR0917  a table
    pattern: str,
    path: str,
    options: GrepOptions,
    error: type[Exception],
    plain: LocalEnvironment,
    quick: LocalEnvironment,
) -> None:
    for environment in (plain, quick):
        with pytest.raises(error) as caught:
            await environment.grep(pattern, path, options)
        assert "\n" not in str(caught.value)


async def test_an_invalid_expression_says_why(quick: LocalEnvironment) -> None:
    with pytest.raises(ToolError, match="not a valid regular expression: unclosed group"):
        await quick.grep("(", ".", GrepOptions())


@pytest.mark.slow(reason="growth: millions of matches")
async def test_a_line_that_matches_in_millions_of_places_is_one_match(
    quick: LocalEnvironment, plain: LocalEnvironment, sample: Path
) -> None:
    """Ripgrep tells each place, which here makes more than is kept of a match."""
    (sample / "wide.csv").write_bytes(b"first\n" + b"b," * 2_000_000 + b"\nb,\n")
    found = await quick.grep("b,", "wide.csv", GrepOptions())
    assert [(match.path, match.line) for match in found] == [("wide.csv", 2), ("wide.csv", 3)]
    assert found == await plain.grep("b,", "wide.csv", GrepOptions())


@pytest.mark.parametrize("path", [".", "sub", "sub/file"])
async def test_a_folder_replaced_by_a_link_during_a_search_shows_nothing(path: str, tmp_path: Path) -> None:
    root, out = tmp_path / "clone", tmp_path / "out"
    for folder in (root / "sub", out):
        folder.mkdir(parents=True)
        (folder / "file").write_text(f"needle {folder.name}\n")
    program = tmp_path / "rg"
    program.write_text(f'#!/bin/sh\nmv sub gone\nln -s {out} sub\nexec {find_ripgrep()} "$@"\n')
    program.chmod(0o700)
    with ConfinedTree(root) as tree:
        found = await grep_tree(tree, "needle", path, GrepOptions(), str(program))
    assert (root / "gone").exists()
    assert {match.text for match in found} <= {"needle sub"}


async def test_a_program_that_is_no_ripgrep_is_an_error(sample: Path) -> None:
    with ConfinedTree(sample) as tree, pytest.raises(ToolError, match="could not be started"):
        await grep_tree(tree, "x", ".", GrepOptions(), str(sample / "README.md"))


async def test_an_abandoned_search_ends(quick: LocalEnvironment) -> None:
    task = asyncio.create_task(quick.grep("needle", ".", GrepOptions(max_results=10_000)))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_glob_finds_newest_first_and_leaves_ignored_files_out(
    quick: LocalEnvironment, sample: Path
) -> None:
    for age, name in enumerate(["src/c.tsx", "src/a.py", "src/b.ts", "src/a b.py"]):
        os.utime(sample / name, ns=(0, 10**18 - age))
    assert await quick.glob("*", "src") == ["src/c.tsx", "src/a.py", "src/b.ts", "src/a b.py"]
    assert await quick.glob("src/*.py", ".") == ["src/a.py", "src/a b.py"]
    assert set(await quick.glob("**/*.log", ".")) == {"keep.log", "sub/deep/c.log"}
    assert set(await quick.glob("**", ".")) >= EXPECTED
    assert ".git/config" not in await quick.glob("**", ".")
    assert await quick.glob("*.js", "node_modules/x") == ["node_modules/x/index.js"]
    assert await quick.glob("*.nothing", ".") == []


@pytest.mark.parametrize(
    "pattern", ["", " ", "/etc/*", "../*", "a/../../*", "a\0", "{a,b}" * 10, "x" * 2_000]
)
async def test_a_pattern_that_makes_no_sense(pattern: str, quick: LocalEnvironment) -> None:
    with pytest.raises(ToolError):
        await quick.glob(pattern, ".")


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        ("[", "'[' is not closed"),
        ("src/[a", "'[' is not closed"),
        ("[!", "'[' is not closed"),
        ("[]", "has no characters"),
        ("[!]", "has no characters"),
        ("[a/b]", "'[' is not closed"),
        ("[z-a].py", "the range in [z-a] is reversed"),
        ("{", "'{' is not closed"),
        ("*.{py", "'{' is not closed"),
        ("{a,{b,c}", "'{' is not closed"),
        ("*.py}", "'}' closes no '{'"),
        ("}{", "'}' closes no '{'"),
        ("src\\*.py\\", "may only precede"),
        ("src\\a.py", "write / between folders"),
        ("\\", "may only precede"),
        ("", "is empty"),
        (" ", "is empty"),
        ("a\0b", "NUL"),
        ("x" * 1_001, "over 1,000 characters"),
        ("{a,b}" * 10, "expand to over 100 patterns"),
        ("/etc/*", "not relative"),
        ("../*", "not relative"),
        ("src/../../*", "not relative"),
        ("/", "not relative"),
        (".", "not relative"),
        ("{a,../b}", "not relative"),
    ],
)
async def test_every_search_reports_what_is_wrong_with_a_pattern(
    pattern: str, why: str, quick: LocalEnvironment, plain: LocalEnvironment
) -> None:
    for here in (quick, plain):
        with pytest.raises(ToolError) as refused:
            await here.glob(pattern, ".")
        assert why in str(refused.value)
        assert len(str(refused.value)) < 300
        if pattern and "relative" not in why:  # a filter may begin with /, and an empty one is none
            for path in (".", "README.md"):
                with pytest.raises(ToolError) as refused:
                    await here.grep("x", path, GrepOptions(glob_filter=pattern))
                assert why in str(refused.value)


@table(
    ("pattern", "path", "expected"),
    [
        ("app/[id]/page.tsx", "app/[id]/page.tsx", True),
        ("app/[id]/page.tsx", "app/i/page.tsx", True),
        ("app/[id]/page.tsx", "app/x/page.tsx", False),
        ("app/[...slug]/*.{ts,tsx}", "app/[...slug]/page.tsx", True),
        ("{{cookiecutter.name}}/*.py", "{{cookiecutter.name}}/a.py", True),
        ("[^a].py", "b.py", True),
        ("[^a].py", "a.py", False),
        ("[]a].py", "].py", True),
        ("[[]x].py", "[x].py", True),
        ("[{]a.py", "{a.py", True),
        ("\\[x\\].py", "[x].py", True),
        ("\\[x\\].py", "x.py", False),
        ("\\*.py", "*.py", True),
        ("\\*.py", "a.py", False),
        ("\\{a,b\\}", "{a,b}", True),
        ("\\{a,b\\}", "a", False),
        ("{a\\,b,c}", "a,b", True),
        ("a\\\\b", "a\\b", True),
        ("\\!a", "!a", True),
        ("**a", "xa", True),
        ("**a", "x/a", False),
        ("a**", "abc", True),
        ("src/**.py", "src/a.py", True),
        ("src/**.py", "src/b/a.py", False),
        ("***", "abc", True),
        ("{,src}/x.py", "src/x.py", True),
        ("{,src}/x.py", "x.py", True),
        ("a{,.py}", "a", True),
        ("{}", "{}", True),
    ],
)
def test_odd_patterns_have_one_meaning(pattern: str, path: str, *, expected: bool) -> None:
    assert PathPattern.for_paths(pattern).matches(path.split("/")) is expected
    if "/" not in pattern:
        assert PathPattern.for_filter(pattern).matches(path.split("/")[-1:]) is PathPattern.for_paths(
            pattern
        ).matches(path.split("/")[-1:])


@given(st.text("ab*?[]{},!^-\\/. ", max_size=12))
def test_every_pattern_has_a_meaning_or_is_refused(pattern: str) -> None:
    for make in (PathPattern.for_paths, PathPattern.for_filter):
        with suppress(ToolError):
            made = make(pattern)
            assert made.matches(["a", "b"]) is make(pattern).matches(["a", "b"])
            assert made == make(pattern)


@pytest.mark.parametrize(
    ("path", "error"),
    [("missing", FileMissingError), ("README.md", FileUnreadableError), ("..", PathRefusedError)],
)
async def test_glob_needs_a_folder(path: str, error: type[Exception], quick: LocalEnvironment) -> None:
    with pytest.raises(error):
        await quick.glob("*", path)


@table(
    ("pattern", "path", "expected"),
    [
        ("*.py", "a.py", True),
        ("*.py", "src/a.py", False),
        ("**/*.py", "a.py", True),
        ("**/*.py", "x/y/a.py", True),
        ("src/**", "src/a/b", True),
        ("src/**", "lib/a", False),
        ("src/**/t/*.py", "src/t/a.py", True),
        ("src/**/t/*.py", "src/x/y/t/a.py", True),
        ("a?.py", "ab.py", True),
        ("[!a]*.py", "b.py", True),
        ("[!a]*.py", "a.py", False),
        ("*.{py,ts}", "a.ts", True),
        ("{src,lib}/**/*.{py,ts}", "lib/x/a.ts", True),
        ("{a,{b,c}d}.py", "cd.py", True),
        ("{a}.py", "{a}.py", True),
        ("*", ".hidden", True),
        ("./a.py", "a.py", True),
        ("A.py", "a.py", False),
    ],
)
def test_patterns(pattern: str, path: str, expected: bool) -> None:  # noqa: FBT001  a table
    assert PathPattern.for_paths(pattern).matches(path.split("/")) is expected


def test_a_hostile_pattern_is_not_slow() -> None:
    assert not PathPattern.for_paths("**/" * 200 + "b").matches(["a"] * 200)
    assert not PathPattern.for_paths("*a" * 100 + "b").matches(["a" * 200])


@given(st.lists(st.sampled_from(["a", "b", "ab", ".c"]), min_size=1, max_size=5))
def test_a_path_matches_itself_and_any_depth(names: list[str]) -> None:
    assert PathPattern.for_paths("/".join(names)).matches(names)
    assert PathPattern.for_paths("**").matches(names)
    assert PathPattern.for_filter(names[-1]).matches(names)
    assert not PathPattern.for_filter(f"!{names[-1]}").matches(names)


def test_rules_agree_with_git(sample: Path, git: Callable[..., str]) -> None:
    git("init", "-q", "--template=", str(sample.parent / "bare.git"), "--bare")
    names = [name for name in FILES if not {".git", "git~1"} & set(name.lower().split("/"))]
    ignored = git(
        f"--git-dir={sample.parent / 'bare.git'}",
        f"--work-tree={sample}",
        "-c",
        "core.excludesFile=",
        "-c",
        "core.quotePath=false",
        "check-ignore",
        "--no-index",
        *names,
        cwd=sample,
    ).splitlines()
    with ConfinedTree(sample) as tree:
        rules = IgnoreRules.of(tree)
        ours = [name for name in names if rules.ignored(tuple(name.split("/")), is_dir=False)]
    assert ours == ignored


@pytest.mark.slow(reason="waits for the end of a search's time")
async def test_an_expression_that_backtracks_ends_with_the_time_of_a_search(
    sample: Path, plain: LocalEnvironment
) -> None:
    (sample / "row.txt").write_text("a" * 60 + "!")
    with pytest.raises(ToolError, match="the search took over 20 seconds"):
        await plain.grep(r"^(?:\w+a?)+$", "row.txt", GrepOptions())


@pytest.mark.parametrize("ripgrep", [find_ripgrep(), None], ids=["ripgrep", "python"])
async def test_rules_that_are_a_pipe_stop_no_search(tmp_path: Path, ripgrep: str | None) -> None:
    """Ripgrep would wait for a writer; it gets the ignored folders from our own reader of rules."""
    (tmp_path / "sub" / "deep").mkdir(parents=True)
    for place in ("", "sub", "sub/deep"):
        (tmp_path / place / "file.txt").write_text("needle\n")
    os.mkfifo(tmp_path / ".gitignore")
    (tmp_path / "sub" / ".gitignore").write_text("deep/\n")
    os.mkfifo(tmp_path / "sub" / "deep" / ".gitignore")
    os.mkfifo(tmp_path / "sub" / ".ignore")
    with ConfinedTree(tmp_path) as tree:
        found = await grep_tree(tree, "needle", ".", GrepOptions(), ripgrep)
    assert [one.path for one in found] == ["file.txt", "sub/file.txt"]
