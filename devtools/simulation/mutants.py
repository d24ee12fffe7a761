"""Seeded bugs: each changes one decision, passes a run without faults, and must be caught.

A mutant is a *flaw*, which the simulator's own source, reader or warehouse checks where it stands
in for something real, or a *patch* of one function of the product, for the length of a run.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any
from unittest.mock import patch

import pyarrow as pa
from msgspec.structs import replace

import tideline.contract.manifest
import tideline.contract.planning.maker
import tideline.store.chain
import tideline_capture.app
import tideline_capture.core.snapshots.dumps
import tideline_capture.core.snapshots.progress
import tideline_capture.core.snapshots.scheduler
import tideline_capture.core.snapshots.window
import tideline_capture.core.source_clock
import tideline_capture.core.tables.beginnings
import tideline_capture.core.tables.lineage
import tideline_capture.core.tables.states
import tideline_capture.core.worker
import tideline_capture.leadership
import tideline_capture.runtime
import tideline_capture.uploader
from devtools.simulation.faults import Fault
from devtools.simulation.log import DatabaseKind
from devtools.simulation.wire import position_at
from tideline.contract import layout
from tideline.contract.errors import Fenced, Unavailable
from tideline.contract.manifest import ManifestKind, digest, stored_manifest
from tideline.store.chain import ManifestEntry
from tideline_capture.core.segment import Roll, roll
from tideline_capture.core.snapshots.window import Settled
from tideline_capture.segments import encode_parts


@dataclass(frozen=True, slots=True)
class Mutant:
    """A seeded bug.

    ``patches`` are (where, name, replacement). ``focus`` are faults that its scenarios have in
    addition, ``kind`` the source they are of. ``seed``: from which the gate searches for one that
    catches it. For a mutant that few seeds catch it is such a one, so that no run repeats the
    others.
    """

    name: str
    words: str
    patches: tuple[tuple[object, str, Any], ...] = ()
    flaws: frozenset[str] = frozenset()
    kind: DatabaseKind | None = None
    focus: tuple[Fault, ...] = ()
    seed: int = 1

    @contextmanager
    def installed(self) -> Iterator[None]:
        if not self.patches:
            yield
            return
        (where, name, instead), *rest = self.patches
        with (
            patch.object(where, name, instead),
            Mutant(self.name, self.words, tuple(rest)).installed(),
        ):
            yield


def _flaw(name: str, words: str, **more: Any) -> Mutant:
    return Mutant(name, words, flaws=frozenset({name}), **more)


# -- windows and fences ------------------------------------------------------------------------


def _settle_nothing(window: object, schema: object, chunk: pa.RecordBatch) -> Settled:
    return Settled(pa.array([True] * chunk.num_rows, pa.bool_()), ())


def _no_before_keys(batch: pa.RecordBatch, key: tuple[str, ...]) -> pa.Array:
    return pa.array([], pa.large_string())


def _judge_noting_high(
    self: Any, chunk: Any, window: Any, *given: Any, now: float
) -> Iterator[Any]:
    """Set the floor at the first chunk's high watermark, not its low one."""
    state, order = self._state, chunk.order
    dump = state.requests.dump(order.request_id, order.table)
    if dump is not None and dump.chunks == 0:
        state.first_highs = {
            **getattr(state, "first_highs", {}),
            (order.request_id, order.table): state.last_seq,
        }
    yield from _JUDGE(self, chunk, window, *given, now=now)


def _delete_before_at_high(self: Any, order: Any, dump: Any, seq: int) -> Any:
    highs = getattr(self._state, "first_highs", {})
    return _DELETE_BEFORE(self, order, dump, highs.get((order.request_id, order.table), seq))


