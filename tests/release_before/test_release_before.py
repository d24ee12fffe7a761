"""Reading what the release before has written: every document, the chain, the targets' logs."""

from __future__ import annotations

import re
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from tests.release_before.golden import (
    BEFORE,
    OPEN,
    RELEASES,
    TABLES,
    Golden,
    chain_of,
    planner_settings,
)
from tests.release_before.make_golden import RECIPE
from tideline.contract.block import decode_block
from tideline.contract.description import decode_description
from tideline.contract.maintenance import decode_maintenance_receipt, decode_order
from tideline.contract.manifest import ManifestKind, decode_manifest
from tideline.contract.plan import decode_plan
from tideline.contract.rebuild import decode_rebuild
from tideline.contract.receipt import decode_receipt
from tideline.contract.schema import decode_schema
from tideline.contract.timeliness import decode_run
from tideline.contract.verification import (
    decode_verification,
    decode_verified,
    decode_verify_plan,
)
from tideline.planner import applied_state, plan_merge
from tideline.planner.consumers import known_consumers
from tideline.planner.table_status import TableStage
from tideline.store.objects import open_store

READERS: dict[str, Callable[..., Any]] = {
    r"log/\d+": decode_manifest,
    r"blocks/\d+": decode_block,
    r"schemas/\w+": decode_schema,
    r"descriptions/\w+": decode_description,
    r"plans/[^/]+": decode_plan,
    r"receipts/[^/]+": decode_receipt,
    r"rebuilds/[^/]+/\d+": decode_rebuild,
    r"runs/[^/]+": decode_run,
    r"maintenance/\w+": decode_order,
    r"maintenance/\w+\.receipt": decode_maintenance_receipt,
    r"verifications/[^/]+/plan": decode_verify_plan,
    r"verifications/[^/]+/result": decode_verification,
    r"verified/[^/]+": decode_verified,
    r"consumers/[^/]+": msgspec.json.Decoder(dict).decode,
}
"""By the keys that they read: consumers are read by the planner, below."""


def test_every_document_is_read(golden: Golden) -> None:
    read: set[str] = set()
    for key, raw in golden.documents():
        name = key.removeprefix("golden/").removesuffix(".json")
        [pattern] = [one for one in READERS if re.fullmatch(one, name)]
        READERS[pattern](raw)
        read.add(pattern)
    assert read == READERS.keys(), "the golden lacks a kind of document"


def test_the_chain_is_read_to_its_end(golden: Golden) -> None:
    settings = planner_settings(golden)
    chain, tail = chain_of(settings)
    number = tail.manifest.manifest_number
    kinds = [entry.manifest.kind for entry in chain.entries(1, number)]
    assert len(kinds) == number > 1_000 and chain.read_block(1) is not None
    assert {*ManifestKind} == set(kinds)
    state = chain.open_state(tail)
    opened = {one.request.request_id: one for one in state.requests}
    assert opened.keys() == OPEN
    assert {name for name, one in opened.items() if one.paused} == {"paused", "unwanted"}
    assert all(sum(dump.chunks for dump in opened[name].dumps) > 1 for name in ("check", "dump"))
    assert state.tables[golden.name("loose")].reason
    assert tail.manifest.term > 1 and not tail.manifest.released
    consumers = [one.name for one in known_consumers(settings, open_store(settings.store))]
    assert [name.partition(" at ")[0] for name in sorted(consumers)] == [
        *(f"the rebuild of {golden.name(table)}" for table in ("big", "past")),
        "the warehouse",
    ]


def test_the_planner_goes_on_where_the_targets_stand(golden: Golden) -> None:
    settings = planner_settings(golden)
    for name, progress in applied_state(settings).tables.items():
        assert progress.state is TableStage.ACTIVE, (name, progress)
    torn = golden.moved_plan(dict(golden.documents())["golden/plans/torn.json"])
    done = {one.table for one in torn.tables[:2]}
    plan = plan_merge(settings, plan_id="by-this-release")
    left = {golden.name(table) for table in TABLES} - done
    assert {one.table for one in plan.tables} == left, plan.delayed
    assert not plan.strayed and all(one.from_manifest is not None for one in plan.tables)


def test_the_recipe_is_the_one_that_made_it() -> None:
    recipe = Path(__file__).parent / f"make_{BEFORE.replace('.', '_')}.py.txt"
    with tarfile.open(RELEASES / f"{BEFORE}.tar.xz") as archive:
        made_by = archive.extractfile(RECIPE)
        assert made_by is not None and made_by.read() == recipe.read_bytes()


def test_goldens_are_small() -> None:
    sizes = {path.name: path.stat().st_size for path in RELEASES.glob("*.tar.xz")}
    assert f"{BEFORE}.tar.xz" in sizes
    assert max(sizes.values()) <= 1_000_000, sizes
