"""Responses: the output items of one reply, put together from the events in which they are streamed."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from orchestrator.core.messages import Reasoning, Text, ToolCall
from orchestrator.engine.models.wire import dicts, made_up_id, read_arguments, text_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from orchestrator.core.messages import Part

# Keys of `Reasoning.opaque`: what `openai_responses_input` gives back with the next request.
ITEM = "openai_responses_item"  # the reasoning item as it came, or none
FOLLOWING = "openai_responses_following"  # ids and phases of the items up to the next reasoning item

MESSAGE = "message"
REASONING = "reasoning"
CALL = "function_call"

_PARAGRAPH = "\n\n"


@dataclass(slots=True)
class Item:
    """One output item that is being received.

    Attributes:
        raw: the item as an event showed it last.
        pieces: arguments as they were streamed, or text as the caller was given it.
        source: of a reasoning item, the event and part that its latest piece came from.
    """

    kind: str
    index: object = None
    raw: Mapping[str, Any] = field(default_factory=dict)
    done: bool = False
    pieces: list[str] = field(default_factory=list)
    source: tuple[str, object] | None = None
    refused: bool = False

    @property
    def text(self) -> str:
        """The readable text so far: of the finished item, else of its pieces."""
        return self._whole_text() or "".join(self.pieces)

    def _whole_text(self) -> str:
        if not self.done:
            return ""
        content = [_part_text(part) for part in dicts(self.raw.get("content"))]
        if self.kind == MESSAGE:
            plain = self.raw.get("content")
            return plain if isinstance(plain, str) else "".join(content)
        # Some servers send the same words as text and as summary.
        summary = [_part_text(part) for part in dicts(self.raw.get("summary"))]
        return _PARAGRAPH.join(filter(None, content)) or _PARAGRAPH.join(filter(None, summary))

    def add(self, text: str) -> str:
        """Take a piece of text; give what the caller is to see."""
        self.pieces.append(text)
        return text

    def add_thought(self, text: str, event: str, part: object) -> str:
        """The same for reasoning, whose parts are paragraphs. Of text and summary the first wins."""
        if self.source is not None and self.source[0] != event:
            return ""
        begins = self.source is not None and self.source[1] != part
        self.source = (event, part)
        return self.add(_PARAGRAPH + text if begins else text)

    def rest(self) -> str:
        """What the finished item has beyond its pieces: some servers send text only at the end."""
        text, given = self.text, "".join(self.pieces)
        return self.add(text[len(given) :]) if text != given and text.startswith(given) else ""

    def finish(self, raw: Mapping[str, Any]) -> None:
        """Take the item as it is at its end. A second end changes nothing."""
        if not self.done:
            # A reasoning item goes back as it came; of others a sparse end leaves what was announced.
            self.raw = raw if self.kind == REASONING else {**self.raw, **raw}
            self.done = True
        if any(part.get("refusal") for part in dicts(self.raw.get("content"))):
            self.refused = True


@dataclass(slots=True)
class Items:
    """All output items of a reply that mean something to us, in the order of the reply."""

    listed: list[Item] = field(default_factory=list)

    def begin(self, kind: str, index: object, raw: Mapping[str, Any]) -> None:
        """An item was announced. Announced twice it is one item."""
        known = self._known(kind, index, _ids(raw))
        if known is None or known.done:
            self.listed.append(Item(kind, index, raw))

    def find(self, kind: str, event: Mapping[str, Any]) -> Item:
        """The item that an event is about; a new one where none was announced.

        Some servers have no indexes, others make up another id in each event: what fits best decides.
        """
        raw = event.get("item")
        ids = _ids(raw) if isinstance(raw, dict) else {text_of(event.get("item_id"))} - {""}
        index = event.get("output_index")
        known = self._known(kind, index, ids)
        if known is None and index is None:
            opened = (item for item in reversed(self.listed) if item.kind == kind and not item.done)
            known = next(opened, None)
        if known is None:
            known = Item(kind, index)
            self.listed.append(known)
        return known

    def _known(self, kind: str, index: object, ids: set[str]) -> Item | None:
        same = [item for item in reversed(self.listed) if item.kind == kind]
        by_id = next((item for item in same if ids & _ids(item.raw)), None)
        by_index = (item for item in same if index is not None and item.index == index)
        return by_id or next(by_index, None)

    def take_output(self, output: object) -> None:
        """Take the list that a whole reply has. Where the items were streamed, it repeats them."""
        ordered: list[Item] = []
        for raw in dicts(output):
            kind = text_of(raw.get("type"))
            if kind not in {MESSAGE, REASONING, CALL}:
                continue
            number = sum(item.kind == kind for item in ordered)
            streamed = [item for item in self.listed if item.kind == kind]
            item = streamed[number] if number < len(streamed) else Item(kind)
            item.finish(raw)
            ordered.append(item)
        self.listed = ordered + [item for item in self.listed if not any(item is one for one in ordered)]

    def parts(self, reply_id: str | None) -> list[Part]:
        """The reply's parts, in order."""
        parts: list[Part] = []
        for number, item in enumerate(self.listed):
            if item.kind == REASONING:
                parts += _reasoning(item, self.listed[number + 1 :])
            elif item.kind == CALL:
                parts += _call(item, number, reply_id)
            elif item.text:
                alone = not any(one.kind == REASONING for one in self.listed[:number])
                if alone and text_of(item.raw.get("phase")):
                    parts.append(Reasoning("", {FOLLOWING: [_place(item)]}))
                parts.append(Text(item.text))
        return parts


def _reasoning(item: Item, later: Sequence[Item]) -> Iterator[Reasoning]:
    # Without its content the vendor would look for the item in its store, where nothing is; and it
    # refuses an item that nothing follows.
    has_content = item.raw.get("encrypted_content") or dicts(item.raw.get("content"))
    is_followed = any(_says(one) for one in later)
    carried = item.done and bool(has_content) and is_followed
    opaque: dict[str, Any] = {ITEM: item.raw} if carried else {}
    following = list(_following(later))
    if following and (carried or any("phase" in place for place in following)):
        opaque[FOLLOWING] = following
    if item.text or opaque:
        yield Reasoning(item.text, opaque)


def _says(item: Item) -> bool:
    return item.kind == CALL or (item.kind == MESSAGE and bool(item.text))


def _following(items: Sequence[Item]) -> Iterator[dict[str, Any]]:
    for item in items:
        if item.kind == REASONING:
            return
        if _says(item):
            yield _place(item)


def _place(item: Item) -> dict[str, Any]:
    """What the vendor wants to see again of a message or a call, besides what it says."""
    names = ("id", "call_id") if item.kind == CALL else ("id", "phase")
    return {"type": item.kind, **{name: item.raw[name] for name in names if text_of(item.raw.get(name))}}


def _call(item: Item, number: int, reply_id: str | None) -> Iterator[ToolCall]:
    name, arguments = text_of(item.raw.get("name")), item.raw.get("arguments")
    if not arguments:
        arguments = "".join(item.pieces)
    if name or arguments:
        call_id = text_of(item.raw.get("call_id")) or text_of(item.raw.get("id"))
        yield ToolCall(
            call_id or made_up_id(number, reply_id, name, arguments), name, read_arguments(arguments)
        )


def _part_text(part: Mapping[str, Any]) -> str:
    return text_of(part.get("text")) or text_of(part.get("refusal"))


def _ids(raw: Mapping[str, Any]) -> set[str]:
    # Some servers name a call by its `call_id` in the events about it.
    return {text_of(raw.get("id")), text_of(raw.get("call_id"))} - {""}
