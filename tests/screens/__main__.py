"""Take pictures of the dashboard while the program really works: ten tasks, with failures in between.

python -m tests.screens FOLDER [--docs]

The worker, the dashboard, git, the tests and the browser are real; GitHub and the model are doubles on this machine.
The tasks of the days before were done by the same program, with its clock set back. It takes some minutes, and needs
Chromium and the packages of the tests. With `--docs` the pictures of the documentation are replaced too.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from orchestrator.app.wiring.program import RunRequest, build_program
from orchestrator.bot.cycle.parts import Stop
from tests.doubles.browser import chromium
from tests.doubles.github import people
from tests.doubles.github.checks import check
from tests.doubles.github.reviews import review
from tests.doubles.github.server import GitHub
from tests.doubles.model_server import NO_OTHERS, ModelServer
from tests.doubles.stopping import no_wait
from tests.pictures import IMAGES, ROOT
from tests.scenarios.outages import Later
from tests.screens.night import LEDGER, SITE, TRIES, Director, Hold, Task, earlier, tonight

if TYPE_CHECKING:
    from collections.abc import Mapping

    from playwright.sync_api import Browser, Page

    from orchestrator.app.wiring.program import Program
    from orchestrator.bot.cycle.parts import CycleResult
    from tests.doubles.github.state import Repo

NAMES = {"octo/ledger": LEDGER, "octo/website": SITE}
MODEL = "openai-chat:scripted-1"
LOOKS = {
    "desktop": (1280, 860, "light"),
    "desktop-dark": (1280, 860, "dark"),
    "phone": (390, 844, "light"),
    "phone-dark": (390, 844, "dark"),
}
DOCS = ("question-phone", "pause-desktop", "run-desktop-dark")
"""The pictures that `docs/dashboard.md` shows."""
_LONGEST_SECONDS = 120
_NAMES = """
const names = NAMES;
const rename = (top) => {
    const texts = document.createTreeWalker(top, NodeFilter.SHOW_TEXT);
    for (let text = texts.nextNode(); text; text = texts.nextNode()) {
        let words = text.data;
        for (const [here, shown] of names) words = words.replaceAll(here, shown);
        if (words !== text.data) text.data = words;
    }
};
addEventListener('DOMContentLoaded', () => {
    rename(document.body);
    new MutationObserver((all) => all.forEach((one) => one.addedNodes.forEach(rename)))
        .observe(document.body, {childList: true, subtree: true});
});
"""
_WEBP = """async ([png, quality]) => {
    const image = new Image();
    image.src = 'data:image/png;base64,' + png;
    await image.decode();
    const canvas = document.createElement('canvas');
    canvas.width = image.width; canvas.height = image.height;
    canvas.getContext('2d').drawImage(image, 0, 0);
    return canvas.toDataURL('image/webp', quality).split(',')[1];
}"""


@dataclass(slots=True)
class Camera:
    """Takes each picture in all widths and colours, into files that are numbered in their order."""

    browser: Browser
    folder: Path
    pages: dict[str, Page] = field(default_factory=dict)
    hidden: dict[str, Page] = field(default_factory=dict)
    count: int = 0

    @property
    def coder(self) -> Page:
        """A page that turns pictures into WebP."""
        if "coder" not in self.hidden:
            self.hidden["coder"] = self.browser.new_page()
        return self.hidden["coder"]

    def open(self, address: str, names: Mapping[str, str]) -> None:
        """Open the dashboard in a browser of each kind. What stands for addresses and folders of here is shown instead."""
        for name, (width, height, scheme) in LOOKS.items():
            context = self.browser.new_context(
                viewport={"width": width, "height": height},
                color_scheme=scheme,  # type: ignore[arg-type]
                timezone_id="Etc/UTC",
            )
            context.add_init_script(_NAMES.replace("NAMES", json.dumps(list(names.items()))))
            self.pages[name] = context.new_page()
            self.pages[name].goto(address)

    def take(self, name: str, *, path: str = "", whole: bool = False, ready: str = "", at: str = "") -> None:
        """Take a picture of the page that is open, or of another one, from a heading on."""
        self.count += 1
        for look, page in self.pages.items():
            before = page.url
            if path:
                page.goto(page.url.split("/", 3)[0] + "//" + page.url.split("/")[2] + path)
            if ready:
                page.get_by_text(ready).first.wait_for(timeout=_LONGEST_SECONDS * 1000)
            if at:
                heading = page.get_by_role("heading", name=at).first
                heading.evaluate("one => scrollTo(0, one.getBoundingClientRect().top + scrollY - 24)")
            png = base64.b64encode(picture(page, whole=whole)).decode()
            coded = self.coder.evaluate(_WEBP, [png, 0.92])
            file = self.folder / f"{self.count:02d}-{name}-{look}.webp"
            file.write_bytes(base64.b64decode(coded))
            if path:
                page.goto(before)
            page.evaluate("scrollTo(0, 0)")
        print(f"{self.count:02d} {name}", flush=True)


@dataclass(slots=True)
class Night:
    """The two repositories, the worker, and a person who looks at it."""

    github: GitHub
    model: ModelServer
    folder: Path
    environ: dict[str, str]
    camera: Camera
    tasks: list[Task]
    director: Director
    repos: dict[str, Repo]
    stack: ExitStack
    address: str = ""

    def play(self) -> None:
        """All of it, from the empty page to the morning."""
        take = self.camera.take
        python = dict.fromkeys((sys.prefix, sys.base_prefix), "/usr")
        shown = {f"{self.github.web_url}/": "", self.github.web_url: "https://github.com"}
        shown |= {str(self.folder / "state"): "/home/ada/.local/state/pullwright", **python}
        shown |= {self.model.url.partition("//")[2].partition("/")[0]: "127.0.0.1:8080"}
        address = self.dashboard()
        self.address = address.partition("?")[0]
        self.camera.open(address, shown)
        take("empty")
        self.add(earlier())
        self.do_earlier(earlier())
        self.add(self.tasks)
        first, pause = self.hold(self.tasks[0], 2), self.hold(self.tasks[2], TRIES + 1)
        killed = self.hold(self.tasks[4], 2)
        worker = self.worker()
        self.wait(first)
        take("running", ready="read_file", at="Now")
        first.over.set()
        take("question", ready="Your answer")
        self.camera.pages["desktop"].locator("#part-now .badge", has_text="paused").wait_for(
            timeout=_LONGEST_SECONDS * 1000
        )
        take("pause", ready="begins nothing before", at="Now")
        self.answer()
        self.camera.pages["desktop"].get_by_label("Your answer").wait_for(state="detached")
        take("answered")
        self.wait(pause)
        pause.over.set()
        self.wait(killed)
        take("live-run", path=self.newest_run())
        worker.kill()
        worker.wait()
        killed.over.set()
        take("killed", whole=True)
        worker = self.worker()
        self.camera.pages["desktop"].get_by_role("link", name=self.tasks[6].title).first.wait_for(
            timeout=_LONGEST_SECONDS * 1000
        )
        self.camera.pages["desktop"].locator(
            "#part-now .badge", has_text=re.compile("paused|waiting")
        ).wait_for(timeout=_LONGEST_SECONDS * 1000)
        self.review()
        take(
            "repository",
            path="/repository?name=" + quote(f"{self.github.web_url}/octo/ledger", safe=""),
            whole=True,
        )
        take("morning", whole=True)
        worker.send_signal(signal.SIGINT)
        worker.wait(_LONGEST_SECONDS)
        run = (
            self.camera.pages["desktop"]
            .get_by_role("link", name="Subtract refunds")
            .first.get_attribute("href")
        )
        failed = (
            self.camera.pages["desktop"]
            .get_by_role("link", name="Write amounts in words")
            .first.get_attribute("href")
        )
        take("run", path=str(run), whole=True)
        take("failed-run", path=str(failed), whole=True)
        take("runs", path="/runs", whole=True)

    def dashboard(self) -> str:
        """Start it; gives the address that it prints."""
        flags = ["--model", MODEL, "--api-url", self.model.url, "--price", "3/15", "--max-usd-per-day", "1.5"]
        flags += ["--github-url", self.github.web_url, *self.tests()]
        process = self.start("dashboard", *flags, stdout=subprocess.PIPE)
        assert process.stdout is not None
        return process.stdout.readline().decode().strip()

    def worker(self) -> subprocess.Popen[bytes]:
        """Start a worker for both repositories."""
        python = ", ".join(f'"{folder}"' for folder in {sys.prefix, sys.base_prefix})
        defaults = f"""[defaults]
