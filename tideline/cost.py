"""Estimates a pipeline's use of its object store in a day: requests, bytes, and their price.

A model, in mean values, of worker, passive workers, merges, roll-ups and removal; a test compares
it with a running worker, and another one with merges into a table in S3. Not in it are starts,
dumps, maintenance, and ``tideline status``.

The writer's rhythm: a segment opens with its first change and closes after ``flush_s``, or when it
is full. It is one part for each table with a change in it, and one manifest. When nothing was
written for ``heartbeat_s``, a heartbeat is. While the log is idle except for our own watermarks, a
manifest still says once per heartbeat how far it was read.
"""

from __future__ import annotations

import math

import msgspec

from tideline.contract.block import BLOCK_MANIFESTS
from tideline.contract.manifest import (
    STATE_DISTANCE_MAX,
    Manifest,
    ManifestKind,
    Part,
)
from tideline.contract.open_state import OpenState, TableState
from tideline.contract.part import CREATED, UPDATED
from tideline.contract.position import PostgresPosition, SourceIdentity

DAY_S = 86_400.0
MONTH_DAYS = 30
YEAR_DAYS = 365
GB = 1e9
LISTED_MAX = 1_000
REMOVAL_BLOCKS = 100
"""Blocks that one search for garbage reads."""
GETS_PER_PART = 3
"""Spark's requests to read one: the file's status, its footer, its columns."""
LISTS_PER_LOOK, GETS_PER_LOOK = 1, 10
"""The planner's requests to see what a table has applied: its log since the last checkpoint, which
ten commits follow at most."""
LISTS_PER_MERGE, PUTS_PER_MERGE, GETS_PER_MERGE = 6, 3, 45
"""Spark's requests to merge a table: its log is listed and read, a file of its rows is read twice;
a file, a deletion vector and the commit are written. Each other file with changed rows takes ten
GETs."""
_PART_BYTES, _COLUMN_BYTES = 600, 120
"""Bytes of a part without rows, and those that a column adds: names, types, page headers."""
_LOOK_S = 0.2
"""Seconds between two checks of the uploader whether a heartbeat is due."""
_PROBE_S = 1.0
"""Seconds between two probes of a passive worker for a next manifest."""


class Traffic(msgspec.Struct, frozen=True):
    """The load: ``tables`` are captured, ``busy`` of them change: ``changes_per_s`` together, a
    change being of ``row_bytes`` in a part, ``compression`` times that in memory, in
    ``columns``."""

    tables: int = 100
    busy: int = 100
    changes_per_s: float = 1_000.0
    row_bytes: float = 60.0
    compression: float = 3.0
    columns: int = 12


class RequestRates(msgspec.Struct, frozen=True):
    """The settings that make requests; see `tideline.settings`. ``passive`` workers wait, a merge
    runs every ``merge_every_s``; ``warehouse_in_store``: the warehouse is in an object store,
    too."""

    flush_s: float = 5.0
    heartbeat_s: float = 5.0
    catalog_interval_s: float = 3.0
    takeover_after_s: float = 15.0
    segment_bytes_max: float = 32 * 2**20
    merge_every_s: float = 300.0
    passive: int = 1
    parts_days: float = 7.0
    removal_interval_s: float = 21_600.0
    rollup_file_bytes_max: float = 64 * 2**20
    warehouse_in_store: bool = True


class Prices(msgspec.Struct, frozen=True):
    """Prices in one currency: of a thousand requests that write or list, of a thousand that read,
    and of a GB (10⁹ bytes) stored for a month."""

    per_1000_puts: float
    per_1000_gets: float
    per_gb_month: float


class Cost(msgspec.Struct, frozen=True):
    """The cost, in mean values of a day. ``puts`` (listings among them), ``gets`` (HEADs among
    them) and ``bytes_written`` are by the component that causes them. ``stored_bytes``: after a
    year in which tables were dumped in full often enough for parts to be removed in their time.
    ``price_per_month`` is that of the requests and of those stored bytes."""

    flush_s: float
    segments: float
    heartbeats: float
    parts: float
    puts: dict[str, float]
    gets: dict[str, float]
    deletes: float
    bytes_written: dict[str, float]
    bytes_read: float
    stored_bytes: float
    price_per_month: float

    @property
    def manifests(self) -> float:
        return self.segments + self.heartbeats


