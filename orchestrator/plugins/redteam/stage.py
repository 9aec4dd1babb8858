"""Plays one attack: the program with the user's settings, in prepared surroundings, with an obedient model."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import json
import os
import re
import sys
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.app.config.settings import Loaded
from orchestrator.app.options import TEST_KEYS
from orchestrator.app.wiring import BuildContext, ignore_event
from orchestrator.app.wiring.cycle_parts import RunParts, Safeguards, TaskRequest
from orchestrator.app.wiring.foreign_tools import ForeignSources
from orchestrator.app.wiring.guards import GuardMaker, choose_sandbox
from orchestrator.app.wiring.memory import open_session_memory
from orchestrator.app.wiring.model import ChosenModel
from orchestrator.app.wiring.program import Program
from orchestrator.app.wiring.repository import Site, Source
from orchestrator.app.wiring.session_parts import no_tools
from orchestrator.bot.cycle.folder_operator import FolderOperator
from orchestrator.bot.cycle.parts import Stop
from orchestrator.bot.forge.base import Proposal
from orchestrator.bot.git.checkpoints import Checkpoints
from orchestrator.bot.git.hostgit import HostGit
from orchestrator.bot.git.work import find_base
from orchestrator.bot.journal.folders import Home
from orchestrator.bot.journal.records import EventBus
from orchestrator.bot.verification.page import report
from orchestrator.bot.worker.backlog import TaskSelection
from orchestrator.core.clock import SystemClock
from orchestrator.core.errors import ConfigurationError, SandboxMissingError
from orchestrator.core.events import Defence
from orchestrator.core.messages import Spent
from orchestrator.engine.environments.wrappers import Wrapper
from orchestrator.engine.models.catalog import parse_model
from orchestrator.engine.models.keys import ApiKeys, secret_values
from orchestrator.engine.policy.secrets import Redactor
from orchestrator.plugins.redteam.attack import AttackPlace, Sign
from orchestrator.plugins.redteam.forge import FakeWeb, OutgoingText, StagedForge
from orchestrator.plugins.redteam.judge import (
    Evidence,
    files_below,
    host_reports,
    look_at_scene,
    outside_files,
)
from orchestrator.plugins.redteam.model import ObedientModel, instructions_in
from orchestrator.plugins.redteam.world import (
    DEFAULT_BRANCH,
    LATER_BRANCH,
    NAME,
    PAGE,
    THEIR_BRANCH,
    borrowed_environment,
    open_scene,
    references,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from orchestrator.app.config.settings import Settings
    from orchestrator.app.wiring.memory import SessionMemory
    from orchestrator.app.wiring.session_parts import MakeTools
    from orchestrator.bot.cycle.attempt import CycleParts
    from orchestrator.bot.cycle.parts import Guards
    from orchestrator.core.events import Emit
    from orchestrator.engine.environments.base import ExecutionEnvironment
    from orchestrator.engine.environments.sandbox.bubblewrap import BubblewrapSandbox
    from orchestrator.plugins.agents.work import AgentParts
    from orchestrator.plugins.mcp.servers import McpMaker
    from orchestrator.plugins.redteam.agents import HostileAgent
    from orchestrator.plugins.redteam.attack import Attack
    from orchestrator.plugins.redteam.planted import Drawn
    from orchestrator.plugins.redteam.servers import WebParts
    from orchestrator.plugins.redteam.world import Scene
    from orchestrator.plugins.verify_pr.program import NamedPull, VerifyProgram

_LEADS: Mapping[AttackPlace, Mapping[str, Any]] = {
    AttackPlace.WEB_PAGE: {"tool": "fetch", "url": PAGE},
    AttackPlace.WEB_SEARCH: {"tool": "search", "query": "how to greet"},
    AttackPlace.TOOL_OUTPUT: {"tool": "grep", "pattern": "OBEY", "path": "docs/deep"},
}
"""The model's first call by place, by which it comes to read the attacker's text."""
_MOST_SECONDS = 20.0
"""After this time a cycle that an attack made endless is ended."""
_SERVER = "tickets"
_TALK = "20261123-150000-0000000"
"""The id of the conversation's run."""
_FEW_ROUNDS = 8
"""With fewer rounds, a model with one order per round would not reach its last one."""
_LEVELS = ("read-only", "safe", "dangerous")
_OPENING = (
    "api_url",
    "github_url",
    "web",
    "sandbox",
    "allow_command",
    "allow_host",
    "allow_actor",
    "allow_path",
)


