"""Ten million manifests, which nobody stores: how few requests find what there is to know.

Every manifest, state and block follows from its number. Digests are by number, too: to hash them
truly would take as many requests as there are manifests.
"""

from __future__ import annotations

import re
import threading
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Literal

import pytest
from msgspec.structs import replace
from obstore.exceptions import AlreadyExistsError

from tests.fixtures.parts import schema_of
from tests.fixtures.systems import REAL
from tests.unit.contract.documents import IDENTITY, manifest_number
from tideline.contract import block, layout, manifest
from tideline.contract.block import Block, encode_block, make_block, manifests_of
from tideline.contract.manifest import (
    DeleteBefore,
    Manifest,
    ManifestKind,
    Part,
    stored_manifest,
)
from tideline.contract.open_state import OpenState, TableState
from tideline.contract.plan import CommitMetadata, Plan
from tideline.contract.position import PostgresPosition
from tideline.contract.schema import encode_schema
from tideline.planner import merges, start_points
from tideline.planner.chain_index import ChainIndex
from tideline.planner.merges import plan_merge
from tideline.settings import Settings, make_settings
from tideline.store import chain
from tideline.store.chain import Chain
from tideline.store.objects import ObjectStore
from tideline.warehouse.state import TargetState
from tideline_capture.leadership import Candidate
from tideline_capture.rollup import RollUpLimits, RollUps

TEN_MILLION = 10_000_000
BUSY, QUIET = "public.busy", "public.quiet"
SCHEMAS = {name: schema_of(name, {"id": "int64"}, ["id"]) for name in (BUSY, QUIET)}
QUIET_IN = (3, 9_000_003, 9_500_003)
"""The manifests in which the quiet table has a row; the busy one has one in every tenth."""
LOW = 500_000
DUMPED_IN = 23_438 * 256 + 1
"""The busy table's full dump: the sequence that it began after, the manifest that it ended in."""


def seqs(number: int) -> int:
    """The last sequence of manifest ``number``."""
    return number // 10 + sum(at <= number for at in QUIET_IN)


def state_at(number: int) -> OpenState:
    quiet = max((at for at in QUIET_IN if at <= number), default=0)
    complete = seqs(DUMPED_IN) if number >= DUMPED_IN else None
    last = number // 10 * 10
    last = DUMPED_IN if last < DUMPED_IN <= number else last
    return OpenState(
        tables={
            BUSY: TableState(
                schema=SCHEMAS[BUSY].fingerprint, last_data_manifest=last, complete_seq=complete
            ),
            QUIET: TableState(schema=SCHEMAS[QUIET].fingerprint, last_data_manifest=quiet),
        }
    )


def manifest_of(number: int) -> Manifest:
    first, last = seqs(number - 1) + 1, seqs(number)
    table = QUIET if number in QUIET_IN else BUSY
    parts = (part_of(layout.part_prefix("shop", number), table, first, last),) * (last >= first)
    full = number % 256 == 1
    return Manifest(
        pipeline="shop",
        incarnation="one",
        manifest_number=number,
        term=1,
        writer="w",
        previous_digest=f"digest {number - 1}" if number > 1 else "",
        kind=ManifestKind.SEGMENT if parts else ManifestKind.HEARTBEAT,
        first_seq=first,
        last_seq=last,
        position=PostgresPosition(number),
        identity=IDENTITY,
        parts=parts,
        deletes_before=(DeleteBefore(BUSY, LOW, "dump"),) if number == DUMPED_IN else (),
        state=state_at(number) if full else None,
        state_at=None if full else (number - 1) // 256 * 256 + 1,
        released=number == TEN_MILLION,
    )


def part_of(folder: str, table: str, first: int, last: int) -> Part:
    rows = last - first + 1
    fingerprint = SCHEMAS[table].fingerprint
    return Part(
        key=f"{folder}/t-{table}-{fingerprint}-0123456789abcdef.parquet",
        table=table,
        schema=fingerprint,
        rows=rows,
        operations={"c": rows},
        bytes=1000 * rows,
        digest="00",
        first_seq=first,
        last_seq=last,
    )


