"""Compares what the program counts for recorded replies with what their servers say that they charge.

Run: python -m tests.charges [FILE...]. A file has a JSON object a line, also compressed by gzip: `host`, `path`,
`headers`, `request` and `response` (an object, or the text of a stream). Without a file, the project's own replies
are read. It prints a table by gateway, and ends with 1 if less than the charge is counted for a reply.
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
import sys
from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orchestrator.core.errors import PullwrightError
from orchestrator.core.messages import Message
from orchestrator.engine.models.anthropic import AnthropicWire
from orchestrator.engine.models.base import Request
from orchestrator.engine.models.catalog import price_usd
from orchestrator.engine.models.gemini import GeminiWire
from orchestrator.engine.models.openai_chat import ChatWire
from orchestrator.engine.models.openai_responses import ResponsesWire
from orchestrator.engine.session.budget import cost_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from orchestrator.core.messages import Usage
    from orchestrator.engine.models.wire import ReplyDecoder, Wire

OWN = Path(__file__).parent / "data" / "charges.jsonl"
_ASK = Request("", (Message.user("Hello"),))
_SAME = 0.005
"""Share by which two amounts may differ, as servers round them."""
_FEES = re.compile(r'"(web_search_requests|num_search_queries|search_units|audio_tokens)"\s*:\s*[1-9]')
"""Counts in a reply's usage of what the price list does not have: searches and sound."""


@dataclass(frozen=True, slots=True)
class Compared:
    """One reply with a charge.

    Attributes:
        listed: its price by the list, in USD; None if it is unknown.
        counted: what counts against caps.
        fees: words for what was used besides tokens.
    """

    gateway: str
    charged: float
    listed: float | None
    counted: float | None
    fees: tuple[str, ...] = ()

    @property
    def is_below(self) -> bool:
        """Whether less is counted than was charged."""
        return self.counted is None or self.counted < self.charged * (1 - _SAME)


def records(paths: Iterable[Path]) -> Iterator[dict[str, Any]]:
    """Yield the recorded replies of files."""
    for path in paths:
        data = path.read_bytes()
        text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode()
        yield from map(json.loads, filter(str.strip, text.split("\n")))


def compare(record: dict[str, Any]) -> Compared | None:
    """Return what is counted for a reply; None if it has no charge, or is an error."""
    text = record["response"] if isinstance(record["response"], str) else json.dumps(record["response"])
    headers = {str(name).lower(): _first(value) for name, value in (record.get("headers") or {}).items()}
    url = f"https://{record['host']}/{record.get('path', '').lstrip('/')}"
    asked = (
        str((record.get("request") or {}).get("model", "")) if isinstance(record.get("request"), dict) else ""
    )
    usage = _usage(_wire(url, asked), text, headers)
    if usage is None or usage.charged_usd is None:
        return None

    def listed(some: Usage) -> float | None:
        return price_usd(url, asked, some)

    _, counted = cost_of(usage, listed)
    fees = tuple(dict.fromkeys(_FEES.findall(text)))
    return Compared(record["host"], usage.charged_usd, listed(usage), counted, fees)


def _first(value: object) -> str:
    return str(value[0]) if isinstance(value, list) and value else str(value)


def _wire(url: str, model: str) -> Wire:
    if "generateContent" in url.lower() or "generatecontent" in url.lower():
        return GeminiWire.at("https://generativelanguage.googleapis.com/v1beta", model)
    if "/messages" in url:
        return AnthropicWire.at("https://api.anthropic.com/v1", model)
    if "/responses" in url:
        return ResponsesWire.at("https://api.openai.com/v1", model)
    return ChatWire.at("https://api.openai.com/v1", model)


def _usage(wire: Wire, text: str, headers: dict[str, str]) -> Usage | None:
    decoder: ReplyDecoder = wire.decoder(_ASK)
    decoder.take_headers(headers)
    try:
        if text.lstrip().startswith("{"):
            return decoder.read(text.encode()).usage
        for block in text.replace("\r\n", "\n").split("\n\n"):
            lines = block.split("\n")
            event = next((line[6:].strip() for line in lines if line.startswith("event:")), "")
            data = "\n".join(line[5:].strip() for line in lines if line.startswith("data:"))
            decoder.feed(event, data)
        return decoder.finish()[1].usage
    except PullwrightError:
        return None


def table(found: Iterable[Compared]) -> list[str]:
    """Return the table by gateway: how many replies cost by the list what was charged, and what is counted."""
    rows: dict[str, Counter[str]] = defaultdict(Counter)
    for one in found:
        row = rows[one.gateway]
        row["replies"] += 1
        row["list " + _relation(one.listed, one.charged)] += 1
        row["counted below"] += one.is_below
        row["fees"] += bool(one.fees)
    columns = ("replies", "list equal", "list above", "list below", "list unknown", "counted below", "fees")
    width = max(map(len, rows), default=0)
    lines = [" ".join([" " * width, *columns])]
    for gateway, row in [*sorted(rows.items()), ("all", sum(rows.values(), Counter[str]()))]:
        lines.append(" ".join([gateway.ljust(width), *(str(row[name]).rjust(len(name)) for name in columns)]))
    return lines


def _relation(listed: float | None, charged: float) -> str:
    if listed is None:
        return "unknown"
    if abs(listed - charged) <= _SAME * max(charged, listed):
        return "equal"
    return "below" if listed < charged else "above"


def main(arguments: list[str]) -> int:
    """Print the table; return 1 if too little is counted for a reply."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("files", nargs="*", type=Path, default=[OWN])
    found = [one for record in records(parser.parse_args(arguments).files) if (one := compare(record))]
    print("\n".join(table(found)))  # noqa: T201  the output of the command
    return int(any(one.is_below for one in found))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
