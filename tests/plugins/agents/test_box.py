"""What of a clone an agent is not shown."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.plugins.agents.box import masked

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
    assert masked(str(tmp_path)) == (".claude", "app/.ENV", "conf/servers.json", "own")
