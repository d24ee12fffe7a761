"""Finds the range of the chain that each table of a plan may take: its beginning, and its limit.

A span is a table's range (from, limit]. It ends before the schema event at which the table is
blocked, by its worker or by its settings; a table that nothing in the chain can advance has none,
and a reason.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tideline.contract.errors import InvariantBroken
from tideline.contract.manifest import Manifest, Part
from tideline.contract.open_state import OpenState, TableCondition, TableState
from tideline.contract.plan import Applied, PlanScope, start_of
from tideline.contract.planning.stops import FOLLOW_ALL, Policy, Stop, first_stop
from tideline.contract.printable import command

_WENT_BACK = (
    "the target was set back behind what is applied (RESTORE); only a full dump makes it right:"
    " run {command}, or remove the table's directory to have it rebuilt"
)
_LOST_HISTORY = (
    "the target was set back behind what is applied (RESTORE), and lacks what it kept since, which"
    " no dump can show: run {command}"
)
_DELAYED = (TableCondition.QUARANTINED, TableCondition.SCHEMA_BLOCKED)


@dataclass(frozen=True, slots=True)
class Rolled:
    """The usable files of a block: by table the ``files`` with all rows that its manifests have.

    Tables in ``loose`` are still read from their parts. ``stripped``: the manifests that are given
    come without the parts of these tables, because no table needs them.
    """

    first_manifest: int
    last_manifest: int
    first_seq: int
    files: Mapping[str, Sequence[Part]]
    loose: frozenset[str] = frozenset()
    stripped: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Span:
    """One table's range: after ``from_manifest``, up to ``limit`` at most."""

    table: str
    state: TableState
    applied: Applied
    from_manifest: int
    limit: int
    policy: Policy = FOLLOW_ALL

    @property
    def create(self) -> bool:
        return self.applied.manifest is None

    @property
    def start_seq(self) -> int:
        """The sequence after which the target's rows begin: inside a manifest."""
        if not self.create:
            return 0
        return max(
            self.state.generation_seq if self.state.generation else 0, self.applied.begin_seq
        )

    def lacks(self, block: Rolled) -> bool:
        """Return whether parts that lie in the range were left out."""
        meets = self.from_manifest < block.last_manifest and block.first_manifest <= self.limit
        return meets and self.table in block.stripped

    def files(self, block: Rolled) -> Sequence[Part] | None:
        """Return the files to read in place of the parts of the block's manifests; None: not to
        be."""
        whole = self.from_manifest < block.first_manifest and block.last_manifest <= self.limit
        if not whole or self.start_seq >= block.first_seq or self.table in block.loose:
            return None
        return block.files.get(self.table, ())

    def parts(self, manifest: Manifest) -> list[Part]:
        """Return the table's parts in ``manifest``, if it lies in the range."""
        if not self.from_manifest < manifest.manifest_number <= self.limit:
            return []
        return [part for part in manifest.parts if part.table == self.table]


def spans_of(
    scope: PlanScope,
    run: Sequence[Manifest],
    state: OpenState,
    applied: Mapping[str, Applied],
) -> tuple[dict[str, Span], dict[str, str]]:
    """Return the range of every chosen table that can be merged, and why others are delayed."""
    spans: dict[str, Span] = {}
    delayed: dict[str, str] = {}
    for name, table in sorted(state.tables.items()):
        if scope.tables is not None and name not in scope.tables:
            continue
        target = applied.get(name, Applied())
        if table.condition in _DELAYED:
            delayed[name] = _condition(table)
        if target.problem is not None:
            delayed[name] = target.problem
            continue
        if table.schema is None:
            continue
        from_manifest = start_of(table, target.manifest, target.begin_manifest)
        if (
            run[0].manifest_number > max(from_manifest, target.clear_until) + 1
            and table.last_data_manifest > from_manifest
        ):
            raise InvariantBroken(f"the plan's manifests begin after table {name} does")
        policy = scope.policies.get(name, FOLLOW_ALL)
        span = Span(name, table, target, from_manifest, _limit(table, run, from_manifest), policy)
        stop = _stop(span, run)
        if stop is not None:
            delayed[name] = str(stop)
            span = replace(span, limit=_last_before(stop.seq, run, from_manifest))
        if target.went_back and target.mode.keeps_history:
            delayed[name] = _LOST_HISTORY.format(
                command=command(
                    "rebuild", name, "--mode", target.mode.value, "--accept-differences"
                )
            )
        elif target.went_back and healed_at(span, run) is None:
            delayed[name] = _WENT_BACK.format(command=command("dump", name))
        else:
            spans[name] = span
    return spans, delayed


def _condition(table: TableState) -> str:
    since = "" if table.since_seq is None else f" since sequence {table.since_seq}"
    return f"{table.condition.shown}{since}: {table.reason or 'no reason given'}"


def _limit(table: TableState, run: Sequence[Manifest], from_manifest: int) -> int:
    """Return the last manifest that the table may be merged to: a blocked one stops before its
    event."""
    if table.condition is not TableCondition.SCHEMA_BLOCKED or table.since_seq is None:
        return run[-1].manifest_number
    return _last_before(table.since_seq, run, from_manifest)


def _last_before(seq: int, run: Sequence[Manifest], from_manifest: int) -> int:
    """Return the last manifest of ``run`` that ends before ``seq``; at least
    ``from_manifest``."""
    return max([from_manifest, *(m.manifest_number for m in run if m.last_seq < seq)])


def _stop(span: Span, run: Sequence[Manifest]) -> Stop | None:
    """Return the schema event that the span must not reach, before where it ends anyway."""
    above = max(span.applied.seq, span.start_seq, span.applied.columns_seq)
    within = [m for m in run if span.from_manifest < m.manifest_number <= span.limit]
    return first_stop(within, span.table, span.policy, above)


def columns_at(span: Span, run: Sequence[Manifest]) -> int:
    """Return the manifest with the last schema event whose steps the target has taken already."""
    seq = span.applied.columns_seq
    return min((m.manifest_number for m in run if m.last_seq >= seq > span.applied.seq), default=0)


def healed_at(span: Span, run: Sequence[Manifest]) -> int | None:
    """Return the manifest in which a full dump that began after what is applied finished."""
    for manifest in run:
        if span.from_manifest < manifest.manifest_number <= span.limit:
            for delete_before in manifest.deletes_before:
                if delete_before.table == span.table and delete_before.seq >= span.applied.seq:
                    return manifest.manifest_number
    return None
