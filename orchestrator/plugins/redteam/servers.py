"""Plays attacks by requests to the servers of this program: the webhook of a fleet, and the dashboard."""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import secrets
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING

import httpx2

from orchestrator.app.terminal import known_secrets
from orchestrator.bot.journal.folders import Home, create_run_folder
from orchestrator.bot.journal.records import JournalWriter
from orchestrator.core.clock import SystemClock
from orchestrator.core.cycle_events import CycleEnded, CycleStarted, TaskTaken
from orchestrator.core.errors import ConfigurationError
from orchestrator.core.events import CallStatus, PlanAccepted, ToolCallEnded, ToolCallStarted, Warned
from orchestrator.core.repositories import repository_key
from orchestrator.plugins.redteam.attack import AttackPlace
from orchestrator.plugins.redteam.world import NAME

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from starlette.types import ASGIApp

    from orchestrator.core.events import Event
    from orchestrator.plugins.dashboard.actions import TaskActions
    from orchestrator.plugins.dashboard.pages import Pages
    from orchestrator.plugins.dashboard.serving import BrowserSecrets, Gate
    from orchestrator.plugins.fleet.store import FleetStore
    from orchestrator.plugins.redteam.attack import Attack, WorldRequest
    from orchestrator.plugins.redteam.judge import Evidence
    from orchestrator.plugins.redteam.world import Scene
    from orchestrator.plugins.worker.serving import Receiver

_PORT = 8788
_RUN = "20261123-150000-0000000"
_SECRET_BYTES = 20
_QUEUE_SECONDS = 600.0
"""Time limit for the queue. It is long, so that a slow queue is not taken for a defence."""
_MOST_SHOWN = 120
_WORD = re.compile(r"\{\{(text|form|run|host|port|number|blanks) ?([0-9]*)\}\}")
_OWN_SCRIPT = "/live.js"


@dataclass(frozen=True, slots=True)
class WebParts:
    """What the proof in the tests puts in place of the defences of the servers; None for the program's own."""

    receiver: type[Receiver] | None = None
    gate: type[Gate] | None = None
    pages: type[Pages] | None = None
    secrets: Callable[[], BrowserSecrets] | None = None


@dataclass
class Served:
    """A server under attack."""

    attack: Attack
    scene: Scene
    evidence: Evidence
    parts: WebParts
    known: BrowserSecrets | None = field(init=False, default=None)
    secret: str = field(default_factory=lambda: secrets.token_hex(_SECRET_BYTES))

    def __post_init__(self) -> None:
        if self.attack.place is AttackPlace.DASHBOARD:
            from orchestrator.plugins.dashboard.serving import BrowserSecrets

            self.known = (self.parts.secrets or BrowserSecrets)()

    @property
    def _host(self) -> str:
        return f"{self.known.name if self.known else 'localhost'}:{_PORT}"

    async def play(self) -> None:
        """Send the attacker's requests, and add the responses to the evidence."""
        queue = _Queue(self.scene.folder, self.evidence)
        app = self._webhook(queue) if self.known is None else self._dashboard(self.known)
        transport = httpx2.ASGITransport(app=app)
        try:
            async with httpx2.AsyncClient(transport=transport, base_url=f"http://{self._host}") as client:
                for request in self.attack.world.requests:
                    for number in range(request.times):
                        await self._send(client, request, number)
                        client.cookies.clear()
        finally:
            queue.close()

    async def _send(self, client: httpx2.AsyncClient, request: WorldRequest, number: int) -> None:
        """Send one request, without following redirects."""
        body = self._fill(request.body, number).encode()
        headers = {name: self._fill(value, number) for name, value in request.headers.items()}
        if request.signed_with:
            headers["X-Hub-Signature-256"] = self._signature(request, body)
        if request.with_cookie and self.known:
            headers["Cookie"] = f"pullwright={self.known.session}"
        path = self._fill(request.path, number)
        answer = await client.request(request.method, path, content=body or None, headers=headers)
        _, _, heading = answer.text.partition("<h1")[2].partition("</h1>")[0].partition(">")
        said = answer.headers.get("location") or (heading or answer.text)
        self.evidence.answers.append(f"{answer.status_code} {' '.join(said.split())[:_MOST_SHOWN]}")
        if "html" in answer.headers.get("content-type", ""):
            self.evidence.markup += foreign_markup(answer.text)

    def _signature(self, request: WorldRequest, body: bytes) -> str:
        key = self.secret if request.signed_with == "ours" else secrets.token_hex(_SECRET_BYTES)
        signed = self._fill(request.signed, 0).encode() if request.signed else body
        return "sha256=" + hmac.new(key.encode(), signed, hashlib.sha256).hexdigest()

    def _fill(self, text: str, number: int) -> str:
        known: Mapping[str, str] = {
            "text": self.scene.fill(self.attack.text),
            "form": self.known.form if self.known else "",
            "run": _RUN,
            "host": self._host,
            "port": str(_PORT),
            "number": f"{number:02x}",
        }
        return _WORD.sub(lambda found: known.get(found[1]) or " " * int(found[2] or 0), text)

    def _webhook(self, queue: _Queue) -> ASGIApp:
        from orchestrator.plugins.worker.serving import Receiver, receiving_app

        known, receiver = [repository_key(NAME)], self.parts.receiver or Receiver
        return receiving_app(receiver(self.secret, known, queue.take, _QUEUE_SECONDS))

    def _dashboard(self, known: BrowserSecrets) -> ASGIApp:
        """Create the dashboard over a run that contains the attacker's text wherever foreign text is possible."""
        from orchestrator.plugins.dashboard.actions import FleetActions
        from orchestrator.plugins.dashboard.overview import DayCap, RunStore
        from orchestrator.plugins.dashboard.pages import Pages
        from orchestrator.plugins.dashboard.server import Dashboard, make_app
        from orchestrator.plugins.dashboard.serving import Gate

        home, clock = Home(self.scene.state), SystemClock()
        _write_run(home, self.scene.fill(self.attack.text))
        page = Dashboard(
            RunStore(home),
            _recording(self.evidence)(home, {}, {}, Path(self.scene.folder), clock),
            (self.parts.pages or Pages)(known.form, str(home.runs), known_secrets(os.environ).redact),
            known,
            clock,
            DayCap(),
            FleetActions(_no_fleet, clock),
        )
        return (self.parts.gate or Gate)(make_app(page), _PORT, known)


