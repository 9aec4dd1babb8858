"""Servers from the user's own file and from the common JSON form: what each key means, and what is refused."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from orchestrator.app.config.settings import Settings, load_settings
from orchestrator.core.errors import ConfigurationError
from orchestrator.plugins.mcp.base import ClientLogin, ServerAddress, ServerProgram
from orchestrator.plugins.mcp.config import McpConfig, load_mcp
from tests.tables import table

KEY = "tk_" + "9f3kQ2mVw8ZrT5xB" * 2


class Files:
    """A user's file and a file of servers."""

    def __init__(self, folder: Path) -> None:
        self.user, self.json = folder / "config.toml", folder / "mcp.json"
        self.environ = {"PULLWRIGHT_CONFIG": str(self.user)}
        self.user.write_text("")

    def load(self, entry: Any = None, *unconfined: str, **environ: str) -> McpConfig:
        if entry is not None:
            self.json.write_text(json.dumps({"mcpServers": {"one": entry}}))
        config = str(self.json) if self.json.exists() else None
        settings = Settings(mcp_config=config, mcp_unconfined=unconfined)
        return load_mcp(settings, {**self.environ, **environ})


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


def test_without_a_file_there_is_no_server(files: Files) -> None:
    assert files.load() == McpConfig()


def test_the_example_of_the_specification_is_a_server(files: Files) -> None:
    found = files.load({"command": "/path/to/server", "args": ["--flag"], "env": {"MODE": "value"}})
    [one] = found.servers
    assert one.place == ServerProgram("/path/to/server", ("--flag",), {"MODE": "value"})
    assert (one.name, one.allow, found.notices) == ("one", (), ())


def test_a_file_of_another_assistant_is_read_for_its_servers(files: Files) -> None:
    others = {
        "api_url": "https://a.example",
        "model": "m",
        "openai_api_key": "sk-x",
        "mcpServers": {"s": {"command": "x"}},
    }
    files.json.write_text(json.dumps(others))
    assert [one.name for one in files.load().servers] == ["s"]


def test_the_users_own_file_has_servers_too_and_the_named_file_counts_first(files: Files) -> None:
    files.user.write_text(
        '[mcp.servers.tickets]\ncommand = "tickets"\nallow = ["get"]\nhosts = ["Tickets.example:8443"]\n'
        'start_seconds = 5\n[mcp.servers.one]\nurl = "https://a.example/mcp"\n'
    )
    assert load_settings({}, files.environ, files.user.parent / "nowhere").settings == Settings()
    found = files.load({"command": "x"})
    one, tickets = found.servers
    assert isinstance(one.place, ServerProgram)
    assert tickets.place == ServerProgram("tickets", hosts=("tickets.example:8443",))
    assert (tickets.allow, tickets.start_seconds, found.sources["tickets"]) == (("get",), 5.0, files.user)


def test_a_server_at_an_address(files: Files) -> None:
    login = {
        "client_id": "bot",
        "client_secret": "${SECRET}",
        "issuer": "https://sign.example",
        "scope": "read",
    }
    found = files.load(
        {"type": "sse", "url": "https://a.example/sse", "headers": {"X-Team": "${TEAM:-none}"}, **login},
        SECRET=KEY,
    )
    assert found.servers[0].place == ServerAddress(
        "https://a.example/sse",
        {"X-Team": "none"},
        True,
        ClientLogin("bot", KEY, "https://sign.example", "read"),
    )
    assert KEY in found.secrets
    assert KEY not in repr(found)


@table(
    ("text", "environ", "filled"),
    [
        ("${A}", {"A": "x"}, "x"),
        ("${A}/${B}", {"A": "x", "B": "y"}, "x/y"),
        ("${A:-z}", {}, "z"),
        ("${A:-z}", {"A": ""}, "z"),
        ("${A:-}", {}, ""),
        ("${A:-http://x/y}", {}, "http://x/y"),
        ("$A ${} ${1}", {"A": "x"}, "$A ${} ${1}"),
        ("${A}", {"A": "${B}", "B": "no"}, "${B}"),
        ("${REPOSITORY}/x", {"REPOSITORY": "no"}, "${REPOSITORY}/x"),
        ("${env:A}", {"A": "x"}, "x"),
        ("${env:A:-z}/${B}", {"B": "y"}, "z/y"),
        ("${workspaceFolder}/x", {}, "${REPOSITORY}/x"),
    ],
)
def test_variables_are_filled_in(tmp_path: Path, text: str, environ: dict[str, str], filled: str) -> None:
    [one] = Files(tmp_path).load({"command": "x", "args": [text], "env": {"V": text}}, **environ).servers
    assert isinstance(one.place, ServerProgram)
    assert one.place.arguments == (filled,)
    assert one.place.variables == {"V": filled}


