"""The dashboard as a web application: routes, forms and streams."""

from __future__ import annotations

import asyncio
import json
import threading
from collections import OrderedDict
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, quote

from starlette.applications import Starlette
from starlette.background import BackgroundTask
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response, StreamingResponse
from starlette.routing import Route

from orchestrator.app.html.page import Step, stylesheet
from orchestrator.app.html.story import RunStory, StepWriter
from orchestrator.app.words import counted, short_line
from orchestrator.bot.journal.folders import RUN_NAME
from orchestrator.bot.journal.index import summarise
from orchestrator.bot.journal.reader import JournalTail, read_line
from orchestrator.bot.journal.records import UnknownRecord
from orchestrator.core.errors import JournalError, PullwrightError
from orchestrator.plugins.dashboard.actions import FLEET_VERBS
from orchestrator.plugins.dashboard.overview import Look, RunFilter, make_overview
from orchestrator.plugins.dashboard.pages import TEMPLATES, Pages, RunsPage
from orchestrator.plugins.dashboard.serving import BrowserSecrets, Gate

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping

    from starlette.requests import Request

    from orchestrator.bot.journal.run_facts import RunSummary
    from orchestrator.core.clock import Clock
    from orchestrator.plugins.dashboard.actions import FleetActions, TaskActions
    from orchestrator.plugins.dashboard.overview import DayCap, Overview, RunStore

FIRST_PAINT_SECONDS = 0.15
"""Time for reading journals before a page is first shown. The stream sends the rest."""
_READ_SECONDS = 0.5
_LOOK_SECONDS = 1.0
_STORY_SECONDS = 0.3
_LOCAL_LOOK = timedelta(seconds=20)
_MOST_STEPS = 200
_MOST_LOOKS = 100
_MOST_LOCAL = 10
_MOST_FORM_BYTES = 128 * 1024
_WARM_UP = 50
_PAGE_RUNS = 50
_PING_SECONDS = 15.0
_FLEET_LOOK_SECONDS = 2.0
_CONFIRMATIONS = {
    "fleet-add": ("Do this next?", "Do it"),
    "fleet-pause": ("Pause the repository?", "Pause it"),
    "fleet-resume": ("Resume the repository?", "Resume it"),
    "fleet-cancel": ("Cancel the current or next cycle?", "Cancel it"),
    "fleet-drain": ("Let the worker end?", "Let it end"),
    "answer": ("Answer and continue?", "Begin the run"),
    "retry": ("Try the task again?", "Try again"),
    "close": ("Close the pull request?", "Close the pull request"),
    "release": ("Take the task away?", "Take it away"),
    "stop": ("Stop the run?", "Stop after this round"),
}
"""Heading and button of the page that asks to confirm an action."""
_FIELDS = frozenset({"repository", "task", "number", "run", "answer", "worker", "reason"})


@dataclass(slots=True)
class Dashboard:
    """The state that the routes share. Methods that block are called in threads.

    Attributes:
        looks: the last readings of repositories, by name, the newest last.
        stopping: set when the server ends.
    """

    store: RunStore
    actions: TaskActions
    pages: Pages
    secrets: BrowserSecrets
    clock: Clock
    cap: DayCap
    fleet: FleetActions
    looks: OrderedDict[str, Look] = field(default_factory=OrderedDict)
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _parts: tuple[tuple[int, int, str], dict[str, str]] | None = None

    def read(self, seconds: float = FIRST_PAINT_SECONDS) -> None:
        """Read new journals for at most this time. It blocks."""
        with suppress(JournalError):  # the folder may be created later
            self.store.refresh(seconds)

    def view(self) -> Overview:
        """Return the overview of what was read. It blocks."""
        view = make_overview(self.store, self.clock.now(), self.cap, self.looks)
        return replace(view, troubles=self.actions.failed_answers())

    def parts(self) -> dict[str, str]:
        """Return the parts of the overview, rendered again only if something changed or a minute passed."""
        with self._lock:
            self.read(_READ_SECONDS)
            version = self.store.version  # read first: the view may be newer, never older
            view = self.view()
            seen = max((look.at.isoformat() for look in list(self.looks.values())), default="")
            key = (version, view.unread, f"{seen} {view.now:%H:%M} {view.troubles}")
            if self._parts is None or self._parts[0] != key:
                self._parts = key, self.pages.parts(view)
            return self._parts[1]

    def look(self, repository: str) -> None:
        """Read a repository's tasks. It blocks."""
        self.looks[repository] = self.actions.look(repository)
        self.looks.move_to_end(repository)
        if len(self.looks) > _MOST_LOOKS:
            self.looks.popitem(last=False)

    def look_at_local_ones(self) -> None:
        """Read the tasks of repositories on this disk again, after some time. It blocks."""
        now = self.clock.now()
        names = dict.fromkeys(run.repository for run in self.store.runs[:_PAGE_RUNS] if run.repository)
        for name in list(names)[:_MOST_LOCAL]:
            known = self.looks.get(name)
            if (known is None or now - known.at > _LOCAL_LOOK) and self.actions.is_local(name):
                self.look(name)


