"""Probes of the repository's git server, or of a folder: may we push, all at once, and what others left there."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator.app.doctor.doctor_findings import (
    Finding,
    Group,
    Impatient,
    Probe,
    Unmet,
    failed,
    ok,
    skipped,
    warning,
)
from orchestrator.app.doctor.doctor_grants import fix_for
from orchestrator.app.wiring.tasks import make_by_hand, open_hidden_refs, owner_name
from orchestrator.bot.coordination.saved_work import list_wip
from orchestrator.bot.cycle.claimer import RemoteNames, patterns
from orchestrator.bot.cycle.tasks import BRANCH_FOLDERS
from orchestrator.bot.git.hostgit import HostGit
from orchestrator.bot.git.remote import HIDDEN, push_error
from orchestrator.bot.worker.task_states import Kind
from orchestrator.core.errors import ConfigurationError, EmptyRepositoryError, WorkspaceError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from orchestrator.app.wiring.context import BuildContext
    from orchestrator.app.wiring.forge import OnDisk, Site
    from orchestrator.bot.coordination.records import Records

REF = f"{HIDDEN}doctor"
_PUSH_SECONDS = 20.0
_NAMED = 3
_NOT_ATOMIC = "does not support --atomic push"


class RemoteProbes:
    """What git says of a remote.

    Args:
        site: the repository.
        context: settings and clock.
        environ: names this machine.
        nonce: makes a text that was never made before.
        push_fix: what to do where pushing is refused.
        writes: whether a hidden ref may be made and removed.
    """

    def __init__(  # noqa: PLR0913  each is a fact of the run, given by name
        self,
        site: Site,
        context: BuildContext,
        environ: Mapping[str, str],
        *,
        nonce: Callable[[], str],
        push_fix: str,
        writes: bool,
    ) -> None:
        self._site, self._context, self._environ = site, context, environ
        self._nonce, self._push_fix, self._writes = nonce, push_fix, writes
        self._opened: Records | None = None

    def group(self, name: str, stop: Impatient) -> Group:
        """The probes, in order."""
        self._name, self._stop = name, stop
        network = "check the network, the address and the token"
        probes = (
            Probe("push", self._push, network, _PUSH_SECONDS),
            Probe("names", self._names, "rename or remove what is in the way", _PUSH_SECONDS),
            Probe("atomic push", self._atomic, network, _PUSH_SECONDS),
            Probe("claims", self._claims, network, _PUSH_SECONDS),
            Probe("unfinished work", self._unfinished, network, _PUSH_SECONDS),
            Probe("tasks", self._tasks, network, _PUSH_SECONDS),
        )
        return Group(f"Git {name}", probes, stop, self._close)

    def _records(self) -> Records:
        if self._opened is None:
            try:
                self._opened = open_hidden_refs(self._site, self._context.clock, self._stop)
            except EmptyRepositoryError:
                raise Unmet("not tried: the repository is empty") from None
        return self._opened

    def _close(self) -> None:
        if self._opened is not None:
            self._opened.close()

    def _push(self) -> Finding:
        try:
            records = self._records()
            commit = records.commit(f"pullwright doctor {self._nonce()}", None)
            if self._writes:
                before = records.list(REF).get(REF)
                if not (records.swap(REF, before, commit) and records.delete(REF, commit)):
                    return warning("another doctor is at work here", "run it again")
                return ok(f"yes: {REF} was made and removed")
            self._dry_run(records, commit)
        except WorkspaceError as error:
            return failed(str(error), fix_for(str(error), self._push_fix))
        return ok("yes, tried without writing")

    def _names(self) -> Finding:
        records, base = self._records(), self._context.settings.base
        names = RemoteNames(records.tips(patterns(base)).keys(), records.remote.shown)
        if base is not None:
            try:
                names.require_base(base)
            except ConfigurationError as error:
                return failed(str(error), "pass --base with the name of a branch")
        names.require_hidden("issue-1")
        folder = names.folder()
        if folder != BRANCH_FOLDERS[0]:
            taken = names.why_not_below(BRANCH_FOLDERS[0])
            return warning(
                f"a branch is called {taken}, so that ours go below {folder}",
                "nothing, if that is well; else rename that branch",
            )
        return ok(f"there is room below {folder}")

    def _atomic(self) -> Finding:
        records = self._records()
        try:
            self._dry_run(records, records.commit(f"pullwright doctor {self._nonce()}", None), "--atomic")
        except WorkspaceError as error:
            if _NOT_ATOMIC in str(error):
                fix = "on the server: git config receive.advertiseAtomic true"
                return warning("not there: claim and branch are pushed one after the other", fix)
            return skipped("not tried: see push")
        return ok("claim and branch move together")

    def _dry_run(self, records: Records, commit: str, *options: str) -> None:
        """Push nothing: the server answers whether we may write before anything is sent."""
        place = records.objects.parent
        doing = f"cannot push to {records.remote.shown}"
        result = HostGit(place.parent, place).attempt(
            *("push", "--dry-run", "--porcelain", "--no-verify", "--no-follow-tags", *options),
            *("--", records.remote.url, f"+{commit}:{REF}"),
            doing=doing,
            remote=records.remote,
        )
        if result.status != 0:
            raise push_error(result, doing)

    def _claims(self) -> Finding:
        by_hand = make_by_hand(self._site, self._records(), self._context, self._environ)
        clock, times, owner = self._context.clock, by_hand.times, owner_name(self._environ)
        held = [claim for claim in by_hand.claims.list() if claim.state == "held"]
        broken = [claim.task for claim in held if claim.fault is not None]
        if broken:
            fix = by_hand.commands.release(broken[0])
            return warning(
                f"{_some(broken)} cannot be read and {'blocks its task' if len(broken) == 1 else 'block their tasks'}",
                fix,
            )
        ours = [claim.task for claim in held if claim.owner == owner and claim.is_free(clock.now(), times)]
        if ours:
            return warning(f"of this machine, expired: {_some(ours)}", "the next run takes them up again")
        live = [claim for claim in held if by_hand.is_held(claim)]
        return ok(f"{len(live)} held" if live else "none held")

    def _unfinished(self) -> Finding:
        waiting = sorted(list_wip(self._records()))
        return ok(f"{_some(waiting)}; the next cycle on it goes on" if waiting else "none")

    def _tasks(self) -> Finding:
        """What has become of the tasks, in the words of every other command; the first that waits for a person."""
        by_hand = make_by_hand(self._site, self._records(), self._context, self._environ)
        states = by_hand.states()
        told = [
            f"{kind}: {_some(keys)}"
            for kind in Kind
            if (keys := [state.key for state in states if state.kind is kind])
        ]
        waiting = [
            state for state in states if state.blocks and state.kind not in {Kind.DECLINED, Kind.NOTHING}
        ]
        if waiting:
            return warning("; ".join(told), waiting[0].next_step(by_hand.commands))
        return ok("; ".join(told) or "none is known")


def folder(place: OnDisk, site: Site, base: str | None) -> Finding:
    """A repository on this disk, as git sees it."""
    from orchestrator.bot.git.local import LocalRepository

    repository = LocalRepository(place.path)
    if repository.is_empty():
        return failed(f"{place.path} is empty", "commit something to it first")
    if base is None and repository.default_branch() is None:
        return failed("its HEAD is detached", "pass --base BRANCH, or check a branch out")
    kind = "a work tree" if (place.path / ".git").exists() else "bare"
    origin = f", origin {place.origin}" if place.origin else ""
    return ok(f"{place.home}{origin}: {kind}, default branch {site.source().branch}")


def _some(names: list[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"{', '.join(names[:_NAMED])}{more}"
