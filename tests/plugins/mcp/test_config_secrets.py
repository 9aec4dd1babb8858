"""What of an MCP server's configuration is a secret, and what every text may show."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from orchestrator.app.config.settings import Settings
from orchestrator.core.errors import ConfigurationError
from orchestrator.engine.policy.secrets import Redactor
from orchestrator.plugins.mcp.config import load_mcp
from tests.tables import table

if TYPE_CHECKING:
    from pathlib import Path

    from orchestrator.plugins.mcp.config import McpConfig

V = "q7Zr2VbN9xKp4TmW"
"""A value that only its place can make a secret: it has no form of a credential."""
W = "swordfish-of-mine"
MADE = "tk_" + "9f3kQ2mVw8ZrT5xB" * 2
"""A value that its form alone makes a secret."""
PEM = f"-----BEGIN EC PRIVATE KEY-----\n{V * 4}\n-----END EC PRIVATE KEY-----"


def load(folder: Path, entry: dict[str, Any], environ: dict[str, str]) -> McpConfig:
    file = folder / "mcp.json"
    file.write_text(json.dumps({"mcpServers": {"one": entry}}))
    users = folder / "config.toml"
    users.write_text("")
    return load_mcp(Settings(mcp_config=str(file)), {"PULLWRIGHT_CONFIG": str(users), **environ})


def header(name: str, value: str) -> dict[str, Any]:
    return {"url": "https://a.example/mcp", "headers": {name: value}}


def variable(name: str, value: str) -> dict[str, Any]:
    return {"command": "x", "env": {name: value}}


def arguments(*texts: str) -> dict[str, Any]:
    return {"command": "x", "args": list(texts)}


SECRETS: list[tuple[dict[str, Any], dict[str, str], str]] = [
    # Headers whose name says it, by any vendor.
    (header("Authorization", f"Bearer {V}"), {}, V),
    (header("Authorization", f"Bearer {W}"), {}, W),
    (header("authorization", V), {}, V),
    (header("Authorization", f"Basic {V}=="), {}, V),
    (header("Authorization", f'Digest username="a", response="{V}"'), {}, V),
    (header("Authorization", "Bearer ${T}"), {"T": V}, V),
    (header("Authorization", "Bearer ${A:-${B}}"), {"B": V}, V),
    (header("Authorization", f"Bearer ${{A:-nobody}}{V}"), {}, V),
    (header("Proxy-Authorization", f"Basic {V}"), {}, V),
    (header("X-Api-Key", V), {}, V),
    (header("x-api-key", W), {}, W),
    (header("apikey", V), {}, V),
    (header("Api-Key", V), {}, V),
    (header("X-Goog-Api-Key", V), {}, V),
    (header("Ocp-Apim-Subscription-Key", V), {}, V),
    (header("X-Amz-Security-Token", V), {}, V),
    (header("X-Vault-Token", V), {}, V),
    (header("Private-Token", V), {}, V),
    (header("DD-APPLICATION-KEY", V), {}, V),
    (header("CF-Access-Client-Secret", V), {}, V),
    (header("X-Auth-Token", V), {}, V),
    (header("X-Shopify-Access-Token", V), {}, V),
    (header("X-Figma-Token", V), {}, V),
    (header("X-Client-Password", W), {}, W),
    (header("Cookie", f"theme=dark; session={V}"), {}, V),
    (header("Cookie", f"session={V}"), {}, V),
    # What came from a variable whose name says it, wherever it goes.
    (header("X-Team", "${MY_TOKEN}"), {"MY_TOKEN": V}, V),
    (variable("WHERE", "${DB_PASSWORD}"), {"DB_PASSWORD": V}, V),
    (variable("WHERE", "a ${X:-${DB_PASSWORD}} b"), {"DB_PASSWORD": V}, V),
    # Variables of a server.
    (variable("API_TOKEN", V), {}, V),
    (variable("API_TOKEN", "${ANYTHING}"), {"ANYTHING": V}, V),
    (variable("SLACK_WEBHOOK_URL", f"https://hooks.example.com/{V}"), {}, V),
    (variable("PGPASSWORD", W), {}, W),
    # Forms, whatever the name is.
    (variable("DATABASE", f"postgres://app:{V}@db/app"), {}, V),
    (variable("CONFIG", PEM), {}, PEM),
    (header("X-Ticket", MADE), {}, MADE),
    (variable("TICKETS", MADE), {}, MADE),
    (variable("TICKETS", "${TICKETS}"), {"TICKETS": MADE}, MADE),
    (arguments("serve", MADE), {}, MADE),
    (variable("PLACE", f"https://a.example/x?api_key={V}"), {}, V),
    (variable("PLACE", f"https://a.example/x?region=eu&sig={V}&v=1"), {}, V),
    ({"url": f"https://a.example/mcp?token={V}"}, {}, V),
    ({"url": f"https://a.example/mcp?v=1&access_token={V}"}, {}, V),
    # Arguments, which everybody on the machine can read, but no text needs to show.
    (arguments("--api-key", V), {}, V),
    (arguments(f"--api-key={V}"), {}, V),
    (arguments("run", "-e", f"GITHUB_TOKEN={V}"), {}, V),
    (arguments("--header", f"Authorization: Bearer {V}"), {}, V),
    (arguments("--header", f"X-Api-Key:{V}"), {}, V),
    (arguments(f"postgresql://app:{V}@db/app"), {}, V),
    (arguments(f"https://a.example/sse?key={V}"), {}, V),
    (arguments("--password", W, "--region", "us-east-1"), {}, W),
]

ORDINARY: list[tuple[dict[str, Any], dict[str, str], str]] = [
    (header("Accept", "application/json"), {}, "application/json"),
    (header("Accept", "application/vnd.github.v3+json"), {}, "application/vnd.github.v3+json"),
    (header("X-Model", "claude-sonnet-4-5-20250929"), {}, "claude-sonnet-4-5-20250929"),
    (header("X-Client", "PullwrightClientForPython311"), {}, "PullwrightClientForPython311"),
    (header("X-Ticket", f"${{TICKET:-{MADE}}}"), {}, MADE),
    (header("Accept", "application/json, text/event-stream"), {}, "text/event-stream"),
    (header("Accept-Language", "en-US,en;q=0.9"), {}, "en-US,en;q=0.9"),
    (header("Accept-Encoding", "gzip, deflate"), {}, "gzip, deflate"),
    (header("Content-Type", "application/json"), {}, "application/json"),
    (header("User-Agent", "my-program/1.0"), {}, "my-program/1.0"),
    (header("Cache-Control", "no-cache, no-store"), {}, "no-cache, no-store"),
    (header("Origin", "https://app.example.com"), {}, "https://app.example.com"),
    (header("Referer", "https://app.example.com/start"), {}, "https://app.example.com/start"),
    (header("X-Request-Source", "pull-requests"), {}, "pull-requests"),
    (header("X-Region", "us-east-1"), {}, "us-east-1"),
    (header("X-Region", "${REG:-us-east-1}"), {}, "us-east-1"),
    (header("X-Region", "${REG:-us-east-1}"), {"REG": "eu-central-1"}, "eu-central-1"),
    (header("X-Tenant", "engineering"), {}, "engineering"),
    (header("X-Team", "${TEAM}"), {"TEAM": "platform-tools"}, "platform-tools"),
    (header("MCP-Protocol-Version", "2025-06-18"), {}, "2025-06-18"),
    (header("anthropic-version", "2023-06-01"), {}, "2023-06-01"),
    (header("anthropic-beta", "mcp-client-2025-04-04"), {}, "mcp-client-2025-04-04"),
    (header("OpenAI-Organization", "example-org"), {}, "example-org"),
    (header("OpenAI-Project", "example-project"), {}, "example-project"),
    (header("Idempotency-Key", "create-issue-12"), {}, "create-issue-12"),
    (header("X-Atlassian-Token", "no-check"), {}, "no-check"),
    (header("X-Token-Type", "bearer-plain"), {}, "bearer-plain"),
    (header("X-Auth-User", "release-manager"), {}, "release-manager"),
    (header("X-GitHub-Api-Version", "2022-11-28"), {}, "2022-11-28"),
    (header("X-Amz-Date", "20261127T101112Z"), {}, "20261127T101112Z"),
    (
        header("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
        {},
        "0af7651916cd43dd8448",
    ),
    (header("Authorization", "Bearer ${T:-for-development}"), {}, "for-development"),
    (header("Cookie", "consent=accepted"), {}, "accepted"),
    (variable("MODE", "production-like"), {}, "production-like"),
    (variable("LOG_LEVEL", "${LEVEL:-information}"), {}, "information"),
    (variable("REGION", "${A:-${B:-us-east-1}}"), {}, "us-east-1"),
    (variable("REGION", "${A:-${B:-us-east-1}}"), {"B": "eu-west-3"}, "eu-west-3"),
    (variable("API_TOKEN", "${T:-for-development}"), {}, "for-development"),
    (variable("MY_TOKEN_TYPE", "bearer-plain"), {}, "bearer-plain"),
    (variable("MAX_TOKENS", "1234567890"), {}, "1234567890"),
    (variable("KEYBOARD", "de-latin1-nodeadkeys"), {}, "de-latin1-nodeadkeys"),
    (variable("API_KEY", "not-needed"), {}, "not-needed"),
    (variable("API_KEY", "placeholder"), {}, "placeholder"),
    (variable("TOKEN_FILE", "/run/secrets/token"), {}, "/run/secrets/token"),
    (variable("DATABASE_URL", "postgres://localhost/application"), {}, "postgres://localhost/application"),
    (variable("TIMEZONE", "Europe/Berlin"), {}, "Europe/Berlin"),
    ({"url": "https://a.example/mcp?region=eu-central-1"}, {}, "eu-central-1"),
    ({"url": "https://keys.example.com/mcp?region=eu-central-1"}, {}, "eu-central-1"),
    ({"url": "https://a.example/mcp?toolsets=issues,pull_requests"}, {}, "pull_requests"),
    ({"url": "https://a.example/mcp?key=homepage"}, {}, "homepage"),
    (arguments("-y", "@modelcontextprotocol/server-github"), {}, "@modelcontextprotocol/server-github"),
    (arguments("--region", "us-east-1", "--verbose"), {}, "us-east-1"),
    (arguments("--max-tokens", "100000000"), {}, "100000000"),
    (arguments("--keyboard", "de-latin1-nodeadkeys"), {}, "de-latin1-nodeadkeys"),
    (arguments("--token-file", "/run/secrets/token"), {}, "/run/secrets/token"),
    (arguments("--api-key", "--verbose-output", "listing-of-all"), {}, "listing-of-all"),
    (arguments("--header", "Accept: application/json"), {}, "application/json"),
    (arguments("${WHERE:-/srv/documents}"), {}, "/srv/documents"),
    (arguments("https://keys.example.com:8443/tokens"), {}, "https://keys.example.com:8443/tokens"),
]


def test_the_tables_are_large_enough_to_stand_for_their_classes() -> None:
    assert len(SECRETS) >= 40
    assert len(ORDINARY) >= 40


@table(("entry", "environ", "value"), SECRETS)
def test_a_secret_of_a_server_is_shown_in_no_text(
    tmp_path: Path, entry: dict[str, Any], environ: dict[str, str], value: str
) -> None:
    config = load(tmp_path, entry, environ)
    assert config.servers
    assert value not in Redactor(config.secrets).redact(f"a word, {value}, and a word")


@table(("entry", "environ", "value"), ORDINARY)
def test_an_ordinary_value_of_a_server_stays_in_texts(
    tmp_path: Path, entry: dict[str, Any], environ: dict[str, str], value: str
) -> None:
    config = load(tmp_path, entry, environ)
    assert config.servers
    text = f"a word, {value}, and {json.dumps(entry)}"
    if "${" not in text and "Cookie" not in text:  # the whole value of a cookie is hidden, not each word
        assert Redactor(config.secrets).redact(text) == text
    assert not Redactor(config.secrets).holds_secret(f"a word, {value}, and a word")


@table(
    ("text", "environ", "filled"),
    [
        ("${A:-${B}}", {"B": "y"}, "y"),
        ("${A:-${B:-${C:-z}}}", {}, "z"),
        ("${A:-x${B:-y}z}", {"B": "-"}, "x-z"),
        ("${A:-${B}}", {"A": "x", "B": "y"}, "x"),
        ("${A:-x", {}, "${A:-x"),
        ('${A:-{"x": 1}}', {}, '{"x": 1}'),
        ("${A:-${A:-" + "${A:-" * 20 + "z" + "}" * 22, {"A": "v"}, "v"),
    ],
)
def test_a_default_may_hold_variables(
    tmp_path: Path, text: str, environ: dict[str, str], filled: str
) -> None:
    (one,) = load(tmp_path, header("X-Any", text), environ).servers
    assert getattr(one.place, "headers") == {"X-Any": filled}  # noqa: B009  an address


@table("text", ["${A:-${MY_TOKEN}}", "--x=${A:-${MY_TOKEN}}"])
def test_no_default_brings_a_secret_where_everybody_reads_it(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigurationError, match="would show the secret MY_TOKEN") as caught:
        load(tmp_path, arguments(text), {"MY_TOKEN": V})
    assert V not in str(caught.value)
