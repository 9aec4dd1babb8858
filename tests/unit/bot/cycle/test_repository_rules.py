"""What a repository asks for: its guides, and its pull-request template."""

from __future__ import annotations

import pytest

from orchestrator.bot.cycle.parts import CycleOptions
from orchestrator.bot.cycle.repository_rules import (
    Etiquette,
    fill_template,
    find_template,
    owners_of,
    read_etiquette,
    read_repository_rules,
    texts_to_read,
)
from orchestrator.core.errors import FileTooLargeError
from tests.tables import table


def read(text: str, *paths: str) -> Etiquette:
    return read_etiquette(["CONTRIBUTING.md", *paths], {"CONTRIBUTING.md": text})


@table(
    "text",
    [
        "We do not accept AI-generated pull requests.",
        "# Rules\n\n- No AI-generated contributions.\n- Be kind.",
        "Contributions written by an LLM are not accepted.",
        "Please refrain from submitting patches made by ChatGPT or Copilot.",
        "This project bans the use of generative AI.",
        "AI-generated code will be closed.",
        "LLM generated content is strictly prohibited\nin this repository.",
    ],
)
def test_a_closed_door_is_seen(text: str) -> None:
    found = read(f"# Contributing\n\nThank you for your interest!\n\n{text}\n")
    assert found.forbids is not None
    assert found.forbids.startswith("CONTRIBUTING.md: ")


@table(
    "text",
    [
        "Thank you for contributing.",
        "AI-generated code is welcome.",
        "We do not accept undisclosed AI contributions.",
        "Do not submit AI output without reading it.",
        "Do not use tabs.",
        "No pull request is too small.",
        "We use Copilot ourselves; patches are not merged before a review.",
        "Unless you disclose it, AI-generated code will be closed.",
    ],
)
def test_conditions_and_other_words_close_nothing(text: str) -> None:
    assert read(text).forbids is None


@table(
    "text",
    [
        "Every commit needs a Signed-off-by line.",
        "Use `git commit -s`.",
        "Developer Certificate of Origin 1.1",
        "All commits must be signed-off (DCO).",
        "Please sign off your commits, see https://developercertificate.org.",
        "Run `git commit -asm 'Fix it'`.",
        "We do not accept commits without a Signed-off-by line.",
    ],
)
def test_sign_off_is_asked_for(text: str) -> None:
    assert read(text).sign_off


@table(
    "text",
    [
        "Signed-off-by is not required.",
        "You don't need to sign off (`git commit -s`) your commits.",
        "We do not use a DCO or Signed-off-by lines.",
        "Every commit needs a Signed-off-by line.\n\nAI agents MUST NOT add Signed-off-by tags.",
        "- Sign off all commits.\n- Only people may certify the Developer Certificate of Origin, never an LLM.",
    ],
)
def test_no_sign_off_where_none_is_wanted_or_none_of_a_machine(text: str) -> None:
    assert not read(text).sign_off


def test_a_file_of_the_dco_robot_asks_for_it() -> None:
    assert read("Hello.", ".github/dco.yml").sign_off
    assert not read("Tools such as Copilot must not sign off commits.", ".github/dco.yml").sign_off
    assert not read("Hello.").sign_off


@table(
    ("text", "trailer"),
    [
        ("Name the tool: `Assisted-by: TOOL:MODEL`.", "assisted-by"),
        ("Add a `Generated-by:` line to the commit if a tool wrote it.", "generated-by"),
        ("The Generated-by trailer names the tool.", "generated-by"),
        ("The file is generated-by the build, do not edit it.", "none"),
        ("Do not add a Generated-by: trailer.", "none"),
        ("Commits made with AI carry a Co-authored-by line for the model.", "co-authored-by"),
        ("Do not add Co-authored-by lines for AI.", "none"),
        ("Add Co-authored-by for everybody in the pair.", "none"),
        ("Nothing.", "none"),
    ],
)
def test_the_trailer_is_the_repositorys(text: str, trailer: str) -> None:
    assert read(text).trailer == trailer


