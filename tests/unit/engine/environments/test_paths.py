"""The spelling of paths."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orchestrator.core.errors import PathRefusedError
from orchestrator.core.repositories import is_git_name
from orchestrator.engine.environments.files import collision_key, quoted, shown, split_path
from tests.fuzz.paths import TARGET
from tests.tables import table

ROOTS = ("/home/me/clone", "/private/clone")

ACCEPTED = {
    "a.py": ("a.py",),
    "src/a.py": ("src", "a.py"),
    "./src//a.py": ("src", "a.py"),
    "src/": ("src",),
    ".": (),
    "./": (),
    "a/..": (),
    "a/../b": ("b",),
    "a/b/../../c": ("c",),
    "/home/me/clone": (),
    "/home/me/clone/src/a.py": ("src", "a.py"),
    "/home/me/./clone/x/../a.py": ("a.py",),
    "//home/me/clone/a": ("a",),
    "/private/clone/a": ("a",),
    "/../home/me/clone/a": ("a",),
    ".gitignore": (".gitignore",),
    ".github/workflows/ci.yml": (".github", "workflows", "ci.yml"),
    "git/config": ("git", "config"),
    "a.git/x": ("a.git", "x"),
    "..a/b..": ("..a", "b.."),
    "a b/ü.txt": ("a b", "ü.txt"),
    "-rf": ("-rf",),
    "x~": ("x~",),
    "...": ("...",),
}

REFUSED = [
    "",
    " ",
    "..",
    "../x",
    "a/../../x",
    "../clone/a",
    "./../x",
    "/",
    "/etc/passwd",
    "/proc/self/environ",
    "/dev/fd/0",
    "/home/me/clone-other/a",
    "/home/me/clone/../other",
    "/home/me/clone/../../../etc/passwd",
    "~/x",
    "~",
    "a\0b",
    "a\nb",
    "a\x7fb",
    "a\u2028b",
    "a\udcffb",
    "..\\x",
    "a\\..\\..\\x",
    "\\\\server\\share",
    "C:\\x",
    "C:/x",
    "c:x",
    ".git",
    ".git/config",
    "a/.git/hooks/pre-commit",
    "/home/me/clone/.git/config",
    "a/../.git/config",
    ".GIT/config",
    ".Git/HEAD",
    ".git./config",
    ".git /config",
    ".git. . /config",
    ".git::$INDEX_ALLOCATION/config",
    ".git:stream",
    "git~1/config",
    "GIT~1/config",
    "git~2",
    ".g\u200cit/config",
    ".gi\u200dt/config",
    "\ufeff.git/config",
    ".git\ufe0f/config",
    ".g\U000e0067it/config",
    "\uff0egit/config",
    ".\uff47\uff49\uff54/config",
    "\u2024git/config",
    ".gi\u0307t/config",
    ".g\u0131t/config",
    ".g\u0130t/config",
    ".git\u3164/config",
    " .git/config",
    "x" * 256,
    "ü" * 128,
    "a/" * 2_000 + "b",
]


@table("path", ACCEPTED, ids=ascii)
def test_accepted(path: str) -> None:
    assert split_path(path, ROOTS) == ACCEPTED[path]


@table("path", REFUSED, ids=lambda path: ascii(path)[:40])
def test_refused_in_one_line(path: str) -> None:
    with pytest.raises(PathRefusedError) as caught:
        split_path(path, ROOTS)
    message = str(caught.value)
    assert message.isprintable()
    assert len(message) < 500


@given(st.text(max_size=60))
def test_an_accepted_path_is_plain(path: str) -> None:
    try:
        names = split_path(path, ROOTS)
    except PathRefusedError:
        return
    assert split_path("/".join(names) or ".", ROOTS) == names
    for name in names:
        assert name not in {"", ".", ".."}
        assert not {"/", "\\", "\0"} & set(name)
        assert not is_git_name(name)


@table(
    ("one", "other"),
    [("README", "readme"), ("é", "e\u0301"), ("É", "e\u0301"), ("straße", "STRASSE"), ("Ω", "\u2126")],
)
def test_names_that_some_file_systems_take_for_one(one: str, other: str) -> None:
    assert collision_key(one) == collision_key(other)


def test_different_names_stay_different() -> None:
    assert collision_key("a") != collision_key("b")
    assert collision_key("e") != collision_key("é")


def test_names_are_shown_in_printable_text() -> None:
    assert shown("ü.txt") == "ü.txt"
    assert shown("n\udcff.txt") == "n\\xff.txt"
    assert shown("a\nb") == "a\\nb"


def test_a_long_path_is_shortened_in_messages() -> None:
    assert len(quoted("x" * 10_000)) < 300
    assert quoted("a\nb") == "a\\nb"


@table("data", TARGET.seeds)
def test_what_was_found_once_stays_found(data: bytes) -> None:
    TARGET.run(data)


@settings(
    max_examples=4 * settings().max_examples, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
@given(TARGET.inputs())
def test_no_promise_is_broken(data: bytes) -> None:
    TARGET.run(data)
