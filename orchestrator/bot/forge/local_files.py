"""The JSON files of the folder that plays GitHub: their form, and how they are read and written."""

from __future__ import annotations

import errno
import os
import tempfile
from contextlib import contextmanager, suppress
from datetime import datetime  # noqa: TC003  pydantic reads the annotations
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from orchestrator.core.errors import DiskFullError, ForgeError, ForgeUnavailableError
from orchestrator.core.locks import LONGEST_WAIT_SECONDS, keeper, wait_for_lock

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orchestrator.core.errors import PullwrightError


class Record(BaseModel):
    """What every file says. `schema_version` grows when an older program could misread the file."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    schema_version: Literal[1] = 1
    number: int
    created_at: datetime
    updated_at: datetime


class CommentRecord(BaseModel):
    """A comment of ours on a pull request."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    key: str
    body: str


class PullRecord(Record):
    """`pulls/<number>.json`. `commit` is the branch's head when the pull request was last written."""

    title: str
    body: str
    branch: str
    base: str
    commit: str
    draft: bool
    is_closed: bool = False
    comments: tuple[CommentRecord, ...] = ()
    labels: tuple[str, ...] = ()


class QuestionRecord(Record):
    """`questions/<number>.json`."""

    key: str
    body: str


class PlaceRecord(BaseModel):
    """`repository.json`: whose folder this is."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    schema_version: Literal[1] = 1
    path: str


M = TypeVar("M", bound=BaseModel)
R = TypeVar("R", bound=Record)


def read(path: Path, form: type[M]) -> M:
    """One file.

    Raises:
        ForgeError: it cannot be read, or is not of this form; the message names it.
    """
    try:
        return form.model_validate_json(path.read_bytes())
    except OSError as error:
        raise _failed("read", path, error) from error
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"]))
        problem = f"{where}: {first['msg']}" if where else first["msg"]
        raise ForgeError(f"{path} is damaged ({problem}): mend it or remove it") from None


def read_all(folder: Path, form: type[R]) -> list[R]:
    """Every `<number>.json` of a folder, newest first.

    An empty file is a number that another process has just taken, or took before it died.
    """
    if not folder.is_dir():
        return []
    try:
        paths = [path for path in folder.glob("*.json") if path.stem.isdecimal() and path.stat().st_size]
    except OSError as error:
        raise _failed("read", folder, error) from error
    return [read(path, form) for path in sorted(paths, key=lambda path: int(path.stem), reverse=True)]


def take_number(folder: Path) -> int:
    """The next free number, taken by creating its file, which fails for everyone else."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        number = (
            max((int(path.stem) for path in folder.glob("*.json") if path.stem.isdecimal()), default=0) + 1
        )
        while True:
            try:
                os.close(os.open(folder / f"{number}.json", os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))
            except FileExistsError:
                number += 1
            else:
                return number
    except OSError as error:
        raise _failed("write", folder, error) from error


def write(path: Path, record: BaseModel) -> None:
    """Replace a file at once: a reader sees the old text or the new one."""
    text = record.model_dump_json(indent=2) + "\n"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{path.stem}-", dir=path.parent)
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            Path(name).replace(path)
        except OSError:
            with suppress(OSError):
                Path(name).unlink()
            raise
    except OSError as error:
        raise _failed("write", path, error) from error


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Looking and writing as one step: other processes wait. The lock falls when the process ends.

    Raises:
        ForgeUnavailableError: another process keeps it for ten minutes.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = os.open(folder / "lock", os.O_CREAT | os.O_RDWR, 0o644)
    except OSError as error:
        raise _failed("write", folder, error) from error
    try:
        if not wait_for_lock(handle, LONGEST_WAIT_SECONDS):
            raise ForgeUnavailableError(f"cannot write {folder}: {keeper(handle, folder / 'lock')}")
        yield
    finally:
        os.close(handle)


def _failed(verb: str, path: Path, error: OSError) -> PullwrightError:
    if error.errno in {errno.ENOSPC, errno.EDQUOT}:
        return DiskFullError(f"cannot {verb} {path}: the disk is full")
    return ForgeError(f"cannot {verb} {path}: {error.strerror or error}")
