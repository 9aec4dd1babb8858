from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.core.messages import (
    FinishReason,
    Image,
    Message,
    Reasoning,
    Role,
    Text,
    ToolCall,
    ToolDefinition,
    ToolResult,
    Usage,
)
from orchestrator.engine.contracts.base import Actions, Contract, Running
from orchestrator.engine.contracts.native import Native, SingleStep
from orchestrator.engine.contracts.written_calls import is_quotation, written_calls
from orchestrator.engine.models.base import Request, Response, ToolChoice
from tests.tables import table

TOOLS = (
    ToolDefinition("look", "Looks at a file.\nWith more words.", {"type": "object"}),
    ToolDefinition("submit", "Ends.", {"type": "object"}),
)
REQUEST = Request("You are tested.", ())
CALLS = tuple(ToolCall(f"c{number}", "look", {"n": number}) for number in range(3))
BOTH = pytest.mark.parametrize("contract", [Native(), SingleStep(), SingleStep("submit")])


def reply(text: str, *calls: ToolCall, finish: FinishReason = FinishReason.STOP) -> Response:
    parts = [Text(text)] if text else []
    return Response(Message(Role.ASSISTANT, (*parts, *calls)), finish, Usage(), "m")


@table(
    ("contract", "facts"),
    [
        (Native(), ("native", Running.TOGETHER, True, False)),
        (SingleStep(), ("single_step", Running.FIRST_ONLY, True, True)),
        (SingleStep("submit"), ("single_step", Running.FIRST_ONLY, False, True)),
    ],
)
def test_what_the_contracts_stand_for(contract: Contract, facts: tuple[str, Running, bool, bool]) -> None:
    assert (contract.name, contract.running, contract.text_ends, contract.prunes) == facts


def test_the_request_has_the_tools_and_asks_for_one_call_only_under_one_call_a_step() -> None:
    native, single = Native().shape(REQUEST, TOOLS), SingleStep().shape(REQUEST, TOOLS)
    for shaped in (native, single):
        assert (shaped.tools, shaped.tool_choice) == (TOOLS, ToolChoice.AUTO)
        assert (shaped.system, shaped.temperature, shaped.top_p) == ("You are tested.", None, None)
    assert (native.parallel_tool_calls, single.parallel_tool_calls) == (None, False)


@BOTH
def test_without_tools_nothing_is_said_about_them(contract: Contract) -> None:
    assert contract.shape(REQUEST, ()).tool_choice is None
    assert contract.describe(()) == ""


@BOTH
def test_the_prompt_lists_each_tool_with_its_first_sentence(contract: Contract) -> None:
    words = contract.describe(TOOLS)
    assert "- `look`: Looks at a file.\n" in words
    assert "With more words" not in words


@BOTH
def test_calls_are_read_as_they_came(contract: Contract) -> None:
    read = contract.read(reply("I look.", *CALLS), TOOLS, round_number=7)
    assert read == Actions("I look.", CALLS)


@BOTH
def test_a_property_that_means_nothing_is_dropped_and_named(contract: Contract) -> None:
    schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "additionalProperties": False}
    call = ToolCall("c1", "look", {"n": 1, "reason": "to see"})
    read = contract.read(reply("", call), (ToolDefinition("look", "", schema),), round_number=1)
    assert isinstance(read, Actions)
    assert read.calls == (ToolCall("c1", "look", {"n": 1}),)
    assert "`reason`" in read.note


@BOTH
@pytest.mark.parametrize("count", [0, 1, 3])
def test_of_a_reply_that_was_cut_off_the_last_call_is_withheld(contract: Contract, count: int) -> None:
    cut = reply("I lo", *CALLS[:count], finish=FinishReason.LENGTH)
    read = contract.read(cut, TOOLS, round_number=1)
    assert isinstance(read, Actions)
    assert read.cut_off
    assert read.calls + read.withheld == CALLS[:count]
    assert len(read.withheld) == min(count, 1)


@BOTH
def test_results_go_back_in_order_with_the_note_behind_them(contract: Contract) -> None:
    results = tuple(ToolResult(call.id, call.name, "seen") for call in CALLS)
    assert contract.answer(results) == Message(Role.TOOL, results)
    assert contract.answer(results, "Hurry.") == Message(Role.TOOL, (*results, Text("Hurry.")))
    assert contract.answer((), "Hurry.") == Message.user("Hurry.")


@BOTH
def test_a_complaint_names_all_problems(contract: Contract) -> None:
    assert contract.complain(("one", "two")).text == "one\ntwo"


