"""Going on with what the release before has left in the middle of its work.

Today's jobs run its plans, and today's worker takes its chain over, on a server that stands in for
the one that was captured (docs/RELEASES.md).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import redis

from devtools.services.valkey import ValkeyServer
from tests.fixtures.capture import Pipeline, poll
from tests.fixtures.settings import as_toml
from tests.release_before.golden import (
    ENDS,
    TABLES,
    Golden,
    chain_of,
    counted,
    planner_settings,
    settings_of,
)
from tests.release_before.stand_in import Stand, StandIn
from tests.spark.test_verify import SharedJobs
from tideline.contract import layout
from tideline.contract.maintenance import MaintenanceOutcome
from tideline.contract.modes import Mode
from tideline.contract.open_state import OpenState
from tideline.contract.plan import Plan
from tideline.contract.rebuild import RebuildRecord, decode_rebuild
from tideline.contract.receipt import Outcome
from tideline.contract.request import Action, Command, DumpRequest, RequestState
from tideline.contract.schema import parse_table
from tideline.contract.verification import VerificationOutcome
from tideline.planner import applied_state, begin_rebuild, next_step
from tideline.planner.verification import VerificationRun, merge_up
from tideline.planner.verified import read_verification, store_verification
from tideline.planner.verifying import plan_verification
from tideline.settings import Settings
from tideline.store.chain import ManifestEntry
from tideline.store.objects import open_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ALIKE = ("now", "bag", "big")
"""Targets that are as the source is."""


@pytest.mark.timeout(900)
def test_this_release_goes_on(
    golden: Golden, stand_in: StandIn, valkey: ValkeyServer, spark: SparkSession, tmp_path: Path
) -> None:
    settings = planner_settings(golden)
    run_stored_plans(spark, golden, settings)
    _, tail = chain_of(settings)
    with Pipeline(*source_of(golden, stand_in, valkey, tail), tmp_path) as shop:
        restore_queue(valkey, golden, shop)
        jobs = SharedJobs(shop, spark)
        compare_what_was_read(golden, settings, jobs)
        finish_rebuilds(golden, settings, spark)
        run_stored_order(golden, settings, spark)
        finish_requests(golden, shop)
        for table in TABLES:
            assert shop.table(golden.name(table)).generation == 0, "nothing began a new target"
        merge_up(shop.settings, jobs, "last", [golden.name(table) for table in TABLES])
        check_targets(golden)
        prove(golden, shop, jobs)


def stored(settings: Settings, key: str) -> bytes:
    raw = open_store(settings.store).get(f"{settings.pipeline}/{key}")
    assert raw is not None
    return raw


def run_stored_plans(spark: SparkSession, golden: Golden, settings: Settings) -> None:
    """A merge that was killed half way, one that was not begun, and the swap of a rebuild; a second
    run of each finds that all is done."""
    done, again = Outcome.APPLIED, Outcome.ALREADY_APPLIED
    expected = {"torn": {done, again}, "waits": {done}, "swap": {done}}
    plans = {name: golden.moved_plan(stored(settings, f"plans/{name}.json")) for name in expected}
    for name, outcomes in expected.items():
        assert run(spark, plans[name]) == outcomes, name
        assert run(spark, plans[name]) == {again}, name


def run(spark: SparkSession, plan: Plan) -> set[Outcome]:
    from tideline_spark.merge import run_plan  # heavy

    receipt = run_plan(spark, plan)
    assert not [one.error for one in receipt.tables if one.error], receipt
    return {one.outcome for one in receipt.tables}


def finish_rebuilds(golden: Golden, settings: Settings, spark: SparkSession) -> None:
    """Rebuilds are joined and go on: one that is swapped, one whose live table has moved on since
    its table was built, and one that was only asked for, in another mode."""
    steps = {"past": 0, "big": 2, "soft": 2}
    for table, expected in steps.items():
        name = golden.name(table)
        [*_, newest] = records = rebuild_records(settings, name)
        assert len(records) == 1 and newest.build == 1
        if table != "past":
            assert begin_rebuild(settings, name, mode=newest.mode, asked=newest.asked) == newest
        taken = 0
        while plan := next_step(settings, newest):
            assert run(spark, plan) == {Outcome.APPLIED}, table
            taken += 1
        assert taken == expected, table
        assert applied_state(settings).tables[name].mode is newest.mode
    assert rebuild_records(settings, golden.name("soft"))[0].mode is Mode.CURRENT
    assert not list((golden.folder / "warehouse" / "~rebuild").glob("*/*/*"))


def rebuild_records(settings: Settings, table: str) -> list[RebuildRecord]:
    store = open_store(settings.store)
    keys = sorted(store.list(layout.rebuilds_prefix(settings.pipeline, parse_table(table))))
    return [decode_rebuild(raw, key) for key in keys if (raw := store.get(key)) is not None]


def run_stored_order(golden: Golden, settings: Settings, spark: SparkSession) -> None:
    """Maintenance that was ordered and not run."""
    from tideline_spark.maintain import maintain  # heavy

    receipt = maintain(spark, golden.moved_order(stored(settings, "maintenance/ordered.json")))
    assert {one.table for one in receipt.tables} == {golden.name(table) for table in TABLES}
    assert MaintenanceOutcome.FAILED not in {one.outcome for one in receipt.tables}, receipt


def restore_queue(valkey: ValkeyServer, golden: Golden, shop: Pipeline[Stand]) -> None:
    """What the release before has left in Valkey: requests that nothing has read yet, commands,
    answers, and its workers' last reports."""
    queue = redis.Redis.from_url(valkey.url())
    for key, (left_ms, dumped) in golden.queue.items():
        queue.restore(key, max(left_ms, 0), dumped)
    queue.close()
    with shop.asking() as client:
        assert shop.manifest().writer in {one.writer for one in client.workers()}
        answers = {one.request_id: one for one in shop.state().recent}
        assert client.answer("read") == answers["read"]