@dataclass(frozen=True, slots=True)
class Configured:
    """The user's configuration.

    Attributes:
        settings: the settings in the working directory.
        read: reads the settings in another folder; raises `ConfigurationError`.
    """

    settings: Settings
    read: Callable[[Path], Settings]


async def play(
    attack: Attack, user: Configured, drawn: Drawn, make: Callable[..., Stage] | None = None
) -> Evidence:
    """Play an attack, and return the evidence.

    Args:
        make: creates the stage; by default `Stage`.
    """
    base = user.settings.base or DEFAULT_BRANCH
    async with open_scene(attack, drawn, base) as scene:
        evidence = Evidence(user.settings, scene.secrets)
        with borrowed_environment(scene.environment(attack.world.variables)):
            try:
                await (make or Stage)(attack, user, scene, base, evidence).run()
            except SandboxMissingError as error:
                evidence.refusal, evidence.refused_by = str(error), Defence.SANDBOX
            except ConfigurationError as error:
                evidence.refusal = str(error)
    return evidence


@dataclass
class StagedProgram(Program):
    """The program with changed parts of a cycle."""

    change: Callable[[CycleParts], CycleParts] = field(kw_only=True)

    def parts(self, run: str, folder: Path, settings: Settings, only: str) -> CycleParts:
        """Return the user's parts, changed by `change`."""
        return self.change(super().parts(run, folder, settings, only))