def test_a_model_is_asked_to_go_on_in_fixed_words_that_name_the_tool_that_ends() -> None:
    tools = ToolDefinition("submit", "", {}), ToolDefinition("hand_in", "", {})
    assert "`submit`" in SingleStep("submit").go_on(tools)
    assert "`hand_in`" in SingleStep("hand_in").go_on(tools)
    assert SingleStep().go_on(tools) == Native().go_on(tools) == SingleStep("hand_in").go_on(())
    assert "neither text nor a tool call" in Native().go_on(())


WRITTEN_TOOLS = (ToolDefinition("read_file", "Reads.", {}), ToolDefinition("grep", "Searches.", {}))
READ = '{"name": "read_file", "arguments": {"file_path": "a"}}'
GREP = '{"name": "grep", "arguments": {"pattern": "x"}}'


def names(text: str) -> list[str]:
    return [call.name for call in written_calls(text, WRITTEN_TOOLS, 1).calls]


@table(
    ("text", "expected"),
    [
        (READ, ["read_file"]),
        (f"  {READ}\n", ["read_file"]),
        (f"```json\n{READ}\n```", ["read_file"]),
        (f"I read it first.\n\n```\n{READ}\n```\nThen I go on.", ["read_file"]),
        (f"```json\n[{READ}, {GREP}]\n```", ["read_file", "grep"]),
        (f"<tool_call>\n{READ}\n</tool_call>\n<tool_call>{GREP}</tool_call>", ["read_file", "grep"]),
        (f"<tools>\n{READ}\n</tools>", ["read_file"]),
        (f"<tools>\n{READ}\n</tool_call>", []),
        ('{"tool": "grep", "args": {"pattern": "x"}}', ["grep"]),
        ('{"function": "grep", "arguments": {"pattern": "x"}}', ["grep"]),
        ('{"type": "function", "function": {"name": "grep", "arguments": {"pattern": "x"}}}', ["grep"]),
        (f"The call would be {READ}", []),
        (f"```json\n{READ}\n```\n```json\n{GREP}\n```", []),
        (READ.replace("read_file", "rm"), []),
        (f"[{READ}, {READ.replace('read_file', 'rm')}]", []),
        (READ[:-2], []),
        ('{"name": "read_file"}', []),
        ('{"name": "read_file", "arguments": "a"}', []),
        ('```json\n{"version": 1}\n```', []),
        ("Done.", []),
        ("", []),
    ],
)
def test_what_counts_as_a_call(text: str, expected: list[str]) -> None:
    assert names(text) == expected


TEXT = {"type": "string"}
FORM_TOOLS = (
    ToolDefinition(
        "edit_file",
        "Edits.",
        {"type": "object", "properties": {"path": TEXT, "text": TEXT, "line": {"type": "integer"}}},
    ),
    ToolDefinition("list_files", "Lists.", {"type": "object", "properties": {}}),
)
EDIT = {"path": "a b.py", "text": 'if x < 1:\n    print("</tool_call>")', "line": 3}
PLAIN = {**EDIT, "text": "if x < 1:\n    pass"}
IN_JSON, CALL = json.dumps(EDIT), json.dumps({"name": "edit_file", "arguments": EDIT})
XML = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in EDIT.items())
NAMED = "".join(f'<parameter name="{key}">{value}</parameter>\n' for key, value in EDIT.items())
PAIRS = "".join(f"<arg_key>{key}</arg_key>\n<arg_value>{value}</arg_value>\n" for key, value in EDIT.items())
PYTHON = "edit_file(" + ", ".join(f"{key}={value!r}" for key, value in EDIT.items()) + ")"
BAR, LINE = "\uff5c", "\u2581"


def deepseek(text: str) -> str:
    """The text with DeepSeek's characters in the marks."""
    return (
        text.replace("<|", f"<{BAR}")
        .replace("</|", f"</{BAR}")
        .replace("|>", f"{BAR}>")
        .replace("~", LINE)
        .replace("DSML|", f"DSML{BAR}")
    )


