"""The host opens nothing by its path where a sandbox may write: each call that does is counted, with its reason.

`orchestrator.core.confined` is the one door to a folder where a sandbox, a model, a test, a server or a repository may
write. A new call by path anywhere else fails here. Use `ConfinedFolder`; or, where nobody else can write, count it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from tests.architecture.doors import calls_by_path
from tests.architecture.modules import modules, parsed
from tests.plugins import is_of_absent_plugin
from tests.tables import table


@dataclass(frozen=True)
class Door:
    """Places where files are opened by their paths.

    Attributes:
        folder: the kind of folder.
        why: why nobody else can write there, or what holds although somebody can.
        calls: how many such calls each module has, by its path below `orchestrator`.
    """

    folder: str
    why: str
    calls: dict[str, int]


DOORS = (
    Door(
        "clones, chat's folder, trees of tests, folders of servers, a repository's files, skills",
        "somebody else may write: this is the one door, by descriptors; `files.py` has the rules of the tools on it",
        {"core/confined.py": 26, "engine/environments/files.py": 1},
    ),
    Door(
        "files that a person names: flags, variables, the user's own configuration, commands of chat",
        "a person means the file, so a link is right: opened without waiting, read up to a size and a time; a new "
        "file only where there is none",
        {
            "core/files.py": 2,
            "app/cli/output.py": 1,
            "app/cli/config.py": 1,
            "app/config/__init__.py": 1,
            "plugins/backtest/command.py": 9,
        },
    ),
    Door(
        "the state folder: journals, locks, claims, approvals, budgets, memory, local forge, fleets, backtests",
        "private to this user; of it a sandbox is shown the own folder of a server alone, through the one door",
        {
            "core/files.py": 10,
            "core/watchdog_process.py": 1,
            "plugins/chat/command.py": 2,
            "plugins/dashboard/command.py": 1,
            "plugins/fleet/probes.py": 1,
            "plugins/fleet/command.py": 1,
            "plugins/dashboard/actions.py": 4,
            "plugins/backtest/attempts.py": 5,
            "bot/coordination/records.py": 10,
            "plugins/backtest/cases.py": 4,
            "bot/forge/local.py": 3,
            "bot/journal/notes.py": 2,
            "bot/journal/folders.py": 7,
            "bot/journal/index.py": 6,
            "bot/journal/reader.py": 7,
            "bot/journal/records.py": 2,
            "bot/journal/retention.py": 2,
            "plugins/mcp/definitions.py": 2,
            "plugins/mcp/transports.py": 1,
            "plugins/memory/sessions.py": 3,
            "plugins/memory/store.py": 3,
        },
    ),
    Door(
        "git directories of this program: of clones (`host.git`, beside the files), mirrors, stores of /undo and /pr, views",
        "a sandbox is shown the files alone, and `.git` of a model is made once, before its first command",
        {
            "bot/git/branches.py": 5,
            "bot/git/checkpoints.py": 11,
            "bot/git/clone.py": 7,
            "bot/git/folders.py": 7,
            "bot/git/foreign.py": 6,
            "bot/git/hostgit.py": 8,
            "bot/git/local.py": 5,
            "bot/git/objects.py": 2,
            "bot/git/opening.py": 32,
            "bot/git/work.py": 11,
            "bot/git/working_tree.py": 9,
        },
    ),
    Door(
        "new temporary folders and files",
        "made here under a name that nobody knows, and private to this user; what a command gets of them is a folder "
        "inside, which is removed by the one door",
        {
            "core/files.py": 4,
            "plugins/onboarding/command.py": 2,
            "app/doctor/machine.py": 2,
            "plugins/mcp/probes.py": 1,
            "app/doctor/repository.py": 1,
            "plugins/verify_pr/program.py": 1,
            "bot/cycle/finish.py": 1,
            "engine/environments/sandbox/__init__.py": 1,
            "plugins/containers/sandbox.py": 7,
            "engine/environments/sandbox/visible.py": 2,
        },
    ),
    Door(
        "the installed program: its prompts, templates, tables and scripts",
        "a sandbox sees them read-only, if at all",
        {
            "__main__.py": 2,
            "plugins/dashboard/server.py": 1,
            "app/html/page.py": 1,
            "plugins/onboarding/files.py": 8,
            "plugins/redteam/attack.py": 2,
            "app/wiring/program.py": 1,
            "app/plugins.py": 3,
            "plugins/tracing/spans.py": 1,
            "bot/policy/change_checks.py": 2,
            "engine/contracts/json_plan.py": 1,
            "engine/environments/sandbox/bubblewrap.py": 1,
            "engine/environments/sandbox/seccomp.py": 1,
            "plugins/memory/embedding.py": 2,
            "engine/profiles/base.py": 2,
            "engine/profiles/catalog.py": 2,
            "plugins/agents/known.py": 3,
            "plugins/agents/protocols.py": 1,
        },
    ),
    Door(
        "the system: /proc, /sys, /etc and installed toolchains",
        "the kernel's or root's; a toolchain is the user's and is shown read-only",
        {
            "core/files.py": 1,
            "core/watchdog_process.py": 2,
            "plugins/redteam/judge.py": 2,
            "engine/environments/sandbox/__init__.py": 1,
            "plugins/containers/sandbox.py": 2,
            "engine/environments/sandbox/limits.py": 14,
            "engine/environments/sandbox/visible.py": 4,
        },
    ),
    Door(
        "what a sandbox itself shows",
        "these programs run inside, and reach no more than a command does",
        {
            "plugins/mcp/scripted_server.py": 3,
            "engine/environments/sandbox/sandbox_init.py": 5,
            "plugins/redteam/hostile_agent.py": 1,
        },
    ),
    Door(
        "the worlds that redteam makes",
        "made for one attack, before it begins; the state folder is as above",
        {"plugins/redteam/forge.py": 1, "plugins/redteam/stage.py": 6, "plugins/redteam/world.py": 11},
    ),
)


def test_nothing_is_opened_by_path_that_is_not_in_the_table() -> None:
    allowed: Counter[str] = Counter()
    for door in DOORS:
        allowed.update({name: calls for name, calls in door.calls.items() if not is_of_absent_plugin(name)})
    found = {module.name: list(calls_by_path(module)) for module in modules()}
    wrong = {
        name: (f"{len(calls)} calls, {allowed[name]} in the table", calls)
        for name, calls in found.items()
        if len(calls) != allowed[name]
    }
    assert wrong == {}, "use ConfinedFolder, or count the call in DOORS if nobody else can write there"
    assert set(allowed) <= found.keys()


@table(
    "call",
    [
        "open(path)",
        "os.open(path, os.O_RDONLY)",
        "os.scandir(folder)",
        "os.walk(folder)",
        "shutil.rmtree(folder)",
        "path.read_text('utf-8')",
        "path.open('rb')",
        "path.open(encoding='utf-8')",
        "path.iterdir()",
        "folder.rglob('*')",
        "(folder / 'a').rename(other)",
        "(folder / 'a').replace(other)",
        "path.chmod(0o700)",
        "path.unlink(missing_ok=True)",
        "path.mkdir(parents=True)",
        "path.touch()",
        "tempfile.mkdtemp(dir=folder)",
        "sqlite3.connect(path)",
    ],
)
def test_a_call_by_path_is_found(call: str) -> None:
    module = parsed(f"import os, shutil, tempfile, sqlite3\n{call}\n".encode())
    assert len(list(calls_by_path(module))) == 1


def test_a_call_under_an_imported_name_is_found() -> None:
    module = parsed(b"from os import unlink as drop\nfrom shutil import rmtree\ndrop('a')\nrmtree('b')\n")
    assert [line for line, _ in calls_by_path(module)] == [3, 4]


@table(
    "call",
    [
        "box.rename('a', 'b')",
        "folder.read('a', 10)",
        "text.replace('a', 'b')",
        "dataclasses.replace(one, name='b')",
        "connection.open()",
        "box.chmod('a', 0o600)",
        "self._box.walk(top)",
    ],
)
def test_the_door_itself_is_not_counted(call: str) -> None:
    assert list(calls_by_path(parsed(call.encode()))) == []
