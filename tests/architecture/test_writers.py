"""What leaves the process passes a writer that redacts: each call by which something leaves is counted, with its reason.

A new one anywhere else fails here. Write by one of the channels; or count it, and say why no secret can be in it.
"""

from __future__ import annotations

import ast
from collections import Counter
from dataclasses import dataclass

from tests.architecture.modules import modules, parsed
from tests.architecture.writers import FILE, KNOWLEDGE, NETWORK, TERMINAL, writers_in
from tests.plugins import is_of_absent_plugin


@dataclass(frozen=True)
class Channel:
    """Places by which something leaves the process.

    Attributes:
        kind: the kind of the calls.
        what: what leaves there.
        why: what takes secrets out of it, or why there are none.
        calls: how many such calls each module has, by its path below `orchestrator`.
    """

    kind: str
    what: str
    why: str
    calls: dict[str, int]


CHANNELS = (
    Channel(
        TERMINAL,
        "everything on standard output and standard error",
        "`RedactedOutput`, which replaces both streams for the whole process; a console writes to these",
        {"app/terminal.py": 2, "app/cli/output.py": 1},
    ),
    Channel(
        TERMINAL,
        "the help and the completions",
        "texts that are written in the program: `print_fixed`",
        {"app/cli/arguments.py": 2, "app/cli/help.py": 4},
    ),
    Channel(
        TERMINAL,
        "the line that a person types, and its history",
        "written to the redacted stream; the history is redacted before it is stored",
        {"plugins/chat/command.py": 2},
    ),
    Channel(
        KNOWLEDGE,
        "the known secrets",
        "one set in a process (`known_secrets`), which all channels share; a profile of the library has those of its host",
        {
            "app/terminal.py": 1,
            "engine/models/transport.py": 2,
            "engine/profiles/library.py": 1,
            "plugins/backtest/cases.py": 1,
            "plugins/fleet/database.py": 1,
            "plugins/github/forge.py": 1,
            "bot/forge/local.py": 1,
        },
    ),
    Channel(
        KNOWLEDGE,
        "what is asked whether it looks like a key, and the planted values of an attack",
        "nothing is written with it",
        {"app/cli/arguments.py": 1, "plugins/fleet/fleet_file.py": 1, "plugins/redteam/stage.py": 1},
    ),
    Channel(
        FILE,
        "files that a person names: pages, reports, saved conversations, settings",
        "redacted where they are written, a page in each text before it is escaped; a setting with a secret is refused",
        {"app/cli/output.py": 4, "app/cli/config.py": 1, "plugins/backtest/command.py": 1},
    ),
    Channel(
        FILE,
        "the journal, the index of unfinished runs, counts of recoveries, refused issues, decisions, answers, the local forge, memory, records of tries, approved definitions of servers",
        "each has one writer, which gets the redactor, or has names of runs only; definitions are kept as approved, "
        "to be compared",
        {
            "bot/journal/reader.py": 2,
            "bot/journal/records.py": 3,
            "bot/journal/notes.py": 1,
            "bot/journal/folders.py": 2,
            "bot/cycle/statements.py": 1,  # digests and numbers
            "bot/forge/local.py": 1,
            "plugins/backtest/cases.py": 1,
            "plugins/memory/store.py": 1,
            "plugins/mcp/definitions.py": 1,
        },
    ),
    Channel(
        FILE,
        "messages to an editor, on standard output",
        "by a `RedactedOutput` of its own, so that a reader that stays and does not read holds up no end",
        {"plugins/acp/command.py": 1},
    ),
    Channel(
        FILE,
        "the patch of work that cannot be saved elsewhere, private to this user",
        "the model's own change as it is, with a warning if something in it looks like a secret",
        {"bot/cycle/finish.py": 1},
    ),
    Channel(
        FILE,
        "git's own files: references, configuration, markers, alternates; the store of a try",
        "made of commit ids, paths and fixed words; contents are the repository's own",
        {
            "bot/git/branches.py": 1,
            "bot/git/checkpoints.py": 2,
            "bot/git/folders.py": 2,
            "bot/git/foreign.py": 2,
            "bot/git/hostgit.py": 2,
            "bot/git/local.py": 2,
            "bot/git/opening.py": 5,
            "bot/git/work.py": 3,
            "plugins/backtest/attempts.py": 1,
        },
    ),
    Channel(
        FILE,
        "what a tool writes for the model, in its folder",
        "the model's own words, and it never has a secret; what is proposed or saved of it is searched",
        {"core/confined.py": 1, "engine/tools/files.py": 1},
    ),
    Channel(
        FILE,
        "atomic files and locks, an answer of a person, signals between our own processes, files of a sandbox",
        "helpers of the writers above, and fixed words and numbers",
        {
            "core/files.py": 4,
            "core/watchdog.py": 1,
            "core/watchdog_process.py": 2,
            "plugins/memory/sessions.py": 1,
            "engine/environments/sandbox/bubblewrap.py": 1,
            "plugins/containers/sandbox.py": 4,
            "engine/environments/sandbox/limits.py": 1,
            "engine/environments/sandbox/sandbox_init.py": 2,
        },
    ),
    Channel(
        FILE,
        "the input of a running program: an MCP server, which its configuration gives its own secrets, and an agent",
        "a call whose arguments hold a secret is refused by the gate before",
        {"engine/environments/running_program.py": 1},
    ),
    Channel(
        NETWORK,
        "requests to models and embeddings servers, to forges, and lists of models",
        "the model's and the forge's transport redact each body; a list is asked for without a body",
        {"engine/models/transport.py": 1, "plugins/github/transport.py": 1, "engine/models/listing.py": 2},
    ),
    Channel(
        NETWORK,
        "the one client for HTTP: who takes it is counted in the channels around this one",
        "it sends what it is given, and follows no redirect",
        {"core/http_client.py": 2},
    ),
    Channel(
        NETWORK,
        "requests of tools: web pages, MCP servers; downloads of attachments",
        "a call whose arguments hold a secret is refused by the gate before",
        {"bot/forge/public_web.py": 1, "plugins/mcp/transports.py": 1, "plugins/mcp/connection.py": 1},
    ),
    Channel(
        NETWORK,
        "contents of Git LFS, for the forge's server",
        "a change is searched for secrets with these contents before it is committed; nothing else is uploaded",
        {"bot/git/lfs.py": 1},
    ),
    Channel(
        NETWORK,
        "the digest for a webhook, and traces",
        "each text of a digest is redacted (`SafeMarkdown`); a trace has numbers and names of a closed list",
        {"plugins/digest/command.py": 1, "plugins/tracing/spans.py": 1},
    ),
    Channel(
        NETWORK,
        "the dashboard's socket, and the sandbox's: what goes out there is a page, or the commands' own",
        "each text of a page is redacted before it is escaped; commands have no secret",
        {
            "app/http_server.py": 1,
            "engine/environments/sandbox/bubblewrap.py": 1,
            "plugins/containers/sandbox.py": 2,
            "engine/environments/sandbox/proxy.py": 1,
            "engine/environments/sandbox/sandbox_init.py": 4,
        },
    ),
    Channel(
        FILE,
        "the scene of an attack of `redteam`",
        "in a temporary folder, with planted values only",
        {
            "plugins/redteam/forge.py": 1,
            "plugins/redteam/stage.py": 1,
            "plugins/mcp/scripted_server.py": 2,
            "plugins/redteam/hostile_agent.py": 2,
            "plugins/redteam/world.py": 4,
        },
    ),
    Channel(
        NETWORK,
        "the servers of an attack of `redteam`",
        "on this machine, with planted values only",
        {
            "plugins/redteam/hostile_agent.py": 1,
            "plugins/redteam/servers.py": 1,
            "plugins/mcp/scripted_server.py": 1,
            "plugins/redteam/world.py": 1,
        },
    ),
)