FORMS = {
    "Qwen2.5, Hermes": f"<tool_call>\n{CALL}\n</tool_call>",
    "Qwen2.5-Coder": f"<tools>\n{CALL}\n</tools>",
    "Qwen3-Coder": f"<tool_call>\n<function=edit_file>\n{XML}</function>\n</tool_call>",
    "Qwen3-Coder without the outer tag": f"<function=edit_file>\n{XML}</function>\n</tool_call>",
    "Llama 3.1, own functions": f"<function=edit_file>{IN_JSON}</function>",
    "Llama 3.1, built in": f'<|python_tag|>{{"name": "edit_file", "parameters": {IN_JSON}}}<|eom_id|>',
    "Llama 3.1, call": f"<|python_tag|>{PYTHON.replace('edit_file(', 'edit_file.call(')}",
    "Llama 3.2, 4": f"[{PYTHON}]",
    "Mistral": f"[TOOL_CALLS][{CALL}]",
    "Mistral, later": f"[TOOL_CALLS]edit_file[ARGS]{IN_JSON}",
    "Devstral": f"[TOOL_CALLS]edit_file{IN_JSON}",
    "DeepSeek V3": deepseek(
        f"<|tool~calls~begin|><|tool~call~begin|>function<|tool~sep|>edit_file\n```json\n{IN_JSON}\n```<|tool~call~end|><|tool~calls~end|>"
    ),
    "DeepSeek V3.1": deepseek(
        f"<|tool~calls~begin|><|tool~call~begin|>edit_file<|tool~sep|>{IN_JSON}<|tool~call~end|><|tool~calls~end|>"
    ),
    "DeepSeek V3.2": deepseek("<|DSML|function_calls>\n<|DSML|invoke name='edit_file'>\n".replace("'", '"'))
    + NAMED.replace("<parameter", f"<{BAR}DSML{BAR}parameter").replace(
        "</parameter", f"</{BAR}DSML{BAR}parameter"
    )
    + deepseek("</|DSML|invoke>\n</|DSML|function_calls>"),
    "GLM-4.5": f"<tool_call>edit_file\n{PAIRS}</tool_call>",
    "Kimi K2": f"<|tool_calls_section_begin|><|tool_call_begin|>functions.edit_file:0<|tool_call_argument_begin|>{IN_JSON}<|tool_call_end|><|tool_calls_section_end|>",
    "Gemma": f"```tool_code\n{PYTHON}\n```",
    "Gemini": f"```tool_code\nprint(default_api.{PYTHON})\n```",
    "Claude": f'<function_calls>\n<invoke name="edit_file">\n{NAMED}</invoke>\n</function_calls>',
    "Claude without the outer tag": f'<invoke name="edit_file">\n{NAMED}</invoke>',
    "MiniMax": f'<minimax:tool_call>\n<invoke name="edit_file">\n{NAMED}</invoke>\n</minimax:tool_call>',
    "Seed-OSS": f"<seed:tool_call>\n<function=edit_file>\n{XML}</function>\n</seed:tool_call>",
    "Phi-4": f"<|tool_call|>[{CALL}]<|/tool_call|>",
    "Phi-4-mini": f"functools[{CALL}]",
    "Granite 3": f"<|tool_call|>[{CALL}]",
    "Command R": f'<|START_ACTION|>[{{"tool_name": "edit_file", "parameters": {IN_JSON}}}]<|END_ACTION|>',
    "Nemotron": f"<TOOLCALL>[{CALL}]</TOOLCALL>",
    "Hunyuan": f"<tool_calls>\n<tool_call>{CALL}</tool_call>\n</tool_calls>",
    "InternLM": f'<|action_start|><|plugin|>\n{{"name": "edit_file", "parameters": {IN_JSON}}}<|action_end|>',
    "LFM2": f"<|tool_call_start|>[{PYTHON}]<|tool_call_end|>",
    "gpt-oss": f"<|channel|>commentary to=functions.edit_file <|constrain|>json<|message|>{IN_JSON}<|call|>",
    "gpt-oss, whole": f"<|start|>assistant<|channel|>commentary to=functions.edit_file <|constrain|>json<|message|>{IN_JSON}<|call|>",
    "LongCat": f"<longcat_tool_call>{CALL}</longcat_tool_call>",
    "Step-3": f'<steptml:toolcall><steptml:invoke name="edit_file">\n{NAMED.replace("parameter", "steptml:parameter")}</steptml:invoke></steptml:toolcall>',
    "Claude, with a prefix": f'<function_calls>\n<invoke name="edit_file">\n{NAMED.replace("parameter", "antml:parameter")}</invoke>\n</function_calls>',
    "DeepSeek V4": deepseek(
        f'<|DSML|tool_calls>\n<|DSML|invoke name="edit_file">\n{NAMED.replace("parameter", "|DSML|parameter")}</|DSML|invoke>\n</|DSML|tool_calls>'
    ),
    "OLMo 3": f"<function_calls>\n{PYTHON}\n</function_calls>",
    "Functionary": f">>>edit_file\n{IN_JSON}",
    "gpt-oss, the tool first": f"<|start|>assistant to=functions.edit_file<|channel|>commentary json<|message|>{IN_JSON}<|call|>",
    "an element tool_use": f"<tool_use>\n{CALL}\n</tool_use>",
    "Qwen, whose end stays": f"<tool_call>\n{CALL}\n</tool_call><|im_end|>",
    "Mistral, whose end stays": f"[TOOL_CALLS] [{CALL}]</s>",
    "JSON in a block": f"```json\n{CALL}\n```",
}
NEEDS = (
    ToolDefinition(
        "edit_file",
        "Edits.",
        {"type": "object", "properties": {"path": TEXT, "text": TEXT}, "required": ["path", "text"]},
    ),
    FORM_TOOLS[1],
)
UNKNOWN_FORMS = {
    "Cline": "<edit_file>\n<path>a.py</path>\n<text>\nx = 1\n</text>\n</edit_file>",
    "ReAct": f"Thought: I edit it.\nAction: edit_file\nAction Input: {IN_JSON}",
    "a block of Python": f"```python\n{PYTHON}\n```",
    "Python alone": PYTHON,
    "Apertus": f'<|tools_prefix|>[{{"edit_file": {IN_JSON}}}]<|tools_suffix|>',
    "FunctionGemma": "<start_function_call>call:edit_file{path:<escape>a.py<escape>,text:<escape>x<escape>}<end_function_call>",
    "GLM-4": f"edit_file\n{IN_JSON}",
    "a name and a colon": f"edit_file: {IN_JSON}",
    "an old Command R": f'Action: ```json\n[{{"tool_name": "edit_file", "parameters": {IN_JSON}}}]\n```',
    "a tool without parameters": 'Next: {"tool": "list_files"}',
}


