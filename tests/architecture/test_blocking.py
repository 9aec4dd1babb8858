"""No coroutine copies, walks or removes a tree itself, or waits for git: heartbeats and signals would wait, too."""

from __future__ import annotations

from tests.architecture.blocking import blocking_calls
from tests.architecture.modules import modules, parsed

ALLOWED = {
    "plugins/containers/sandbox.py: start_container Scratch.remove": "five small files of our own",
    "plugins/mcp/transports.py: _started plugins/mcp/transports.py:own_folder": "it is entered and left in a thread",
}
"""Calls that are right, with the reason."""


def test_no_coroutine_does_file_work_of_unknown_size_in_the_event_loop() -> None:
    found = {f"{place} {call}" for place, calls in blocking_calls(modules()).items() for call in calls}
    assert found - ALLOWED.keys() == set(), "call it by `in_thread` of orchestrator/core/event_loop.py"
    assert ALLOWED.keys() - found == set(), "they are no longer in the code"


def test_the_calls_of_a_program_are_found() -> None:
    files = b"""
import shutil

def remove_all(folder):
    shutil.rmtree(folder)

class Store:
    def empty_it(self):
        self._empty()

    def _empty(self):
        with ConfinedFolder(self.path) as opened:
            opened.remove("x")

    def walk(self):
        return ast.walk(self.tree)

    def find(self):
        return "".join(path.name for path in self.folder.walk())
"""
    work = b"""
from orchestrator.files import remove_all

class Work:
    async def directly(self, clone):
        remove_all(clone)
        self.store.empty_it()
        git.run("status")
        "".join([])

    async def in_threads(self):
        await in_thread(remove_all, self.folder)
        await asyncio.to_thread(lambda: self.store.empty_it())
        names.remove("x")
        ast.walk(tree)

    def helper(self):
        self.store.empty_it()

    async def by_a_helper(self):
        self.helper()
"""
    assert blocking_calls([parsed(files, "files.py"), parsed(work, "work.py")]) == {
        "work.py: Work.directly": {"files.py:remove_all", "empty_it", "HostGit.run"},
        "work.py: Work.by_a_helper": {"work.py:Work.helper"},
    }