model = "{MODEL}"
api_url = "{self.model.url}"
github_url = "{self.github.web_url}"
price = "3/15"
max_usd = 0.4
max_usd_per_day = 1.5
max_open_prs = 30
max_prs_per_day = 30
max_unreviewed = 30
sandbox_read = [{python}]
every = "1h"
"""
        names = [
            '[[repository]]\nname = "octo/ledger"\ntest_command = "python -m pytest -q"\n',
            '[[repository]]\nname = "octo/website"\n',
        ]
        file = self.folder / "fleet.toml"
        file.write_text("\n".join([defaults, *names]), encoding="utf-8")
        return self.start("worker", "--config", str(file))

    def tests(self) -> list[str]:
        python = [word for folder in {sys.prefix, sys.base_prefix} for word in ("--sandbox-read", folder)]
        return [*python, "--test-command", "python -m pytest -q"]

    def start(self, *argv: str, stdout: int | None = None) -> subprocess.Popen[bytes]:
        """Start the program. What it prints is in a file beside the state."""
        log = self.stack.enter_context((self.folder / f"{argv[0]}.log").open("ab"))
        process = subprocess.Popen(
            [sys.executable, "-m", "orchestrator", *argv],
            cwd=self.folder,
            env=self.environ,
            stdout=stdout or log,
            stderr=log,
        )
        self.stack.callback(end, process)
        return process

    def add(self, tasks: list[Task]) -> None:
        """Open the issues."""
        for task in tasks:
            self.github.add_issue(self.repos[task.repository], task.title, task.body, ["pullwright"])

    def do_earlier(self, tasks: list[Task]) -> None:
        """Let the program do the tasks of the days before, each on its day. People merge what it proposes."""
        with ThreadPoolExecutor(1) as aside:  # the browser's driver has a loop of its own in this thread
            for task in tasks:
                aside.submit(self.do_on_its_day, task).result()

    def do_on_its_day(self, task: Task) -> None:
        """Let the program do a task, with its clock set back."""
        wanted = RunRequest(task.repository, issue=self.number(task))
        flags: dict[str, Any] = {"model": MODEL, "api_url": self.model.url, "price": "3/15"}
        flags |= {"github_url": self.github.web_url, "max_open_prs": 30, "max_unreviewed": 30}
        clock = Later(-timedelta(days=task.past))
        program = build_program(
            wanted, flags, self.environ, self.folder, lambda _event: None, stop=Stop(no_wait), clock=clock
        )
        result = asyncio.run(one_cycle(program))
        if result.pull_request is not None and result.pull_request.number is not None:
            self.github.merge(self.repos[task.repository], result.pull_request.number)
            self.github.close(self.repos[task.repository], self.number(task))

    def number(self, task: Task) -> int:
        """The issue's number."""
        threads = self.repos[task.repository].threads
        return next(number for number, one in threads.items() if one.title == task.title)

    def hold(self, task: Task, reply: int) -> Hold:
        """Let a reply to a task stop in its middle."""
        hold = self.director.held[task.title, reply] = Hold()
        self.stack.callback(hold.over.set)
        return hold

    def wait(self, hold: Hold) -> None:
        """Wait until that reply has begun."""
        assert hold.began.wait(_LONGEST_SECONDS), self.log()

    def answer(self) -> None:
        """Answer the question on the page, as a person does."""
        page = self.camera.pages["desktop"]
        page.get_by_label("Your answer").fill(
            "If there is only one separator, it is the decimal one: 1.234 is a bit more than one."
        )
        page.get_by_role("button", name="Answer").click()
        self.camera.take("confirm")
        page.get_by_role("button", name="Begin the run").click()
        page.get_by_role("link", name="Back to the overview").click()

    def newest_run(self) -> str:
        """The page of the run that goes on."""
        return f"/run/{max(path.name for path in (self.folder / 'state/runs').iterdir())}"

    def review(self) -> None:
        """Checks and reviews of the night's pull requests come in, and somebody looks at them on the page."""
        page = self.camera.pages["desktop"]
        for number, repo in enumerate(self.repos.values()):
            for pull in list(repo.pulls.values()):
                if pull.state != "open":
                    continue
                failed = "Round half" in pull.title
                check(self.github, repo, pull.head_sha, "tests", "failure" if failed else "success")
                if pull.title.startswith(("Subtract", "Send")):
                    review(self.github, pull, "ada", "Good.", "APPROVED")
            page.get_by_role("link", name=list(self.repos)[number], exact=False).first.click()
            page.get_by_role("button", name="Look now").click()
            page.get_by_text("as of").first.wait_for()
            page.goto(self.address)

    def log(self) -> str:
        """What the worker printed."""
        return (self.folder / "worker.log").read_text("utf-8")[-3_000:]