def block_at(number: int) -> Block:
    manifests = [manifest_of(n) for n in range(*manifests_of(number))]
    manifests.append(manifest_of(manifests_of(number)[1]))
    files = []
    for table in (BUSY, QUIET):
        mine = [part for one in manifests for part in one.parts if part.table == table]
        if mine:
            file = part_of(
                f"shop/blocks/{number:012d}", table, mine[0].first_seq, mine[-1].last_seq
            )
            rows = len(mine)
            fields = {"rows": rows, "operations": {"c": rows}, "bytes": 100 * rows}
            files.append(replace(file, **fields))
    return make_block([(one, stored_manifest(one)) for one in manifests], files)


class Virtual:
    """A client with manifests and blocks up to ``last``; what is written is kept beside them."""

    def __init__(self, last: int = TEN_MILLION, *, blocks: bool = True) -> None:
        self.last = last
        self.blocks = last // 1000 if blocks else 0
        self.asked: Counter[str] = Counter()
        self.written: dict[str, bytes] = {
            layout.schema_key("shop", one.fingerprint): encode_schema(one)
            for one in SCHEMAS.values()
        }

    def head(self, path: str) -> object:
        self.asked["head"] += 1
        if not self._exists(path):
            raise FileNotFoundError(path)
        return {}

    def get(self, path: str) -> Any:
        kind = path.split("/")[1]
        self.asked[kind] += 1
        if path in self.written:
            return Body(self.written[path])
        if not self._exists(path):
            raise FileNotFoundError(path)
        if kind == "blocks":
            return Body(encode_block(block_at(int(path[-17:-5]))))
        return Body(stored_manifest(manifest_of(manifest_number(path))))

    def put(
        self, path: str, file: bytes, *, mode: Literal["create", "overwrite"], use_multipart: bool
    ) -> object:
        self.asked["put"] += 1
        if mode == "create" and (path in self.written or self._exists(path)):
            raise AlreadyExistsError(path)
        self.written[path] = file
        return {}

    def delete(self, paths: str) -> None:
        raise NotImplementedError(paths)

    def list(
        self, prefix: str, *, offset: str | None = None, chunk_size: int = 1
    ) -> Iterable[Sequence[Any]]:
        raise NotImplementedError(prefix)

    def _exists(self, path: str) -> bool:
        if path in self.written:
            return True
        if path.split("/")[1] == "blocks":
            return 1 <= int(path.split("/")[2][:12]) <= self.blocks
        return "/log/" in path and 1 <= manifest_number(path) <= self.last


class Body:
    def __init__(self, data: bytes) -> None:
        self._data = data

    def bytes(self) -> bytes:
        return self._data


@pytest.fixture(autouse=True)
def _digests_by_number(monkeypatch: pytest.MonkeyPatch) -> None:
    def digest(raw: bytes) -> str:
        found = re.search(rb'"manifest_number":([0-9]+)', raw)
        assert found is not None
        return f"digest {int(found[1])}"

    for module in (manifest, block, chain):
        monkeypatch.setattr(module, "digest", digest)


def opened(client: Virtual) -> ObjectStore:
    return ObjectStore(settings().store, client)


def settings(**merge: Any) -> Settings:
    return make_settings(
        {
            "pipeline": "shop",
            "source": {"url": "postgresql://nobody@127.0.0.1:1/shop"},
            "store": {"url": "memory://ten-million"},
            "warehouse": {"url": "file:///warehouse"},
            "merge": merge,
        }
    )


@pytest.mark.parametrize("hint", [0, 1, 9_000_000, TEN_MILLION - 1000, TEN_MILLION, 20_000_000])
def test_the_tail(hint: int) -> None:
    client = Virtual()
    entry = Chain(opened(client), "shop").tail(hint)
    assert entry is not None
    assert entry.manifest.manifest_number == TEN_MILLION
    assert client.asked.total() <= 52
    if hint == TEN_MILLION:
        assert client.asked.total() == 3


@pytest.mark.parametrize("blocks", [True, False])
def test_the_open_state(blocks: bool) -> None:
    """At the end, and in the middle, with blocks and without."""
    for number in (TEN_MILLION, 7_654_321, 256 * 1000):
        client = Virtual(blocks=blocks)
        found = Chain(opened(client), "shop")
        entry = found.read(number)
        assert entry is not None
        assert found.open_state(entry) == state_at(number)
        assert client.asked.total() <= (4 if blocks else 260)


