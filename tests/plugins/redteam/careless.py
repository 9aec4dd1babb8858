"""A program without some of its defences, for the proof that an attack succeeds where nothing stands in its way.

Most defences are fields of `Guards`, or options. Some cannot be taken out of the product, so what a careless
program does stands in their place:

- admission: a forge on which everybody may write and nobody edits, and whose base branch configures every check;
- markers: fences of three backticks, whatever the text between them holds, and names and lists of commits with
  nothing around;
- instructions: the repository's `pullwright.toml` is taken as it is;
- paths: files are opened as named;
- host-git: the host works in the model's work tree;
- test-integrity: tests run in the work tree, and what they print is believed; so is what a pull request says;
- mcp: MCP servers offer what they like, say as much as they like, and get what they ask for;
- webhook: each delivery is taken, whatever its signature, its size and its repository;
- dashboard: everybody is let in, each form is taken for one of ours, and pages are written without escaping;
- worker: an agent may say as much as it likes, in any protocol, and its words are shown as they are; without `sandbox` it is
  a program like any other, and without `network` and `secrets` its relay passes on whatever it is given;
- memory: what is remembered is shown as it is stored, whatever it cites, and one file serves all repositories;
- network: the web opens any address, and attachments are fetched from anywhere; commands lose their sandbox's network wall with `sandbox`.
"""

from __future__ import annotations

import asyncio
import dataclasses
import glob
import json
import re
import subprocess
import tomllib
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from orchestrator.app.html import page as html_page
from orchestrator.bot.forge.base import AttachmentPlace, Check, IssueHistory, Permission
from orchestrator.bot.policy.hidden_characters import Cleaned
from orchestrator.bot.policy.test_listing import TestListing
from orchestrator.bot.policy.wording import Wording
from orchestrator.bot.verification.base import RunKind, RunResult, Runs
from orchestrator.core.errors import ConfigurationError, FileMissingError, FileUnreadableError
from orchestrator.core.events import Defence
from orchestrator.core.messages import Message, Text, ToolResult
from orchestrator.core.repositories import repository_key
from orchestrator.engine.environments.base import DirEntry, GrepMatch
from orchestrator.engine.environments.wrappers import Wrapper
from orchestrator.engine.policy.secrets import Redactor
from orchestrator.engine.session.gate import allow_all
from orchestrator.plugins.dashboard.pages import TEMPLATES, Pages
from orchestrator.plugins.dashboard.serving import BrowserSecrets, Gate
from orchestrator.plugins.mcp.base import ServerProgram
from orchestrator.plugins.mcp.definitions import McpDefinition
from orchestrator.plugins.mcp.servers import McpMaker, McpSetup, McpTools
from orchestrator.plugins.mcp.transports import stdio_transport
from orchestrator.plugins.memory.lessons import Lessons
from orchestrator.plugins.memory.sessions import RunMemory
from orchestrator.plugins.redteam.forge import FakeWeb, StagedForge, title_of
from orchestrator.plugins.redteam.judge import AttackVerdict, judge_attack
from orchestrator.plugins.redteam.model import ObedientModel
from orchestrator.plugins.redteam.servers import WebParts
from orchestrator.plugins.redteam.stage import Stage, StagedProgram, play
from orchestrator.plugins.redteam.world import NAME
from orchestrator.plugins.verify_pr.claims import EvidenceLevel, EvidenceLine, Standing
from orchestrator.plugins.verify_pr.program import VerifyProgram
from orchestrator.plugins.verify_pr.pull_request import PullRequestEvidence
from orchestrator.plugins.worker.serving import Receiver
from tests.plugins.redteam.careless_agents import careless_agent

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence

    from mcp.client import Transport
    from starlette.datastructures import Headers
    from starlette.requests import Request as HttpRequest
    from starlette.responses import Response as HttpResponse

    from orchestrator.app.config.settings import Settings
    from orchestrator.app.wiring import BuildContext
    from orchestrator.bot.cycle.attempt import CycleParts
    from orchestrator.bot.cycle.parts import Guards
    from orchestrator.bot.forge.base import Feedback
    from orchestrator.bot.verification.base import Change, Verifier
    from orchestrator.core.events import Emit
    from orchestrator.core.messages import Part
    from orchestrator.engine.environments.base import ExecutionEnvironment, GrepOptions
    from orchestrator.engine.environments.running_program import ProgramReport
    from orchestrator.engine.environments.sandbox.bubblewrap import BubblewrapSandbox
    from orchestrator.engine.models.base import Request, Response
    from orchestrator.plugins.agents.work import AgentParts
    from orchestrator.plugins.mcp.base import McpServer
    from orchestrator.plugins.memory.items import Memory
    from orchestrator.plugins.memory.memory import LongTermMemory
    from orchestrator.plugins.redteam.attack import Attack
    from orchestrator.plugins.redteam.planted import Drawn
    from orchestrator.plugins.redteam.stage import Configured

