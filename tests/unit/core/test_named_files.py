"""Files that a person names: links and pipes are right, and nothing waits for ever."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from orchestrator.core.files import read_named, read_own, write_named


def test_a_link_and_a_pipe_are_read(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"content")
    (tmp_path / "link").symlink_to("file")
    assert read_named(tmp_path / "link", 100) == read_own(tmp_path / "link", 100) == b"content"
    reading, writing = os.pipe()
    text = b"x" * 200_000

    def write() -> None:
        with os.fdopen(writing, "wb") as file:
            file.write(text)

    writer = threading.Thread(target=write)
    writer.start()
    assert read_named(Path(f"/dev/fd/{reading}"), 300_000) == text
    writer.join()
    os.close(reading)


def test_what_never_ends_is_an_error(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="end did not come within 0 seconds"):
        read_named(tmp_path / "pipe", 100, seconds=0)
    with pytest.raises(OSError, match="it is a pipe, and this file is read more than once"):
        read_own(tmp_path / "pipe", 100)
    with pytest.raises(OSError, match="it has more than 100 bytes"):
        read_named(Path("/dev/zero"), 100)
    with pytest.raises(IsADirectoryError):
        read_named(tmp_path, 100)
    assert read_own(Path("/dev/null"), 100) == b""


def test_a_text_is_written_to_what_a_person_names(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("file")
    write_named(tmp_path / "link", "one\n")
    write_named(tmp_path / "link", "two\n", append=True)
    assert (tmp_path / "file").read_text() == "one\ntwo\n"
    write_named(tmp_path / "file", "new\n")
    assert (tmp_path / "file").read_text() == "new\n"
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="No such device"):
        write_named(tmp_path / "pipe", "nobody reads it")
