"""The tools of the planner profile."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.profiles.planner import planner
from orchestrator.tools.control import ask_question, create_pull_request, finish
from orchestrator.tools.edit import edit_file
from orchestrator.tools.files import read_file, write_file
from orchestrator.tools.registry import ToolRegistry
from orchestrator.tools.search import glob, grep, list_dir
from orchestrator.tools.shell import run_shell_command

if TYPE_CHECKING:
    from orchestrator.cycle.parts import MayFinish, Propose
    from orchestrator.profiles.base import Profile


def planner_toolbox(propose: Propose, may_finish: MayFinish) -> Profile:
    """All tools of the planner; the gate hides the dangerous one in safe mode."""
    tools = (
        read_file(),
        list_dir(),
        grep(),
        glob(),
        edit_file(),
        write_file(),
        run_shell_command(),
        create_pull_request(propose),
        ask_question(),
        finish(may_finish),
    )
    return planner(ToolRegistry(tools))
