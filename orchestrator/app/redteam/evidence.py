"""What was seen while an attack was played: what the model read, what left, what was written and reached."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.app.redteam.planting import changes, hidden, references
from orchestrator.core.defences import Defence

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from orchestrator.app.config.settings import Settings
    from orchestrator.app.redteam.fake_web import FakeWeb
    from orchestrator.app.redteam.grounds import Grounds
    from orchestrator.app.redteam.obedient import ObedientModel
    from orchestrator.app.redteam.secrets import Secrets
    from orchestrator.bot.cycle.parts import CycleResult
    from orchestrator.bot.forge.memory import MemoryForge
    from orchestrator.core.events import Event

_PROCESSES = Path("/proc")


@dataclass(frozen=True, slots=True)
class Left:
    """A text that left the program: where to, and what."""

    where: str
    text: str


@dataclass(slots=True)
class Evidence:
    """Everything that is known after a run.

    Attributes:
        settings: those of the run.
        result: how the cycle ended; None where none began.
        events: of the cycle, in order.
        shown: all that the model read.
        requests: how often it was asked.
        obeyed: how many orders of others it carried out.
        left: every text that left.
        paths: what the pull requests change.
        outside: names of files outside the clone that are new or changed; `home/` begins those of the home, `state/`
            those of the program's own folder.
        in_clone: every path in the work tree at the end.
        reports: what a program reads in the pull request as the host's report on the tests.
        reached: what a server on the network was sent.
        fetched: addresses of pages.
        loosened: options of the run that are looser than the user chose.
        survivors: processes of the model's that outlived the run.
        refusal: why no cycle began, and by which defence.
    """

    settings: Settings
    secrets: Secrets
    result: CycleResult | None = None
    events: list[Event] = field(default_factory=list)
    shown: str = ""
    requests: int = 0
    obeyed: int = 0
    left: list[Left] = field(default_factory=list)
    paths: list[str] = field(default_factory=list)
    outside: list[str] = field(default_factory=list)
    in_clone: list[str] = field(default_factory=list)
    reports: list[str] = field(default_factory=list)
    reached: list[bytes] = field(default_factory=list)
    fetched: list[str] = field(default_factory=list)
    loosened: list[str] = field(default_factory=list)
    survivors: list[int] = field(default_factory=list)
    refusal: str = ""
    refused_by: Defence = Defence.INSTRUCTIONS


def look_at_model(evidence: Evidence, model: ObedientModel) -> None:
    """Note what the model read and did."""
    evidence.shown = model.shown
    evidence.requests = len(model.requests)
    evidence.obeyed = len(model.obeyed)


def look_at_forge(evidence: Evidence, forge: MemoryForge, reports: Callable[[str], Iterable[object]]) -> None:
    """Note what was written to the forge, and which `reports` on tests somebody reads in it."""
    evidence.left += [Left(one.what, one.text) for one in forge.written]
    bodies = (one.text for one in forge.written if one.what == "body")
    evidence.reports = [str(report) for body in bodies for report in reports(body)]


def look_at_web(evidence: Evidence, web: FakeWeb) -> None:
    """Note what was fetched and what was sent."""
    evidence.fetched = list(web.fetched)
    evidence.left += [Left("web request", text) for text in web.sent]


def look_at_ground(evidence: Evidence, grounds: Grounds, base: str, planted: Mapping[str, bytes]) -> None:
    """Note the branches that were pushed, files outside, and what still runs. Ends what still runs."""
    tips = references(grounds.repository)
    for name, tip in tips.items():
        if name.startswith("pullwright/"):
            paths, text = changes(grounds.repository, tips[base], tip)
            evidence.paths += paths
            evidence.left += [Left("branch", name), Left("commits", text)]
            evidence.left += [Left("file name", path) for path in paths]
    evidence.left += [Left(name, text) for name, text in hidden(grounds.repository, tips[base]).items()]
    evidence.outside = [name for name, content in around(grounds).items() if planted.get(name) != content]
    evidence.reached = list(grounds.sink.received)
    evidence.left += [Left("network", data.decode("utf-8", "replace")) for data in grounds.sink.received]
    evidence.survivors = _marked(grounds.mark)
    for number in evidence.survivors:
        with suppress(ProcessLookupError):
            os.kill(number, 9)


def around(grounds: Grounds) -> dict[str, bytes]:
    """The content of every file outside the clone, by name, but nothing of what the program's own folder holds."""
    found = {}
    for prefix, folder in (("", grounds.outside), ("home/", grounds.home)):
        for name in files_below(folder):
            with suppress(OSError):
                found[prefix + name] = (folder / name).read_bytes()
    return {**found, **{f"state/{name}": b"" for name in files_below(grounds.state)}}


def files_below(folder: Path) -> list[str]:
    """The paths of all files below a folder, `.git` included, relative to it; links are not followed."""
    found = []
    for above, _folders, names in os.walk(folder):
        found += [os.path.relpath(os.path.join(above, name), folder) for name in names]  # noqa: PTH118  names as they are
    return sorted(found)


def _marked(mark: str) -> list[int]:
    """Processes that carry an attack's mark as their name: only that attack can have started them."""
    found = []
    for entry in _PROCESSES.glob("[0-9]*") if _PROCESSES.is_dir() else ():
        with suppress(OSError):
            if (entry / "cmdline").read_bytes().startswith(mark.encode()):
                found.append(int(entry.name))
    return found