def cost_of(traffic: Traffic, rates: RequestRates, prices: Prices) -> Cost:
    segments, heartbeats = _rhythm(traffic, rates)
    manifests = segments + heartbeats
    parts = segments * _tables_hit(traffic, traffic.changes_per_s * DAY_S / max(segments, 1e-9))
    part_bytes = traffic.changes_per_s * DAY_S * traffic.row_bytes + parts * empty_part_bytes(
        traffic
    )
    manifest_bytes = _manifest_bytes(traffic, manifests, parts)
    blocks = manifests / BLOCK_MANIFESTS
    files, file_bytes = _roll_ups(
        traffic, rates, blocks, part_bytes - parts * empty_part_bytes(traffic)
    )
    merges = DAY_S / rates.merge_every_s
    in_whole_blocks = _in_whole_blocks(manifests / merges)
    read_parts = parts * (1 - in_whole_blocks) + files * in_whole_blocks
    looks = DAY_S / rates.removal_interval_s if manifests else 0.0
    listed_blocks = min(REMOVAL_BLOCKS, blocks * rates.parts_days)
    objects = (parts + files) / blocks if blocks else 0.0
    asked = merges if rates.warehouse_in_store else 0.0
    looked_at = traffic.tables * asked
    merged = asked * _tables_hit(traffic, traffic.changes_per_s * rates.merge_every_s)
    puts = {
        "parts": parts,
        "manifests": manifests,
        "roll-ups": files + blocks,
        "merges": 3 * merges,
        "warehouse": LISTS_PER_LOOK * looked_at + (LISTS_PER_MERGE + PUTS_PER_MERGE) * merged,
        "removal": looks * max(1.0, listed_blocks * objects / LISTED_MAX),
    }
    gets = {
        "passive workers": rates.passive * _passive_gets(manifests, rates),
        "merge plans": merges * _planning_gets(traffic, manifests, merges),
        "merges": GETS_PER_PART * read_parts,
        "warehouse": GETS_PER_LOOK * looked_at + GETS_PER_MERGE * merged,
        "roll-ups": manifests + parts + blocks * (traffic.busy + 4),
        "removal": looks * (listed_blocks + 2 * math.log2(manifests * YEAR_DAYS + 2)),
    }
    written = {
        "parts": part_bytes,
        "manifests": manifest_bytes,
        "roll-ups": file_bytes + manifest_bytes + 67 * manifests,
    }
    stored = (part_bytes + file_bytes) * rates.parts_days
    stored += (written["manifests"] + written["roll-ups"] - file_bytes) * YEAR_DAYS
    requests = sum(puts.values()) * prices.per_1000_puts + sum(gets.values()) * prices.per_1000_gets
    return Cost(
        flush_s=rates.flush_s,
        segments=segments,
        heartbeats=heartbeats,
        parts=parts,
        puts=puts,
        gets=gets,
        deletes=parts + files,
        bytes_written=written,
        bytes_read=2 * part_bytes + (2 + rates.passive) * manifest_bytes,
        stored_bytes=stored,
        price_per_month=MONTH_DAYS * requests / 1_000 + stored / GB * prices.per_gb_month,
    )


def _rhythm(traffic: Traffic, rates: RequestRates) -> tuple[float, float]:
    """Return segments and heartbeats of a day."""
    beat_s = rates.heartbeat_s + min(_LOOK_S, rates.heartbeat_s / 4) / 2
    # Our watermarks move the position with each round; the first move after a manifest starts a
    # heartbeat's time, in which the uploader's own heartbeats continue.
    round_s = rates.catalog_interval_s
    idle_s = round_s * (math.floor(rates.heartbeat_s / round_s) + 1)
    idle_beats_per_s = math.ceil(idle_s / beat_s) / idle_s
    if not traffic.changes_per_s:
        return 0.0, DAY_S * idle_beats_per_s
    gap_s = 1 / traffic.changes_per_s
    full_s = rates.segment_bytes_max / (
        traffic.changes_per_s * traffic.row_bytes * traffic.compression
    )
    open_s = min(rates.flush_s, full_s)
    cycle_s = gap_s + open_s
    if gap_s > rates.heartbeat_s + round_s / 2:
        beats = gap_s * idle_beats_per_s + math.floor(open_s / beat_s)
    else:
        beats = math.ceil(cycle_s / beat_s) - 1
    return DAY_S / cycle_s, DAY_S / cycle_s * beats