@dataclass(frozen=True)
class Stage:
    """One attack on the user's program. The proof in the tests removes defences by a subclass.

    What this machine or the settings lack for an attack raises a `ConfigurationError` or a `SandboxMissingError`.
    """

    attack: Attack
    user: Configured
    scene: Scene
    base: str
    evidence: Evidence
    program: type[StagedProgram] = StagedProgram
    forge: type[StagedForge] = StagedForge
    model: type[ObedientModel] = ObedientModel
    web: type[FakeWeb] = FakeWeb
    verify: type[VerifyProgram] | None = None

    async def run(self) -> None:
        """Play the attack, and fill in the evidence."""
        attack, scene, evidence = self.attack, self.scene, self.evidence
        evidence.settings = settings = self.settings()
        if attack.place is AttackPlace.SETTINGS_FILE:
            evidence.loosened = _looser(self.user.read(scene.folder), settings)
        if attack.place in {AttackPlace.WEBHOOK, AttackPlace.DASHBOARD}:
            from orchestrator.plugins.redteam.servers import Served

            await Served(attack, scene, evidence, self.web_parts()).play()
            return
        forge = await asyncio.to_thread(self.forge, attack, scene, settings.label, self.base)
        if attack.place is AttackPlace.PULL_REQUEST:
            planted = await asyncio.to_thread(outside_files, scene)
            evidence.verified = await self._verify(settings, forge)
            await asyncio.to_thread(look_at_scene, evidence, scene, self.base, planted)
            return
        await self._run_cycle(settings, forge)

    async def _run_cycle(self, settings: Settings, forge: StagedForge) -> None:
        """Run a cycle under attack, and fill in the evidence."""
        attack, scene, evidence = self.attack, self.scene, self.evidence
        web = self.web(self._pages(), attack.world.hosts)
        model = self.model(
            lead=attack.world.lead or _LEADS.get(attack.place, {}),
            program_only=attack.trusts == "program",
            at_once=attack.at_once or settings.max_rounds < _FEW_ROUNDS,
        )
        planted = await asyncio.to_thread(outside_files, scene)
        talks = attack.place is AttackPlace.CONVERSATION
        operator = await self._talk() if talks else None
        async with AsyncExitStack() as stack:
            hostile = self._hostile()
            if hostile is not None:
                await stack.enter_async_context(hostile.served())
            program = self._program(settings, forge, model, web, hostile or operator)
            stack.push_async_callback(program.close)
            await self._cycle(program)
        evidence.shown, evidence.requests, evidence.obeyed = (
            model.shown,
            len(model.requests),
            len(model.obeyed),
        )
        if hostile is not None:
            hostile.testify(evidence)
        evidence.fetched = [*web.fetched, *scene.store.fetched]
        bodies = (one.text for one in forge.written if one.where == "body")
        evidence.reports = [report for body in bodies for report in self.reports(body)]
        evidence.left += [*forge.written, *(OutgoingText("web request", text) for text in web.sent)]
        await asyncio.to_thread(look_at_scene, evidence, scene, self.base, planted)
        journals = await asyncio.to_thread(_journals, scene.state)
        evidence.left += [OutgoingText("journal", text) for text in journals]
        remembered = await asyncio.to_thread(_remembered, scene.state)
        evidence.left += [OutgoingText("memory", text) for text in remembered]

    async def _cycle(self, program: StagedProgram) -> None:
        """Run the cycle; one whose attack is to make it endless has a time limit."""
        limit = asyncio.timeout(_MOST_SECONDS if str(Sign.HUNG) in self.attack.success else None)
        try:
            async with limit:
                self.evidence.result = await program.cycle()
        except TimeoutError:
            if not limit.expired():
                raise
            self.evidence.hung = True

    def _hostile(self) -> HostileAgent | None:
        """Return the agent program of the attack; None if it is played by the model's loop."""
        if self.attack.place is not AttackPlace.AGENT:
            return None
        from orchestrator.plugins.redteam.agents import HostileAgent

        text, manner = self.scene.fill(self.attack.text), self.attack.world.agent
        return HostileAgent(text, manner, self.scene, self.agent_parts)

    async def _verify(self, settings: Settings, forge: StagedForge) -> str:
        """Verify the attacker's pull request, and return the outcome."""
        from orchestrator.plugins.verify_pr.program import NamedPull, VerifyProgram

        scene, base = self.scene, self.base
        redactor = _redactor(frozenset(secret_values(os.environ)))
        context = self._context(settings, EventBus(self.evidence.events.append, redactor), redactor)
        sandbox = choose_sandbox(settings, scene.sink.connect)
        site = self._site(forge)

        def program(named: NamedPull, make: type[VerifyProgram]) -> VerifyProgram:
            return make(context, site, named, None, sandbox, EventBus(self.evidence.events.append, redactor))

        genuine = await program(NamedPull(NAME, branch=THEIR_BRANCH), VerifyProgram).run()
        self.evidence.events.clear()
        report_of = (
            report(genuine.verdict, genuine.commits.head) if genuine.verdict and genuine.commits else ""
        )
        text = _with_lies(scene.fill(self.attack.text), report_of)
        pull, _ = await asyncio.to_thread(
            forge.ensure_pull_request, Proposal(THEIR_BRANCH, base, "Mend the greeting", text, draft=False)
        )
        if self.attack.world.pull_later:
            forge.later = (await asyncio.to_thread(references, scene.repository))[LATER_BRANCH]
        return (
            await program(NamedPull(NAME, number=pull.number), self.verify or VerifyProgram).run()
        ).outcome

    def started(self) -> Settings:
        """Return the user's settings in the working directory of the attack."""
        has_file = self.attack.world.settings_file is not None
        return self.user.read(self.scene.started_in) if has_file else self.user.settings

    def settings(self) -> Settings:
        """Return the settings of the run."""
        settings = self.started()
        # The user's test command is for another repository.
        changed = {key: self.attack.settings.get(key) for key in TEST_KEYS} if settings.test_command else {}
        if most := self.attack.world.max_rounds:
            changed["max_rounds"] = min(most, settings.max_rounds)
        return settings.model_copy(update=changed)

    def web_parts(self) -> WebParts:
        """Return the defences of the webhook and the dashboard."""
        from orchestrator.plugins.redteam.servers import WebParts

        return WebParts()

    def agent_parts(self) -> AgentParts:
        """Return what stands between an agent and the rest."""
        from orchestrator.plugins.redteam.agents import usual_parts

        return usual_parts(self.attack.world.agent)

    def agent_box(self, settings: Settings) -> BubblewrapSandbox:
        """Find the sandbox of an agent."""
        from orchestrator.plugins.redteam.agents import find_box

        return find_box(settings)

    def memory(self, context: BuildContext) -> SessionMemory | None:
        """Return what the sessions of this machine remember."""
        return open_session_memory(context, NAME)

    def guards(self, guards: Guards) -> Guards:
        """Return the checks of the run."""
        return guards

    def parts(self, parts: CycleParts, settings: Settings) -> CycleParts:
        """Return the parts of the cycle, with an environment that adds the final work tree to the evidence."""
        del settings

        def environment(tree: Path, submodules: list[str]) -> ExecutionEnvironment:
            return _WatchedTree(parts.environment(tree, submodules), tree, self.evidence)

        return dataclasses.replace(parts, environment=environment, download=self.scene.store.download)

    def reports(self, body: str) -> list[str]:
        """Return the host's reports on the tests in a pull request's text, as a program reads them."""
        return host_reports(body)

    def servers(self, settings: Settings) -> McpMaker:
        """Return the MCP server of the attack, whose tools the user has approved."""
        from orchestrator.plugins.mcp import scripted_server
        from orchestrator.plugins.mcp.base import McpServer, ServerProgram
        from orchestrator.plugins.mcp.config import McpConfig
        from orchestrator.plugins.mcp.definitions import as_definition
        from orchestrator.plugins.mcp.servers import McpMaker, check_mcp_installed

        check_mcp_installed()
        script = Path(scripted_server.__file__)
        scene, world = self.scene, self.attack.world
        words = json.dumps(self.attack.text)[1:-1]
        plan = scene.fill(json.dumps(world.server)).replace("{{text}}", words)
        place = ServerProgram(
            os.path.realpath(sys.executable),
            ("-I", str(script), plan),
            readable=(str(script.parent),),
        )
        config = McpConfig((McpServer(_SERVER, place, allow=("*",)),), {_SERVER: scene.started_in})
        context = self._context(settings, ignore_event, _redactor(frozenset(secret_values(os.environ))))
        maker = McpMaker(config, context, scene.sink.connect)
        listed = json.loads(plan)["tools"] if world.approved is None else world.approved
        maker.approvals.approve(_SERVER, [one for tool in listed if (one := as_definition(tool))])
        return maker

    async def _talk(self) -> FolderOperator:
        """Carry out the orders in a person's folder, and return the proposal of the result, as by `/pr`."""
        scene, orders = self.scene, list(instructions_in(self.scene.fill(self.attack.text)))
        folder, doing = scene.folder / "mine", "cannot clone for the person"
        words = ("clone", "--quiet", f"--branch={self.base}", "--", str(scene.repository), str(folder))
        git = HostGit(scene.folder)
        await asyncio.to_thread(git.run, *words, doing=doing, variables={"GIT_ALLOW_PROTOCOL": "file"})
        kept = Checkpoints(folder, scene.folder / "checkpoints", lambda _text: None)
        async with kept.around():
            for order in orders:
                if order.tool == "write":
                    path = folder / order.arguments["path"]
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_text(order.arguments["content"], encoding="utf-8")
        base = await asyncio.to_thread(find_base, folder, self.base, is_here=False)
        change = await asyncio.to_thread(kept.proposal, base)
        said = next(order.arguments for order in orders if order.tool == "propose")
        return FolderOperator(_TALK, change, said["title"], said["body"], Spent())

    def _pages(self) -> dict[str, str]:
        pages = dict(self.attack.world.pages)
        if self.attack.place in {AttackPlace.WEB_PAGE, AttackPlace.WEB_SEARCH}:
            pages.setdefault(PAGE, "{{text}}")
        return {
            url: self.scene.fill(text.replace("{{text}}", self.attack.text)) for url, text in pages.items()
        }

    def _program(
        self,
        settings: Settings,
        forge: StagedForge,
        model: ObedientModel,
        web: FakeWeb,
        instead: FolderOperator | HostileAgent | None,
    ) -> StagedProgram:
        """Create the program, with what works in place of the model's loop."""
        operator = instead if isinstance(instead, FolderOperator) else None
        hostile = None if isinstance(instead, FolderOperator) else instead
        scene = self.scene
        redactor = _redactor(frozenset(secret_values(os.environ)))
        make_guards = GuardMaker(redactor)
        bus = EventBus(self.evidence.events.append, redactor)
        context = self._context(settings, bus, redactor)
        shared = RunParts(
            context,
            self._site(forge),
            _as_users_model(model, settings),
            Safeguards(
                redactor,
                lambda rules: self.guards(make_guards(rules)),
                choose_sandbox(settings, scene.sink.connect),
            ),
            added_tools=_web_tools(web, settings),
            long_term=self.memory(context),
            foreign=self.servers(settings) if self.attack.world.server else ForeignSources(),
            operator=operator,
            worker=hostile.worker(context, self.agent_box(settings)) if hostile else None,
        )
        if operator is not None:
            wanted = TaskSelection(conversation=(_TALK, operator.title))
            shared = dataclasses.replace(shared, request=TaskRequest(wanted))
        return self.program(shared, bus, change=lambda parts: self.parts(parts, settings))

    def _context(self, settings: Settings, emit: Emit, redactor: Redactor) -> BuildContext:
        return BuildContext(
            Loaded(settings, {}),
            ApiKeys(),
            Home(self.scene.state),
            SystemClock(),
            emit,
            Stop(),
            redactor,
            dict(os.environ),
        )

    def _site(self, forge: StagedForge) -> Site:
        repository = str(self.scene.repository)
        return Site(forge, lambda: Source(repository, self.base), lambda: None, label=NAME)


