"""Reports how far every table is merged, for `tideline status`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec

from tideline.contract import layout
from tideline.contract.layout import table_path
from tideline.contract.manifest import Manifest, TableCondition, TableState
from tideline.contract.modes import Mode
from tideline.contract.plan import Stamp, app_id
from tideline.contract.planning.parking import Stop
from tideline.contract.planning.table_plans import complete_through
from tideline.contract.receipt import decode_receipt
from tideline.contract.schema import parse_table
from tideline.planner.kept import anew_loses
from tideline.planner.past import Past
from tideline.planner.standing import strayed
from tideline.planner.stored import read_stored
from tideline.planner.verified import LastProof, last_proof
from tideline.settings import Settings
from tideline.settings.tables import TableSettings
from tideline.store.chain import Chain
from tideline.store.objects import ObjectStore, open_store
from tideline.warehouse.state import TargetState, read_target

_STRAYED = "its target has applied another chain than the store's"


class MergeProgress(msgspec.Struct, frozen=True):
    """The merge progress of one table, and the problems of its target.

    ``manifest`` and ``seq`` are the chain's tail when nothing of a captured table waits, else what
    its target has applied (0: nothing yet). ``complete_through_us`` is the source's clock (µs UTC)
    up to which the target lacks nothing, None while that is not known (`complete_through`).
    ``unproven`` names external commits that no full dump has healed yet; ``problem`` says why the
    table cannot be merged. ``pending``: rows that lack values which the log did not carry, as the
    last merge's receipt counts them (None: there is no receipt, and some rows may lack values).
    ``mode``: how the target is kept; ``mode_wanted``: what the settings say, where that is another:
    a target keeps the mode that it was made in until `tideline rebuild` switches it.
    ``deletion_vectors`` and ``deletion_vectors_wanted`` likewise. ``target`` is the address of the
    target's directory. ``proof``: when it was last proven equal; while that holds, earlier external
    commits no longer count as a doubt. `tideline status` also looks up: ``stop``, the change of
    columns that merges stop before because the settings say so; ``over``: the target of a table
    that the source no longer has was removed, and is not made again.
    """

    table: str
    manifest: int
    seq: int
    complete_through_us: int | None
    waiting: bool
    unproven: tuple[str, ...] = ()
    problem: str | None = None
    pending: int | None = 0
    mode: Mode = Mode.CURRENT
    mode_wanted: Mode | None = None
    deletion_vectors: bool = True
    deletion_vectors_wanted: bool | None = None
    target: str = ""
    proof: LastProof | None = None
    stop: Stop | None = None
    over: bool = False

    def settled(self, state: TableState) -> TableState:
        """Return the chain's state of the table, without the doubts that its proof has ended."""
        return state if self.proof is None else self.proof.settled(state)

    @property
    def doubt(self) -> str | None:
        """The reason why the table may not hold all that was merged into it; None when it does."""
        if self.problem is not None:
            return self.problem
        if self.unproven:
            return f"the warehouse's table was changed by others: {', '.join(self.unproven)}"
        if self.pending is None:
            return "rows may lack values that the log did not carry: the last receipt is not there"
        if self.pending:
            return f"{self.pending} rows lack values that the log did not carry and are read again"
        return None


def applied_state(settings: Settings) -> Mapping[str, MergeProgress]:
    """Return how far every table with a schema is merged; empty for a pipeline without a manifest.

    Reads the chain's tail and one log per table: milliseconds each, and no JVM.
    """
    store = open_store(settings.store)
    chain = Chain(store, settings.pipeline)
    tail = chain.tail()
    if tail is None:
        return {}
    tables, past = chain.open_state(tail).tables, Past(chain)
    return {
        name: _progress(settings, store, past, tail.manifest, name, table)
        for name, table in sorted(tables.items())
        if table.schema is not None
    }


def target_of(settings: Settings, tail: Manifest, name: str, table: TableState) -> TargetState:
    """Return the target of a table's present generation."""
    app = app_id(tail.pipeline, tail.incarnation, name, table.generation)
    return read_target(table_path(settings.warehouse.url, parse_table(name)), app)


def foreign_owner(target: TargetState, tail: Manifest, name: str) -> str | None:
    """Return the owner of a target that belongs to another history; None when it is ours."""
    if not target.exists or target.owner == (tail.pipeline, tail.incarnation, name):
        return None
    pipeline, incarnation, table = target.owner
    if not pipeline:
        return f"{target.url} holds a table that Tideline did not make"
    return f"{target.url} holds {table} of pipeline {pipeline}, incarnation {incarnation}"


def _through(stamp: Stamp | None, tail: Manifest) -> int | None:
    """Return the stamp's time, limited to that of the whole chain: stamps of older versions may
    repeat a wrong clock."""
    if stamp is None or stamp.complete_through_us is None or tail.through_us is None:
        return None
    return min(stamp.complete_through_us, tail.through_us)


def _progress(
    settings: Settings,
    store: ObjectStore,
    past: Past,
    tail: Manifest,
    name: str,
    table: TableState,
) -> MergeProgress:
    target = target_of(settings, tail, name, table)
    problem = foreign_owner(target, tail, name)
    # Another chain's numbers do not count, nor what was proven about them.
    why_strayed = "" if problem else strayed(past, tail, name, target)
    proof = last_proof(settings, store, tail, name, table)
    if why_strayed and proof is not None and proof.broken is None:
        proof = replace(proof, broken=_STRAYED)
    holds = proof is not None and proof.broken is None
    table = table if proof is None else proof.settled(table)
    if why_strayed:
        problem = why_strayed
    elif target.went_back:
        problem = "the target was set back behind what is applied (RESTORE)"
    wanted = settings.of_table(parse_table(name))
    problem = problem or anew_loses(name, table, target, wanted.mode)
    stamp = target.stamp
    applied = None if why_strayed else target.applied
    waiting = applied is None or applied < table.last_data_manifest
    if waiting or table.condition is TableCondition.PARKED:
        known = applied is not None and stamp is not None
        manifest = applied or 0
        seq = stamp.seq if known and stamp is not None else 0
        through = _through(stamp, tail) if known else None
    else:
        manifest, seq, through = tail.manifest_number, tail.last_seq, complete_through(table, tail)
    pending = 0 if stamp is None or not stamp.pending else _pending(settings, store, name, stamp)
    unproven = () if holds else (*target.unproven, *target.external)
    return MergeProgress(
        table=name,
        manifest=manifest,
        seq=seq,
        complete_through_us=None if problem or pending != 0 or unproven else through,
        waiting=waiting,
        unproven=unproven,
        problem=problem,
        pending=pending,
        **_kept_as(target, wanted),
        target=target.url,
        proof=proof,
    )


def _kept_as(target: TargetState, wanted: TableSettings) -> dict[str, Any]:
    """Return how the target is kept, and the settings' value where that differs."""
    names = ("mode", "deletion_vectors")
    if not target.exists:
        return {name: getattr(wanted, name) for name in names}
    found = {name: getattr(target, name) for name in names}
    asked = {name: getattr(wanted, name) for name in names}
    return found | {f"{n}_wanted": asked[n] for n in names if asked[n] != found[n]}


def _pending(settings: Settings, store: ObjectStore, name: str, stamp: Stamp) -> int | None:
    """Return the number of rows that the merge of ``stamp`` left pending; the stamp only says that
    there may be some."""
    key = layout.receipt_key(settings.pipeline, stamp.plan_id)
    receipt = read_stored(store, key, decode_receipt)
    tables = () if receipt is None else receipt.tables
    return next((one.pending for one in tables if one.table == name), None)