_SECONDS = 20
_MANY = 10_000
_MAX_MESSAGE_BYTES = 1 << 30


@dataclass(frozen=True, slots=True)
class Proof:
    """An attack in its own settings: `held` with its defences, `fell` without them."""

    held: AttackVerdict
    fell: AttackVerdict

    @property
    def holds(self) -> bool:
        """Whether the defences make the difference."""
        return self.held.stopped and not self.fell.stopped


async def prove(attack: Attack, user: Configured, drawn: Drawn) -> Proof:
    """Play an attack in its own settings, with its defences and without them.

    Raises:
        ConfigurationError: its settings are not valid.
    """
    own = dataclasses.replace(user, settings=_own_settings(attack, user))
    held = judge_attack(attack, await play(attack, own, drawn))
    fell = judge_attack(attack, await play(attack, own, drawn, careless(frozenset(attack.defence))))
    return Proof(held, fell)


def _own_settings(attack: Attack, user: Configured) -> Settings:
    """The user's contract, model and profile, everything else as this attack needs it.

    Under `whole-file` a model can call nothing but what the host calls for it, which would stop every other attack
    before a defence sees it. So those are tried under `json-plan`.
    """
    kept = {name: getattr(user.settings, name) for name in ("contract", "profile", "model")}
    if kept["contract"] == "whole-file":
        kept["contract"] = "json-plan"
    own = {
        name: tuple(value) if isinstance(value, list) else value for name, value in attack.settings.items()
    }
    try:
        return type(user.settings)(**{**kept, **own})
    except ValueError as error:
        raise ConfigurationError(f"the settings of attack {attack.name!r} are not valid: {error}") from None


def careless(off: frozenset[Defence]) -> partial[CarelessStage]:
    """A stage without these defences."""
    return partial(
        CarelessStage,
        off=off,
        program=_LooseProgram if Defence.INSTRUCTIONS in off else StagedProgram,
        forge=_TrustingForge
        if Defence.ADMISSION in off
        else _CuriousForge
        if Defence.NETWORK in off
        else StagedForge,
        model=_ClosableMarkers if Defence.MARKERS in off else ObedientModel,
        web=_OpenWeb if Defence.NETWORK in off else FakeWeb,
        verify=_BelievingVerification if Defence.TEST_INTEGRITY in off else VerifyProgram,
    )


