from __future__ import annotations

from orchestrator.bot.cycle.repository_rules import fill_template, find_template
from tests.tables import table

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


def test_a_template_without_headings_follows_the_body() -> None:
    assert fill_template("Signed-off?", "It adds.") == "It adds.\n\nSigned-off?"


def test_a_heading_in_a_block_of_code_is_none() -> None:
    template = "```\n# What\n```\n\n## Why\n"
    assert fill_template(template, "It adds.") == "```\n# What\n```\n\n## Why\n\nIt adds."
    assert fill_template("## Why\n", "~~~\n## Why\n~~~") == "## Why\n\n~~~\n## Why\n~~~"
