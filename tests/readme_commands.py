"""Print the commands of the README's section "Set up", one a line, for the checks to run."""

from __future__ import annotations

import re
import sys
from pathlib import Path


def commands(readme: str) -> list[str]:
    """The lines that begin with `$ ` in the `console` blocks of the section `Set up`."""
    section = re.split(r"^## ", readme, flags=re.MULTILINE)
    setup = next(part for part in section if part.startswith("Set up"))
    blocks = re.findall(r"```console\n(.*?)```", setup, flags=re.DOTALL)
    return [line[2:] for block in blocks for line in block.splitlines() if line.startswith("$ ")]


if __name__ == "__main__":
    print("\n".join(commands(Path(sys.argv[1]).read_text(encoding="utf-8"))))  # noqa: T201  its purpose
