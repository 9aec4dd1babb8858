"""Each row of the specifications' parts about context, with the tests that hold it."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

from tests.tables import table

ROOT = Path(__file__).parents[4]
SESSION = "tests/unit/engine/session"

TEACHING_AGENT = {
    "the history is a list of messages and a rolling summary": f"{SESSION}/test_context.py::test_a_history_has_what_the_transform_gives_and_takes_each_later_turn",
    "MAX_TURNS = 20, TOKEN_LIMIT = 20000, MESSAGES_AFTER_SUMMARIZATION = 5": f"{SESSION}/test_context.py::test_the_constants_are_the_documents",
    "CONTEXT_WINDOW = MAX_TURNS": f"{SESSION}/test_context.py::test_a_conversation_is_due_by_the_first_limit_that_it_reaches",
    "MODE_FULL, MODE_RECENT": f"{SESSION}/test_context.py::test_recent_is_whole_and_counts_what_people_and_the_model_say",
    "MODE_SUMMARY_PLUS_RECENT": f"{SESSION}/test_context.py::test_what_follows_a_summary_is_whole_and_the_history_stays",
    "recent counts user messages and plain replies; tool turns ride along": f"{SESSION}/test_context.py::test_tool_turns_ride_along_and_do_not_count",
    "summarised at 20 turns or 20,000 tokens": f"{SESSION}/test_compaction.py::test_turns_are_counted_where_the_policy_says_so",
    "kept: system prompt, summary, the last 5 chat turns with their tool messages": f"{SESSION}/test_compaction.py::test_explorer_keeps_the_last_five_chat_turns_with_their_tool_messages",
    "hypothesis, actions with UTC times, tool events, denials, summary, context info": f"{SESSION}/test_state_record.py::test_a_session_of_every_kind_of_event",
    "tool events are ok, denied or error": f"{SESSION}/test_state_record.py::test_the_words_of_a_calls_end",
    "a hypothesis is read from the reply": f"{SESSION}/test_state_record.py::test_what_the_model_takes_its_task_to_be",
    "the state mirrors the summary": f"{SESSION}/test_state_record.py::test_what_a_shorter_conversation_is",
    "3 denials stop the loop": f"{SESSION}/test_gate.py::test_three_denials_end_the_session_and_the_rest_of_the_reply_is_skipped",
    "calls and results in each vendor's form": "tests/scenarios/test_long_conversations.py::test_what_stays_is_what_was_sent_with_its_signatures",
    "the summary is asked of the same provider": "tests/scenarios/test_long_conversations.py::test_a_summary_is_asked_for_behind_what_the_vendor_has_read",
}
ASSISTANT = {
    "in the background at 40 %": f"{SESSION}/test_compaction.py::test_the_loop_goes_on_while_a_summary_is_written",
    "40 % is the constant": f"{SESSION}/test_context.py::test_the_constants_are_the_documents",
    "in an emergency: no room for the reply": f"{SESSION}/test_compaction.py::test_answers_that_together_are_longer_than_the_window_are_overcome",
    "in an emergency: overflow": f"{SESSION}/test_compaction.py::test_an_overflow_of_an_unknown_window_is_overcome_and_remembered",
    "tool sequences are preserved": f"{SESSION}/test_context.py::test_the_newest_turns_within_a_size_are_whole_and_as_many_as_fit",
    "context_window is detected from the model": "tests/unit/app/wiring/test_model.py::test_the_window_is_the_smallest_that_is_known_of_all",
}


@cache
def names(path: str) -> set[str]:
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


@table("row, test", [*TEACHING_AGENT.items(), *ASSISTANT.items()])
def test_each_row_has_its_test(row: str, test: str) -> None:
    path, _, name = test.partition("::")
    assert name in names(path), row