def make_app(dashboard: Dashboard) -> Starlette:
    """Create the application, without access control."""
    routes = [
        Route("/", partial(_overview, dashboard)),
        Route("/stream", partial(_page_stream, dashboard, _overview_events)),
        Route("/runs", partial(_runs, dashboard)),
        Route("/run/{run}", partial(_run, dashboard)),
        Route("/run/{run}/stream", partial(_run_stream, dashboard)),
        Route("/repository", partial(_repository, dashboard)),
        Route("/look", partial(_look, dashboard), methods=["POST"]),
        Route("/confirm", partial(_confirm, dashboard), methods=["GET", "POST"]),
        Route("/do", partial(_do, dashboard), methods=["POST"]),
        Route("/fleet", partial(_fleet, dashboard)),
        Route("/fleet/stream", partial(_page_stream, dashboard, _fleet_events)),
        Route("/style.css", _style),
        Route("/live.js", _script),
    ]
    return Starlette(routes=routes, exception_handlers={404: partial(_no_page, dashboard)})


def guarded(dashboard: Dashboard, port: int) -> Gate:
    """Create the application with access control."""
    return Gate(make_app(dashboard), port, dashboard.secrets)


async def _no_page(dashboard: Dashboard, request: Request, _error: Exception) -> Response:
    what = f"There is no page {short_line(request.url.path, 80)} here."
    return _refused(dashboard, 404, "No such page", what)


async def _style(_request: Request) -> Response:
    return Response(str(stylesheet()), media_type="text/css")


async def _script(_request: Request) -> Response:
    return Response((TEMPLATES / "live.js").read_bytes(), media_type="text/javascript")


async def _overview(dashboard: Dashboard, _request: Request) -> Response:
    def page() -> str:
        dashboard.read()
        return dashboard.pages.overview(dashboard.view())

    return HTMLResponse(await asyncio.to_thread(page))


async def _runs(dashboard: Dashboard, request: Request) -> Response:
    await asyncio.to_thread(dashboard.read)
    before, wanted = request.query_params.get("before", "~"), RunFilter.of(request.query_params)

    def page() -> str:
        known = dashboard.store.runs
        matching = [run for run in known if wanted.matches(run)]
        found = [run for run in matching if run.id < before][: _PAGE_RUNS + 1]
        return dashboard.pages.runs(
            RunsPage(
                wanted,
                found[:_PAGE_RUNS],
                len(matching),
                len(known),
                dashboard.store.unread,
                found[_PAGE_RUNS - 1].id if len(found) > _PAGE_RUNS else "",
                sorted({run.repository for run in known if run.repository}),
                sorted({run.outcome for run in known if run.outcome}),
            )
        )

    return HTMLResponse(await asyncio.to_thread(page))


async def _run(dashboard: Dashboard, request: Request) -> Response:
    name = request.path_params["run"]
    folder = dashboard.store.home.runs / name
    if not RUN_NAME.fullmatch(name) or not folder.is_dir():
        return _refused(dashboard, 404, "No such run", f"There is no run {name}.")

    def page() -> str:
        dashboard.read()
        story, tail, summary = RunStory(), JournalTail(folder), summarise(folder)
        story.take(tail.records())
        live = dashboard.store.live.get(name) if summary.is_running else None
        return dashboard.pages.run(story, summary, live, tail.seq)

    return HTMLResponse(await asyncio.to_thread(page))


async def _repository(dashboard: Dashboard, request: Request) -> Response:
    name = request.query_params.get("name", "")
    is_local = await asyncio.to_thread(dashboard.actions.is_local, name)
    await asyncio.to_thread(dashboard.read)
    runs = [run for run in dashboard.store.runs if run.repository == name]
    if not runs:
        return _refused(dashboard, 404, "No such repository", f"No run on {name} is known.")
    if is_local and name not in dashboard.looks:
        await asyncio.to_thread(dashboard.look, name)
    look = dashboard.looks.get(name)
    page = partial(dashboard.pages.repository, is_local=is_local)
    return HTMLResponse(await asyncio.to_thread(page, name, look, runs[:_PAGE_RUNS]))


