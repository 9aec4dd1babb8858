"""The beginning of a process that `limited_child` starts: limits first, then the work of a program.

It is run by its path, with nothing of this package imported: it reads one line of JSON from standard input, and
bytes behind it if the line says so, and answers with one JSON object.
"""

from __future__ import annotations

import json
import resource
import sys
from contextlib import suppress
from importlib.util import module_from_spec, spec_from_file_location

CPU_SECONDS = 30
MEMORY_BYTES = 2 * 1024**3


def main() -> None:
    """Do what standard input asks for, by the program that the only argument names."""
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with suppress(OSError, ValueError):  # macOS has no such limit
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    asked = json.loads(sys.stdin.buffer.readline())
    if asked.pop("has_data"):
        asked["data"] = sys.stdin.buffer.read()
    spec = spec_from_file_location("program", sys.argv[1])
    if spec is None or spec.loader is None:
        raise SystemExit(2)
    program = module_from_spec(spec)
    spec.loader.exec_module(program)
    json.dump(program.WORK[asked.pop("do")](**asked), sys.stdout)


if __name__ == "__main__":
    main()
