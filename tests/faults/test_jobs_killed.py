"""Merges, rebuilds, maintenance and verifications that die anywhere and are run again, that have no
room to write, lack a part, are raced. ``make faults`` plays the same for as long as it is told.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from devtools.demo.compare import compare
from devtools.services.s3 import S3Server
from tests.faults.camera import Through
from tests.faults.deaths import Deaths
from tests.faults.deaths_of_merges import die_anywhere
from tests.faults.every_mode import LOG, NOW, EveryMode
from tests.faults.jobs import Jobs, unique
from tests.faults.kills import At, command, config_of, entry_or_deletion, kill_at
from tests.faults.races import Races
from tests.faults.rewired import rewired
from tests.faults.s3_faults import S3Faults
from tests.faults.troubles import Troubles
from tests.fixtures.capture import Pipeline, PipelineFactory
from tests.fixtures.object_storage import place_in, reach, require_s3
from tests.fixtures.services import Database
from tideline.contract.layout import table_path
from tideline.contract.modes import Mode
from tideline.contract.schema import parse_table
from tideline.planner import plan_merge
from tideline.planner.verified import last_verification
from tideline.store.objects import open_store
from tideline.warehouse.access import storage_options
from tideline.warehouse.delta.reader import delta_table
from tideline_console import verify
from tideline_console.app import app

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.timeout(900)
def test_merges_that_die_anywhere_end_as_undisturbed_ones(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Tables in every mode: made, then changed with a step of their columns, with parts that were
    ruined in between."""
    tables = EveryMode(tmp_path / "root", seed=12)
    tables.fill()
    die_anywhere(spark, tables)


@pytest.fixture(scope="module")
def faults(s3: S3Server, spark: SparkSession) -> Iterator[S3Faults]:
    """Spark's way to the server."""
    require_s3()
    with S3Faults(s3) as made:
        reach(spark, place_in(s3, "killed", endpoint=made.endpoint))
        yield made


@pytest.mark.timeout(900)
def test_jobs_in_s3_that_die_at_a_request_end_as_undisturbed_ones(
    spark: SparkSession, s3: S3Server, faults: S3Faults, tmp_path: Path
) -> None:
    """Before and after each entry of a log, that of a rebuild's swap among them, and before and
    after each deletion of a vacuum."""
    tables = EveryMode(tmp_path / "root", seed=12, place=place_in(s3, "killed"))
    tables.fill()
    counts = Counter[str]()
    deaths = Deaths(
        spark,
        tables,
        counts,
        seed=4,
        recoveries=1,
        moments=0,
        through=Through(faults, entry_or_deletion),
    )
    Jobs(spark, tables).merge("first")
    tables.more(8)
    deaths.merge("second")
    deaths.maintain(NOW)
    deaths.rebuild(twice=False)
    for kind in ("merge", "maintain", "rebuild"):
        assert counts[f"{kind} at a request"] >= 2, counts
    assert counts["taken up"] == 3, counts


@pytest.mark.long
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("storage", ["files", "s3"])
def test_a_warehouse_lives_through_everything(
    spark: SparkSession, request: pytest.FixtureRequest, tmp_path: Path, storage: str
) -> None:
    """One life of tables in every mode. What a job leaves is whole at each of its deaths, and from
    one of them it goes on to the same end."""
    place, through = None, None
    if storage == "s3":
        through = Through(request.getfixturevalue("faults"), entry_or_deletion)
        place = place_in(request.getfixturevalue("s3"), "killed")
    tables = EveryMode(tmp_path / "root", seed=11, laid_out=True, place=place)
    tables.fill()
    counts = Counter[str]()
    deaths = Deaths(
        spark,
        tables,
        counts,
        seed=3,
        recoveries=1,
        moments=2,
        through=through,
    )
    troubles, races = Troubles(spark, tables, counts, seed=9), Races(spark, tables, counts)
    troubles.created_before("first", half_made=NOW, taken=LOG)
    deaths.merge("first")
    tables.more(16, step=True)
    plan = troubles.waiting(NOW, LOG)
    if place is None:  # What is written to S3 is cut off by the store, in other tests.
        troubles.full_disk(plan, 400)
        assert counts["full disk"] == 2
    troubles.ruined_parts(plan, {NOW: "flipped", LOG: "gone"})
    assert counts["parts named"] == 2
    deaths.merge(plan.plan_id, NOW, LOG)
    troubles.ruined_verification("torn")
    races.merges(NOW)
    deaths.verify()
    deaths.rebuild(twice=False)
    deaths.maintain(NOW)
    deaths.replay()
    assert counts["images"] >= 15, counts
    assert counts["taken up"] == 5, counts
    assert counts["merge applied"] >= 1, counts


