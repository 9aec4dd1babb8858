"""What of a clone an agent is not shown."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.engine.environments.sandbox.visible import bare_view
from orchestrator.plugins.agents.box import masked_paths

if TYPE_CHECKING:
    from pathlib import Path


def test_settings_of_agents_are_found_at_every_depth_and_behind_links(tmp_path: Path) -> None:
    for name in (
        ".claude/settings.json",
        "app/.ENV",
        "conf/servers.json",
        ".git/.env",
        "src/main.py",
        "own/x",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    for link, target in {
        ".mcp.json": "conf/servers.json",
        "app/.opencode": "../own",
        ".gemini": "/etc",
        ".codex": "../outside",
        ".npmrc": "nowhere",
        ".env": ".env",
        "sub/.env": "../.git/.env",
        ".agents": ".",
    }.items():
        (tmp_path / link).parent.mkdir(exist_ok=True)
        (tmp_path / link).symlink_to(target)
    assert masked_paths(str(tmp_path)) == (".claude", "app/.ENV", "conf/servers.json", "own")


def test_a_program_in_a_folder_that_is_shown_is_not_mounted_once_more(tmp_path: Path) -> None:
    """Its place would be a file of this machine, which nobody can open for writing while it runs."""
    folder = tmp_path / "own"
    program = folder / "bin/agent"
    program.parent.mkdir(parents=True)
    program.write_text("x")
    steps = bare_view([str(tmp_path)], [str(program), str(folder)])
    assert not [one for one in steps if one[0] == "file"]
    assert [one for one in steps if one[0] == "open" and one[1] == str(folder).encode()]