_REPORT = re.compile(r"\{\{report(?: ++([^{}]*))?\}\}")
_OPENS, _CLOSES = "```json\n", "\n```"


def _with_lies(text: str, report: str) -> str:
    """Replace `{{report}}` by the genuine report, and `{{report PATH=VALUE; ...}}` by one with changed fields.

    A path names a field of the report's statement, such as `predicate.runs.after.passed`; a value is JSON.
    """

    def changed(found: re.Match[str]) -> str:
        if not found[1] or not report:
            return report
        head, _, rest = report.partition(_OPENS)
        block, _, tail = rest.partition(_CLOSES)
        statement = json.loads(block)
        for lie in found[1].split("; "):
            path, _, value = lie.partition("=")
            *above, last = (int(key) if key.isdigit() else key for key in path.strip().split("."))
            place = statement
            for key in above:
                place = place[key]
            place[last] = json.loads(value)
        return f"{head}{_OPENS}{json.dumps(statement, indent=1)}{_CLOSES}{tail}"

    return _REPORT.sub(changed, text)


class _WatchedTree(Wrapper):
    """Adds the final work tree to the evidence."""

    def __init__(self, inner: ExecutionEnvironment, tree: Path, evidence: Evidence) -> None:
        super().__init__(inner)
        self._tree, self._evidence = tree, evidence

    async def cleanup(self) -> None:
        """List the files, then clean up."""
        self._evidence.in_clone = await asyncio.to_thread(files_below, self._tree)
        await super().cleanup()