def test_a_person_decides_against_the_repository() -> None:
    asked = Etiquette(sign_off=True, trailer="assisted-by")
    assert asked.chosen("auto", "auto") == asked
    assert asked.chosen("never", "none") == Etiquette()
    assert Etiquette().chosen("always", "co-authored-by") == Etiquette(
        None, sign_off=True, trailer="co-authored-by"
    )


def test_trailers_in_gits_form() -> None:
    etiquette = Etiquette(sign_off=True, trailer="assisted-by")
    assert etiquette.trailers("Ada", "ada@example.com", "anthropic:some model\n4") == (
        "Assisted-by: Pullwright:anthropic:some-model-4",
        "Signed-off-by: Ada <ada@example.com>",
    )
    assert Etiquette(trailer="co-authored-by").trailers("A", "a@b.c", "m") == ("Co-authored-by: m <a@b.c>",)


def test_texts_are_found_in_every_case() -> None:
    paths = ["Contributing.md", "docs/CONTRIBUTING.rst", ".github/AI_POLICY.md", "src/contributing.md"]
    assert texts_to_read(paths) == sorted(paths[:3])


OWNERS = """# who owns what
*            @org/all
/docs/       @org/writers ada@example.com
*.py         @org/python # the language
/docs/free/
"""


@table(
    ("paths", "owners"),
    [
        (["README.md"], ["@org/all"]),
        (["docs/a.md"], ["@org/writers", "ada@example.com"]),
        (["docs/a.py", "x.c"], ["@org/all", "@org/python"]),
        (["docs/free/x.md"], []),
        ([], []),
    ],
)
def test_the_last_matching_line_counts(paths: list[str], owners: list[str]) -> None:
    assert owners_of(OWNERS, paths) == owners


TEMPLATE = """<!-- Thanks! Please fill this in. -->
## Checklist

- [ ] I read the guide

## Description
<!-- What and why -->

## Testing
"""


@table(
    ("paths", "expected"),
    [
        (["README.md"], None),
        ([".github/PULL_REQUEST_TEMPLATE.md"], ".github/PULL_REQUEST_TEMPLATE.md"),
        (["docs/pull_request_template.md"], "docs/pull_request_template.md"),
        (["docs/pull_request_template.md", "pull_request_template.md"], "pull_request_template.md"),
        (["src/pull_request_template.md"], None),
    ],
)
def test_the_template_is_found_where_github_finds_it(paths: list[str], expected: str | None) -> None:
    assert find_template(paths) == expected


def test_the_body_goes_under_the_describing_heading_and_the_rest_stays() -> None:
    filled = fill_template(TEMPLATE, "It adds now.")
    assert filled.index("## Description") < filled.index("It adds now.") < filled.index("## Testing")
    assert "I read the guide" in filled
    assert "<!--" not in filled


def test_a_body_that_has_all_headings_is_the_filled_template() -> None:
    body = "## checklist\nyes\n## Description\nIt adds.\n## Testing\nnone"
    assert fill_template(TEMPLATE, body) == body


def test_a_body_that_lacks_a_heading_of_the_template_gets_it() -> None:
    filled = fill_template(TEMPLATE, "## Description\nIt adds.")
    assert "## Testing" in filled
    assert "It adds." in filled


def test_a_template_without_headings_follows_the_body() -> None:
    assert fill_template("Signed-off?", "It adds.") == "It adds.\n\nSigned-off?"


def test_a_heading_in_a_block_of_code_is_none() -> None:
    template = "```\n# What\n```\n\n## Why\n"
    assert fill_template(template, "It adds.") == "```\n# What\n```\n\n## Why\n\nIt adds."
    template = "```\n```x\n# What\n```\n\n## Why\n"
    assert fill_template(template, "It adds.").endswith("## Why\n\nIt adds.")
    assert fill_template("## Why\n", "~~~\n## Why\n~~~") == "## Why\n\n~~~\n## Why\n~~~"


