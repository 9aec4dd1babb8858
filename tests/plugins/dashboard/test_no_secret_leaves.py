from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING
from urllib.parse import quote

from orchestrator.engine.policy.secrets import Redactor
from tests.plugins.dashboard.scene import make_scene
from tests.scenarios.test_no_secret_leaves import IN_ONE, VALUES, leaks, write_raw

if TYPE_CHECKING:
    from pathlib import Path


def test_no_page_of_the_dashboard_shows_a_value(tmp_path: Path) -> None:
    scene = make_scene(tmp_path, redact=Redactor(VALUES).redact)
    names = write_raw(scene.home)
    name = quote(f"{IN_ONE}")
    places = [
        "/",
        "/runs",
        "/fleet",
        f"/repository?name={name}",
        f"/run/{name}",
        f"/confirm?verb={name}&task={name}",
    ]
    places += [f"/run/{one}" for one in names[:3]]
    shown = {place: asyncio.run(scene.get(place)) for place in places}
    assert shown["/"].status_code == shown[f"/run/{names[0]}"].status_code == 200
    assert {place: leaks(reply.text) for place, reply in shown.items() if leaks(reply.text)} == {}
    assert "[redacted]" in shown["/runs"].text
