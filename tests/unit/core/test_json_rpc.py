"""What others send as JSON-RPC."""

from __future__ import annotations

from orchestrator.core.json_rpc import read_message


def test_half_of_a_character_is_one_that_can_be_written() -> None:
    message = read_message('{"method": "say", "params": {"text": "a \\ud83d b \\ud83d\\ude00"}}')
    assert message == {"method": "say", "params": {"text": "a \ufffd b \U0001f600"}}


def test_a_number_that_json_does_not_have_is_no_message() -> None:
    assert read_message('{"method": "say", "params": {"number": NaN}}') is None