@pytest.mark.parametrize("form", UNKNOWN_FORMS)
def test_a_call_in_an_unknown_form_is_told(form: str) -> None:
    for begin in ("", "I edit the file.\n\n"):
        found = written_calls(begin + UNKNOWN_FORMS[form], NEEDS, 1)
        assert (found.calls, found.is_doubtful) == ((), True)


@table(
    "text",
    [
        "I changed a.py by edit_file, and the text is short.",
        "edit_file was called with a path.",
        "path: a.py\ntext: x",
        "The tool `list_files` found nothing.",
        'my_edit_file: {"path": 1, "text": 2}',
    ],
)
def test_words_about_a_tool_are_no_call(text: str) -> None:
    assert not written_calls(text, NEEDS, 1).is_doubtful


@table("between", ["\n", "; ", ";\n", "\n\n"])
def test_calls_in_json_one_after_the_other(between: str) -> None:
    two = f'{{"name": "list_files", "parameters": {{}}}}{between}{CALL}'
    for text in (two, f"<|python_tag|>{two}", f"{two}<|eot_id|>"):
        assert [call.name for call in written_calls(text, FORM_TOOLS, 1).calls] == ["list_files", "edit_file"]
    assert written_calls(f"{two} and more", FORM_TOOLS, 1).calls == ()


ALONE = {"Llama 3.2, 4"}


def doubtful(text: str) -> bool:
    found = written_calls(text, FORM_TOOLS, 1)
    assert not found.calls
    return found.is_doubtful


@pytest.mark.parametrize("model", FORMS)
def test_the_forms_of_known_models(model: str) -> None:
    for begin in ("", *(() if model in ALONE else ("I edit the file.\n\n",)), "<think>Hm.</think>\n"):
        found = written_calls(f"{begin}{FORMS[model]}\n", FORM_TOOLS, 1)
        assert [(call.name, call.arguments) for call in found.calls] == [("edit_file", EDIT)]