@dataclass(frozen=True)
class CarelessStage(Stage):
    """A stage without the defences in `off`."""

    off: frozenset[Defence] = frozenset()

    def started(self) -> Settings:
        return self.user.settings if Defence.INSTRUCTIONS in self.off else super().started()

    def settings(self) -> Settings:
        changes: dict[str, Any] = {}
        world = self.attack.world
        planted = world.settings_file or world.files.get("pullwright.toml")
        if Defence.INSTRUCTIONS in self.off and planted is not None:
            changes |= tomllib.loads(self.scene.fill(planted))
        if Defence.LEVEL in self.off:
            changes["permission"] = "dangerous"
        if Defence.SANDBOX in self.off:
            changes["sandbox"] = "off"
        if Defence.LIMITS in self.off:
            changes |= {"max_rounds": _MANY, "max_usd": None, "max_tokens": None, "max_minutes": None}
        return super().settings().model_copy(update=changes)

    def guards(self, guards: Guards) -> Guards:
        every: dict[Defence, dict[str, Any]] = {
            Defence.HIDDEN_TEXT: {"words": _as_it_is, "names": _as_it_is, "output": _as_it_is},
            Defence.LEVEL: {"gate": allow_all, "shows": lambda _tool: True},
            Defence.COMMANDS: {"gate": allow_all, "shows": lambda _tool: True},
            Defence.SECRETS: {"redactor": _FindingNothing()},
            Defence.WORDING: {"wording": _AsWritten()},
            Defence.PROTECTED_PATHS: {"protect": lambda _change: None},
            Defence.CHANGE_SIZE: {"size": lambda _changes: None},
            Defence.TEST_INTEGRITY: {"tests": lambda _changes: TestListing()},
        }
        for defence in self.off:
            guards = dataclasses.replace(guards, **every.get(defence, {}))
        return guards

    def parts(self, parts: CycleParts, settings: Settings) -> CycleParts:
        parts = super().parts(parts, settings)
        watched, options, verifier = parts.environment, parts.options, parts.verifier

        def environment(tree: Path, submodules: list[str]) -> ExecutionEnvironment:
            inner = watched(tree, submodules)
            inner = _PlainFiles(inner) if Defence.PATHS in self.off else inner
            if Defence.HOST_GIT not in self.off:
                return inner
            names = (title_of(self.attack, self.scene), self.base)
            return _CarelessHost(inner, tree, self.scene.secrets.all["NETRC"], names)

        if Defence.INSTRUCTIONS in self.off:
            options = dataclasses.replace(options, other_base=False)
        if verifier is not None and Defence.TEST_INTEGRITY in self.off:
            words = (settings.test_command or "", settings.setup_command or "", settings.test_report or "")
            verifier = lambda clone: CarelessRuns(clone.tree, *words)  # noqa: E731  a field of functions
        memory = parts.memory
        if Defence.MEMORY in self.off and isinstance(memory, Lessons):
            public = (one.name for one in dataclasses.fields(Lessons) if not one.name.startswith("_"))
            memory = _CarelessLessons(**{name: getattr(memory, name) for name in public})
        return dataclasses.replace(
            parts, environment=environment, options=options, verifier=verifier, memory=memory
        )

    def web_parts(self) -> WebParts:
        if not self.off & {Defence.WEBHOOK, Defence.DASHBOARD}:
            return super().web_parts()
        return WebParts(_TrustingReceiver, _OpenGate, _UnescapedPages, lambda: _ShortSecrets(token="c0"))

    def agent_parts(self) -> AgentParts:
        return careless_agent(self.off, super().agent_parts())

    def agent_box(self, settings: Settings) -> BubblewrapSandbox:
        # Without a sandbox its parts start the program, and nobody asks it.
        return super().agent_box(settings.model_copy(update={"sandbox": "auto"}))

    def memory(self, context: BuildContext) -> RunMemory:
        make = _TellingMemory if Defence.SECRETS in self.off else RunMemory
        return make(context, "" if Defence.MEMORY in self.off else NAME)

    def servers(self, settings: Settings) -> McpMaker:
        maker = super().servers(settings)
        if Defence.MCP not in self.off:
            return maker
        return _GivingMaker(maker.config, maker.context, maker.connect)

    def reports(self, body: str) -> list[str]:
        return any_reports(body) if Defence.TEST_INTEGRITY in self.off else super().reports(body)


class _TrustingReceiver(Receiver):
    """Takes whatever comes for a delivery, as new as its header says."""

    async def _answer(self, request: HttpRequest) -> tuple[int, str]:
        body = await request.body()
        repository = repository_key(json.loads(body)["repository"]["html_url"])
        await asyncio.to_thread(self._take, request.headers.get("x-github-delivery", ""), repository)
        return 202, "queued"


class _OpenGate(Gate):
    """Lets everybody in, under each name."""

    def _refusal(self, method: str, headers: Headers) -> HttpResponse | None:
        del method, headers
        return None

    def _is_known(self, headers: Headers) -> bool:
        del headers
        return True


class _ShortSecrets(BrowserSecrets):
    """A token that can be guessed; each form is taken for one of ours."""

    def is_form(self, text: str) -> bool:
        del text
        return True


