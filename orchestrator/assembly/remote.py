"""The claims of a repository, for a person who looks at them."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from orchestrator.assembly.around import Around
from orchestrator.assembly.claiming import lease_times, make_claims, open_hidden_refs, owner_name
from orchestrator.assembly.forge import choose_site
from orchestrator.config import ApiKeys, load
from orchestrator.core.clock import SystemClock
from orchestrator.cycle.parts import Stop
from orchestrator.journal.folders import Home

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from orchestrator.core.events import Event
    from orchestrator.workspace.claims import Claims, LeaseTimes


@contextmanager
def open_claims(
    repository: str, environ: Mapping[str, str], cwd: Path, *, writes: bool
) -> Iterator[tuple[Claims, LeaseTimes]]:
    """The claims on the tasks of a repository, and how long they hold, until the block ends.

    Args:
        repository: what the person typed.
        environ: the environment.
        cwd: the current folder, which may hold a configuration.
        writes: whether a claim will be released.

    Raises:
        ConfigurationError: the repository cannot be what was typed, or there is no token to write with.
        ForgeError: the forge does not say where the repository is.
        WorkspaceError: git does not accept the address.
    """
    loaded, clock, stop = load({}, environ, cwd), SystemClock(), Stop()
    around = Around(loaded, ApiKeys.of(environ), Home.of(environ), clock, _unheard, stop)
    site = choose_site(repository, around, writes=writes)
    with open_hidden_refs(site, clock, stop) as records:
        claims = make_claims(records, owner_name(environ), loaded.settings, clock)
        yield claims, lease_times(loaded.settings)


def _unheard(_event: Event) -> None:
    """Nobody listens: a look at claims is no run."""
