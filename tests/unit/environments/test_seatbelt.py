"""The text of the profile for macOS. It was not run: that takes a Mac."""

from __future__ import annotations

import pytest

from orchestrator.core.errors import SandboxMissingError, ToolError
from orchestrator.environments.sandbox import find_sandbox
from orchestrator.environments.seatbelt import profile


def rules(root: str = "/Users/me/project") -> list[str]:
    text = profile(root=root, protected=(".git",), readable=("/opt/x",), scratch="/private/tmp/s", port=4321)
    return text.splitlines()


def test_it_denies_by_default_and_protects_git_last() -> None:
    lines = rules()
    assert lines[:2] == ["(version 1)", "(deny default)"]
    assert lines[-1] == '(deny file-write* (subpath "/Users/me/project/.git"))'
    writes = [line for line in lines if line.startswith("(allow file-write*")]
    assert writes == ['(allow file-write* (subpath "/Users/me/project") (subpath "/private/tmp/s"))']
    assert [line for line in lines if "network" in line] == [
        '(allow network-outbound (remote tcp "localhost:4321"))'
    ]
    assert not any('(subpath "/Users")' in line or '(subpath "/")' in line for line in lines)


def test_a_path_cannot_add_rules() -> None:
    hostile = '/a") (allow file-write* (subpath "/'
    assert rules(hostile)[-1] == '(deny file-write* (subpath "/a\\") (allow file-write* (subpath \\"/.git"))'
    assert '(subpath "/a\\\\")' in "\n".join(rules("/a\\"))
    for path in ("/a\nb", "relative", "/a\0"):
        with pytest.raises(ToolError):
            rules(path)


def test_without_the_program_there_is_no_sandbox() -> None:
    with pytest.raises(SandboxMissingError, match="sandbox-exec"):
        find_sandbox(platform="darwin")
