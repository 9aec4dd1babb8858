"""Downloads files that people attached to a task, and determines their types by their content.

Only links in the task and in comments of trusted people are followed, and only to the forge's own hosts. The
content
is untrusted: hidden characters are removed as in all files.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from http import HTTPStatus
from typing import TYPE_CHECKING, TypeAlias

from orchestrator.core.errors import ForgeError, ToolError
from orchestrator.core.events import Warned
from orchestrator.core.fence import fenced, one_line
from orchestrator.core.messages import Image
from orchestrator.engine.tools.textfile import decode_text, image_type, is_pdf

if TYPE_CHECKING:
    from collections.abc import Iterator

    from orchestrator.bot.cycle.parts import Sanitizer
    from orchestrator.bot.cycle.tasks import Task
    from orchestrator.bot.forge.base import AttachmentPlace, Forge
    from orchestrator.core.events import Emit


MOST_FILES = 5
MAX_FILE_BYTES = 10_000_000
MAX_IMAGE_BYTES = 5_000_000
"""Largest image that every provider accepts."""

MAX_TEXT_CHARACTERS = 20_000
"""Most characters of all files together."""

_LEAST_CHARACTERS = 500
_NAME_CHARACTERS = 100
_ADDRESS = re.compile(r"https?://[^\s<>\"'()\[\]`\\]+")

Download: TypeAlias = Callable[["AttachmentPlace", str, int], Awaitable[tuple[int, bytes]]]
"""Returns the status and at most so many bytes at a place, using a credential (empty for none). It may raise `ToolError`.
"""


@dataclass(frozen=True, slots=True)
class Attached:
    """A file attached to a task.

    Attributes:
        name: the last part of its address, on one line.
        block: its text between markers; empty if it has none.
        image: the image, if it is one.
        remark: why it is not shown; empty if it is.
    """

    name: str
    block: str = ""
    image: Image | None = None
    remark: str = ""


@dataclass(frozen=True, slots=True)
class TaskAttachments:
    """Downloads the attachments for one session.

    Attributes:
        download: None downloads nothing.
        shows_images: whether the model accepts images.
        characters: most characters of all texts together.
    """

    forge: Forge
    download: Download | None
    sanitizer: Sanitizer
    emit: Emit
    shows_images: bool
    characters: int = MAX_TEXT_CHARACTERS

    async def of(self, task: Task) -> list[Attached]:
        """Download the attachments of a task, in order and without duplicates. A failed one carries a remark."""
        attached: list[Attached] = []
        left = self.characters
        places = await asyncio.to_thread(lambda: list(self._places(task)))  # may renew a token
        for url, place in places[: MOST_FILES + 1]:
            name = self._name(url)
            if len(attached) == MOST_FILES:
                attached.append(
                    Attached(name, remark=f"only {MOST_FILES} of {len(places)} files are fetched")
                )
                break
            try:
                one = await self._shown(name, await self._fetched(place, task.number), left)
            except (ToolError, ForgeError) as error:
                why = one_line(str(error), limit=300)
                self.emit(Warned(f"the attachment {name} is not shown to the model: {why}"))
                one = Attached(name, remark=self.sanitizer.words(why))
            left -= len(one.block)
            attached.append(one)
        return attached

    async def unfetched(self, task: Task, why: str) -> list[Attached]:
        """Return the attachments of a task without downloading them, each with the reason."""
        places = await asyncio.to_thread(lambda: list(self._places(task)))
        return [Attached(self._name(url), remark=why) for url, _ in places[:MOST_FILES]]

    def _name(self, url: str) -> str:
        return self.sanitizer.words(one_line(url.rstrip("/").rpartition("/")[2], limit=_NAME_CHARACTERS))

    def _places(self, task: Task) -> Iterator[tuple[str, AttachmentPlace]]:
        said = [task.body, *(remark.text for remark in task.remarks if remark.trusted)]
        found = dict.fromkeys(url.rstrip(".,;:!?") for text in said for url in _ADDRESS.findall(text))
        for url in found:
            place = self.forge.attachment(url)
            if place is not None:
                yield url, place

    async def _fetched(self, place: AttachmentPlace, number: int | None) -> bytes:
        """Download a file. The credential is sent only if the forge does not serve the file publicly."""
        if self.download is None:
            raise ToolError("nothing is fetched here")
        status, data = await self.download(place, "", MAX_FILE_BYTES)
        if status != HTTPStatus.OK and place.credential:
            status, data = await self.download(place, place.credential, MAX_FILE_BYTES)
        if status != HTTPStatus.OK and number is not None:
            signed = await asyncio.to_thread(self.forge.signed_image, number, place.url)
            if signed is not None:
                status, data = await self.download(signed, "", MAX_FILE_BYTES)
        if status != HTTPStatus.OK:
            raise ToolError(f"the forge did not give it out (HTTP {status})")
        return data

    async def _shown(self, name: str, data: bytes, room: int) -> Attached:
        from orchestrator.engine.documents.pdf import PageRange, read_pdf, shown_pages

        if media_type := image_type(data):
            return self._image(name, data, media_type)
        if room < _LEAST_CHARACTERS:
            return Attached(name, remark="not shown: there is no room for its text")
        if is_pdf(data):
            found = await read_pdf(name, data, PageRange(characters=room))
            return Attached(name, self._block(name, shown_pages(found), room))
        return Attached(name, self._block(name, decode_text(name, data).text, room))

    def _image(self, name: str, data: bytes, media_type: str) -> Attached:
        if len(data) > MAX_IMAGE_BYTES:
            return Attached(name, remark=f"an image of {len(data):,} bytes, too large to be shown")
        if not self.shows_images:
            return Attached(name, remark="an image, and you are not known to read images")
        return Attached(name, image=Image(data, media_type))

    def _block(self, name: str, text: str, room: int) -> str:
        shown = self.sanitizer.text(f"the attachment {name}", text)
        if len(shown) > room:
            shown = f"{shown[:room]}\n[{len(shown) - room:,} more characters are not shown]"
        return fenced(shown)
