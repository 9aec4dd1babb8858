"""What a reply cost: by what the server says, by the model that answered, and by the price of its cache."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from orchestrator.core.messages import Usage
from orchestrator.engine.models.catalog import Provider, flat_price, price_usd
from orchestrator.engine.models.wire import charged_usd
from orchestrator.engine.session.budget import cost_of
from tests import charges
from tests.tables import table

if TYPE_CHECKING:
    from pathlib import Path


def by_usage(**fields: Any) -> dict[str, Any]:
    return {"usage": {"prompt_tokens": 3, "completion_tokens": 1, **fields}}


@table(
    ("body", "usd"),
    [
        (by_usage(), None),
        (by_usage(cost=0.25), 0.25),
        (by_usage(cost=0), 0.0),
        (by_usage(cost="0.25"), 0.25),
        (by_usage(cost=None), None),
        (by_usage(cost=True), None),
        (by_usage(cost=-1), None),
        (by_usage(cost="much"), None),
        (by_usage(cost=1e300), None),
        (by_usage(cost=float("nan")), None),
        (by_usage(cost={"input_tokens_cost": 0.1, "total_cost": 0.25}), 0.25),
        (by_usage(cost=0.25, cost_details={"upstream_inference_cost": 0.25}), 0.25),
        (by_usage(cost=0.01, is_byok=True, cost_details={"upstream_inference_cost": 0.25}), 0.26),
        (by_usage(cost_in_usd_ticks=2_500_000_000), 0.25),
        (by_usage(estimated_cost=0.25), 0.25),
        (by_usage(pydantic_ai_gateway={"cost_estimate": 0.25}), 0.25),
        ({"usageMetadata": {"pydantic_ai_gateway": {"cost_estimate": 0.25}}}, 0.25),
        ({**by_usage(), "provider_metadata": {"gateway": {"cost": "0.25"}}}, 0.25),
        ({"choices": [{"message": {"provider_metadata": {"gateway": {"cost": "0.25"}}}}]}, 0.25),
        ({"type": "response.completed", "response": by_usage(cost=0.25)}, 0.25),
        ({"type": "message_start", "message": by_usage(cost=0.25)}, 0.25),
        ({"type": "message_delta", **by_usage(cost=0.25)}, 0.25),
        ({"usage": "none", "choices": "none", "response": 5}, None),
    ],
)
def test_the_charge_in_every_form(body: dict[str, Any], usd: float | None) -> None:
    found = charged_usd(body)
    assert found is None if usd is None else found == pytest.approx(usd)


HAIKU = 0.001 + 0.0005  # USD 1 and 5 for a million tokens of input and output


@table(
    ("asked", "answered", "usd"),
    [
        ("claude-haiku-4-5", "", HAIKU),
        ("claude-haiku-4-5", "claude-haiku-4-5-20251001", HAIKU),
        ("claude-sonnet-4-5", "claude-haiku-4-5-20251001", HAIKU),
        ("my-alias", "claude-haiku-4-5-20251001", HAIKU),
        ("claude-haiku-4-5", "deployment-7", HAIKU),
        ("my-alias", "deployment-7", None),
    ],
)
def test_the_model_that_answered_has_the_price(asked: str, answered: str, usd: float | None) -> None:
    found = price_usd(Provider.ANTHROPIC, asked, Usage(1_000, 100, answered_by=answered))
    assert found is None if usd is None else found == pytest.approx(usd)


def test_a_free_name_that_another_model_answers_is_not_free() -> None:
    usage = Usage(1_000, 100, answered_by="anthropic/claude-haiku-4.5")
    assert price_usd("https://openrouter.ai/api/v1", "anthropic/claude:free", usage) == pytest.approx(HAIKU)


@table(
    ("written", "hour", "usd"),
    [
        (0, 0, 0.001),
        (1_000, 0, 0.00125),
        (1_000, 1_000, 0.002),
        (1_000, 400, 0.00155),
        (400, 400, 0.0014),
    ],
)
def test_cache_for_an_hour_has_its_own_price(written: int, hour: int, usd: float) -> None:
    usage = Usage(1_000, 0, cache_write_tokens=written, hour_write_tokens=hour)
    assert price_usd(Provider.ANTHROPIC, "claude-haiku-4-5", usage) == pytest.approx(usd)


@table(
    ("charged", "price", "cost"),
    [
        (None, "1/5", (HAIKU, HAIKU)),
        (0.25, "1/5", (0.25, 0.25)),
        (0.0, "1/5", (0.0, HAIKU)),
        (0.25, None, (0.25, 0.25)),
        (None, None, (None, None)),
    ],
)
def test_the_charge_is_the_cost_and_the_higher_amount_counts_against_caps(
    charged: float | None, price: str | None, cost: tuple[float | None, float | None]
) -> None:
    found = cost_of(Usage(1_000, 100, charged_usd=charged), flat_price(price) if price else lambda _: None)
    assert found == pytest.approx(cost)


def test_charges_add_up() -> None:
    assert (Usage(1, charged_usd=0.25) + Usage(2)).charged_usd == 0.25
    assert (Usage(1, charged_usd=0.25) + Usage(2, charged_usd=0.5)).charged_usd == 0.75
    assert (Usage(1) + Usage(2)).charged_usd is None


def test_the_table_by_gateway(capsys: pytest.CaptureFixture[str]) -> None:
    assert charges.main([]) == 0
    rows = {line.split()[0]: line.split()[1:] for line in capsys.readouterr().out.splitlines()[1:]}
    assert rows == {
        #                       replies, list: equal, above, below, unknown; counted below, fees
        "ai-gateway.vercel.sh": ["1", "0", "0", "0", "1", "0", "0"],
        "api.deepinfra.com": ["1", "0", "0", "0", "1", "0", "0"],
        "api.perplexity.ai": ["1", "0", "1", "0", "0", "0", "1"],
        "api.x.ai": ["1", "1", "0", "0", "0", "0", "0"],
        "gateway.example.com": ["1", "0", "0", "0", "1", "0", "0"],
        "litellm.example.com": ["1", "0", "0", "0", "1", "0", "0"],
        "openrouter.ai": ["5", "4", "0", "1", "0", "0", "0"],
        "all": ["11", "5", "1", "1", "4", "0", "1"],
    }


def test_a_reply_for_which_too_little_is_counted_fails_the_command(tmp_path: Path) -> None:
    below = charges.Compared("host", 0.25, 0.1, 0.1)
    assert below.is_below
    assert charges.table([below])[1].split() == ["host", "1", "0", "0", "1", "0", "1", "0"]
    empty = tmp_path / "none.jsonl"
    empty.write_text("")
    assert charges.main([str(empty)]) == 0
