"""What a subagent's session is made of, from its parent's and from what it is started for."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from orchestrator.core.errors import ConfigurationError, ToolError
from orchestrator.engine.environments.wrappers import ScopedEnvironment
from orchestrator.engine.session.budget import check_price
from orchestrator.engine.tools.base import Ledger, Order
from orchestrator.engine.tools.registry import ToolRegistry

if TYPE_CHECKING:
    from orchestrator.engine.models.base import Model
    from orchestrator.engine.profiles.base import Price
    from orchestrator.engine.session.budget import Budget
    from orchestrator.engine.session.config import Setting
    from orchestrator.engine.session.subagents import Wish


def child_setting(parent: Setting, wish: Wish, price: Price, reasoning_effort: str | None) -> Setting:
    """The same files, gate and contract, without the tools that publish something or end the session.

    In a folder of its own it has a ledger of its own; `take_over` brings it to the parent's.

    Raises:
        PathRefusedError: the folder lies outside of the parent's.
    """
    environment, ledger = parent.environment, parent.host.ledger
    folder = environment.relative(wish.working_dir or ".")
    is_scoped = folder != "."
    if is_scoped:
        environment, ledger = ScopedEnvironment(environment, folder), Ledger()
    tools = ToolRegistry.unchecked(tool for tool in parent.profile.tools if tool.order is not Order.LAST)
    return replace(
        parent,
        profile=replace(parent.profile, tools=tools),
        environment=environment,
        config=parent.config.for_subagent(wish.max_turns, reasoning_effort, same_model=not wish.model),
        # The scope is the child's own: making it ready shows whether the folder is there.
        host=replace(parent.host.for_subagent(ledger, price), owns_environment=is_scoped),
    )


def take_over(parent: Setting, child: Setting, wish: Wish) -> None:
    """Note in the parent's ledger what the child's tools did in a folder."""
    if child.host.ledger is not parent.host.ledger:
        folder = parent.environment.relative(wish.working_dir or ".")
        parent.host.ledger.take_over(child.host.ledger, folder)


def model_of_child(parent: Setting, name: str, budget: Budget) -> tuple[Model, Price]:
    """The model that a subagent is to run on.

    Raises:
        ToolError: there is no way to another model, or its price is unknown where a cap in USD holds.
    """
    other = parent.host.other_model or parent.profile.other_model
    if other is None:
        raise ToolError("subagents run on your own model here: leave `model` out")
    try:
        model, price = other(name)
        check_price(budget, price, name)
    except ConfigurationError as error:
        raise ToolError(str(error)) from error
    return model, price