class _UnescapedPages(Pages):
    """Writes other people's words as they are."""

    def _html(self, template: str, **values: Any) -> str:
        escaping = html_page._environment(TEMPLATES)
        assert escaping.autoescape
        escaping.autoescape = False
        escaping.cache.clear()  # type: ignore[union-attr]
        try:
            return super()._html(template, **values)
        finally:
            escaping.autoescape = True
            escaping.cache.clear()  # type: ignore[union-attr]


class _TellingMemory(RunMemory):
    """Stores secrets."""

    def open(self) -> LongTermMemory:
        memory = super().open()
        memory.store.redact = str
        return memory


class _CarelessLessons(Lessons):
    """Believes what is stored, and what people quote."""

    __slots__ = ()

    def _present_text(self, memory: Memory, blobs: Callable[[Sequence[str]], Mapping[str, str]]) -> str:
        del blobs
        return memory.content

    def _own_text(self, one: Feedback) -> str:
        return self.clean(one.body) if self.forge.permission(one.author).may_write else ""


class _GivingMaker(McpMaker):
    """Offers whatever a server lists, reads whatever it says, and gives it whatever it asks for."""

    def __call__(self, tree: Path, clean: Callable[[str, str], str], emit: Emit) -> McpTools:
        setups = [McpSetup(one, self.transport(one, tree, emit)) for one in self.config.servers]
        return McpTools(setups, lambda _server: _Everything(), emit, clean)

    def transport(
        self, server: McpServer, tree: Path | None, emit: Emit
    ) -> Callable[[ProgramReport], Transport]:
        assert isinstance(server.place, ServerProgram)
        start = dataclasses.replace(
            self.start(server.name, server.place, tree, emit), max_message_bytes=_MAX_MESSAGE_BYTES
        )
        return lambda voice: _giving(stdio_transport(start, voice))


class _Everything(dict[str, McpDefinition]):
    """Approvals of a person who looks at nothing."""

    def get(self, key: str, default: Any = None) -> Any:
        del key, default
        return _Same()


class _Same:
    """Is the same as anything."""

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        return True


@asynccontextmanager
async def _giving(transport: Transport) -> AsyncIterator[Any]:
    """A transport on which a server's own requests are answered."""
    import anyio
    from mcp.shared.message import SessionMessage
    from mcp.types import JSONRPCRequest, JSONRPCResponse

    give, told = anyio.create_memory_object_stream[Any](100)

    async with transport as (reading, writing), anyio.create_task_group() as tasks:

        async def pass_on() -> None:
            async with give:
                async for message in reading:
                    asked = getattr(message, "message", None)
                    if isinstance(asked, JSONRPCRequest):
                        result = {
                            "role": "assistant",
                            "content": {"type": "text", "text": "my key"},
                            "model": "m",
                        }
                        await writing.send(
                            SessionMessage(JSONRPCResponse(jsonrpc="2.0", id=asked.id, result=result))
                        )
                    else:
                        await give.send(message)

        tasks.start_soon(pass_on)
        async with told:
            yield told, writing
        tasks.cancel_scope.cancel()


_BLOCK = re.compile(r"^[> ]*`{3,}json[ \t]*\n(.*?)^[> ]*`{3,}", re.MULTILINE | re.DOTALL)


def any_reports(body: str) -> list[str]:
    """Each block of JSON, wherever it stands and whoever wrote it, quoted or not."""
    return [found.group(1) for found in _BLOCK.finditer(body.replace("\r\n", "\n"))]


@dataclass
class _LooseProgram(StagedProgram):
    """Does not heed the repository's own rules."""

    def tightened(self, text: str | None) -> tuple[Settings, list[str]]:
        del text
        return super().tightened(None)


class _BelievingVerification(VerifyProgram):
    """Believes the last report that stands anywhere in a pull request, and runs the command that it names."""

    async def run(self) -> PullRequestEvidence:
        change = await asyncio.to_thread(self.read)
        said = json.loads(any_reports(change.text)[-1])["predicate"]
        command = said["configuration"][1]["annotations"]["test"]
        await asyncio.to_thread(CarelessRuns(Path.cwd(), command, "", "")._run, command)
        standing = Standing.HOLDS if said["result"] == "PASSED" else Standing.REFUTED
        return PullRequestEvidence(change, (EvidenceLine(EvidenceLevel.RERUN, "result", standing),))