def source_of(
    golden: Golden, stand_in: StandIn, valkey: ValkeyServer, tail: ManifestEntry
) -> tuple[Stand, Path]:
    """The server that stands in, with what had happened after the worker's death, and the file
    with the settings for it."""
    source = stand_in(golden, tail.manifest)
    source.run(*golden.source["later"])
    url = source.source["url"]
    config = golden.folder / "tideline.toml"
    config.touch(mode=0o600)
    config.write_text(as_toml(settings_of(golden, url, valkey.url())))
    return source, config


def compare_what_was_read(golden: Golden, settings: Settings, jobs: SharedJobs) -> None:
    """The verification whose plan was made before, and not run."""
    result = jobs.compare(
        golden.moved_verification(stored(settings, "verifications/read~2E1/plan.json"))
    )
    assert {one.outcome for one in result.tables} <= {
        VerificationOutcome.EQUAL,
        VerificationOutcome.CHANGING,
    }, result
    store_verification(settings, result)
    assert read_verification(settings, "read.1") == result


def finish_requests(golden: Golden, shop: Pipeline[Stand]) -> None:
    """A worker takes the chain over, and what was asked of the one before it ends as asked."""
    before = shop.manifest()
    worker = shop.start()
    poll("the chain is taken over", lambda: shop.manifest().term == before.term + 1)
    opened = {one.request.request_id: one for one in shop.state().requests}
    assert opened["paused"].paused
    with shop.asking() as control_client:
        control_client.command(Command("go-on", Action.RESUME, requests=("paused",)))
    shop.hurry()
    shop.wait_state("all requests end", lambda found: ENDS.items() <= ends_of(found).items())
    assert not shop.state().requests
    shop.catch_up(worker)
    worker.terminate()
    again = [m for m in shop.manifests() if m.manifest_number > before.manifest_number]
    assert "check" in {one.request_id for m in again for one in m.verification_chunks}, (
        "it went on reading"
    )


def ends_of(state: OpenState) -> dict[str, RequestState]:
    return {one.request_id: one.state for one in state.recent}


def check_targets(golden: Golden) -> None:
    """Each is what the release before made of the same, and the source has."""
    for table in TABLES:
        found, expected = golden.target(table), golden.expected["warehouse"][table]
        assert counted(found) == counted(expected), table
    for table in ALIKE:
        rows = golden.expected["source"][table]
        assert len(golden.target(table)) == len(rows), table


def prove(golden: Golden, shop: Pipeline[Stand], jobs: SharedJobs) -> None:
    """The verification that was half read, and one that is asked for now."""
    ended = next(one for one in shop.state().recent if one.request_id == "check")
    assert ended.manifest_number is not None
    names = [golden.name(table) for table in ("now", "past")]
    planned = plan_verification(
        shop.settings,
        "check",
        verify_id="check.1",
        finished_in=ended.manifest_number,
        tables=names,
        last_call=True,
    )
    results = {one.table: one.outcome for one in jobs.compare(planned.plan).tables}
    assert results.keys() == set(names) and set(results.values()) <= {
        VerificationOutcome.EQUAL,
        VerificationOutcome.CHANGING,
    }
    worker = shop.start()
    tables = tuple(golden.name(table) for table in ("now", "soft", "past", "big"))
    request = DumpRequest("now-all", tables, purpose="verify")
    result = VerificationRun(shop.settings, jobs, request, passes_max=2).run(repair=False)
    assert {one.table: one.outcome for one in result.tables} == dict.fromkeys(
        tables, VerificationOutcome.EQUAL
    )
    worker.terminate()
