from __future__ import annotations

import re
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from orchestrator.plugins.mcp.base import MAX_NAME_CHARS, McpServer, ServerProgram, shown_names
from tests.tables import table

if TYPE_CHECKING:
    import random


@table(
    ("server", "tool", "shown"),
    [
        ("tickets", "get_issue", "mcp_tickets_get_issue"),
        ("my-server", "get-issue", "mcp_my-server_get-issue"),
        ("My Server", "issues.get", "mcp_My_Server_issues_get"),
        ("s", "größe/ß", "mcp_s_gr__e__"),
    ],
)
def test_a_name_is_the_servers_and_the_tools_cleaned(server: str, tool: str, shown: str) -> None:
    assert shown_names([(server, tool)]) == {(server, tool): shown}


def test_a_long_name_ends_in_a_digest_of_the_raw_one() -> None:
    raws = [("s", "x" * 100 + end) for end in ("a", "b")]
    names = shown_names(raws)
    assert {len(name) for name in names.values()} == {MAX_NAME_CHARS}
    assert len(set(names.values())) == 2
    assert all(name.startswith("mcp_s_xxxx") for name in names.values())


def test_names_that_would_be_the_same_get_a_digest_each() -> None:
    names = shown_names([("a", "b_c"), ("a_b", "c"), ("a", "d")])
    assert names["a", "d"] == "mcp_a_d"
    assert names["a", "b_c"] != names["a_b", "c"]
    assert all(re.fullmatch(r"mcp_a_b_c_[0-9a-f]{8}", names[raw]) for raw in (("a", "b_c"), ("a_b", "c")))


def test_no_name_is_chosen_to_be_anothers() -> None:
    raws = [("a", "b_c"), ("a_b", "c")]
    taken = shown_names(raws)["a", "b_c"]
    names = shown_names([*raws, ("a", taken.removeprefix("mcp_a_"))])
    assert names["a", "b_c"] == taken
    assert len(set(names.values())) == 3


@given(
    st.sets(st.tuples(st.text(min_size=1, max_size=30), st.text(min_size=1, max_size=90)), max_size=12),
    st.randoms(),
)
def test_every_vendor_takes_the_names_and_no_two_are_alike(
    raws: set[tuple[str, str]], source: random.Random
) -> None:
    names = shown_names(raws)
    assert all(re.fullmatch(r"[A-Za-z_][A-Za-z0-9_-]{0,63}", name) for name in names.values())
    assert len(set(names.values())) == len(raws)
    mixed = list(raws)
    source.shuffle(mixed)
    assert shown_names(mixed) == names


def test_a_tool_is_dangerous_unless_it_is_named() -> None:
    program = ServerProgram("x")
    assert not McpServer("s", program).allows("read")
    assert McpServer("s", program, ("read",)).allows("read")
    assert not McpServer("s", program, ("read",)).allows("read_all")
    assert McpServer("s", program, ("*",)).allows("anything")