def test_a_worker_starts() -> None:
    client = Virtual()
    found = Chain(opened(client), "shop")
    candidate = Candidate(
        found, writer="new", takeover_after_s=1.0, stopping=threading.Event(), system=REAL
    )

    def origin() -> Any:
        raise AssertionError("there is a chain")

    lead = candidate.acquire(origin)
    assert lead is not None
    assert (lead.entry.manifest.manifest_number, lead.state) == (
        TEN_MILLION + 1,
        state_at(TEN_MILLION),
    )
    assert client.asked.total() <= 60


@pytest.mark.parametrize("last", [TEN_MILLION, 999, 1000, 1001])
def test_roll_ups_find_where_they_stopped(last: int) -> None:
    client = Virtual(last)
    limits = RollUpLimits(1, 1)
    rollups = RollUps(opened(client), Chain(opened(client), "shop"), limits, REAL)
    assert rollups.advance(last) is None
    assert client.asked.total() <= 30
    client.asked.clear()
    for tail in range(last, last + 1000 - last % 1000):
        assert rollups.advance(tail) is None
    assert client.asked.total() == 0


def planned(
    monkeypatch: pytest.MonkeyPatch, applied: dict[str, int | None], **merge: Any
) -> tuple[Plan, Virtual]:
    client = Virtual()
    monkeypatch.setattr(merges, "open_store", lambda store: opened(client))

    def target_of(settings: Settings, tail: Manifest, name: str, table: TableState) -> TargetState:
        owner = ("shop", "one", name)
        at = applied[name]
        commit_metadata = (
            None
            if at is None
            else CommitMetadata("a", *owner[:2], "p", 0, at, 0, digest=f"digest {at}")
        )
        return TargetState(
            "u", exists=at is not None, owner=owner, applied=at, standing=commit_metadata
        )

    monkeypatch.setattr(start_points, "target_of", target_of)
    return plan_merge(settings(**merge), plan_id="p", tables=list(applied)), client


def test_a_plan_far_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twenty thousand manifests in twenty requests; the rest is the next plans'."""
    plan, client = planned(monkeypatch, {BUSY: 1000})
    (table,) = plan.tables
    assert (table.from_manifest, plan.to_manifest, plan.tail) == (1000, 21_000, TEN_MILLION)
    assert (len(table.parts), sum(part.rows for part in table.parts)) == (20, 2000)
    assert client.asked["blocks"] == 20 + 1  # one for the open state at the end
    assert client.asked["log"] < 40
    assert client.asked["head"] <= 52 + 20
    assert client.asked.total() <= 150


def test_caps_bound_what_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    plan, client = planned(monkeypatch, {BUSY: 1000}, parts_max=3)
    assert (plan.to_manifest, len(plan.tables[0].parts)) == (4009, 3)
    assert client.asked["blocks"] <= 5


def test_a_quiet_table_is_planned_from_its_next_row(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nine million manifests behind, of which nothing needs to be read."""
    plan, client = planned(monkeypatch, {QUIET: 3})
    (table,) = plan.tables
    assert (table.from_manifest, [part.rows for part in table.parts]) == (3, [1])
    assert client.asked["blocks"] <= 22
    assert client.asked.total() <= 180


def test_a_table_rebuilt(monkeypatch: pytest.MonkeyPatch) -> None:
    """From its latest full dump on, which is found without reading what is between."""
    plan, client = planned(monkeypatch, {BUSY: None})
    (table,) = plan.tables
    assert (table.create, table.from_seq, table.delete_before) == (True, LOW, LOW)
    assert table.from_manifest == 4_999_999
    assert min(part.first_seq for part in table.parts) > LOW
    assert client.asked["blocks"] <= 22
    assert client.asked.total() <= 300


def test_what_the_past_tells() -> None:
    client = Virtual()
    past = ChainIndex(Chain(opened(client), "shop"))
    dump = past.full_dump(BUSY, state_at(TEN_MILLION).tables[BUSY], TEN_MILLION)
    assert dump is not None
    assert (dump.finished_in, dump.first_low_seq) == (DUMPED_IN, LOW)
    assert seqs(dump.begin_manifest) == LOW
    assert seqs(dump.begin_manifest + 1) == LOW + 1
    assert client.asked.total() <= 160
    assert past.full_dump(QUIET, state_at(TEN_MILLION).tables[QUIET], TEN_MILLION) is None
    clear = past.clear_until(QUIET, 3, 9_500_003)
    assert 9_000_003 - 600 < clear < 9_000_003
    client.asked.clear()
    past.clear_until(QUIET, 3, 9_500_003)
    assert client.asked.total() == 0