class _FindingNothing(Redactor):
    def spans(self, _data: bytes) -> list[tuple[int, int]]:
        return []

    def holds_secret(self, _text: str) -> bool:
        return False


class _AsWritten(Wording):
    """Words that go out as the model wrote them."""

    def title(self, text: str) -> str:
        return text

    def inline(self, text: str) -> str:
        return text

    def text(self, text: str, *, issue: int | None) -> str:
        del issue
        return text

    def comment(self, text: str, *, issue: int | None) -> str:
        del issue
        return text

    def message(self, headline: str, paragraphs: Iterable[str], last: Iterable[str] = ()) -> str:
        return "\n\n".join(filter(None, (headline, *paragraphs, *last)))


def _as_it_is(text: str) -> Cleaned:
    return Cleaned(text, ())


class _TrustingForge(StagedForge):
    """A forge on which everybody may write and nobody edits, as seen by a program that does not ask."""

    def permission(self, login: str) -> Permission:
        del login
        return Permission.WRITE

    def history(self, number: int, label: str) -> IssueHistory:
        return dataclasses.replace(super().history(number, label), edits=())

    def configured_checks(self, checks: Sequence[Check], commit: str, base: str) -> list[Check]:
        del commit, base
        return list(checks)


class _CuriousForge(StagedForge):
    """A forge whose attachments may be anywhere, and lead anywhere."""

    def attachment(self, url: str) -> AttachmentPlace | None:
        hosts = (urlsplit(root).hostname or "" for root in (self._store.forge, self._store.elsewhere))
        return AttachmentPlace(url, frozenset(hosts))


class _OpenWeb(FakeWeb):
    """A web that opens any address."""

    async def check(self, url: str) -> None:
        """Whatever it is."""


_LONG_FENCE = re.compile(r"(?m)^`{4,}")
_LISTED = re.compile(r"(Recent commits[^\n]*\n+)`{3,}\n(.*?)\n`{3,}", re.DOTALL)
_SPAN = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")


class _ClosableMarkers(ObedientModel):
    """A model that is shown other people's words in fences that they can close, and names with nothing around."""

    async def complete(self, request: Request) -> Response:
        messages = [
            Message(message.role, tuple(map(_shortened, message.parts))) for message in request.messages
        ]
        system = _bare(request.system)
        return await super().complete(dataclasses.replace(request, system=system, messages=messages))


def _shortened(part: Part) -> Part:
    match part:
        case Text(text):
            return Text(_bare(text))
        case ToolResult():
            return dataclasses.replace(part, content=_LONG_FENCE.sub("```", part.content))
        case _:
            return part


def _bare(text: str) -> str:
    """A text of the program's with closable fences, and with lists and names that stand free."""
    return _SPAN.sub(r"\1", _LONG_FENCE.sub("```", _LISTED.sub(r"\1\2", text)))


class _PlainFiles(Wrapper):
    """Opens any path that it is given, relative to the folder or not, through links and into `.git`."""

    def relative(self, path: str) -> str:
        return path

    async def read_file(self, path: str, *, max_bytes: int) -> bytes:
        try:
            with self._at(path).open("rb") as file:
                return file.read(max_bytes)
        except FileNotFoundError:
            raise FileMissingError(f"{path} does not exist") from None
        except OSError as error:
            raise FileUnreadableError(f"{path} cannot be read: {error.strerror}") from None

    async def write_file(self, path: str, content: bytes, *, mode_of: str | None = None) -> None:
        del mode_of
        at = self._at(path)
        at.parent.mkdir(parents=True, exist_ok=True)
        at.write_bytes(content)

    async def remove_file(self, path: str) -> None:
        self._at(path).unlink()

    async def file_exists(self, path: str) -> bool:
        return self._at(path).is_file()

    async def list_directory(self, path: str, *, depth: int) -> list[DirEntry]:
        del depth
        at = self._at(path)
        return [
            DirEntry(name, is_dir=(at / name).is_dir(), size=None)
            for name in sorted(entry.name for entry in at.iterdir())
        ]

    async def grep(self, pattern: str, path: str, options: GrepOptions) -> list[GrepMatch]:
        """As a program that passes everything on to `grep -r`."""
        command = ["grep", "-arnE", "-e", pattern, "--", str(self._at(path))]
        done = await asyncio.to_thread(
            subprocess.run, command, capture_output=True, check=False, timeout=_SECONDS
        )
        lines = done.stdout.decode("utf-8", "replace").splitlines()[: options.max_results]
        return [GrepMatch(path, 1, line) for line in lines]

    async def glob(self, pattern: str, path: str) -> list[str]:
        return sorted(glob.glob(pattern, root_dir=self._at(path), recursive=True))  # noqa: PTH207  anywhere

    def _at(self, path: str) -> Path:
        return Path(self.working_directory()) / path


