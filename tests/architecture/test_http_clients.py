"""Nobody but `orchestrator.core.http_client` makes an HTTP client, opens a connection or reads a body: each exception is named.

So limits on time and size, redirects, proxies and certificates are decided once.
"""

from __future__ import annotations

import ast

from tests.architecture.modules import Module, modules, parsed
from tests.plugins import is_of_absent_plugin

_OPENS = frozenset(
    {
        "AsyncClient",
        "Client",
        "HTTPTransport",
        "AsyncHTTPTransport",
        "HTTPConnection",
        "HTTPSConnection",
        "create_connection",
        "open_connection",
        "open_unix_connection",
        "urlopen",
        "Github",
        "OTLPSpanExporter",
    }
)
_READS = frozenset({"aiter_bytes", "iter_bytes", "aiter_raw", "iter_raw", "aread"})
_LIBRARY = frozenset({"get", "post", "put", "request", "stream"})
_MODULES = frozenset({"httpx2", "requests", "urllib3"})

EXCEPTIONS = {
    "core/http_client.py": (3, "this is the one client"),
    "plugins/github/transport.py": (
        1,
        "PyGithub sends and signs; `calls.py` retries and waits, and reads its headers",
    ),
    "engine/models/transport.py": (1, "a stream of events is decoded as it comes, up to its own limits"),
    "engine/models/listing.py": (1, "looks whether a port of this machine is open, without sending anything"),
    "engine/environments/sandbox/proxy.py": (
        1,
        "commands' own connections, to public addresses of allowed hosts",
    ),
    "plugins/tracing/spans.py": (1, "OpenTelemetry's exporter sends spans, in its own thread"),
    "plugins/redteam/servers.py": (1, "asks an application in this process, without a network"),
    "plugins/redteam/world.py": (1, "the network of an attack, on this machine"),
    "plugins/redteam/hostile_agent.py": (1, "a program of its own: the hostile agent"),
    "plugins/mcp/connection.py": (1, "the MCP library's session, over the transports of `transports.py`"),
    "plugins/mcp/scripted_server.py": (1, "a program of its own: a server for tests and attacks"),
}


def connections_in(module: Module) -> int:
    """Return how many calls make a client, open a connection, or read a body."""
    found = 0
    for node in module.nodes:
        match node:
            case ast.Call(func=ast.Attribute(attr=name)) if name in _OPENS | _READS:
                found += 1
            case ast.Call(func=ast.Name(id=name)) if name in _OPENS:
                found += 1
            case ast.Call(func=ast.Attribute(value=ast.Name(id=library), attr=name)) if (
                library in _MODULES and name in _LIBRARY
            ):
                found += 1
            case _:
                pass
    return found


def test_only_the_one_client_talks_http() -> None:
    found = {one.name: number for one in modules() if (number := connections_in(one))}
    named = {name: number for name, (number, _) in EXCEPTIONS.items() if not is_of_absent_plugin(name)}
    assert found == named, "use orchestrator.core.http_client; or count it above, with its reason"


def test_each_way_to_connect_is_seen() -> None:
    source = (
        b"httpx2.AsyncClient()\nClient()\nasyncio.open_connection('h', 1)\nhttpx2.get('u')\n"
        b"r.aiter_bytes()\nr.get('u')\n"
    )
    assert connections_in(parsed(source)) == 5
