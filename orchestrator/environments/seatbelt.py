"""The sandbox of macOS: `sandbox-exec` with a profile that denies by default."""

from __future__ import annotations

import os
import shutil
import socket
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from orchestrator.core.errors import ToolError
from orchestrator.core.locks import try_lock
from orchestrator.environments.bubblewrap import proxy_variables
from orchestrator.environments.cell import Cell
from orchestrator.environments.hosts import host_rule
from orchestrator.environments.proxy import Proxy
from orchestrator.environments.readable import granted, program_folders, refuse_root
from orchestrator.environments.toolchains import toolchains

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from orchestrator.environments.command import Command
    from orchestrator.environments.confinement import Place, SandboxOptions

_SYSTEM = (
    "/System", "/usr", "/bin", "/sbin", "/Library/Apple", "/Library/Developer", "/private/var/db/timezone",
    "/private/var/select", "/private/etc/ssl", "/private/etc/localtime", "/opt/homebrew/bin",
    "/opt/homebrew/Cellar", "/opt/homebrew/opt", "/opt/homebrew/lib",
)  # fmt: skip
# As `workspace` names and marks its folders: orchestrator/workspace/owner.py.
_PREFIX = "pullwright-"
_OWNER = "owner"
_NEW = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_DEVICES = ("/dev/null", "/dev/zero", "/dev/random", "/dev/urandom", "/dev/dtracehelper")


def profile(*, root: str, protected: Sequence[str], readable: Sequence[str], scratch: str, port: int) -> str:
    """The rules for one command; of rules that match the last one counts.

    Raises:
        ToolError: a path cannot be written in a rule.
    """
    read = " ".join(f"(subpath {_quoted(path)})" for path in (*_SYSTEM, *readable, root, scratch))
    devices = " ".join(f"(literal {_quoted(path)})" for path in _DEVICES)
    rules = [
        "(version 1)",
        "(deny default)",
        "(allow process-fork)",
        "(allow process-exec)",
        "(allow signal (target same-sandbox))",
        "(allow process-info* (target same-sandbox))",
        "(allow sysctl-read)",
        "(allow file-read-metadata)",
        f'(allow file-read* (literal "/") {read} {devices})',
        f"(allow file-write* (subpath {_quoted(root)}) (subpath {_quoted(scratch)}))",
        '(allow file-write-data (literal "/dev/null"))',
        f'(allow network-outbound (remote tcp "localhost:{port}"))',
    ]
    rules += [f"(deny file-write* (subpath {_quoted(os.path.join(root, name))}))" for name in protected]  # noqa: PTH118  names
    return "\n".join([*rules, ""])


class Scratch:
    """A folder for one command, marked as clones are: what a dead process leaves of it is swept like them.

    The mark is a file beside `path` that this process keeps locked. The command cannot write there.

    Attributes:
        path: where the command may write.

    Raises:
        ToolError: it cannot be made.
    """

    def __init__(self) -> None:
        try:
            self._folder = os.path.realpath(tempfile.mkdtemp(prefix=_PREFIX))
            self._owner = os.open(os.path.join(self._folder, _OWNER), _NEW, 0o600)  # noqa: PTH118  names
            try_lock(self._owner)
            self.path = os.path.join(self._folder, "home")  # noqa: PTH118  names
            Path(self.path).mkdir(mode=0o700)
        except OSError as error:
            raise ToolError(
                f"the sandbox has no place for temporary files: {error.strerror or error}"
            ) from error

    def remove(self) -> None:
        """Remove it. What a command made so that it cannot be removed here is left to the sweep."""
        shutil.rmtree(self.path, ignore_errors=True)
        if not os.path.lexists(self.path):
            shutil.rmtree(self._folder, ignore_errors=True)
        os.close(self._owner)


class SeatbeltSandbox:
    """A `Sandbox` of rules in the kernel. Commands share the machine's processes and its loopback addresses.

    Args:
        options: what the person who runs this grants.
        inherited: this program's variables; its path says which programs are readable.

    Raises:
        ConfigurationError: a host or a path of the options makes no sense.
    """

    name = "sandbox-exec"

    def __init__(self, options: SandboxOptions, inherited: Mapping[str, str]) -> None:
        self._options = options
        self._inherited = dict(inherited)
        self._rules = [host_rule(text) for text in options.hosts]
        more = granted(options.readable, inherited)
        tools = toolchains(inherited, more)
        self._readable = [*program_folders(inherited, tools.readable), *more]
        # Nothing can be put in the place of a folder here: what its tool writes to is in the private home instead.
        self._tools = {name: path for name, path in tools.variables.items() if path not in tools.private}

    def variables(self) -> Mapping[str, str]:
        """See `Sandbox`. The rest differs from command to command and is set by `launch`."""
        return {}

    def tools(self) -> Mapping[str, str]:
        """See `Sandbox`."""
        return self._tools

    def launch(self, command: Command, place: Place) -> Cell:
        """See `Sandbox`."""
        problem = refuse_root(place.root, self._inherited)
        if problem:
            raise ToolError(problem)
        with ExitStack() as undo:
            scratch = Scratch()
            undo.callback(scratch.remove)
            cell = self._cell(command, place, scratch)
            undo.pop_all()  # from here on the cell removes it
        return cell

    def _cell(self, command: Command, place: Place, folder: Scratch) -> Cell:
        scratch = folder.path
        listener = socket.create_server(("127.0.0.1", 0))
        port = listener.getsockname()[1]
        home = {"HOME": scratch, "TMPDIR": scratch, **proxy_variables(port)}
        readable = [*self._readable, str(Path(__file__).with_name("launcher.py"))]
        try:
            rules = profile(
                root=place.root, protected=place.protected, readable=readable, scratch=scratch, port=port
            )
        except ToolError:
            listener.close()
            raise

        def build(channel: int) -> Sequence[str]:
            interpreter = os.path.realpath(sys.executable)
            script = str(Path(__file__).with_name("launcher.py"))
            return [
                "/usr/bin/sandbox-exec", "-p", rules, interpreter, "-I", "-S", script, str(channel),
            ]  # fmt: skip

        return Cell(
            command,
            root=place.root,
            limits=self._options.limits,
            proxy=Proxy(self._rules, self._options.connect),
            build=build,
            listener=listener,
            more_variables=home,
            at_end=folder.remove,
        )


def _quoted(path: str) -> str:
    """A path as a string of the profile's language, which is a Lisp."""
    if not path.startswith("/") or any(not char.isprintable() for char in path):
        raise ToolError(f"the sandbox cannot name the path {path!a}; use one without control characters")
    escaped = path.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