async def _fields(dashboard: Dashboard, request: Request) -> dict[str, str] | None:
    """Return the fields of a form; None if its token is invalid."""
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > _MOST_FORM_BYTES:
            return None
    try:
        fields = dict(parse_qsl(body.decode("utf-8"), keep_blank_values=True, max_num_fields=20))
    except ValueError:
        return None
    return fields if dashboard.secrets.is_form(fields.pop("form", "")) else None


def _refused(dashboard: Dashboard, status: int, heading: str, error: str, back: str = "/") -> Response:
    return HTMLResponse(dashboard.pages.confirm(heading, error=error, back=back), status)


def _not_ours(dashboard: Dashboard) -> Response:
    why = "The form is too large, or not from this page. Load the page again."
    return _refused(dashboard, 403, "Not done", why)


async def _look(dashboard: Dashboard, request: Request) -> Response:
    fields = await _fields(dashboard, request)
    if fields is None:
        return _not_ours(dashboard)
    name = fields.get("name", "")
    if all(run.repository != name for run in dashboard.store.runs):
        return _refused(dashboard, 404, "No such repository", f"No run on {name} is known.")
    await asyncio.to_thread(dashboard.look, name)
    return RedirectResponse(f"/repository?name={quote(name, safe='')}", 303)


async def _confirm(dashboard: Dashboard, request: Request) -> Response:
    """Show the effect of an action. Nothing is done yet."""
    fields: dict[str, str] | None = dict(request.query_params)
    if request.method == "POST":
        fields = await _fields(dashboard, request)
    if fields is None:
        return _not_ours(dashboard)
    if choice := fields.pop("choice", ""):
        fields["answer"] = f"{choice} {fields.get('answer', '')}".strip()
    verb = fields.get("verb", "")
    asked = dashboard.fleet.what if verb in FLEET_VERBS else dashboard.actions.what
    try:
        what, command = await asyncio.to_thread(asked, verb, fields)
    except PullwrightError as error:
        return _refused(dashboard, 409, "Not done", str(error), _back(verb))
    rest = {name: value for name, value in fields.items() if name in _FIELDS}
    heading, button = _CONFIRMATIONS[verb]
    values = {"what": what, "command": command, "verb": verb, "button": button, "fields": rest}
    return HTMLResponse(dashboard.pages.confirm(heading, back=_back(verb), **values))


def _back(verb: str) -> str:
    return "/fleet" if verb in FLEET_VERBS else "/"


async def _do(dashboard: Dashboard, request: Request) -> Response:
    fields = await _fields(dashboard, request)
    if fields is None or fields.get("verb") not in _CONFIRMATIONS:
        return _not_ours(dashboard)
    verb = fields["verb"]
    try:
        if verb in FLEET_VERBS:
            done = await dashboard.fleet.do(verb, fields)
        else:
            done = await asyncio.to_thread(dashboard.actions.do, verb, fields)
    except PullwrightError as error:
        return _refused(dashboard, 409, "Not done", str(error), _back(verb))
    # What was read before is not true any more; it is read again once the person has the reply.
    repository = fields.get("repository", "")
    was_read = dashboard.looks.pop(repository, None) is not None
    again = BackgroundTask(dashboard.look, repository) if was_read else None
    return HTMLResponse(dashboard.pages.confirm("Done", done=done, back=_back(verb)), background=again)


async def _fleet(dashboard: Dashboard, _request: Request) -> Response:
    view = await dashboard.fleet.view()
    return HTMLResponse(await asyncio.to_thread(dashboard.pages.fleet, view))


def event_text(data: Mapping[str, Any], number: str) -> str:
    """Return one event of a stream. ASCII JSON has no line break, so no text in it can end the event."""
    return f"id: {number}\ndata: {json.dumps(data)}\n\n"


def _stream(events: AsyncIterator[str]) -> Response:
    async def beginning() -> AsyncIterator[str]:
        yield "retry: 2000\n\n"
        async for event in events:
            yield event

    return StreamingResponse(beginning(), media_type="text/event-stream")


async def _pause(dashboard: Dashboard, seconds: float) -> bool:
    """Wait; return False if the server ends."""
    with suppress(TimeoutError):
        await asyncio.wait_for(dashboard.stopping.wait(), seconds)
    return not dashboard.stopping.is_set()


class _SentParts:
    """The parts of a page that its browser has.

    Args:
        look_seconds: time between two calls of `changes`.
    """

    def __init__(self, look_seconds: float) -> None:
        self._look_seconds = look_seconds
        self._parts: dict[str, str] = {}
        self._quiet_seconds = 0.0

    def changes(self, parts: Mapping[str, str], number: str) -> str:
        """Return an event with the changed parts, a comment after a long silence, or an empty text."""
        new = {name: html for name, html in parts.items() if self._parts.get(name) != html}
        is_long_quiet = self._quiet_seconds >= _PING_SECONDS
        self._quiet_seconds = self._look_seconds + (0.0 if new or is_long_quiet else self._quiet_seconds)
        if new:
            self._parts = dict(parts)
            return event_text({"parts": new}, number)
        return ": nothing new\n\n" if is_long_quiet else ""