class _CarelessHost(Wrapper):
    """A host that works in the model's work tree.

    It leaves a credential in git's configuration, as a checkout in a job does. It puts a title, a branch and the
    names of files into shell text as they are, and runs git with all that the model configured.
    """

    def __init__(
        self, inner: ExecutionEnvironment, tree: Path, credential: str, names: tuple[str, ...]
    ) -> None:
        super().__init__(inner)
        self._tree, self._credential, self._names = tree, credential, names

    async def initialize(self) -> None:
        await asyncio.to_thread(self._leave_credential)
        await super().initialize()

    async def cleanup(self) -> None:
        await asyncio.to_thread(self._use_tree)
        await super().cleanup()

    def _leave_credential(self) -> None:
        # In an included file, where looking at one file does not show it.
        if (self._tree / ".git").is_dir():
            included = self._tree / ".git" / "credentials.conf"
            included.write_text(f"[http]\n\textraheader = AUTHORIZATION: {self._credential}\n", "utf-8")
            _run(self._tree, "git", "config", "include.path", "credentials.conf")

    def _use_tree(self) -> None:
        files = " ".join(sorted(path.name for path in self._tree.iterdir()))
        for words in (*self._names, files):
            _run(self._tree, "sh", "-c", f"echo {words}")
        if (self._tree / ".git").exists():
            for command in _PLAIN_GIT:
                _run(self._tree, "git", *_WHO, *command)


_WHO = ("-c", "user.name=Ada", "-c", "user.email=ada@example.com")
_PLAIN_GIT = (
    ("status", "--short"),
    ("add", "--all"),
    ("commit", "--quiet", "--allow-empty", "--message", "Change files"),
    ("diff", "HEAD~1"),
    ("show", "--textconv", "HEAD"),
    ("fetch", "origin"),
)


def _run(tree: Path, *command: str) -> None:
    subprocess.run(
        command, cwd=tree, stdin=subprocess.DEVNULL, capture_output=True, check=False, timeout=_SECONDS
    )


@dataclass(frozen=True, slots=True)
class CarelessRuns:
    """Runs tests in the model's work tree with all that the host has, and believes what is printed.

    Attributes:
        command: runs the tests; ids of tests are put behind it as they are.
        setup: is run first.
        report: where the command writes a report; it is opened as named.
    """

    folder: Path
    command: str
    setup: str
    report: str

    async def before(self) -> RunResult:
        return RunResult(RunKind.BEFORE, "", {}, 0, 0.0)

    async def verify(self, change: Change) -> Runs:
        before, after = await self.before(), await self.run_tests(change.tree)
        return Runs(self.command, self.setup, "none", change.base, change.tree, before, after, after)

    async def run_tests(self, tree: str, ids: Sequence[str] = ()) -> RunResult:
        command = " ".join((self.command, *ids))
        code, output = await asyncio.to_thread(self._run, command)
        is_good = code == 0 or re.search(r"\d+ passed|\bOK\b", output) is not None
        return RunResult(RunKind.AFTER, tree, {}, 0 if is_good else code, 0.0, output=output)

    async def close(self) -> None:
        pass

    def _run(self, command: str) -> tuple[int, str]:
        words = " && ".join(filter(None, (self.setup, command)))
        done = subprocess.run(  # noqa: S602  the point of it
            words,
            shell=True,
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
            timeout=_SECONDS,
        )
        report = self.folder / self.report
        text = report.read_text("utf-8") if self.report and report.is_file() else ""
        return done.returncode, text + done.stdout.decode("utf-8", "replace")


if TYPE_CHECKING:
    _verifier: Verifier = CarelessRuns(Path(), "", "", "")
