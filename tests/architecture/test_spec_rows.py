"""Each row of the specifications of the teaching agent and of the assistant, with a test that holds it."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

from tests.tables import table

ROOT = Path(__file__).parents[2]
SESSION = "tests/unit/engine/session"
TOOLS = "tests/unit/engine/tools"
MEMORY = "tests/plugins/memory"
CHAT = "tests/plugins/chat/test_chat.py"
MCP = "tests/plugins/mcp/test_cycles.py"
SUITE = f"{TOOLS}/test_file_suite.py"
SUBAGENTS = f"{SESSION}/test_subagents.py"
RANKING = f"{MEMORY}/test_ranking.py"
COMMANDS = "tests/unit/engine/policy/test_command_rules.py"
DESTRUCTIVE = "tests/unit/engine/policy/test_destructive.py"
IMPORT = "tests/unit/app/cli/test_config.py"
SERVERS = "tests/plugins/mcp/test_config.py"

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
    "messages are added with a role and text, and an optional name": f"{SESSION}/test_history.py::test_messages_and_replies_alone_tell_the_same_conversation",
    "read_file, list_files, grep and run_command only look": "tests/unit/engine/profiles/test_profiles.py::test_an_explorer_looks_and_names_a_hypothesis",
    "arguments are checked, the person is told, the handler runs, the state is written": f"{SESSION}/test_state_record.py::test_of_a_real_session",
    "run_command: | and || run; ;, &&, $() and backticks do not": f"{SUITE}::test_an_explorers_command_is_one_pipeline_or_its_stand_in",
    "ALLOWED_COMMANDS: only listed commands": f"{COMMANDS}::test_commands_that_rules_grant_run",
    "a denied command counts": f"{SESSION}/test_gate.py::test_what_a_tool_refuses_itself_counts_as_a_denial_at_every_level",
    "after 3 denials the explorer stops": f"{SESSION}/test_assistant.py::test_an_explorer_is_stopped_at_the_third_refusal",
    "files outside of the workspace": f"{SUITE}::test_reading",
    "each provider has its own headers, payload and text": "tests/conformance/test_model_requests.py::test_the_request_is_the_pinned_one",
    "LocalProvider answers offline": "tests/scenarios/test_assistant.py::test_an_echo_proposes_nothing_and_asks_no_server",
    "read, add, perhaps summarise, ask, add, print": f"{CHAT}::test_lines_are_a_conversation_with_one_journal",
    "\\ goes on in the next line; /paste and /submit": f"{CHAT}::test_lines_are_a_conversation_with_one_journal",
    "Ctrl+C": f"{CHAT}::test_ctrl_c_ends_the_reply_and_not_the_program",
    "exit, quit": f"{CHAT}::test_each_word_that_leaves_does",
    "--debug shows the state after each turn": "tests/scenarios/test_todos.py::test_the_state_is_told_after_each_turn",
    "/debug": f"{CHAT}::test_the_state_is_shown_after_each_turn_while_it_is_wanted",
    "the summary is there without configuration": f"{SESSION}/test_compaction.py::test_turns_are_counted_where_the_policy_says_so",
    "a person is told that a skill is cut": f"{CHAT}::test_a_person_is_told_that_a_skill_is_cut",
    "/skill lists and marks the loaded, /skill NAME loads, twice is skipped": f"{CHAT}::test_a_skill_goes_with_the_next_message_once",
    "a skill is cut at 4 KB and the person is told": "tests/plugins/skills/test_skills.py::test_the_explorers_limit_is_that_of_its_document_unless_another_one_is_set",
    "a skill's name with ../": "tests/plugins/skills/test_skills.py::test_paths_that_climb_and_files_at_the_top_are_no_skills",
    "a file system error does not end the program": "tests/plugins/skills/test_skills.py::test_nothing_that_a_repository_has_breaks_it",
    "--disable-skills": "tests/plugins/skills/test_cycle.py::test_what_takes_skills_away",
    "loaded skills are in the state": "tests/plugins/skills/test_cycle.py::test_a_chosen_skill_is_there_from_the_start",
}
ASSISTANT = {
    "2.1.1 a single message": f"{CHAT}::test_ask_prints_the_answer_on_standard_output_and_all_else_on_standard_error",
    "2.1.1 quit, exit": f"{CHAT}::test_each_word_that_leaves_does",
    "2.1.1 Ctrl+D": f"{CHAT}::test_ctrl_c_ends_the_reply_and_not_the_program",
    "2.1.2 /memory help, list, search, show, edit, indices, stats": f"{CHAT}::test_each_command_about_memory_works_in_a_conversation",
    "2.1.2 /memory search and edit take the rest of the line": f"{CHAT}::test_each_command_about_memory_works_in_a_conversation",
    "2.2.1, 2.2.2 a provider by its address": "tests/unit/engine/models/test_catalog.py::test_providers_by_address",
    "2.2.2 x-api-key and Bearer": "tests/unit/engine/models/test_anthropic_encode.py::test_headers",
    "2.2.3 models and their windows": "tests/unit/engine/models/test_catalog.py::test_context_windows",
    "2.3.1 seven file tools with their parameters": f"{SUITE}::test_the_parameters_are_those_of_the_specification",
    "2.3.1 file_read: lines, tokens, 10 MB, no way out": f"{SUITE}::test_reading",
    "2.3.1 what a token limit leaves out": f"{SUITE}::test_what_a_token_limit_leaves_out_is_kept_whole",
    "2.3.1 file_write: backup": f"{SUITE}::test_writing_keeps_the_form_and_a_backup_where_it_is_asked_for",
    "2.3.1, 7.2 codes of file operations": f"{SUITE}::test_a_failure_of_the_suite_has_its_code",
    "2.3.1 file_append": f"{SUITE}::test_appending",
    "2.3.1 file_list": f"{SUITE}::test_listing",
    "2.3.1 file_search": f"{SUITE}::test_searching",
    "2.3.1 file_info": f"{SUITE}::test_what_a_file_is",
    "2.3.1 file_delta": f"{SUITE}::test_changing_lines",
    "2.3.2 shell_execute: folder, errors, 300 seconds": f"{SUITE}::test_the_shell_leaves_out_errors_and_names_its_parameter",
    "2.3.2, 5.3 8,192 characters": f"{DESTRUCTIVE}::test_a_command_has_at_most_8192_characters_and_no_nul",
    "2.3.2, 5.3 blocked patterns": f"{DESTRUCTIVE}::test_commands_that_destroy_a_machine_run_at_no_level",
    "2.3.3 remember, recall_memories, forget_memory": f"{MEMORY}/test_tools.py::test_what_was_stored_is_recalled_and_forgotten",
    "2.3.3 a memory's structure": f"{MEMORY}/test_tools.py::test_a_memory_has_the_form_of_the_specification",
    "2.3.3 correction, instruction, preference; critical, high and ttl 0 stay": f"{MEMORY}/test_tools.py::test_where_a_person_is_there_they_are_asked_for_what_stays",
    "2.3.3 a person adds a memory": "tests/plugins/memory/test_command.py::test_a_person_adds_a_memory",
    "2.3.3 another importance, another lifetime": "tests/plugins/memory/test_command.py::test_another_importance_is_another_lifetime",
    "2.3.3 types; 2.4.4 the five and the forced": f"{RANKING}::test_five_are_given_and_corrections_and_instructions_beside_them",
    "2.3.3 importance, ttl and 0": f"{RANKING}::test_a_memory_lives_as_long_as_its_ttl_or_its_importance_says",
    "2.3.3, 6.3 expired ones are purged at a recall": f"{MEMORY}/test_tools.py::test_expired_memories_are_not_recalled_and_then_gone",
    "2.3.3 recalled with each message": f"{MEMORY}/test_recall.py::test_what_a_person_says_meanwhile_is_a_message_too",
    "2.3.4 todo tools": f"{TOOLS}/test_todo.py::test_parameters",
    "2.3.4 their answers": f"{TOOLS}/test_todo.py::test_answers_are_exactly_those_of_the_document",
    "2.3.4 100 items, 512 characters": "tests/unit/core/test_todos.py::test_the_constants_are_the_documents",
    "2.3.5, 2.3.6 vector and PDF tools": f"{MEMORY}/test_assistant_rows.py::test_each_tool_has_the_parameters_of_its_line",
    "2.3.5, 7.2 codes of a vector database": f"{MEMORY}/test_vectors.py::test_a_failure_has_its_code",
    "2.3.5 vectors": f"{MEMORY}/test_vectors.py::test_vectors_are_added_found_changed_and_removed",
    "2.3.5 texts": f"{MEMORY}/test_vectors.py::test_texts_are_found_by_their_words",
    "2.3.6 the pipeline of a PDF document": f"{MEMORY}/test_document_tools.py::test_a_document_goes_into_an_index_in_pieces_with_their_pages",
    "2.3.7 subagent: background, fresh, its result": f"{SUBAGENTS}::test_a_subagent_in_the_background_starts_fresh_and_tells_its_result",
    "2.3.7, 5.5 no nesting": f"{SUBAGENTS}::test_there_are_none_below_a_subagent_in_the_background",
    "2.3.7 subagent_status of nobody": f"{SUBAGENTS}::test_a_status_of_nobody_names_those_that_there_are",
    "5.5 five at once": f"{SUBAGENTS}::test_five_work_in_the_background_at_once_and_those_that_ended_do_not_count",
    "5.5 300 seconds": f"{SUBAGENTS}::test_a_subagent_that_takes_too_long_is_stopped_and_has_failed",
    "2.3.9 web_fetch without a search engine": "tests/plugins/web/test_cycles.py::test_pages_can_be_read_without_a_search_engine",
    "2.3.9 web_fetch": "tests/plugins/web/test_tools.py::test_fetch_is_open_under_another_name",
    "2.4.1 100,000 memories, 50,000 documents": f"{MEMORY}/test_assistant_rows.py::test_an_index_has_room_for_so_many",
    "2.4.1 cosine": f"{MEMORY}/test_assistant_rows.py::test_distance_is_that_of_the_cosine",
    "2.4.2 embeddings": f"{MEMORY}/test_assistant_rows.py::test_vectors_of_each_provider_are_stored_with_model_and_dimension",
    "2.4.3 storage": f"{MEMORY}/test_store.py::test_the_file_is_its_owners_only",
    "2.4.4 the score": f"{RANKING}::test_the_final_score_is_the_base_times_the_importance_plus_the_boost",
    "2.4.4 found twice": f"{RANKING}::test_what_is_found_twice_gets_the_mean_and_a_tenth_more",
    "2.5.1 stdio": f"{MCP}::test_a_ticket_is_read_in_a_cycle_and_in_its_replay",
    "2.5.1 HTTP": "tests/plugins/mcp/test_transports.py::test_a_call_over_http",
    "2.5.1 SSE": "tests/plugins/mcp/test_conformance.py::test_server_everything_over_http",
    "2.5.2 mcpServers": f"{SERVERS}::test_the_example_of_the_specification_is_a_server",
    "2.5.3 mcp_SERVER_TOOL": "tests/plugins/mcp/test_base.py::test_a_name_is_the_servers_and_the_tools_cleaned",
    "2.5.3 ${VAR}, ${VAR:-default}": f"{SERVERS}::test_variables_are_filled_in",
    "2.5.3 a server that is not there": f"{MCP}::test_a_server_that_is_gone_costs_a_warning",
    "2.6.1 a conversation goes on": f"{CHAT}::test_a_conversation_is_taken_up_with_its_cost_and_its_list",
    "2.6.2 a summary, tool sequences kept": f"{CHAT}::test_a_conversation_is_made_shorter_by_a_summary",
    "2.6.3 five documents": "tests/plugins/memory/test_memory_in_a_run.py::test_a_document_comes_back_to_the_next_session_on_the_repository",
    "3.1, 3.2, appendix B the configuration's keys": f"{IMPORT}::test_the_examples_of_the_document_become_options",
    "2.4.3, 11.3 ~/.local/ralph": f"{MEMORY}/test_foreign.py::test_a_folder_of_another_assistant_is_taken_over",
    "11.2 a file with the defaults": f"{IMPORT}::test_a_new_file_has_every_option_and_changes_nothing",
    "3.1 ralph.config.json": f"{IMPORT}::test_a_person_sees_what_was_done",
    "3.3 keys of the environment": "tests/unit/app/wiring/test_model.py::test_which_key_goes_where",
    "3.4 PROMPT.md": f"{SESSION}/test_assistant.py::test_the_instructions_beside_the_project_are_in_the_prompt",
    "3.4 system_prompt": "tests/scenarios/test_contracts.py::test_what_the_user_wants_of_every_session_is_the_last_word",
    "5.2 keys are not logged": f"{CHAT}::test_what_is_pasted_is_one_message_and_the_history_keeps_no_secret",
    "7.1 retries with growing waits": "tests/unit/engine/models/test_http.py::test_waits_are_capped_together",
    "9.1 start-up": f"{CHAT}::test_what_is_heavy_is_loaded_behind_the_prompt",
    "appendix A all tools": f"{MEMORY}/test_assistant_rows.py::test_a_model_is_shown_the_tools_of_appendix_a",
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
    assert name in names(path), f"{row}: {test}"