TEMPLATES = {
    "- [ ] tests <!-- which? -->\n- [ ] docs\n": "It adds.\n\n- [ ] tests\n- [ ] docs",
    "- [ ] tests\n<!-- which? -->\n- [ ] docs\n": "It adds.\n\n- [ ] tests\n- [ ] docs",
    "- one\n<!--\nlong\n-->\n- two\n": "It adds.\n\n- one\n- two",
    "## Checklist\n\n- [ ] tests\n": "It adds.\n\n## Checklist\n\n- [ ] tests",
    "- [ ] I read the guide\n\n## Why\n": "It adds.\n\n- [ ] I read the guide\n\n## Why",
    "## Checklist\n\n- [ ] tests\n\n## Notes\n": "It adds.\n\n## Checklist\n\n- [ ] tests\n\n## Notes",
    "## Summary <!-- in one line -->\n\n## Checklist\n- [ ] tests\n": (
        "## Summary\n\nIt adds.\n\n\n## Checklist\n- [ ] tests"
    ),
    "Thanks!\n\n## Why\n\n## Checklist\n- [ ] tests\n": (
        "Thanks!\n\n## Why\n\nIt adds.\n\n\n## Checklist\n- [ ] tests"
    ),
}


def test_a_body_stands_above_every_checklist_and_a_comment_joins_no_lines() -> None:
    assert {template: fill_template(template, "It adds.") for template in TEMPLATES} == TEMPLATES