def _tables_hit(traffic: Traffic, changes: float) -> float:
    """Return the mean number of tables among so many changes of tables that are equally busy."""
    if traffic.busy <= 1:
        return float(min(traffic.busy, 1))
    return traffic.busy * (1 - math.pow(1 - 1 / traffic.busy, changes))


def empty_part_bytes(traffic: Traffic) -> float:
    """Return the bytes of a part before its rows."""
    return _PART_BYTES + _COLUMN_BYTES * traffic.columns


def _manifest_bytes(traffic: Traffic, manifests: float, parts: float) -> float:
    """Return the bytes of all manifests of a day; the open state is in one of
    `STATE_DISTANCE_MAX`."""
    empty = _size(parts=0, tables=0)
    states = manifests / STATE_DISTANCE_MAX * traffic.tables * (_size(parts=0, tables=1) - empty)
    return manifests * empty + parts * (_size(parts=1, tables=0) - empty) + states


def _size(*, parts: int, tables: int) -> int:
    """Return the bytes of a usual manifest."""
    fingerprint, number = "0123456789abcdef", 1_000_000
    part = Part(
        key=f"pipeline/data/{number:020d}/t-public.some_table-{fingerprint}-0123456789ab.parquet",
        table="public.some_table",
        schema=fingerprint,
        rows=100,
        operations={CREATED: 50, UPDATED: 50},
        bytes=10_000,
        digest="0" * 64,
        first_seq=1,
        last_seq=100,
        key_min="1000000",
        key_max="2000000",
    )
    table = TableState(
        schema=fingerprint,
        last_data_manifest=number,
        catalog=f"16384/16384/12.0123456789ab/m/16384/{fingerprint}",
        complete_seq=number * 100,
    )
    manifest = Manifest(
        pipeline="pipeline",
        incarnation="0" * 32,
        manifest_number=number,
        term=1,
        writer="host-0123456789ab",
        previous_digest="0" * 64,
        kind=ManifestKind.SEGMENT,
        first_seq=1,
        last_seq=100 * parts,
        position=PostgresPosition(1 << 40),
        identity=SourceIdentity("postgres", "7" * 19, 1, "database"),
        source_time_us=1_700_000_000_000_000,
        written_at_us=1_700_000_000_000_000,
        parts=(part,) * parts,
        state=OpenState(tables={"public.some_table": table}) if tables else None,
        state_at=None if tables else number,
    )
    return len(msgspec.json.encode(manifest))


def _roll_ups(
    traffic: Traffic, rates: RequestRates, blocks: float, row_bytes: float
) -> tuple[float, float]:
    """Return the files of a day and their bytes: of a block, one per table, or as many as are
    full."""
    if not blocks or not traffic.changes_per_s:
        return 0.0, 0.0
    tables = _tables_hit(traffic, traffic.changes_per_s * DAY_S / blocks)
    files = tables * math.ceil(row_bytes / blocks / tables / rates.rollup_file_bytes_max)
    return files * blocks, row_bytes + files * blocks * empty_part_bytes(traffic)


def _in_whole_blocks(manifests: float) -> float:
    """Return the share of so many manifests, anywhere in the chain, that lies in whole blocks."""
    return max(0.0, manifests / BLOCK_MANIFESTS - 1) * BLOCK_MANIFESTS / max(manifests, 1)


def _passive_gets(manifests: float, rates: RequestRates) -> float:
    """Return the GETs of one passive worker: it probes until there is another manifest, then finds
    the tail."""
    probe_s = min(_PROBE_S, rates.takeover_after_s / 5)
    every_s = DAY_S / manifests
    turn_s = max(every_s, probe_s)
    skipped = math.floor(math.log2(max(turn_s / every_s, 1)))
    return DAY_S / turn_s * (turn_s / probe_s + 1 + 4 + 2 * skipped)


def _planning_gets(traffic: Traffic, manifests: float, merges: float) -> float:
    """Return the GETs of one merge: tail and open state, twice; what is new; the tables' schemas;
    plan, receipt."""
    per_merge = manifests / merges
    whole = _in_whole_blocks(per_merge) * per_merge
    tail = 2 * math.log2(manifests * YEAR_DAYS + 2) + 2 + STATE_DISTANCE_MAX / 2
    return 2 * tail + per_merge - whole + whole / BLOCK_MANIFESTS + traffic.tables + 6