def _seen_until_high(self: Any, rows: Any) -> Iterator[Any]:
    """End a chunk's window with its high watermark, though its rows are emitted later."""
    in_flight = self.scheduler.in_flight
    late = [one for one in in_flight if one.window is not None and one.high is not None]
    windows = [(one, one.window) for one in late]
    for one, _ in windows:
        one.window = None
    yield from _SAW_ROWS(self, rows)
    for one, window in windows:
        one.window = window


def _fenced(self: Any, item: Any, dump: Any, **given: Any) -> Any:
    """Read every chunk behind a fence."""
    made = _MAKE(self, item, dump, **given)
    made.order = dataclasses.replace(made.order, fence=True)
    return made


def _by_name(old: Any, new: Any, *known: Any) -> Any:
    return dataclasses.replace(tideline_capture.core.tables.lineage.by_name(old, new), certain=True)


_MAKE = tideline_capture.core.snapshots.scheduler.ChunkScheduler._make
_JUDGE = tideline_capture.core.snapshots.dumps.Dumps._judge
_DELETE_BEFORE = tideline_capture.core.snapshots.progress.DumpProgress._delete_before
_SAW_ROWS = tideline_capture.core.snapshots.dumps.Dumps.saw_rows


# -- the chain ---------------------------------------------------------------------------------


def _confirm_logged(self: Any, reader: Any, now: float) -> None:
    """Confirm everything that the source has sent so far, as a keepalive reports it."""
    if self._position is not None:
        database = reader._source.database
        reader.confirm(position_at(database.kind, reader._at))
    self._confirmed_at = now


def _confirm_read(self: Any, reader: Any, now: float) -> None:
    if self._position is not None:
        reader.confirm(self.core.state.position)
    self._confirmed_at = now


def _manifest_first(self: Any, segment: Any) -> None:
    self._write_schemas(segment.schemas)
    parts = self._flushed.parts
    made, sent = [], []
    for part, data in encode_parts(segment.rows, self._part_key):
        made.append(part)
        sent.append(partial(self._store.put, part.key, data))
    self._flushed = tideline_capture.uploader._FlushedParts([], [])
    self._append(self._manifests.segment(segment, [*parts, *made]), segment)
    if sent:
        self._on_point("before-part-put")
        self._until_available(lambda: self._do_all(sent))


def _unconditional(self: Any, manifest: Any) -> ManifestEntry:
    raw = stored_manifest(manifest)
    self._store.put(layout.manifest_key(self.pipeline, manifest.manifest_number), raw)
    return ManifestEntry(manifest, raw, digest(raw))


def _always_external(self: Any, manifest: Any) -> ManifestEntry:
    raw = stored_manifest(manifest)
    key = layout.manifest_key(self.pipeline, manifest.manifest_number)
    if not self._store.create(key, raw):
        raise Fenced("something is there")
    return ManifestEntry(manifest, raw, digest(raw))


def _always_own(self: Any, manifest: Any) -> ManifestEntry:
    raw = stored_manifest(manifest)
    key = layout.manifest_key(self.pipeline, manifest.manifest_number)
    self._store.create(key, raw)
    return ManifestEntry(manifest, raw, digest(raw))


_APPEND = tideline_capture.uploader.Uploader._append
_TAKE_OVER = tideline_capture.leadership.Candidate._take_over


def _collecting(self: Any, manifest: Any, segment: Any) -> None:
    """Remove the takeover's manifest, which holds nothing, once others follow."""
    before = self._manifests.last.manifest
    _APPEND(self, manifest, segment)
    if before.kind is ManifestKind.TAKEOVER:
        self._store.delete(layout.manifest_key(before.pipeline, before.manifest_number))


def _counted_term(self: Any, tail: Any) -> Any:
    """Take the term from a counter that Redis keeps, and loses."""
    before = tail.manifest
    store = self._chain._store
    counter = store._client._bucket.counter
    counter["term"] = counter.get("term", 1) + 1
    wrong = ManifestEntry(replace(before, term=counter["term"] - 1), tail.raw, tail.digest)
    return _TAKE_OVER(self, wrong)


