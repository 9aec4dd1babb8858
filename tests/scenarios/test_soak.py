"""A worker that goes on and on leaves nothing behind. `PULLWRIGHT_TEST_CHAOS=full` lets it go on for longer."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import pytest

from tests.benchmarks.soak import soak

if TYPE_CHECKING:
    from pathlib import Path

CYCLES = 24 if os.environ.get("PULLWRIGHT_TEST_CHAOS") == "full" else 6


@pytest.mark.slow(reason="many cycles in a row")
@pytest.mark.skipif(sys.platform != "linux", reason="looks at itself below /proc")
@pytest.mark.timeout(900)
def test_cycle_after_cycle_leaves_no_folder_no_process_and_no_open_file(tmp_path: Path) -> None:
    soaked = soak(tmp_path, CYCLES, 2)
    sys.stdout.write(soaked.lines())
    assert soaked.outcomes["proposed"] >= CYCLES // 2
    assert soaked.left == []
    first, *_, last = soaked.samples[1:]
    assert last.files <= first.files
    assert last.children <= first.children
    assert last.folders <= first.folders
