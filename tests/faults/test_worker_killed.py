"""The worker is killed at a named point while traffic runs; its successor goes on from there."""

from __future__ import annotations

import signal
from collections.abc import Callable, Sequence

import pytest

from tests.faults.rewired import rewired
from tests.fixtures.capture import Pipeline, PipelineFactory
from tests.fixtures.services import Database
from tests.support.checks import Captured, check_equal, check_history
from tests.support.workload import SCHEMA, TABLES, Workload
from tideline.contract.manifest import Manifest, ManifestKind
from tideline.contract.open_state import OpenState, TableDump

ORDERS = "public.orders"
VERSIONED = ("public.accounts", ORDERS, "public.pairs")


@pytest.fixture
def shop(database: Database, pipeline_of: PipelineFactory) -> Pipeline[Database]:
    database.run(*SCHEMA)
    return pipeline_of(database, capture={"delay_ms": 20, "takeover_after_s": 1.0})


@pytest.fixture
def hurried(database: Database, pipeline_of: PipelineFactory) -> Pipeline[Database]:
    """Without a pause between chunks, so that each is read ahead of the one before it."""
    database.run(*SCHEMA)
    return pipeline_of(database, capture={"chunk_rows": 25, "takeover_after_s": 1.0})


@pytest.mark.parametrize(
    ("point", "count"),
    [
        ("before-part-put", 6),
        ("between-parts-and-manifest", 6),
        ("after-manifest", 8),
        ("between-watermarks", 5),
    ],
)
def test_killed_at_a_point(shop: Pipeline[Database], point: str, count: int) -> None:
    killed_at, captured = killed_and_succeeded(shop, point, count)
    takeovers = [m for m in captured.manifests if m.kind is ManifestKind.TAKEOVER]
    assert [m.manifest_number for m in takeovers] == [killed_at.manifest_number + 1]


@pytest.mark.parametrize(
    ("point", "count"), [("between-watermarks", 20), ("between-chunks", 20), ("after-manifest", 5)]
)
def test_killed_with_a_chunk_read_ahead(
    hurried: Pipeline[Database], point: str, count: int
) -> None:
    killed_and_succeeded(hurried, point, count)


def test_killed_between_chunks_the_dump_goes_on(
    database: Database, pipeline_of: PipelineFactory
) -> None:
    """Its floor stays where it began, and what was read is not read again."""
    database.run(*SCHEMA)
    shop = pipeline_of(database, source={"tables": [ORDERS]}, capture={"delay_ms": 3_000})
    killed_at, captured = killed_and_succeeded(
        shop, "between-chunks", tables=(ORDERS,), once=under_way
    )
    left = open_dump(captured, killed_at)
    deletes_before = [
        f.seq for m in captured.manifests for f in m.deletes_before if f.table == ORDERS
    ]
    assert deletes_before == [left.first_low_seq]
    dumped = [c for c in captured.table(ORDERS) if c.op == "r" and c.seq > killed_at.last_seq]
    keys = {int(str(change.key[0])) for change in dumped} - reread(captured)
    assert left.last_key is not None
    assert min(keys) > int(left.last_key[0])


def under_way(state: OpenState) -> bool:
    """Whether the dump of all of orders has durable chunks."""
    whole = [item for item in state.requests if item.request.keys is None]
    dumps = [dump for item in whole for dump in item.dumps]
    return any(dump.table == ORDERS and dump.chunks > 0 for dump in dumps)


def killed_and_succeeded(
    shop: Pipeline[Database],
    point: str,
    count: int = 1,
    *,
    tables: Sequence[str] = TABLES,
    once: Callable[[OpenState], bool] | None = None,
) -> tuple[Manifest, Captured]:
    """The newest manifest when it was killed, and the whole chain, checked against the source.

    Killed at the point's ``count``-th time; with ``once``, when it gets there after that holds. The
    successor makes no pauses between chunks.
    """
    with Workload(shop.database.dsn, seed=1) as traffic:
        if once is None:
            doomed = shop.start(kill=f"{point}:{count}")
            assert doomed.wait() == -signal.SIGKILL, doomed.output()[-3000:]
        else:
            doomed = shop.start()
            shop.wait_state("it is as far as it shall be", once)
            doomed.kill_at(point)
        assert doomed.points()[point] >= count
        killed_at = shop.manifest()
        assert not killed_at.released
        successor = shop.start(config=rewired(shop, capture={"delay_ms": 0}))
        traffic.wait_for(300)
        successor.wait_point("after-manifest", 3)
    shop.finish(successor)
    assert traffic.counts["rollbacks"] > 0
    captured = check_equal(shop.settings, shop.database, tables)
    check_history(captured, ledger="public.ledger", versioned=VERSIONED)
    return killed_at, captured


def open_dump(captured: Captured, at: Manifest) -> TableDump:
    """How far the dump of orders was in the open state that was in force at ``at``."""
    stated = [m for m in captured.manifests[: at.manifest_number] if m.state is not None]
    assert stated[-1].state is not None
    whole = [item for item in stated[-1].state.requests if item.request.keys is None]
    dumps = [dump for item in whole for dump in item.dumps if dump.chunks]
    assert [dump.state for dump in dumps] == ["running"], "no chunk of the dump was durable"
    return dumps[0]


def reread(captured: Captured) -> set[int]:
    """The keys that rows moved to during the dump, which are read one by one."""
    requests = [
        item.request
        for manifest in captured.manifests
        if manifest.state is not None
        for item in manifest.state.requests
    ]
    return {int(key[0]) for request in requests for key in request.keys or ()}