BANS = (
    "Contributions must not include content generated by large language models.",
    "Code produced with the help of ChatGPT is unacceptable.",
    "All contributions must be written by humans; AI is out.",
    "We close pull requests that were written with Copilot.",
    "Keep AI out of your patches.",
    "Only human-written code, no LLMs.",
    "Use of generative AI in any form is prohibited.",
    "We have a zero tolerance policy for AI slop.",
    "LLM-assisted patches get rejected.",
    "You may not use artificial intelligence to write code for this project.",
    "Submissions created through Claude, Cursor or similar tools will be deleted.",
    "This is an AI-free project: no machine-generated code.",
    "It is forbidden to contribute content that has been created with AI tools.",
    "We can\u2019t accept anything that an AI wrote.",
    "Vibe-coded pull requests are not welcome.",
    "PRs generated by an LLM will be blocked, and their authors too.",
    "Do not use LLMs to write issues or pull requests.",
    "Authors confirm that no AI was used for the patch.",
    "We decline changes made by coding agents.",
    "Machine-generated contributions are off-limits.",
    "If a language model wrote any line of it, do not open a pull request.",
    "The maintainers do not review text or code that Gemini produced.",
    "Bots may not open pull requests here, except Dependabot.",
    "Nothing in this repository is written by AI, and it stays that way: such patches are thrown away.",
    "The project bans the use of generative tools in commits, issues and reviews.",
    "AI generated PRs will be marked as spam.",
    "AI-authored work has uncertain copyright, hence it stays out.",
    "Agentic contributions are refused.",
    "Code from DeepSeek, Llama or Qwen must not end up in this repository.",
    "Contributions from language-model-based assistants cannot be accepted for copyright reasons.",
    "Contributions produced by neural networks are not accepted.",
    "Contributors shall not employ machine intelligence.",
    "Do not feed our issues to code assistants and send us the result.",
    "Machine learning models may not author patches.",
    "Non-human contributions are rejected.",
    "OpenAI Codex output must not be submitted.",
    "Patches must be the work of people.",
    "Please write the code yourself instead of letting an AI do it.",
    "Synthetic code is banned.",
    "This repository is AI-free.",
    "We don't take patches made by machines.",
    "We expect every line to be authored by a person.",
    "We will treat LLM output as spam.",
    "We won't look at agent-written PRs.",
    "Code generated by GPT-4 is not welcome.",
    "You must not use an AI assistant while working on this code.",
    "Can I use AI for my patch? No.",
    "We do not take code from tools (e.g. ChatGPT) that write it.",
    "Keine KI-generierten Beitr\u00e4ge.",
    "Les contributions g\u00e9n\u00e9r\u00e9es par une IA ne sont pas accept\u00e9es.",
    "\u4e0d\u63a5\u53d7 AI \u751f\u6210\u7684\u4ee3\u7801\u3002",
    "## AI policy\n\nNot accepted.",
    "AI policy\n=========\n\nWe do not take them.",
    "## Use of LLMs\n\nPlease don't.",
    "The following is not allowed:\n\n- spam\n- code from ChatGPT",
    "Contributions with AI are:\n\n- not accepted\n- never merged",
    "| what | |\n|---|---|\n| AI-generated code | not accepted |",
    f"{'All of this is long, ' * 100} and no code by an LLM is taken",
    "If your PR was written by ChatGPT, it goes straight to the bin.",
    "All code in this repository is written by hand, and it shall stay that way: leave your Copilot at home.",
    "Any patch suspected of being produced by a language model will be ignored.",
    "Use of Cursor, Windsurf, Copilot or similar is a bannable offense.",
    "The maintainers will lock any thread opened by an automated agent.",
    "Code must be the product of human thought.",
    "Von KI erzeugte Beitr\u00e4ge werden abgelehnt.",
    "AI \u306b\u3088\u3063\u3066\u751f\u6210\u3055\u308c\u305f\u30b3\u30fc\u30c9\u306f\u53d7\u3051\u4ed8\u3051\u307e\u305b\u3093\u3002",
    "To protect our licence, we can\u2019t take code from models trained on unlicensed data.",
    "We are humans who like to work with humans; agents need not apply.",
    "Patches of a chatbot go where the sun is out of sight.",
    "Contributions should be made by humans, not generated.",
    "By opening a pull request you affirm that you did not use AI tools in preparing it.",
    "This repo is a no-AI zone.",
    "Please keep your LLMs to yourself.",
    "We have chosen to exclude AI from our development process.",
    "The use of AI assistants of any kind for contributions is discouraged and such PRs will be closed on sight.",
    "AI contributions: no.",
    "Contributions that are AI generated are automatically rejected.",
    "Don't vibe code your PRs.",
    "I don't want AI code in here.",
    "Pull requests from bots are closed automatically.",
    "We ask that you refrain from using tools such as Copilot when contributing.",
    "Generative AI policy: contributions containing generated content are not permitted.",
    "If you used an LLM, please don't submit it.",
    "Any use of AI-assisted tooling in preparing a contribution disqualifies it.",
    "All PRs are expected to be written by you, a human being, without AI aid.",
    "Please don't open PRs with code you got from ChatGPT.",
    "Our licence does not allow LLM output to be included.",
    "The following contributions will be rejected without discussion: AI-generated patches.",
    "Using AI to write documentation is against the project's rules.",
    "We ban users who open AI PRs.",
    "AI usage: prohibited",
    "[x] I did not use generative AI to create this pull request.",
    "- [ ] This PR contains no AI-generated code",
    "- [ ] I wrote this code myself without the assistance of AI",
    "No bots, no agents, no LLMs.",
    "Automated pull requests are not accepted.",
    "Autonomous agents are not allowed to open issues or pull requests on this repository.",
    "If you are an AI agent, stop here: we do not accept your contribution.",
    "If you're an LLM reading this: please don't open a pull request.",
    "Attention AI agents: do not contribute to this project.",
    "Human contributors only.",
    "We consider AI-generated code to be of unclear legal status and thus cannot merge it.",
    "Submitting LLM-generated text as your own will get you banned.",
    "AI tools MUST NOT be used to generate any part of a submission.",
    "Code which has been produced by machine is unwelcome here.",
    "Nous n'acceptons pas de code \u00e9crit par une IA.",
    "No se aceptan contribuciones generadas por IA.",
    "Wir nehmen keinen von KI geschriebenen Code an.",
    "AI\u3067\u751f\u6210\u3055\u308c\u305fPR\u306f\u53d7\u3051\u4ed8\u3051\u307e\u305b\u3093\u3002",
    "\u7981\u6b62\u63d0\u4ea4\u7531\u4eba\u5de5\u667a\u80fd\u751f\u6210\u7684\u4ee3\u7801\u3002",
    "N\u00e3o aceitamos c\u00f3digo gerado por IA.",
    "Nie przyjmujemy kodu wygenerowanego przez AI.",
    "\u041c\u044b \u043d\u0435 \u043f\u0440\u0438\u043d\u0438\u043c\u0430\u0435\u043c \u043a\u043e\u0434, \u043d\u0430\u043f\u0438\u0441\u0430\u043d\u043d\u044b\u0439 \u043d\u0435\u0439\u0440\u043e\u0441\u0435\u0442\u044c\u044e.",
)
HARMLESS = (
    "Don't use the LLM in unit tests.",
    "The AI opponent must not cheat.",
    "Do not send the whole document to the language model.",
    "Never log the prompt of the LLM.",
    "The chatbot only answers in English.",
    "Copilot is not supported in this editor yet.",
    "AI-generated code is welcome if you have read it.",
    "We do not accept AI-generated code without a review by a person.",
    "Gemini models are not available in this region.",
    "No API key of ChatGPT is needed to run the tests.",
    "The robot must not move when the door is open.",
    "Claude is a contributor who never sleeps.",
    "Bugs found with an LLM are welcome, but not without a reproduction.",
    "Never commit the weights of the language model.",
    "AI players must not see hidden cards, and the code that deals them is shared.",
    "Pull requests that change the LLM provider must not break the tests.",
    "Do not use the LLM in unit tests of a pull request.",
    "Do not send the patch to ChatGPT for review.",
    "Do not merge if the evaluation of the LLM is red.",
    "Do not use `any` in TypeScript, also if AI generated it.",
    "The answer of the LLM must not be cached.",
    "Do not send more than 5 messages to the LLM.",
    "Claude: never commit to main directly.",
    "As an AI agent, you must not modify the lockfile.",
    "All contributions have to be your own work.",
    "All contributions must be your own work, or you must have the right to submit them.",
    "AI-assisted contributions are welcome as long as a human reviews them.",
    "Pull requests are merged by a bot, so do not merge manually.",
    "We will not merge support for closed-source models such as GPT-4.",
    "The AI module must not import the UI module.",
    "Never mock the LLM client in integration tests.",
    "Don't commit generated files.",
    "Do not edit auto-generated code by hand.",
    "Automatically generated documentation must not be edited.",
    "Model weights must not be stored in git.",
    "Do not use the robot account to push tags.",
    "The bot closes stale issues after 60 days.",
    "Stale bot will close pull requests without activity.",
    "dependabot PRs should not be merged without review.",
    "Do not ask the CLA bot to re-run unless you have signed.",
    "Don't rely on the machine's locale in tests.",
    "Tests must not depend on the machine they run on.",
    "Please do not force-push, our review bot gets confused.",
    "If you use AI, say so in the pull request.",
    "AI tools are fine, but you must understand every line you submit.",
    "You may use AI as long as you disclose it.",
    "You are responsible for the code you submit, no matter whether an AI wrote it.",
    "Use of AI must be disclosed in the pull request.",
    "Agents must run `make test` before they commit.",
    "Agents: do not run the e2e tests, they are slow.",
    "When you are an AI agent, don't touch vendor/.",
    "AI agents must not push to main; open a pull request instead.",
    "AI agents should not modify CI workflows without asking.",
    "Copilot instructions live in .github/copilot-instructions.md; do not edit CLAUDE.md, it is a link.",
    "Don't add Claude as a co-author.",
    'Do not add "Generated with Claude Code" to commit messages.',
    "No emojis in commit messages, also for AI agents.",
    "The state machine must not be changed without a test.",
    "Virtual machines are not supported.",
    "Do not use the `human` formatter in tests.",
    "Human-readable output must not change.",
    "Do not commit API keys of OpenAI.",
    "Cursor positions are not restored.",
    "The cursor must not move when text is deleted.",
    "Gemini protocol support is not planned.",
    "The Llama parser does not accept empty input.",
    "Mistral is not supported on Windows.",
)