LIVE, BUILT = f"warehouse/public/{LOG.partition('.')[2]}", "warehouse/~rebuild/"
REBUILD = ("rebuild", LOG, "--mode", "history")
KILLED = [
    *((("merge",), At(when, "create", "/_delta_log/", 2)) for when in ("before", "after")),
    *((("merge",), At(when, "put", "/receipts/")) for when in ("before", "after")),
    *((REBUILD, At(when, "create", f"{BUILT}000001")) for when in ("before", "after")),
    *((REBUILD, At(when, "create", f"{LIVE}/_delta_log/")) for when in ("before", "after")),
    (REBUILD, At("before", "delete", "")),
    *((("maintain",), At(when, "create", "/_delta_log/")) for when in ("before", "after")),
]


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("words", "at"), KILLED, ids=lambda one: str(one))
def test_a_command_in_s3_is_killed_and_the_next_run_ends_right(
    spark: SparkSession,
    s3: S3Server,
    faults: S3Faults,
    tmp_path: Path,
    words: tuple[str, ...],
    at: At,
) -> None:
    """For real: the process group, while the request is under way."""
    tables = EveryMode(tmp_path / "root", seed=13, place=place_in(s3, "killed"))
    tables.fill()
    jobs = Jobs(spark, tables)
    jobs.merge("first")
    tables.more(16)
    if words != ("merge",):
        jobs.merge("second")
    config = config_of(tables, endpoint=faults.endpoint)
    assert kill_at(command(words, config), at, faults)
    again: dict[str, Callable[[], object]] = {
        "merge": lambda: jobs.merge(unique("again")),
        "rebuild": lambda: jobs.rebuild(LOG, Mode.HISTORY),
        "maintain": lambda: jobs.maintain(unique("again")),
    }
    again[words[0]]()
    if words == REBUILD:
        tables.modes[LOG] = Mode.HISTORY
    tables.check()


ORDERS = "public.orders"
VERIFY = ("verify", ORDERS, "--repair")
VERIFICATION = [
    *(At(when, "create", "/_delta_log/") for when in ("before", "after")),
    At("after", "create", "/verifications/"),
    At("before", "get", "/checks/"),
    *(At(when, "put", "/result.json") for when in ("before", "after")),
    *(At(when, "create", "/_delta_log/", 2) for when in ("before", "after")),
    *(At(when, "put", "/verified/") for when in ("before", "after")),
]
"""In their order: changes are merged, a plan is made, rows are compared, the result is kept; what
differs is dumped, merged, and compared again."""


@pytest.fixture
def damaged(
    database: Database, pipeline_of: PipelineFactory, s3: S3Server, spark: SparkSession
) -> Pipeline[Database]:
    """A table with a row that is another than the source's, and with a change to be merged; a
    worker runs."""
    from tideline_spark.merge import run_plan

    database.run(
        "CREATE TABLE orders (id int PRIMARY KEY, note text)",
        "INSERT INTO orders SELECT n, 'order ' || n FROM generate_series(1, 20) n",
    )
    place = place_in(s3, "killed")
    shop = pipeline_of(
        database,
        store={"url": f"{place.url}/store", **s3.access},
        warehouse={"url": f"{place.url}/warehouse"},
        merge={"driver_memory": "1g"},
    )
    shop.start()
    shop.wait_state("the table is dumped", lambda state: ORDERS in state.tables)
    shop.wait_state("its dump ends", lambda state: not state.requests)
    run_plan(spark, plan_merge(shop.settings, plan_id="first"))
    before = shop.manifest().last_seq
    database.run("UPDATE orders SET note = 'changed' WHERE id <= 5")
    shop.wait_state("the change is captured", lambda state: shop.manifest().last_seq > before)
    target = table_path(shop.settings.warehouse.url, parse_table(ORDERS))
    table = delta_table(target, storage_options(shop.settings.warehouse_storage))
    table.update(predicate="id = 7", updates={"note": "'damaged'"})
    return shop


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("at", VERIFICATION, ids=str)
def test_a_verification_in_s3_is_killed_and_the_next_one_ends_right(
    damaged: Pipeline[Database],
    spark: SparkSession,
    faults: S3Faults,
    monkeypatch: pytest.MonkeyPatch,
    at: At,
) -> None:
    """With its repair. The next one is another: it has a request of its own."""
    through = rewired(damaged, store={"endpoint": faults.endpoint})
    assert kill_at(command(VERIFY, through), at, faults)
    monkeypatch.setattr(verify, "spark_session", lambda settings, what: nullcontext(spark))
    done = CliRunner().invoke(app, [*VERIFY, "--config", str(damaged.config)])
    assert (done.exit_code, damaged.state().requests) == (0, ()), done.output
    settings, tail, state = damaged.settings, damaged.manifest(), damaged.state().tables[ORDERS]
    found = last_verification(settings, open_store(settings.store), tail, ORDERS, state)
    assert found is not None and found.through(state).invalid is None, found
    assert compare(damaged.database.dsn, settings.warehouse_storage, [ORDERS]).equal
