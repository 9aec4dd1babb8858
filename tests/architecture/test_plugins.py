"""The plug-ins can be taken out, one by one and all at once, and a person can add one of their own."""

from __future__ import annotations

import ast
import fnmatch
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.app.options import flag_of, options_of
from orchestrator.app.plugins import HOMES, WANTED_BY, InstalledPlugin, Point, installed, own_names
from tests.architecture.modules import modules
from tests.architecture.test_extending import SHOWN
from tests.doubles.model_server import ModelServer, calls, plan, reply
from tests.scenarios.stage import git, make_repository

ROOT = Path(__file__).parents[2]
NAMES = own_names()
PROGRAM = "import sys; from orchestrator.app.cli import main; sys.exit(main(sys.argv[1:]))"
FAST_TESTS = (
    "tests/unit/app/cli/test_help.py",
    "tests/unit/app/test_options.py",
    "tests/architecture/test_pages.py",
)
"""What is run without each plug-in."""
SOME_TESTS = (
    FAST_TESTS,
    (
        "tests/unit/app/cli",
        "tests/unit/bot/cycle/test_parts.py",
        "tests/unit/bot/cycle/test_attachments.py",
        "tests/unit/engine/profiles/test_library.py",
    ),
    ("tests/scenarios/test_demo.py", "tests/scenarios/test_local.py"),
)
"""What is run without all of them, in parts that can be played side by side: tests of what asks which plug-ins there are.

The core, the engine and the bot import nothing that could ask (`test_packages_import_only_from_those_below`).
"""
SHARED_TESTS = (
    "architecture",
    "conformance",
    "doubles",
    "fuzz",
    "patterns",
    "scenarios",
    "simulation",
    "unit",
)
IMPORT = re.compile(r"^ *(from|import) +(orchestrator\.plugins\b|tests\.plugins\.).*$", re.MULTILINE)
PYTEST = "import sys, pytest; sys.exit(pytest.main(['-q', '-p', 'no:cacheprovider', *sys.argv[1:]]))"


MANY = """
import json, os, sys, tempfile, traceback
from orchestrator.app.cli import main

def run(argv, variables, streams):
    os.environ.update(variables)
    for number, stream in enumerate(streams, 1):
        os.dup2(stream.fileno(), number)
    status = 70
    try:
        status = main(argv)
    except SystemExit as ended:
        status = ended.code
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush(), sys.stderr.flush()
    os._exit(status)

done = []
for argv, variables in json.loads(sys.argv[1]):
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        child = os.fork()
        if child == 0:
            run(argv, variables, (out, err))
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        said = []
        for stream in (out, err):
            stream.seek(0)
            said.append(stream.read().decode())
        done.append([argv, status, *said])
print(json.dumps(done))
"""
"""Runs the program once for each of many command lines, and imports it once."""

SAID_WITHOUT = {
    "containers": ("--model", "echo", "--allow-command", "ls *", "--sandbox", "docker:rust"),
    "github": ("--model", "echo", "--repo", "octo/calc"),
}
"""The flags of `run` whose values, and not the flags themselves, belong to a plug-in."""