def test_nothing_leaves_but_by_a_channel() -> None:
    allowed: Counter[tuple[str, str]] = Counter()
    for channel in CHANNELS:
        for module, calls in channel.calls.items():
            if not is_of_absent_plugin(module):
                allowed[module, channel.kind] += calls
    found: Counter[tuple[str, str]] = Counter()
    for one in modules():
        for kind in writers_in(one):
            found[one.name, kind] += 1
    more, fewer = found - allowed, allowed - found
    assert not more, f"these write past the channels: {dict(more)}"
    assert not fewer, f"the table counts what is gone: {dict(fewer)}"


def test_every_way_out_is_found() -> None:
    ways = {
        "import sys; sys.__stdout__.write('x')": TERMINAL,
        "print('x', file=sys.__stderr__)": TERMINAL,
        "print('x', file=stream)": TERMINAL,
        "Console(file=stream)": TERMINAL,
        "logging.StreamHandler()": TERMINAL,
        "os.write(1, b'x')": FILE,
        "path.open('w')": FILE,
        "open(path, mode='ab')": FILE,
        "path.write_text('x')": FILE,
        "os.fdopen(handle, 'wb')": FILE,
        "sqlite3.connect(path)": FILE,
        "httpx2.post(url)": NETWORK,
        "urllib.request.urlopen(url)": NETWORK,
        "socket.create_connection(at)": NETWORK,
        "httpx2.AsyncClient()": NETWORK,
        "Redactor()": KNOWLEDGE,
    }
    for text, kind in ways.items():
        assert kind in list(writers_in(parsed(text.encode()))), text
    for text in (
        "print('x')",
        "print('x', file=sys.stderr)",
        "path.open()",
        "open(path)",
        "os.fdopen(handle, 'rb')",
    ):
        assert list(writers_in(parsed(text.encode()))) == [], text


def test_what_redacts_for_forms_only_is_built_by_no_part_of_the_program() -> None:
    """A forge, a model's transport or a database that the program builds gets the redactor of the process."""
    names = ("GitHubForge", "LocalForge", "HttpModel", "JsonServer", "FleetStore", "TryRecord", "MemoryStore")
    built = []
    for module in modules():
        folders = module.name.split("/")
        if folders[0] not in {"app", "plugins"} or "redteam" in folders:
            continue
        for node in module.nodes:
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in names:
                text = ast.unparse(node)
                if "redact" not in text and "known_secrets" not in text:
                    built.append(f"{folders[-1]}: {text[:60]}")
    assert sorted(built) == [
        # These only list what there is.
        "repository.py: LocalForge(root, repository, LocalRepository(repository) if ",
        "repository.py: LocalForge(root_of(home.root, place.home), place.home, git, ",
    ]