@table(
    "text",
    [
        '{"servers": {"one": {"type": "stdio", "command": "x"}}, "inputs": []}',
        '{"mcp": {"servers": {"one": {"command": "x"}}}}',
        '{ // mine\n "servers": {\n  /* the first */ "one": {"command": "x",},\n },\n}',
        '{"mcpServers": {"one": {"command": "x"}}, "servers": {"two": {"command": "y"}}}',
    ],
)
def test_a_file_of_vs_code_is_read_for_its_servers(tmp_path: Path, text: str) -> None:
    files = Files(tmp_path)
    files.json.write_text(text)
    assert [(one.name, one.place) for one in files.load().servers] == [("one", ServerProgram("x"))]


@table("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "cp1252"])
def test_a_file_in_another_encoding_is_read(tmp_path: Path, encoding: str) -> None:
    files = Files(tmp_path)
    files.json.write_bytes(
        '{"mcpServers": {"one": {"command": "/home/Jörg//x", "args": [",]"]}}}'.encode(encoding)
    )
    [one] = files.load().servers
    assert one.place == ServerProgram("/home/Jörg//x", (",]",))


@table(
    ("text", "environ", "why"),
    [
        ("${input:token}", {}, "needs input:token, which only VS Code knows"),
        ("${V}", {"V": "caf\udce9"}, "the variable V is not UTF-8 text"),
    ],
)
def test_what_cannot_be_filled_in_costs_the_server(
    tmp_path: Path, text: str, environ: dict[str, str], why: str
) -> None:
    found = Files(tmp_path).load({"command": "x", "env": {"V": text}}, **environ)
    assert found.servers == ()
    assert "is left out: " in found.notices[0]
    assert why in found.notices[0]


def test_a_missing_variable_costs_the_server_and_is_told(files: Files) -> None:
    found = files.load({"command": "x", "env": {"V": "${NOWHERE}"}})
    assert found.servers == ()
    assert "is left out: the variable NOWHERE is not set" in found.notices[0]


def test_secrets_of_variables_are_hidden_and_those_of_the_file_are_told(files: Files) -> None:
    found = files.load({"command": "x", "env": {"API_TOKEN": KEY, "B": "${B_TOKEN}"}}, B_TOKEN="value-of-b")
    assert {KEY, "value-of-b"} <= set(found.secrets)
    assert "API_TOKEN is written into the file" in found.notices[0]
    found = files.load({"url": "https://a.example", "headers": {"Authorization": "Bearer ${T}"}}, T=KEY)
    assert {KEY, f"Bearer {KEY}"} <= set(found.secrets)


@table("where", ["args", "command", "url"])
def test_no_secret_goes_where_everybody_reads_it(tmp_path: Path, where: str) -> None:
    entry = {"command": {"command": "${API_TOKEN}"}, "url": {"url": "https://a.example/${API_TOKEN}"}}
    with pytest.raises(ConfigurationError, match=f"{where} would show the secret API_TOKEN") as caught:
        Files(tmp_path).load(
            entry.get(where, {"command": "x", "args": ["--key=${API_TOKEN}"]}), API_TOKEN=KEY
        )
    assert KEY not in str(caught.value)


def test_what_other_programs_grant_says_nothing_here(files: Files) -> None:
    found = files.load({"command": "x", "autoApprove": ["all"], "alwaysAllow": ["all"], "trust": True})
    assert found.servers[0].allow == ()
    assert "alwaysAllow, autoApprove, trust has no effect" in found.notices[0]


def test_a_server_can_be_switched_off_and_let_out_of_the_sandbox(files: Files) -> None:
    assert files.load({"command": "x", "disabled": True}).servers == ()
    [one] = files.load({"command": "x"}, "one").servers
    assert isinstance(one.place, ServerProgram)
    assert not one.place.is_confined
    with pytest.raises(ConfigurationError, match="--mcp-unconfined two: there is no MCP server"):
        files.load({"command": "x"}, "two")


def test_no_file_and_no_variable_lets_a_server_out_of_the_sandbox(files: Files) -> None:
    with pytest.raises(ConfigurationError, match="type --mcp-unconfined"):
        load_settings(
            {}, {**files.environ, "PULLWRIGHT_MCP_UNCONFINED": "one"}, files.user.parent / "nowhere"
        )


ADDRESS = ServerAddress("https://a.example/mcp")


@table(
    ("entry", "place"),
    [
        ({"type": "local", "command": "x", "tools": ["*"]}, ServerProgram("x")),
        ({"command": "x", "enabled": True, "icon": "i", "disabledTools": ["a"]}, ServerProgram("x")),
        ({"command": "x", "args": ["-p", 8080, True]}, ServerProgram("x", ("-p", "8080", "true"))),
        (
            {"command": "x", "env": {"P": 1, "D": False, "N": None}},
            ServerProgram("x", (), {"P": "1", "D": "false"}),
        ),
        ({"command": "x", "args": None, "env": None, "url": None}, ServerProgram("x")),
        ({"serverUrl": "https://a.example/mcp"}, ADDRESS),
        ({"httpUrl": "https://a.example/mcp", "oauth": {"clientId": "c"}}, ADDRESS),
        ({"type": "remote", "url": "https://a.example/mcp"}, ADDRESS),
        ({"transport": "streamable_http", "url": "https://a.example/mcp"}, ADDRESS),
        (
            {"transport": "sse", "url": "https://a.example/mcp"},
            ServerAddress("https://a.example/mcp", events=True),
        ),
        ({"command": ["x", "-a"], "environment": {"A": "1"}}, ServerProgram("x", ("-a",), {"A": "1"})),
        (
            {"command": {"path": "x", "args": ["-a"], "env": {"A": "1"}}},
            ServerProgram("x", ("-a",), {"A": "1"}),
        ),
        ({"command": "x", "env": [{"name": "A", "value": "1"}]}, ServerProgram("x", (), {"A": "1"})),
        (
            {"url": "https://a.example/mcp", "http_headers": {"X": "1"}},
            ServerAddress("https://a.example/mcp", {"X": "1"}),
        ),
        ({"command": "x", "enabled": False}, None),
        ({"command": "x", "disabled": True, "whatever": 1}, None),
        ({"command": "x", "disabled": True, "env": {"A": "${env:NOWHERE}"}}, None),
    ],
)
def test_entries_as_other_programs_write_them(tmp_path: Path, entry: Any, place: object) -> None:
    files = Files(tmp_path)
    found = files.load(entry)
    assert [one.place for one in found.servers] == ([] if place is None else [place])
    assert not any("left out" in notice for notice in found.notices)


@table(
    "written",
    [
        {"servers": {"s": {"command": "x"}}},
        {"editor.fontSize": 3, "mcp": {"servers": {"s": {"command": "x"}}}},
        {"mcp.servers": {"s": {"command": "x"}}},
        {"mcp_servers": {"s": {"command": "x"}}},
        {"context_servers": {"s": {"source": "custom", "command": "x"}}},
        {"mcp": {"s": {"type": "local", "command": ["x"]}}},
        {"amp.mcpServers": {"s": {"command": "x"}}},
        {"mcpServers": [{"name": "s", "command": "x"}]},
    ],
)
def test_files_as_other_programs_write_them(tmp_path: Path, written: Any) -> None:
    files = Files(tmp_path)
    files.json.write_text(json.dumps(written))
    assert [one.name for one in files.load().servers] == ["s"]


def test_names_of_packages_become_plain_names(files: Files) -> None:
    files.json.write_text('{"mcpServers": {"io.github/a": {"command": "x"}, "@scope/b": {"command": "x"}}}')
    assert [one.name for one in files.load().servers] == ["io.github-a", "scope-b"]


def test_a_variable_that_editors_set(files: Files) -> None:
    [one] = files.load({"command": "${userHome}/bin${pathSeparator}x"}).servers
    assert isinstance(one.place, ServerProgram)
    assert one.place.command == f"{Path.home()}/bin{os.sep}x"


@table(
    ("entry", "said"),
    [
        ("x", "must be a table with command or url"),
        ({}, "needs command, for a program, or url"),
        (
            {"command": "x", "url": "https://a.example"},
            "it takes no url, headers, login, client_id or type other than stdio",
        ),
        ({"command": "x", "type": "http"}, "it takes no url, headers, login, client_id"),
        ({"url": "https://a.example", "args": ["x"]}, "args is for a server with command"),
        ({"url": "https://a.example", "type": "stdio"}, "its type cannot be stdio"),
        ({"url": "ftp://a.example"}, "url is not valid"),
        ({"url": "https://user:pw@a.example"}, "url is not valid"),
        ({"url": "http://a.example", "headers": {"X": "1"}}, "over https:// only"),
        ({"url": "https://a.example", "client_id": "x"}, "needs client_id, client_secret and issuer"),
        ({"url": "https://a.example", "login": "browser", "issuer": "https://b.example"}, "takes client_id"),
        ({"command": "x", "login": "browser"}, "it takes no url, headers, login, client_id"),
        ({"command": [1]}, "command is not valid"),
        ({"command": ""}, "command is not valid"),
        ({"command": "x", "args": "--flag"}, "args is not valid"),
        ({"command": "x", "args": [["1"]]}, "args.0 is not valid"),
        ({"command": "x", "enabled": "no"}, "unknown key 'enabled'"),
        ({"command": "x\x00"}, "command is not valid"),
        ({"command": "x", "comand": "y"}, "unknown key 'comand'; the nearest known one is 'command'"),
        ({"command": "x", "hosts": ["http://a"]}, "hosts.0 is not valid"),
        ({"command": "x", "pin": "sha1:1"}, "pin is not valid"),
        ({"command": "x", "call_seconds": 0}, "call_seconds is not valid"),
        ({"command": "x", "call_seconds": 6000}, "call_seconds is not valid"),
        ({"command": "x", "type": "carrier-pigeon"}, "type is not valid"),
    ],
)
def test_a_wrong_server_is_refused_in_one_line(tmp_path: Path, entry: Any, said: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        Files(tmp_path).load(entry)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)
    assert "'one'" in str(caught.value)


@table(
    ("text", "said"),
    [
        ("{", "is not valid JSON"),
        ("[]", "must be a table with mcpServers"),
        ("{}", 'must hold an object "mcpServers"'),
        ('{"mcpServers": []}', 'must hold an object "mcpServers"'),
        ('{"mcpServers": {"a\\nb": {"command": "x"}}}', "a name has at most 64 letters"),
        ("[" * 100_000, "is not valid JSON"),
        (" " * 1_000_001, "more than 1,000,000 bytes"),
    ],
)
def test_a_wrong_file_is_refused_in_one_line(tmp_path: Path, text: str, said: str) -> None:
    files = Files(tmp_path)
    files.json.write_text(text)
    with pytest.raises(ConfigurationError) as caught:
        files.load()
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


@table("text", ["mcp = 3", "[mcp]\nserver = 1", "[mcp]\nservers = 2"])
def test_a_wrong_table_is_refused(tmp_path: Path, text: str) -> None:
    files = Files(tmp_path)
    files.user.write_text(text)
    with pytest.raises(ConfigurationError, match="mcp"):
        files.load()


def test_a_missing_file_and_an_unknown_server_are_named(files: Files) -> None:
    with pytest.raises(ConfigurationError, match="cannot be read: No such file"):
        load_mcp(Settings(mcp_config=str(files.json)), files.environ)
    with pytest.raises(ConfigurationError, match="the nearest is 'one'"):
        files.load({"command": "x"}).server("on")
    with pytest.raises(ConfigurationError, match="no MCP server is configured"):
        McpConfig().server("one")


def test_a_wrong_server_of_another_programs_file_costs_the_others_nothing(files: Files) -> None:
    files.json.write_text(
        json.dumps({"mcpServers": {"odd": {"command": "x", "lifecycle": "lazy"}, "s": {"command": "x"}}})
    )
    found = files.load()
    assert [one.name for one in found.servers] == ["s"]
    assert [
        notice
        for notice in found.notices
        if "left out: the MCP server 'odd'" in notice and "lifecycle" in notice
    ]
    files.user.write_text('[mcp.servers.own]\ncomand = "x"\n')
    with pytest.raises(ConfigurationError, match="unknown key 'comand'"):
        files.load()


def test_variables_that_codex_names_are_filled_in(files: Files) -> None:
    address = {
        "url": "https://a.example/mcp",
        "bearer_token_env_var": "TOKEN",
        "env_http_headers": {"X": "TEAM"},
    }
    [one] = files.load(address, TOKEN=KEY, TEAM="t").servers
    assert one.place == ServerAddress("https://a.example/mcp", {"Authorization": f"Bearer {KEY}", "X": "t"})
    [one] = files.load({"command": "x", "env_vars": ["TEAM"]}, TEAM="t").servers
    assert one.place == ServerProgram("x", (), {"TEAM": "t"})


def test_what_only_vs_code_knows_costs_the_server(files: Files) -> None:
    found = files.load({"command": "${command:python.path}"})
    assert found.servers == ()
    assert "needs command:python.path, which only VS Code knows" in found.notices[0]