def run(
    tree: Path, *arguments: str, code: str = PROGRAM, said: str = "", **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run the program of a tree, or other code, there."""
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=tree,
        env={**os.environ, "PYTHONPATH": str(tree), **variables},
        input=said,
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )


def run_each(
    tree: Path, commands: list[tuple[tuple[str, ...], dict[str, str]]]
) -> list[subprocess.CompletedProcess[str]]:
    """Run the program of a tree with each of these command lines, in these variables, from one interpreter."""
    done = run(tree, json.dumps(commands), code=MANY)
    assert done.returncode == 0, done.stderr
    return [subprocess.CompletedProcess(*one) for one in json.loads(done.stdout)]


def slash_commands_of(one: InstalledPlugin) -> list[str]:
    """The commands of a conversation that a plug-in adds to those of `chat`."""
    named = one.plugin.adds.get(Point.SLASH_COMMANDS)
    return [command.name for command in one.load(named)] if named else []


def test_each_command_option_and_table_of_a_plugin_has_its_home() -> None:
    given = {
        name: {
            *one.plugin.commands,
            *map(flag_of, options_of(one)),
            *(f"[{table}]" for table in one.plugin.tables),
            *slash_commands_of(one),
        }
        for name, one in installed().items()
    }
    assert {name: set(HOMES[name]) for name in given} == given


@pytest.mark.parametrize("name", NAMES)
def test_what_a_plugin_names_is_there(name: str) -> None:
    one = installed()[name]
    assert one.plugin.name == name
    for reference in one.plugin.adds.values():
        assert one.load(reference) is not None
    assert set(one.plugin.adds) <= set(Point)
    for command in one.plugin.commands.values():
        assert callable(one.load(command.run))


@pytest.mark.parametrize("name", NAMES)
def test_a_plugin_imports_another_only_if_it_says_so(name: str) -> None:
    found = set()
    for module in modules():
        for node in module.nodes if module.name.startswith(f"plugins/{name}/") else ():
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            found |= {part[1] for one in names if (part := re.match(r"orchestrator\.plugins\.(\w+)", one))}
    plugin = installed()[name].plugin
    assert found - {name} <= {*plugin.needs, *plugin.uses}


def test_the_description_of_a_plugin_loads_nothing_else() -> None:
    """The page of help loads all of them, so each has to be small."""
    code = (
        "import sys; from orchestrator.app.plugins import installed; installed()\n"
        "print([name for name in sys.modules if name.startswith('orchestrator.')])"
    )
    loaded = ast.literal_eval(run(ROOT, code=code).stdout)
    allowed = {"core", "core.errors", "app", "app.plugins", "plugins"}
    allowed |= {part for name in NAMES for part in (f"plugins.{name}", f"plugins.{name}.plugin")}
    assert {name.removeprefix("orchestrator.") for name in loaded} <= allowed


# The engine without all the rest.

SESSIONS = """
import asyncio, importlib, pkgutil
from pathlib import Path

import orchestrator
from orchestrator import LocalEnvironment, Session, minimal_profile
from orchestrator.core.messages import FinishReason, Message, Role, Text, ToolCall, Usage
from orchestrator.engine.models.base import Response
from orchestrator.engine.models.replay import ReplayModel

for module in pkgutil.walk_packages(orchestrator.__path__, "orchestrator."):
    importlib.import_module(module.name)

async def submit(profile):
    session = Session(profile=profile, environment=LocalEnvironment("work"))
    events = [event async for event in session.submit("Write a file.")]
    await session.close()
    return [event.kind.value for event in events]

def said(*calls):
    finish = FinishReason.TOOL_CALLS if calls else FinishReason.STOP
    return Response(Message(Role.ASSISTANT, (Text("Done."), *calls)), finish, Usage(1, 1), "m")

Path("work").mkdir()
for name in sorted(name for name in dir(orchestrator) if name.endswith("_profile")):
    kinds = asyncio.run(submit(getattr(orchestrator, name)("echo")))
    assert "assistant_text_end" in kinds, (name, kinds)
for attempt, error in (
    (lambda: orchestrator.HttpWeb, ImportError),
    (lambda: minimal_profile("echo", web=object()), orchestrator.ConfigurationError),
):
    try:
        attempt()
    except error as refused:
        assert "the plug-in web" in str(refused), refused
        assert len(str(refused).splitlines()) == 1
    else:
        raise AssertionError("the plug-in web is not there")
SHELL = ("shell_command", {"command": "printf alone > a.txt"})
WRITE = ("write_file", {"file_path": "a.txt", "content": "alone"})
for profile, (name, arguments) in {
    orchestrator.openai_profile: WRITE,
    orchestrator.anthropic_profile: WRITE,
    orchestrator.gemini_profile: WRITE,
    minimal_profile: SHELL,
}.items():
    Path("work/a.txt").unlink(missing_ok=True)
    call = ToolCall("1", name, arguments)
    kinds = asyncio.run(submit(profile(ReplayModel("recorded", [said(call), said(), said()]))))
    assert Path("work/a.txt").read_text() == "alone", (name, kinds)
print("works")
"""


def test_the_engine_works_alone(tmp_path: Path) -> None:
    """It is the library: with the core, and without the bot, the program and the plug-ins."""
    for name in ("__init__.py", "core", "engine"):
        target = tmp_path / "orchestrator" / name
        target.parent.mkdir(exist_ok=True)
        target.symlink_to(ROOT / "orchestrator" / name)
    (tmp_path / "prompts").symlink_to(ROOT / "prompts")
    done = run(tmp_path, code=SESSIONS)
    assert done.returncode == 0, done.stderr[-2_000:]
    assert done.stdout == "works\n"


# The program without the plug-ins.


def tree_without(folder: Path, *names: str) -> Path:
    """Make a copy of the program without some plug-ins, with everything that is theirs."""
    left_out = {
        str(ROOT / f"{parent}/{name}")
        for name in names
        for parent in ("orchestrator/plugins", "prompts/plugins", "tests/plugins")
    }

    def ignored(at: str, found: list[str]) -> set[str]:
        # Not what git, an environment and linters keep, or what a process just compiles. What is compiled stays so.
        kept = {".git", ".venv", *fnmatch.filter(found, ".*_cache"), *fnmatch.filter(found, "*.pyc.*")}
        return {one for one in found if f"{at}/{one}" in left_out or one in kept}

    shutil.copytree(ROOT, folder / "tree", ignore=ignored, symlinks=True, copy_function=_linked)
    for name in names:
        (folder / "tree/docs" / f"{name}.md").unlink(missing_ok=True)
    return folder / "tree"


def _linked(source: str, target: str) -> None:
    """Let a file have a second name where the file system allows it: nothing in a tree writes into a file of it."""
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError:
        shutil.copy2(source, target, follow_symlinks=False)


@pytest.mark.timeout(600)
@pytest.mark.slow(reason="runs the demo and a part of the tests without each plug-in")
@pytest.mark.parametrize("name", NAMES)
def test_without_one_plugin_everything_else_works(name: str, tmp_path: Path) -> None:
    depending = [other for other, one in installed().items() if name in one.plugin.needs]
    tree = tree_without(tmp_path, name, *depending)
    demo = run(tree, "run", "--demo", "--json")
    assert demo.returncode == 0, demo.stderr
    assert json.loads(demo.stdout.splitlines()[0])["outcome"] == "proposed"
    typed: list[str | tuple[str, ...]] = [one for one in HOMES[name] if not one.startswith("/")]
    if name in SAID_WITHOUT:
        repository = make_repository(tmp_path / "calc", {"calc.py": "one\n"})
        typed.append(("run", "--repo", str(repository), "--task", "Add a file.", *SAID_WITHOUT[name]))
    said: list[tuple[tuple[str, ...], dict[str, str]]] = []
    for number, missing in enumerate(typed):
        config = tmp_path / f"config-{number}.toml"
        read = {"PULLWRIGHT_CONFIG": str(config)}
        if isinstance(missing, tuple):
            said.append((missing, {}))
        elif missing.startswith("["):
            config.write_text(f"{missing}\n", encoding="utf-8")
            said.append((("config",), read))
        elif missing.startswith("-"):
            key = missing[2:].replace("-", "_")
            config.write_text(f"{key} = '1'\n", encoding="utf-8")
            said.append((("run", "--repo", ".", missing, "1"), {}))
            said.append((("config",), read))
            said.append((("config",), {f"PULLWRIGHT_{key.upper()}": "1"}))
        else:
            said.append(((missing,), {}))
    *each_refused, plugins = run_each(tree, [*said, (("plugins",), {})])
    for refused in each_refused:
        assert refused.returncode == 2
        assert f"belongs to the plug-in {name}, whose folder" in refused.stderr
        assert refused.stderr.count("\n") == 1
    assert f"{name}: its folder is not there" in plugins.stdout
    for profile in (one for one, wanted in WANTED_BY.items() if name in wanted):
        known = ("--task", "Look", "--model", "echo", "--profile", profile, "--dry-run", "--max-rounds", "1")
        told = run(tree, "run", "--repo", str(make_repository(tmp_path / profile)), *known).stderr
        assert told.count(f"the profile {profile} works without the plug-in {name}, whose folder") == 1, told
    for missing in (one for one in HOMES[name] if one.startswith("/") and "chat" in NAMES):
        talked = run(tree, "chat", "--model", "echo", said=f"{missing}\n")
        assert f"{missing} belongs to the plug-in {name}, whose folder" in talked.stdout + talked.stderr
    if "redteam" in NAMES and name in installed()["redteam"].plugin.uses:  # what it does without them
        played = run(tree, "redteam", "--only", "tests-skipped")
        assert "1 attack, 1 stopped" in played.stdout, played.stderr
    tests = run(
        tree,
        *FAST_TESTS,
        code=PYTEST,
    )
    assert tests.returncode == 0, tests.stdout[-5_000:]


@pytest.mark.slow(reason="imports another assistant's folder in a copy of the program")
@pytest.mark.skipif("memory" not in NAMES, reason="the plug-in memory is not there")
def test_without_memory_another_assistants_memories_are_left_out_in_one_line(tmp_path: Path) -> None:
    tree = tree_without(tmp_path, "memory")
    (tmp_path / "ralph").mkdir()
    settings = {"model": "gpt-5.2", "embedding_model": "text-embedding-3-small"}
    (tmp_path / "ralph/config.json").write_text(json.dumps(settings), encoding="utf-8")
    (tmp_path / "config.toml").touch()
    done = run(
        tree, "config", "import", str(tmp_path / "ralph"), PULLWRIGHT_CONFIG=str(tmp_path / "config.toml")
    )
    assert done.returncode == 0, done.stderr
    assert 'model = "openai:gpt-5.2"' in done.stdout
    told = done.stderr.splitlines()
    assert [line for line in told if "embedding_model was left out: " in line and "plug-in memory" in line]
    assert [line for line in told if "memories and documents are not taken: memory belongs to the" in line]


def test_no_shared_test_imports_a_plugin_or_its_tests() -> None:
    """Not in a function either, where collecting it would not notice."""
    found = [
        f"{path.relative_to(ROOT)}: {line[0].strip()}"
        for folder in SHARED_TESTS
        for path in (ROOT / "tests" / folder).rglob("*.py")
        for line in IMPORT.finditer(path.read_text(encoding="utf-8"))
    ]
    assert found == []


@pytest.fixture(scope="module")
def bare_tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the program without any plug-in."""
    return tree_without(tmp_path_factory.mktemp("bare"), *NAMES)


@pytest.mark.slow(reason="collects all of the core's tests without any plug-in")
def test_without_all_plugins_the_demo_runs_and_no_test_of_the_rest_needs_one(bare_tree: Path) -> None:
    demo = run(bare_tree, "run", "--demo", "--json")
    assert demo.returncode == 0, demo.stderr
    collected = run(bare_tree, "--collect-only", "-m", "", "tests", code=PYTEST)
    assert collected.returncode == 0, collected.stdout[-5_000:]


@pytest.mark.timeout(900)
@pytest.mark.slow(reason="runs a part of the core's tests without any plug-in")
@pytest.mark.parametrize("some", SOME_TESTS, ids=lambda some: some[0].rpartition("/")[2])
def test_without_all_plugins_the_core_works(some: tuple[str, ...], bare_tree: Path) -> None:
    """A part of each package's tests passes."""
    tests = run(bare_tree, *some, code=PYTEST)
    assert tests.returncode == 0, tests.stdout[-5_000:]


# A plug-in of a stranger's, as `docs/extending.md` describes it.


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """A person's configuration that names the plug-in, which lies outside the program."""
    for name, text in SHOWN.items():
        if name.startswith("weather/"):
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).write_text(text, encoding="utf-8")
    config = tmp_path / "config.toml"
    config.write_text(f"plugins = ['{tmp_path}/weather']\nweather_unit = 'fahrenheit'\n", encoding="utf-8")
    return config