def _eager(segment: Any, limits: Any, **given: Any) -> Roll:
    """Close a segment that is due, wherever the log is."""
    wanted = roll(segment, limits, **given)
    return Roll.CLOSE if wanted is Roll.FLUSH else wanted


# -- marks -------------------------------------------------------------------------------------


def _alarm_at_high(self: Any, watermark: Any) -> None:
    """Miss the watermarks of a chunk that have come, if its turn has not."""
    if any(chunk.before == watermark.token for chunk in self.scheduler.in_flight):
        raise Unavailable("the watermarks of a chunk did not come through its log")


def _largest_clock(self: Any, watermark: Any) -> None:
    """Believe the largest clock ever seen."""
    self.time_us = max(watermark.clock_us, self.time_us or 0)


def _anybodys(self: Any, watermark: Any) -> None:
    """Believe a heartbeat that this session did not write."""
    if watermark.token not in self._written:
        self.time_us = watermark.clock_us
    _ON_HEARTBEAT(self, watermark)


def _copied_low(self: Any, watermark: Any) -> None:
    """Open the window once more at a copy of a low watermark."""
    chunk = self.scheduler.find(watermark.token)
    if chunk is not None:
        chunk.window = None
    _ON_LOW(self, watermark)


# -- plans -------------------------------------------------------------------------------------


def _with_holes(manifests: Any) -> list[Any]:
    return list(manifests)


_DUMPS = tideline_capture.core.snapshots.dumps
_CHAIN = tideline.store.chain.Chain
_ON_LOW = _DUMPS.Dumps.on_low
_CLOCK = tideline_capture.core.source_clock.SourceClock
_ON_HEARTBEAT = _CLOCK.on_heartbeat
_AS_HEARD = (
    tideline.contract.manifest.Manifest,
    "through_us",
    property(lambda self: self.source_time_us),
)
"""Readers do not check the writer's clock either, which alone would hide it until the next
manifest."""