async def _page_stream(
    dashboard: Dashboard, events: Callable[[Dashboard], AsyncIterator[str]], _request: Request
) -> Response:
    return _stream(events(dashboard))


async def _overview_events(dashboard: Dashboard) -> AsyncIterator[str]:
    """Yield the changed parts of the overview, at most once a second."""
    sent = _SentParts(_LOOK_SECONDS)
    while True:
        parts = await asyncio.to_thread(dashboard.parts)
        if text := sent.changes(parts, _newest(dashboard)):
            yield text
        await asyncio.to_thread(dashboard.look_at_local_ones)
        if not await _pause(dashboard, 0.05 if dashboard.store.unread else _LOOK_SECONDS):
            return


def _newest(dashboard: Dashboard) -> str:
    """Return the runs in progress, each with the number of its last read record."""
    return " ".join(f"{name}/{live.tail.seq}" for name, live in dashboard.store.live.items()) or "0"


async def _fleet_events(dashboard: Dashboard) -> AsyncIterator[str]:
    """Yield the changed parts of the fleet's page."""
    sent = _SentParts(_FLEET_LOOK_SECONDS)
    while True:
        parts = await asyncio.to_thread(dashboard.pages.fleet_parts, await dashboard.fleet.view())
        if text := sent.changes(parts, "0"):
            yield text
        if not await _pause(dashboard, _FLEET_LOOK_SECONDS):
            return


async def _run_stream(dashboard: Dashboard, request: Request) -> Response:
    name = request.path_params["run"]
    folder = dashboard.store.home.runs / name
    if not RUN_NAME.fullmatch(name) or not folder.is_dir():
        return PlainTextResponse("there is no such run\n", 404)
    asked = request.headers.get("last-event-id") or request.query_params.get("after", "0")
    after = int(asked) if asked.isascii() and asked.isdigit() and len(asked) < 10 else 0  # noqa: PLR2004  digits
    return _stream(_story_events(dashboard, name, after))


async def _story_events(dashboard: Dashboard, name: str, after: int) -> AsyncIterator[str]:
    """Yield the new steps of a run, numbered as in the journal. Of very many, only the newest are sent."""
    folder = dashboard.store.home.runs / name
    follower = StoryFollower(JournalTail(folder, max(after - _WARM_UP, 0)), after)
    quiet = 0.0
    while True:
        summary, steps, progress = await asyncio.to_thread(_story_now, dashboard, name, follower)
        if steps or progress != follower.progress:
            data: dict[str, Any] = {"parts": {"progress": progress}} if progress else {}
            follower.progress, quiet = progress, 0.0
            if steps:
                data["steps"] = await asyncio.to_thread(dashboard.pages.steps, steps)
            yield event_text(data, str(follower.tail.seq))
        elif not summary.is_running:
            yield event_text({"ended": True}, str(follower.tail.seq))
            return
        elif quiet >= _PING_SECONDS:
            quiet = 0.0
            yield ": nothing new\n\n"
        quiet += _STORY_SECONDS
        if not await _pause(dashboard, _STORY_SECONDS):
            return


@dataclass(slots=True)
class StoryFollower:
    """Follows one run for one page.

    Attributes:
        after: number of the last record on the page.
        progress: the last sent activity.
    """

    tail: JournalTail
    after: int
    progress: str = ""
    writer: StepWriter = field(default_factory=StepWriter)

    def steps(self) -> list[Step]:
        """Return the steps since the last call."""
        found: list[tuple[int, bytes]] = []
        missed = 0
        while lines := self.tail.lines():
            missed += max(len(found) + len(lines) - _MOST_STEPS, 0)
            found = [*found, *lines][-_MOST_STEPS:]
        told = f"{counted(missed, 'record')} left out here: load the page again to see them"
        steps = [Step(told, "quiet", "…")] if missed else []
        for seq, line in found:
            record = read_line(line)
            if record is None or isinstance(record.event, UnknownRecord):
                continue
            made = list(self.writer.steps(record.event, record.at))
            steps += made if seq > self.after else []
        return steps


def _story_now(
    dashboard: Dashboard, name: str, follower: StoryFollower
) -> tuple[RunSummary, list[Step], str]:
    summary = summarise(dashboard.store.home.runs / name)  # before the records: the last ones are read below
    dashboard.read(_READ_SECONDS)
    live = dashboard.store.live.get(name)
    progress = dashboard.pages.progress(summary, live) if live else ""
    return summary, follower.steps(), str(progress)
