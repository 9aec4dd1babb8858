"""The profile for models with few parameters: whole files, few tools, short prompts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.core.prompts import render
from orchestrator.engine.profiles.base import Profile
from orchestrator.engine.tools.control import RUN_TESTS
from orchestrator.engine.tools.edit import edit_file
from orchestrator.engine.tools.files import read_file, write_file
from orchestrator.engine.tools.registry import with_custom
from orchestrator.engine.tools.shell import run_shell_command

if TYPE_CHECKING:
    from orchestrator.engine.tools.base import Tool


REPLY_TOKENS = 2_048
"""Enough for a file of 150 lines and a pull request. Small models may repeat themselves without end."""

_NOT_SHOWN = frozenset({"ask_question", RUN_TESTS})
"""Hidden tools: nobody could answer a question, and the host runs the tests anyway."""


def small(*, web: tuple[Tool, ...] = (), custom: tuple[Tool, ...] = (), dangerous: bool = False) -> Profile:
    """Create the profile `small`.

    A model of a few billion parameters repairs a short program if it may write the whole file, and fails if
    it has to quote the lines that it changes, so the prompt asks for whole files. Its most likely reply is
    its best one. After a failed call the reply is sampled, so that it differs.

    Args:
        custom: tools of the host, after the others, except those for questions and for running tests.
    """
    del dangerous
    whole, part = write_file("small/write_file", keeps_tail=True), edit_file("small/edit_file")
    shown = tuple(tool for tool in custom if tool.name not in _NOT_SHOWN)
    return Profile(
        "small",
        with_custom((whole, read_file(), part, run_shell_command(), *web), shown),
        render("profiles/small"),
        is_brief=True,
        max_output_tokens=REPLY_TOKENS,
        temperature=0.0,
        has_role=True,
    )