@dataclass
class _Queue:
    """The fleet's queue in a file, created for the first accepted delivery."""

    folder: Path
    evidence: Evidence
    _store: FleetStore | None = None

    def take(self, digest: str, repository: str) -> bool:
        if self._store is None:
            self._store = self._opened()
        is_new = self._store.receive(digest, repository)
        self.evidence.queued += is_new
        return is_new

    def _opened(self) -> FleetStore:
        try:
            from orchestrator.plugins.fleet.store import FleetStore
        except ModuleNotFoundError:
            raise ConfigurationError("without the extra fleet no webhook is received") from None
        store = FleetStore(f"sqlite:///{self.folder / 'fleet.db'}", SystemClock())
        store.open()
        return store

    def close(self) -> None:
        if self._store is not None:
            self._store.close()


def _recording(evidence: Evidence) -> type[TaskActions]:
    """Return the actions of the dashboard, which are recorded and not carried out."""
    from orchestrator.plugins.dashboard.actions import TaskActions

    class RecordingActions(TaskActions):
        def do(self, verb: str, fields: Mapping[str, str]) -> str:
            evidence.done.append(f"{verb} {fields.get('repository', '')}")
            return "done"

    return RecordingActions


def _no_fleet() -> str:
    raise ConfigurationError("there is no fleet here")


def _write_run(home: Home, words: str) -> None:
    events: list[Event] = [
        CycleStarted(_RUN, words, words, "json-plan", origin=words),
        TaskTaken(words, words, words, "issue", 1),
        PlanAccepted(words, 1),
        ToolCallStarted("c", words, {"path": words, words: [words]}),
        ToolCallEnded("c", words, CallStatus.FAILED, words),
        Warned(words),
        CycleEnded({"outcome": "failed", "error": words, "reason": words}),
    ]
    with JournalWriter(create_run_folder(home, _RUN), known_secrets(os.environ), SystemClock()) as journal:
        for event in events:
            journal(event)


def foreign_markup(page: str) -> list[str]:
    """Return the markup on a page of the dashboard that can only come from foreign text."""
    reader = _MarkupReader()
    reader.feed(page)
    reader.close()
    return reader.found


class _MarkupReader(HTMLParser):
    """Finds elements and attributes that the dashboard itself never writes."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        if tag in {"img", "iframe", "object", "base"} or (
            tag == "script" and given.get("src") != _OWN_SCRIPT
        ):
            self.found.append(tag)
        if tag == "form" and not re.match(r"/(?!/)", given.get("action", "")):
            self.found.append(f"form to {given.get('action', '')}")
        self.found += [name for name in given if name.startswith("on") or name == "formaction"]
        if given.get("href", "").strip().lower().startswith("javascript:"):
            self.found.append("link to a script")