@pytest.mark.parametrize("model", {*FORMS} - {*ALONE, "JSON in a block"})
def test_a_call_that_may_be_a_quotation_does_not_run_and_the_model_is_told(model: str) -> None:
    form = FORMS[model]
    assert doubtful(f"The file has this line:\n{form}\nThat is a call.")
    assert doubtful(f"The file has this:\n\n````text\n{form}\n````\n")
    assert doubtful(f"> {form}")
    if "\n" not in form and "`" not in form:
        assert doubtful(f"It writes `{form}`")
        assert doubtful(f"It writes `{form}")
    assert doubtful(form[: len(form) // 2])
    assert doubtful(f"{form} {form.replace('edit_file', 'edit_files')}")


@pytest.mark.parametrize("model", FORMS)
def test_a_call_of_no_offered_tool_is_text(model: str) -> None:
    found = written_calls(FORMS[model].replace("edit_file", "remove_everything"), FORM_TOOLS, 1)
    assert (found.calls, found.is_doubtful) == ((), False)


@pytest.mark.parametrize("model", FORMS)
def test_a_call_that_stands_in_what_was_read_is_a_quotation(model: str) -> None:
    part = written_calls(FORMS[model], FORM_TOOLS, 1).text
    numbered = "\n".join(f"{number} | {line}" for number, line in enumerate(FORMS[model].split("\n"), 7))
    assert is_quotation(part, ["nothing", f"6 | x\n{numbered}\n99 | y"])
    assert is_quotation(part, [f"Please answer:\n{FORMS[model]}\nat once"])
    assert not is_quotation(part, ["nothing", FORMS[model].replace("a b.py", "b.py")])


def test_two_calls_of_one_form() -> None:
    two = f"<tool_call>\n<function=list_files>\n</function>\n</tool_call>\n{FORMS['Qwen3-Coder']}"
    assert [call.name for call in written_calls(two, FORM_TOOLS, 1).calls] == ["list_files", "edit_file"]
    two = "<tool_call>list_files\n</tool_call>\n" + FORMS["GLM-4.5"]
    assert [call.name for call in written_calls(two, FORM_TOOLS, 1).calls] == ["list_files", "edit_file"]
    two = f"```tool_code\nlist_files()\n{PYTHON}\n```"
    assert [call.name for call in written_calls(two, FORM_TOOLS, 1).calls] == ["list_files", "edit_file"]


@table(
    "text",
    [
        "```tool_code\nedit_file(open('x').read())\n```",
        "```tool_code\nedit_file(path=open('x'))\n```",
        "```tool_code\nimport os\nedit_file(path='x')\n```",
        "```tool_code\nos.edit_file(path='x')\n```",
        "<|python_tag|>edit_file(**x)",
        "<tool_call>edit_file\n</tool_calls>",
        "<function=edit_file><parameter=path>a</parameter>",
        "<function=edit_file><parameter=path>a</parameter><parameter=path>b</parameter></function>",
    ],
)
def test_what_is_more_or_less_than_a_call_does_not_run(text: str) -> None:
    assert doubtful(text)


def test_a_call_in_a_thought_that_never_ends_is_told_although_a_server_took_it_out_of_the_text() -> None:
    thought = Reasoning(f"I call {FORMS['Mistral']}", {})
    silent = Response(Message(Role.ASSISTANT, (thought,)), FinishReason.STOP, Usage(), "m")
    reading = Native().read(silent, FORM_TOOLS, round_number=1)
    assert isinstance(reading, Actions)
    assert reading.calls == ()
    assert "has the text of a tool call in it" in reading.note


def test_a_call_in_thoughts_alone_is_told() -> None:
    assert doubtful(f"<think>I call {FORMS['Mistral']}")
    assert not doubtful(f"<think>I call {FORMS['Mistral']}</think>All is done.")


@given(st.text())
def test_other_text_is_no_call(text: str) -> None:
    assert names(text) == []


@given(st.text(), st.text())
def test_a_block_among_any_words_is_found_or_left_alone(before: str, after: str) -> None:
    assert names(f"{before}\n```json\n{READ}\n```\n{after}") in ([], ["read_file"])


def response(text: str, finish: FinishReason = FinishReason.STOP) -> Response:
    return Response(Message.assistant(text), finish, Usage(), "m")


def test_the_contract_runs_them_and_answers_in_text() -> None:
    contract = Native()
    reading = contract.read(response(READ), WRITTEN_TOOLS, round_number=3)
    assert isinstance(reading, Actions)
    assert reading.calls[0].id == "written_r3c1"
    answer = contract.answer((ToolResult("written_r3c1", "read_file", "``` x"),), "A note.")
    assert answer.role is Role.USER
    assert "`read_file`: ok" in answer.text
    assert "A note." in answer.text
    assert json.dumps(answer.text).count("```") >= 3


def test_images_of_written_calls_come_behind_the_results() -> None:
    picture = Image(b"png", "image/png")
    answer = Native().answer((ToolResult("written_r3c1", "read_file", "a.png", images=(picture,)),))
    assert answer.parts == (Text(answer.text), picture)


def test_a_reply_that_was_cut_off_has_no_written_call() -> None:
    reading = Native().read(response(READ, FinishReason.LENGTH), WRITTEN_TOOLS, round_number=1)
    assert isinstance(reading, Actions)
    assert reading.calls == ()