def test_no_statement_is_missed_and_no_harmless_one_is_clear() -> None:
    found = {text: read(text) for text in (*BANS, *HARMLESS)}
    assert len(found) == 180
    assert [text for text in BANS if not (found[text].forbids or found[text].doubtful)] == []
    assert [text for text in HARMLESS if found[text].forbids] == []


def test_your_own_work_is_a_word_about_rights_and_one_about_machines_only_where_ai_is_the_subject() -> None:
    text = "All contributions have to be your own work."
    assert read(text).doubtful == ()
    about_ai = read_etiquette([], {"AI_POLICY.md": f"Hello.\n\n## Rules\n\n{text}"}).doubtful
    assert [one.sentence for one in about_ai] == [f"AI policy, Rules: {text}"]
    assert [one.sentence for one in read(f"## Use of AI\n\n{text}").doubtful] == [f"Use of AI: {text}"]


def test_a_sentence_without_a_word_that_refuses_is_asked_about_last_and_counts_only_by_a_model() -> None:
    found = read(
        "Patches of a chatbot go where the sun is out of sight.\n\nKeep AI out of your patches."
    ).doubtful
    assert [one.is_likely for one in found] == [True, False]
    assert read_etiquette([], {"AGENTS.md": "Patches of a chatbot go where the sun is."}).doubtful == ()


