"""The main script of a process that `limited_child` starts: it sets limits and runs a function of a program.

The script is run by its path and imports nothing of this package. It reads one line of JSON from standard
input, and the bytes after it if the line says so, and answers with one JSON object.
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
    """Run the function that standard input names, from the program that the only argument names."""
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