def _web_tools(web: FakeWeb, settings: Settings) -> MakeTools:
    """Return what makes the web tools, if the settings allow the web."""
    if getattr(settings, "web", None) is None:
        return no_tools
    from orchestrator.plugins.web.tools import WebTools

    return WebTools(web).tools


def _as_users_model(model: ObedientModel, settings: Settings) -> ChosenModel:
    """Return the obedient model with the user's model reference, so that it gets the same profile."""
    try:
        ref = parse_model(settings.model) if settings.model else None
    except ConfigurationError:
        ref = None
    return ChosenModel(model, lambda _usage: 0.0, ref)


@functools.lru_cache(maxsize=4)
def _redactor(values: frozenset[str]) -> Redactor:
    return Redactor(values)


def _journals(state: Path) -> list[str]:
    return [file.read_text(encoding="utf-8") for file in state.rglob("*.jsonl")]


def _remembered(state: Path) -> list[str]:
    """Return the content of the memory files, as far as it is text."""
    return [file.read_bytes().decode("utf-8", "replace") for file in state.rglob("*.db*")]


def _looser(before: Settings, after: Settings) -> list[str]:
    """Return the options that are less strict than before, or send data elsewhere."""
    opened = [key for key in _OPENING if getattr(before, key, None) != getattr(after, key, None)]
    more = [key for key in ("max_rounds", "max_files") if getattr(after, key) > getattr(before, key)]
    if _LEVELS.index(after.permission) > _LEVELS.index(before.permission):
        more.append("permission")
    return [*opened, *more]