FENCE_ALONE = (
    (_DUMPS, "invisible", lambda transactions, snapshot: transactions[:0]),
    (tideline_capture.core.snapshots.scheduler.ChunkScheduler, "_make", _fenced),
)
"""Reads every chunk behind a fence, and judges none by its snapshot: right too, if slow. With the
snapshot rule in force a wrong fence does no harm that could be seen."""
MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "no-snapshot-rule",
        "a chunk that missed a transaction before its low watermark is emitted all the same",
        ((_DUMPS, "invisible", lambda transactions, snapshot: transactions[:0]),),
        kind=DatabaseKind.POSTGRES,
    ),
    _flaw("no-fence", "no fence after LOW", kind=DatabaseKind.POSTGRES),
    Mutant(
        "fence-of-the-listed",
        "the fence waits for the transactions that a snapshot lists, in place of the snapshot rule",
        FENCE_ALONE,
        frozenset({"fence-of-the-listed"}),
        DatabaseKind.POSTGRES,
        seed=19,
    ),
    _flaw(
        "order-off-accepted",
        "binlog_order_commits=OFF is accepted",
        kind=DatabaseKind.MYSQL,
        focus=(Fault.ORDER_COMMITS_OFF, Fault.ORDER_COMMITS_OFF),
    ),
    Mutant(
        "begins-with-a-look",
        "a table that the log makes is captured from the next look at the catalog on",
        ((tideline_capture.core.tables.beginnings.Beginnings, "described", lambda self, seen: ()),),
        kind=DatabaseKind.MYSQL,
    ),
    _flaw("marks-by-polling", "the low watermark is a polled position", kind=DatabaseKind.MYSQL),
    Mutant(
        "no-window",
        "no dedupe in the window",
        ((tideline_capture.core.snapshots.progress, "settle", _settle_nothing),),
    ),
    Mutant(
        "window-by-new-key",
        "the window knows only the new key of a row that moved",
        ((tideline_capture.core.snapshots.window, "_before_keys", _no_before_keys),),
        seed=23,
    ),
    Mutant(
        "window-ends-at-high",
        "events after a chunk's high watermark no longer count, though its turn has not come",
        ((_DUMPS.Dumps, "saw_rows", _seen_until_high),),
        seed=288,
    ),
    Mutant(
        "alarm-at-high",
        "a chunk that was read ahead, and whose marks have come, ends the session",
        ((_DUMPS.Dumps, "on_heartbeat", _alarm_at_high),),
        focus=(Fault.WATERMARKS_TAMPERED,) * 4,
        seed=14,
    ),
    Mutant(
        "largest-clock",
        "what is complete follows the largest clock ever read from the source",
        ((_CLOCK, "on_heartbeat", _largest_clock), _AS_HEARD),
        focus=(Fault.SOURCE_CLOCK, Fault.SOURCE_CLOCK),
    ),
    Mutant(
        "marks-unsigned",
        "a heartbeat is believed whoever wrote it",
        (
            (_CLOCK, "on_heartbeat", _anybodys),
            _AS_HEARD,
        ),
        frozenset({"marks-unsigned"}),
        focus=(Fault.WATERMARKS_TAMPERED, Fault.WATERMARKS_TAMPERED),
    ),
    Mutant(
        "copies-of-low-count",
        "a copy of a low watermark opens its chunk's window again",
        ((_DUMPS.Dumps, "on_low", _copied_low),),
        kind=DatabaseKind.MYSQL,
        focus=(Fault.WATERMARKS_TAMPERED,) * 6,
        seed=12,
    ),
    Mutant(
        "chunks-out-of-turn",
        "a chunk that was read ahead is not compared with what was emitted",
        ((_DUMPS, "stale", lambda order, dump, behind=None: False),),
        kind=DatabaseKind.POSTGRES,
    ),
    Mutant(
        "floor-at-high",
        "a dump's floor is taken at its first high watermark",
        (
            (_DUMPS.Dumps, "_judge", _judge_noting_high),
            (
                tideline_capture.core.snapshots.progress.DumpProgress,
                "_delete_before",
                _delete_before_at_high,
            ),
        ),
    ),
    Mutant(
        "no-rereads",
        "rows that moved without all their values are not read again",
        ((_DUMPS, "moved_incomplete", lambda rows: []),),
        focus=(Fault.PUBLICATION_DROPPED,),
        kind=DatabaseKind.POSTGRES,
    ),
    Mutant(
        "truncate-unseen-by-windows",
        "a truncate does not disturb the chunk under way",
        ((_DUMPS.Dumps, "disturb", lambda self, table, what: None),),
        focus=(Fault.TRUNCATE, Fault.TRUNCATE),
    ),
    Mutant(
        "acknowledges-keepalives",
        "the position of a keepalive is confirmed",
        ((tideline_capture.runtime.CaptureSession, "_confirm", _confirm_logged),),
        kind=DatabaseKind.POSTGRES,
    ),
    Mutant(
        "acknowledges-before-put",
        "what was read is confirmed before it is durable",
        ((tideline_capture.runtime.CaptureSession, "_confirm", _confirm_read),),
        kind=DatabaseKind.POSTGRES,
    ),
    Mutant(
        "manifest-before-parts",
        "the manifest is put before its parts",
        ((tideline_capture.uploader.Uploader, "_commit", _manifest_first),),
    ),
    Mutant(
        "unconditional-put",
        "the manifest's PUT has no condition",
        ((_CHAIN, "append", _unconditional),),
        focus=(Fault.STOP,),
    ),
    Mutant(
        "unprobed",
        "a store that ignores conditions is accepted",
        ((tideline_capture.app, "probe_clients", lambda *_: None),),
        focus=(Fault.STORE_CONDITION_IGNORED,),
    ),
    Mutant(
        "taken-is-foreign",
        "412 always means another writer",
        ((_CHAIN, "append", _always_external),),
        focus=(Fault.STORE_OWN_412, Fault.STORE_TIMEOUT_AFTER),
    ),
    Mutant(
        "taken-is-ours",
        "412 always means our own success",
        ((_CHAIN, "append", _always_own),),
        focus=(Fault.STOP,),
    ),
    Mutant(
        "takeovers-collected",
        "takeover manifests are removed as garbage",
        ((tideline_capture.uploader.Uploader, "_append", _collecting),),
    ),
    Mutant(
        "term-from-redis",
        "the term is counted in Redis",
        ((tideline_capture.leadership.Candidate, "_take_over", _counted_term),),
        focus=(Fault.REDIS_FLUSH, Fault.STOP),
    ),
    _flaw("one-lsn-one-order", "rows of one position have no order"),
    Mutant(
        "closes-inside-transaction",
        "a manifest ends inside a transaction",
        ((tideline_capture.core.worker, "roll", _eager),),
        focus=(Fault.HUGE_TRANSACTION,),
    ),
    _flaw(
        "boundary-inside-transaction",
        "a resume position lies inside a transaction",
        focus=(Fault.HUGE_TRANSACTION,),
    ),
    _flaw("resumes-from-first", "after a reconnect the log is read from the first start"),
    _flaw("unchanged-as-null", "unchanged TOAST is NULL", kind=DatabaseKind.POSTGRES),
    _flaw("abort-drops-transaction", "a savepoint's abort drops the transaction"),
    _flaw(
        "xa-rows-at-prepare", "an XA transaction's rows come at PREPARE", kind=DatabaseKind.MYSQL
    ),
    _flaw(
        "skips-unknown-events",
        "events of an unknown type are skipped",
        kind=DatabaseKind.MYSQL,
        focus=(Fault.COMPRESSION,),
    ),
    _flaw("merges-again", "a plan that is applied is merged again"),
    _flaw("drops-tombstones", "deletes are dropped before the merge"),
    _flaw("ignores-floors", "rows behind a floor stay"),
    Mutant(
        "merge-jumps-hole",
        "a plan goes on behind a missing manifest",
        ((tideline.contract.planning.maker, "_contiguous", _with_holes),),
        focus=(Fault.STORE_STALE_LIST, Fault.STORE_STALE_LIST),
    ),
    _flaw("keys-compared-here", "keys are compared by character"),
    _flaw("forgets-renames", "a merge takes a column that was renamed for a new one"),
    _flaw("fills-nothing", "rows that exist hold NULL in a column that was added with a default"),
    Mutant(
        "renames-by-name",
        "a column that was renamed is taken for a new one, of which nothing is in doubt",
        (
            (tideline_capture.core.tables.states, "by_numbers", _by_name),
            (tideline_capture.core.tables.states, "by_statement", _by_name),
        ),
    ),
)

NOT_APPLICABLE: dict[str, str] = {
    "`>=` for `>` in MERGE": "no difference can be seen: the rows of a plan are all newer than what"
    " is applied (seq > from_seq), or the target's row is damaged and overwritten either way; a"
    " plan that runs again is stopped by the version (merges-again), and tests/spark/test_merge.py"
    " has the statement",
    "unquoted identifier": "no SQL here; tests/integration has odd names on real servers, and"
    " tests/unit/contract the quoting",
    "raw table name in key": "keys never collide here; tests/properties/test_contract.py has the"
    " injectivity of `layout`",
    "password in log": "no secret here; tests/integration has the canary",
    "checkpoint before PUT": "the checkpoint is the manifest: manifest-before-parts",
}
"""Bugs of the catalogue that no mutant stands for, why, and what catches them."""


def named(name: str) -> Mutant:
    """Return the mutant of that name; raise KeyError if there is none."""
    return {one.name: one for one in MUTANTS}[name]