def picture(page: Page, *, whole: bool) -> bytes:
    """A picture of a page. On a busy machine Chromium sometimes gives none at the first try."""
    from playwright.sync_api import Error

    try:
        return page.screenshot(full_page=whole, animations="disabled")
    except Error:
        return page.screenshot(full_page=whole, animations="disabled")


async def one_cycle(program: Program) -> CycleResult:
    """One cycle, after which the program is closed."""
    try:
        return await program.cycle()
    finally:
        await program.close()


def end(process: subprocess.Popen[bytes]) -> None:
    """End a process that may have ended already."""
    with contextlib.suppress(ProcessLookupError):
        process.send_signal(signal.SIGINT)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def main(folder: Path, *, docs: bool) -> None:
    """Take the pictures."""
    folder.mkdir(parents=True, exist_ok=True)
    tasks = tonight()
    with ExitStack() as stack:
        place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pullwright-screens-")))
        github = stack.enter_context(GitHub(place / "github"))
        model = stack.enter_context(ModelServer())
        director = Director([*tasks, *earlier()])
        model.script = director
        repos = {name: github.add_repository(name, files) for name, files in NAMES.items()}
        for repo in repos.values():
            people.collaborate(repo, "ada", "write")
        environ = {
            "PATH": os.environ["PATH"],
            "HOME": str(place),
            "HOSTNAME": "worker-1",
            "PULLWRIGHT_HOME": str(place / "state"),
            "PULLWRIGHT_CONFIG": os.devnull,
            "PYTHONPATH": str(ROOT),
            "GITHUB_TOKEN": github.token(),
            "LANG": "C.UTF-8",
            "TZ": "UTC",
            **NO_OTHERS,
        }
        camera = Camera(stack.enter_context(chromium()), folder)
        night = Night(github, model, place, environ, camera, tasks, director, repos, stack)
        try:
            night.play()
        finally:
            for log in place.glob("*.log"):
                shutil.copy(log, folder)
    if docs:
        for name in DOCS:
            (picture,) = folder.glob(f"[0-9][0-9]-{name}.webp")
            shutil.copy(picture, IMAGES / f"dashboard-{name}.webp")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        prog="python -m tests.screens", description=(__doc__ or "").splitlines()[0]
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--docs", action="store_true", help="replace the pictures of the documentation too")
    given = parser.parse_args()
    main(given.folder, docs=given.docs)
