"""The records of the folder that plays GitHub: which there are, and how they change."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.bot.forge.local_files import (
    PlaceRecord,
    PullRecord,
    QuestionRecord,
    alone,
    read_all,
    take_number,
    write,
)
from orchestrator.bot.forge.local_places import PLACE_FILE
from orchestrator.core.errors import ForgeNotFoundError

if TYPE_CHECKING:
    from contextlib import AbstractContextManager
    from pathlib import Path

    from orchestrator.bot.forge.base import Proposal
    from orchestrator.core.clock import Clock


class LocalRecords:
    """The records of one repository.

    Args:
        root: the folder; made when there is something to write.
        repository_path: whose records they are.
        clock: for the times in the files.
    """

    def __init__(self, root: Path, repository_path: Path, clock: Clock) -> None:
        self._root = root
        self._repository_path = repository_path
        self._clock = clock

    def alone(self) -> AbstractContextManager[None]:
        """Looking and writing as one step: other processes wait."""
        return alone(self._root)

    def pulls(self) -> list[PullRecord]:
        """All pull requests, newest first."""
        return read_all(self._root / "pulls", PullRecord)

    def pull(self, number: int) -> PullRecord:
        """One pull request.

        Raises:
            ForgeNotFoundError: there is none of this number.
        """
        record = next((record for record in self.pulls() if record.number == number), None)
        if record is None:
            raise ForgeNotFoundError(f"no pull request #{number} of {self._repository_path}")
        return record

    def new_pull(self, proposal: Proposal, commit: str) -> PullRecord:
        """A new pull request, written."""
        self._sign()
        now = self._clock.now()
        record = PullRecord(
            number=take_number(self._root / "pulls"),
            created_at=now,
            updated_at=now,
            title=proposal.title,
            body=proposal.body,
            branch=proposal.branch,
            base=proposal.base,
            commit=commit,
            draft=proposal.draft,
        )
        write(self._file("pulls", record.number), record)
        return record

    def change_pull(self, record: PullRecord, **changes: object) -> PullRecord:
        """A pull request with these changes, written if they change it."""
        changed = record.model_copy(update=changes)
        if changed == record:
            return record
        changed = changed.model_copy(update={"updated_at": self._clock.now()})
        write(self._file("pulls", record.number), changed)
        return changed

    def questions(self) -> list[QuestionRecord]:
        """All questions, newest first."""
        return read_all(self._root / "questions", QuestionRecord)

    def put_question(self, key: str, body: str) -> QuestionRecord:
        """A question, written: a new one, or the one with this key with another body."""
        self._sign()
        now = self._clock.now()
        known = next((record for record in self.questions() if record.key == key), None)
        if known is None:
            number = take_number(self._root / "questions")
            record = QuestionRecord(number=number, created_at=now, updated_at=now, key=key, body=body)
        else:
            record = known.model_copy(update={"body": body, "updated_at": now})
        write(self._file("questions", record.number), record)
        return record

    def url(self, record: PullRecord | QuestionRecord) -> str:
        """Where a record can be read."""
        kind = "pulls" if isinstance(record, PullRecord) else "questions"
        return self._file(kind, record.number).as_uri()

    def _file(self, kind: str, number: int) -> Path:
        return (self._root / kind / f"{number}.json").absolute()

    def _sign(self) -> None:
        """Leave word of whose folder this is, for `places`."""
        file = self._root / PLACE_FILE
        if not file.exists():
            write(file, PlaceRecord(path=str(self._repository_path)))
