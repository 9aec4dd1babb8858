"""Forges for the repositories of the double, which the plug-in makes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from orchestrator.core.clock import ManualClock
from tests.plugins import part_of

if TYPE_CHECKING:
    from orchestrator.core.clock import Clock
    from orchestrator.engine.policy.secrets import Redactor


def open_forge(
    web_url: str, name: str, token: str, *, clock: Clock | None = None, redactor: Redactor | None = None
) -> Any:
    """Return a forge that never waits. A test is skipped without the plug-in."""
    clock = clock or ManualClock()
    pause = clock.advance if isinstance(clock, ManualClock) else lambda _seconds: None
    timing = part_of("github", ".calls:CallTiming")(clock, pause, pacing_seconds=0)
    auth = part_of("github", ".transport:GitHubToken")(token)
    api_url = part_of("github", ".address:api_url_for")(web_url)
    return part_of("github", ".forge:GitHubForge")(name, auth, timing, api_url, redactor=redactor)
