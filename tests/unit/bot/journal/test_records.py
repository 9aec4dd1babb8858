"""Records: every event survives being written and read, and the journal on disk is private and whole lines only."""

from __future__ import annotations

import dataclasses
import json
import random
import stat
import subprocess
import sys
import threading
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator.bot.journal.folders import RUN_NAME, Home, create_run_folder, new_run_id
from orchestrator.bot.journal.records import JournalWriter, UnknownRecord, decode_event, encode_event
from orchestrator.core.clock import ManualClock
from orchestrator.core.cycle_events import CycleEnded, PhaseEntered
from orchestrator.core.errors import ConfigurationError, JournalError
from orchestrator.core.events import (
    Event,
    MessageAdded,
    ReplyReceived,
    SessionEnded,
    TextDelta,
    ToolCallStarted,
    ToolOutputDelta,
    TurnStarted,
    Warned,
)
from orchestrator.core.files import is_full
from orchestrator.core.messages import FinishReason, Image, Message, Reasoning, Role, Text, ToolCall, Usage
from orchestrator.core.redaction import REPLACEMENT
from orchestrator.core.version import __version__
from orchestrator.engine.policy.secrets import Redactor
from tests.tables import table
from tests.unit.bot.journal.strategies import EVENT_CLASSES, any_event, of_class

REPLY = ReplyReceived(
    Message(
        Role.ASSISTANT,
        (
            Reasoning("hm", {"signature": "x"}),
            Text("yes"),
            Image(b"\x89PNG\xff", "image/png"),
            ToolCall("1", "grep", {"a": [1]}),
        ),
    ),
    FinishReason.STOP,
    Usage(10, 5),
    0.25,
    "some-model",
)