def with_config(config: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return run(ROOT, *arguments, PULLWRIGHT_CONFIG=str(config), PULLWRIGHT_HOME=str(config.parent / "state"))


def test_a_strangers_plugin_adds_a_command_an_option_and_a_probe(config: Path) -> None:
    assert with_config(config, "weather", "Rome").stdout == "Rome: 21 degrees\n"
    assert "print the temperature of a city" in with_config(config, "--help").stdout
    assert "--weather-unit" in with_config(config, "run", "--help", "all").stdout
    assert "fahrenheit" in with_config(config, "config").stdout
    listed = with_config(config, "plugins").stdout
    assert "weather: tell people and models the temperature" in listed
    assert f"{config.parent}/weather\n" in listed
    assert "degrees are fahrenheit" in with_config(config, "doctor").stdout


def test_a_tool_of_a_strangers_plugin_takes_part_in_a_cycle(config: Path) -> None:
    repository = make_repository(config.parent / "calc", {"calc.py": "one\n"})
    change = ("write_file", {"path": "new.txt", "content": "warm\n"})
    propose = ("create_pull_request", {"title": "Add a file", "body": "It was missing."})
    with ModelServer() as model:
        model.script.append(plan("Ask.", [("temperature", {"city": "Rome"})]))
        model.script.append(plan("Add.", [change, propose, ("finish", {"reason": "Done."})]))
        flags = ["--model", "openai-chat:scripted-1", "--api-url", model.url, "--sandbox", "off", "--json"]
        done = with_config(config, "run", "--repo", str(repository), "--task", "Note the weather", *flags)
    assert json.loads(done.stdout)["outcome"] == "proposed", done.stderr
    first, second = (request.body["messages"] for request in model.requests)
    assert "Returns the temperature of a city." in first[0]["content"]
    assert "Rome: 70 degrees fahrenheit" in second[-1]["content"]


@pytest.mark.skipif("chat" not in NAMES, reason="the plug-in chat is not there")
def test_a_tool_of_a_strangers_plugin_takes_part_in_a_conversation(config: Path) -> None:
    with ModelServer() as model:
        model.script.append(calls(("temperature", {"city": "Rome"})))
        model.script.append(reply("It is warm."))
        flags = ["--model", "openai-chat:scripted-1", "--api-url", model.url, "--sandbox", "off"]
        done = with_config(config, "ask", "How warm is it?", *flags, "--weather-unit", "celsius")
    assert done.stdout == "It is warm.\n", done.stderr
    assert "Rome: 21 degrees celsius" in model.requests[1].body["messages"][-1]["content"]


def test_an_address_that_a_strangers_forge_knows_is_cloned_and_proposed_to_there(config: Path) -> None:
    """Its groups are deeper than those of GitHub, which takes every other address."""
    bare = config.parent / "srv/teams/north/calc.git"
    bare.parent.mkdir(parents=True)
    git(
        config.parent,
        "clone",
        "--quiet",
        "--bare",
        str(make_repository(config.parent / "calc", {"a.py": "1\n"})),
        str(bare),
    )
    address = "https://code.weather.example/teams/north/calc"
    write = ("write_file", {"path": "new.txt", "content": "warm\n"})
    body = f"It was missing, see [the rest]({address}/wiki) and [more](https://elsewhere.example/x)."
    propose = ("create_pull_request", {"title": "Add a file", "body": body})
    with ModelServer() as model:
        model.script.append(plan("Add.", [write, propose, ("finish", {"reason": "Done."})]))
        flags = ["--model", "openai-chat:scripted-1", "--api-url", model.url, "--sandbox", "off", "--json"]
        where = ("--repo", f"{address}.git", "--weather-code", str(config.parent / "srv"))
        done = with_config(config, "run", *where, "--task", "Note the weather", *flags)
    result = json.loads(done.stdout)
    assert result["outcome"] == "proposed", done.stderr
    assert git(bare, "show", f"{result['branch']}:new.txt") == "warm"
    kept = (config.parent / "state/weather/teams/north/calc").rglob("*.json")
    told = "".join(one.read_text(encoding="utf-8") for one in kept)
    assert f"({address}/wiki)" in told
    assert "(https://elsewhere.example/x)" not in told
    assert with_config(config, "claims", *where).returncode == 0
    config.write_text(f"{config.read_text()}weather_code = '{config.parent}/srv'\n", encoding="utf-8")
    doctored = with_config(config, "doctor", "--repo", address).stdout
    assert f"Git {address}" in doctored
    refused = with_config(config, "run", "--repo", "https://gitlab.com/a/b", "--task", "x", *flags[:4])
    assert "gitlab.com is not GitHub" in refused.stderr if "github" in NAMES else "plug-in" in refused.stderr


def test_a_plugin_that_cannot_be_loaded_is_named_in_one_line(config: Path) -> None:
    (config.parent / "weather/plugin.py").write_text("import nothing_of_this_name\n", encoding="utf-8")
    refused = with_config(config, "weather", "Rome")
    assert refused.returncode == 2
    assert refused.stderr.count("\n") == 1
    assert str(config) in refused.stderr
    assert "No module named 'nothing_of_this_name'" in refused.stderr