@table(
    "text",
    [
        "AI-generated images are not accepted by the upload form.",
        "Code written by an LLM is not allowed to run outside of the sandbox.",
    ],
)
def test_what_a_readme_says_of_the_program_is_not_clear(text: str) -> None:
    found = read_etiquette([], {"README.md": text})
    assert (found.forbids, [one.sentence for one in found.doubtful]) == (None, [text])


def test_common_words_of_a_readme_are_no_reason_to_ask() -> None:
    text = "If the library confirms to the DB-API, build the table by a cursor.\n\nYou have to set the key of OpenAI.\n\nLeave Gemini out of the list.\n"
    assert read_etiquette([], {"README.md": text, "AGENTS.md": text}).doubtful == ()


def test_the_likely_sentences_come_first() -> None:
    texts = {
        "AGENTS.md": "\n\n".join(f"The AI must not cheat in game {number}." for number in range(20)),
        "CONTRIBUTING.md": "The chatbot must not block.\n\nKeep AI out of your patches.",
        "README.md": "Patches of AI are not for us.",
    }
    found = [one.sentence for one in read_etiquette([], texts).doubtful]
    assert found[:3] == [
        "Keep AI out of your patches.",
        "Patches of AI are not for us.",
        "The chatbot must not block.",
    ]
    assert len(found) == 23


def test_a_heading_about_something_else_ends_the_one_about_machines() -> None:
    text = "## AI policy\n\nBe kind.\n\n## Style\n\nDo not use tabs.\n\nWe ban:\n\n- tabs\n\n## Claude\n\nHello.\n"
    assert read(text).doubtful == ()


FORBIDDING = "# Contributing\n\nWe do not accept AI-generated pull requests.\n"
OPTIONS = CycleOptions(dry_run=True, draft=False, context_characters=0, author_email="")


@pytest.mark.parametrize(
    ("data", "forbids", "unread"),
    [
        (FORBIDDING.encode(), True, ""),
        (b"\xff\xfe" + FORBIDDING.encode("utf-16-le"), True, ""),
        ((FORBIDDING + "café\n").encode("cp1252"), True, ""),
        (
            FORBIDDING.encode() + "Привет, мир: проверка\n".encode("cp1251"),
            True,
            "its encoding is not sure, so only its ASCII letters are read",
        ),
        (FORBIDDING.encode() + b"x" * 600_000, False, "it is longer than 512 kB"),
        (FORBIDDING.encode() + b"x" * 100_000, True, ""),
        (b"\x89PNG\r\n\x1a\n\0", False, "it is no text, or may not be read"),
        (b"", False, ""),
    ],
)
async def test_a_file_with_rules_that_cannot_be_read_is_named(
    data: bytes, *, forbids: bool, unread: str
) -> None:
    async def read(path: str, most: int) -> bytes:
        if len(data) > most:
            raise FileTooLargeError(f"{path} is too large")
        return data

    found = await read_repository_rules(["CONTRIBUTING.md"], read, OPTIONS, "")
    assert (found.forbids is not None) == forbids
    assert found.unread == ((f"CONTRIBUTING.md: {unread}",) if unread else ())