@pytest.mark.parametrize("cls", EVENT_CLASSES, ids=lambda cls: cls.__name__)
@settings(max_examples=settings().max_examples // 3)  # of each of some forty kinds
@given(data=st.data())
def test_every_event_of_the_union_comes_back(cls: type[Event], data: st.DataObject) -> None:
    event = data.draw(of_class(cls))
    assert decode_event(json.loads(json.dumps(encode_event(event)))) == event


@table("cls", EVENT_CLASSES, ids=lambda cls: cls.__name__)
def test_no_field_takes_a_name_that_the_record_needs(cls: type[Event]) -> None:
    assert not {field.name for field in dataclasses.fields(cls)} & {"seq", "at", "type"}


def test_a_reply_in_json() -> None:
    assert encode_event(REPLY) == {
        "type": "ReplyReceived",
        "message": {
            "role": "assistant",
            "parts": [
                {"type": "Reasoning", "text": "hm", "opaque": {"signature": "x"}},
                {"type": "Text", "text": "yes"},
                {"type": "Image", "data": "iVBOR/8=", "media_type": "image/png"},
                {"type": "ToolCall", "id": "1", "name": "grep", "arguments": {"a": [1]}},
            ],
        },
        "finish": "stop",
        "usage": {
            "input_tokens": 10,
            "output_tokens": 5,
            "cached_input_tokens": 0,
            "cache_write_tokens": 0,
            "reasoning_tokens": 0,
            "hour_write_tokens": 0,
            "charged_usd": None,
            "answered_by": "",
        },
        "usd": 0.25,
        "model": "some-model",
    }


class _HidingAll(Redactor):
    def redact(self, _text: str) -> str:
        return "#"


@given(any_event)
def test_each_text_goes_through_redaction(event: Event) -> None:
    written = json.dumps(encode_event(_HidingAll().redact_value(event)))
    decoded = decode_event(json.loads(written))
    assert type(decoded) is type(event), "the names of types, fields and enumerations stay as they are"
    if isinstance(decoded, SessionEnded):
        assert decoded.reason == "#"


def test_names_stay_if_a_secret_is_the_same_word() -> None:
    names = ("ReplyReceived", "Reasoning", "cached_input_tokens", "assistant", "signature", "some-model")
    shown = encode_event(Redactor(names).redact_value(REPLY))
    expected = encode_event(replace(REPLY, model=REPLACEMENT))
    expected["message"]["parts"][0]["opaque"] = {REPLACEMENT: "x"}
    assert shown == expected


def test_a_picture_that_holds_a_secret_is_left_out() -> None:
    pictures = tuple(Image(data, "image/png") for data in (b"12 open-sesame-9", b"12 open"))
    event = Redactor(["open-sesame-9"]).redact_value(MessageAdded(Message(Role.USER, pictures)))
    assert [part["data"] for part in encode_event(event)["message"]["parts"]] == ["", "MTIgb3Blbg=="]
    assert decode_event(encode_event(event)) == event


def test_unknown_fields_are_ignored_and_missing_ones_take_their_default() -> None:
    assert decode_event({"type": "SessionEnded", "reason": "x", "mood": 1}) == SessionEnded("x")
    data = encode_event(REPLY)
    data["usage"] = {"input_tokens": 3, "of_another_kind": 4}
    assert decode_event(data) == replace(REPLY, usage=Usage(3))


@table(
    "data",
    [
        {"type": "Invented", "x": 1},
        {"type": "PhaseEntered", "phase": "invented"},
        {"type": "MessageAdded", "message": {"role": "user", "parts": [{"type": "Video", "data": ""}]}},
        {"type": "MessageAdded", "message": {"role": "narrator", "parts": []}},
    ],
)
def test_what_a_newer_version_wrote_is_an_unknown_record(data: dict[str, Any]) -> None:
    assert decode_event(data) == UnknownRecord(data["type"], data)


@table(
    ("data", "message"),
    [
        ({}, "a record has no type"),
        ({"type": 1}, "a record has no type"),
        ({"type": "SessionEnded"}, "SessionEnded has no reason"),
        ({"type": "SessionEnded", "reason": 1}, "SessionEnded.reason: not a str"),
        ({"type": "TurnStarted", "round": True}, "TurnStarted.round: not a int"),
        ({"type": "WaitStarted", "seconds": True, "reason": ""}, "WaitStarted.seconds: not a float"),
        ({"type": "PhaseEntered", "phase": 1}, "PhaseEntered.phase: not a Phase"),
        ({"type": "ReplyRejected", "problems": "x", "attempt": 1}, "ReplyRejected.problems: not a list"),
        ({"type": "CycleEnded", "result": []}, "CycleEnded.result: not an object"),
        ({"type": "MessageAdded", "message": 1}, "MessageAdded.message: Message is not an object"),
        (
            {"type": "MessageAdded", "message": {"role": "user", "parts": [1]}},
            "MessageAdded.message: Message.parts: has no type",
        ),
        (
            {
                "type": "MessageAdded",
                "message": {"role": "user", "parts": [{"type": "Image", "data": "?", "media_type": ""}]},
            },
            "MessageAdded.message: Message.parts: Image.data: not base64",
        ),
    ],
)
def test_damage_is_named(data: dict[str, Any], message: str) -> None:
    with pytest.raises(JournalError) as caught:
        decode_event(data)
    assert str(caught.value) == message


def test_arguments_nested_too_deeply_and_numbers_beyond_json_can_be_written() -> None:
    deep: list[Any] = []
    for _ in range(5_000):
        deep = [deep]
    written = encode_event(
        ToolCallStarted("1", "x", {"deep": deep, "big": float("inf"), "none": float("nan")})
    )
    assert "[nested too deeply]" in json.dumps(written, allow_nan=False)
    assert written["arguments"]["big"] == "inf"


def test_enumerations_in_a_result_are_written_as_their_value() -> None:
    from orchestrator.core.cycle_events import Phase

    assert encode_event(CycleEnded({"phase": Phase.ACT}))["result"] == {"phase": "act"}
    assert encode_event(PhaseEntered(Phase.ACT)) == {"type": "PhaseEntered", "phase": "act"}


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def test_each_event_is_one_line_with_number_and_time(tmp_path: Path) -> None:
    clock = ManualClock(datetime(2026, 11, 21, 3, 31, 12, 5, tzinfo=UTC))
    with JournalWriter(tmp_path, Redactor(), clock) as writer:
        writer(TurnStarted(1))
        clock.advance(1.5)
        writer(SessionEnded("line one\nline two\u2028three"))
    assert lines(writer.path) == [
        {
            "seq": 0,
            "at": "2026-11-21T03:31:12.000005+00:00",
            "type": "Journal",
            "format": 1,
            "version": __version__,
        },
        {
            "seq": 1,
            "at": "2026-11-21T03:31:12.000005+00:00",
            "type": "TurnStarted",
            "round": 1,
            "tokens": None,
            "usd": None,
            "model": "",
        },
        {
            "seq": 2,
            "at": "2026-11-21T03:31:13.500005+00:00",
            "type": "SessionEnded",
            "reason": "line one\nline two\u2028three",
            "state": "closed",
        },
    ]


def test_a_record_is_on_the_disk_when_the_call_returns(tmp_path: Path) -> None:
    writer = JournalWriter(tmp_path, Redactor(), ManualClock())
    writer(TurnStarted(1))
    assert len(lines(writer.path)) == 2
    writer.close()


def test_folder_and_file_are_private(tmp_path: Path) -> None:
    folder = create_run_folder(Home(tmp_path / "a" / "home"), "20260101-000000-000000")
    writer = JournalWriter(folder, Redactor(), ManualClock())
    writer.close()
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert stat.S_IMODE(folder.parent.stat().st_mode) == 0o700
    assert stat.S_IMODE(writer.path.stat().st_mode) == 0o600


def test_secrets_are_taken_out(tmp_path: Path) -> None:
    with JournalWriter(tmp_path, Redactor(["open-sesame"]), ManualClock()) as writer:
        writer(Warned("the word is open-sesame"))
    assert lines(writer.path)[1]["message"] == "the word is [redacted]"


def test_pieces_are_not_written(tmp_path: Path) -> None:
    with JournalWriter(tmp_path, Redactor(), ManualClock()) as writer:
        writer(TextDelta("open-"))
        writer(ToolOutputDelta("1", "sesame"))
    assert len(lines(writer.path)) == 1


def test_text_that_is_no_unicode_is_written(tmp_path: Path) -> None:
    with JournalWriter(tmp_path, Redactor(), ManualClock()) as writer:
        writer(Warned("file \udcff, größer"))
    assert lines(writer.path)[1]["message"] == "file \udcff, größer"


def test_a_journal_is_never_written_over(tmp_path: Path) -> None:
    JournalWriter(tmp_path, Redactor(), ManualClock()).close()
    with pytest.raises(JournalError, match=r"cannot write the journal .*: File exists"):
        JournalWriter(tmp_path, Redactor(), ManualClock())


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(JournalError, match="No such file"):
        JournalWriter(tmp_path / "none", Redactor(), ManualClock())


def test_events_after_the_end_are_dropped(tmp_path: Path) -> None:
    writer = JournalWriter(tmp_path, Redactor(), ManualClock())
    writer.close()
    writer(TurnStarted(1))
    writer.close()
    assert len(lines(writer.path)) == 1


def write_fifty(writer: JournalWriter) -> None:
    for _ in range(50):
        writer(Warned("x" * 5000))


def test_threads_do_not_mix_their_lines(tmp_path: Path) -> None:
    with JournalWriter(tmp_path, Redactor(), ManualClock()) as writer:
        threads = [threading.Thread(target=write_fifty, args=(writer,)) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert [line["seq"] for line in lines(writer.path)] == list(range(201))


def test_an_event_that_takes_long_is_not_overtaken(tmp_path: Path) -> None:
    class Slow(Redactor):
        def redact(self, text: str) -> str:
            if text == "first":
                other.start()
                other.join(timeout=0.1)  # it waits for this one
            return text

    with JournalWriter(tmp_path, Slow(), ManualClock()) as writer:
        other = threading.Thread(target=writer, args=(Warned("second"),))
        writer(Warned("first"))
        other.join()
    assert [line["message"] for line in lines(writer.path)[1:]] == ["first", "second"]


FULL = """
import resource, sys
from pathlib import Path
from orchestrator.core.clock import ManualClock
from orchestrator.core.errors import DiskFullError
from orchestrator.core.events import Warned
from orchestrator.bot.journal.records import JournalWriter
from orchestrator.engine.policy.secrets import Redactor

writer = JournalWriter(Path(sys.argv[1]), Redactor(), ManualClock())
writer(Warned("fits"))
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
raised = []
for _ in range(3):
    try:
        writer(Warned("x" * 2000))
    except DiskFullError as error:
        raised.append(str(error))
writer.close()
print(len(raised), raised[0])
"""


def test_a_full_disk_is_reported_once(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FULL, tmp_path], capture_output=True, text=True, check=True, timeout=60
    )
    path = tmp_path / "journal.jsonl"
    assert (
        done.stdout.strip()
        == f"1 no space is left for the journal {path}; the run is not recorded any further"
    )
    assert json.loads(path.read_bytes().splitlines()[1])["message"] == "fits"


@pytest.mark.parametrize("apart", [timedelta(seconds=1), timedelta(milliseconds=1)])
def test_ids_sort_by_time(apart: timedelta) -> None:
    source = random.Random(1)  # noqa: S311  a name, not a secret
    start = datetime(2026, 11, 21, 3, 31, 12, tzinfo=UTC)
    made = [new_run_id(start + apart * step, source) for step in range(999)]
    assert made == sorted(made)
    assert made[0].startswith("20261121-033112-000")
    assert all(RUN_NAME.fullmatch(name) for name in made)


def test_home_is_named_by_the_environment_or_the_platform(tmp_path: Path) -> None:
    home = Home.of({"PULLWRIGHT_HOME": str(tmp_path)})
    assert (home.runs, home.forge, home.cache) == (tmp_path / "runs", tmp_path / "forge", tmp_path / "cache")
    assert Home.of({"PULLWRIGHT_HOME": "here"}).root == Path.cwd() / "here"
    assert Home.of({"PULLWRIGHT_HOME": "~/x"}).root == Path.home() / "x"
    assert Home.of({"PULLWRIGHT_HOME": ""}).root == Home.of({}).root
    assert "pullwright" in str(Home.of({}).root)


def test_a_home_that_cannot_be_written_to_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(ConfigurationError, match="Not a directory; PULLWRIGHT_HOME names another place"):
        create_run_folder(Home(tmp_path / "file" / "home"), "x")


def test_a_run_folder_is_made_once(tmp_path: Path) -> None:
    create_run_folder(Home(tmp_path), "x")
    with pytest.raises(ConfigurationError, match="File exists"):
        create_run_folder(Home(tmp_path), "x")


def test_the_real_error_of_a_full_device_is_known() -> None:
    device = Path("/dev/full")
    if not device.exists():
        pytest.skip("this platform has no device that is always full")
    with pytest.raises(OSError, match="No space left") as caught:
        device.write_text("x")
    assert is_full(caught.value)
