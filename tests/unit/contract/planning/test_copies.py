"""Plans of a table without a key hold a copy as a whole, or nothing of it."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest

from tests.unit.contract.planning.test_maker import manifest, part
from tideline.contract.manifest import Copied, DeleteBefore, Manifest
from tideline.contract.open_state import (
    OpenRequest,
    OpenState,
    TableDump,
    TableState,
)
from tideline.contract.plan import Applied, Plan, PlanScope
from tideline.contract.planning.maker import make_plan
from tideline.contract.request import DumpRequest
from tideline.contract.schema import Column, TableSchema

T = "public.t"
BAG = TableSchema(T, (Column("a", "int64", "bigint"),), ())
COPY = Copied(first_manifest=3, last_seq=60, rows=30)


def copied_chain(last: int, *, done: bool = True) -> list[Manifest]:
    """Every manifest has a part; 4 to 6 hold the rows of a copy, which 7 ends."""
    found = []
    for number in range(1, last + 1):
        operations = {"r": 10} if number in (4, 5, 6) else {"c": 10}
        own = part(number * 10 - 9, number * 10, schema=BAG.fingerprint, operations=operations)
        deletes_before = (DeleteBefore(T, 35, "d", COPY),) if done and number == 7 else ()
        found.append(manifest(number, parts=(own,), deletes_before=deletes_before))
    return found


def plan(
    manifests: Sequence[Manifest],
    *,
    applied: Applied,
    parts_max: int = 100,
    dumping: bool | str = False,
    tail: int | None = None,
) -> Plan:
    state_of = dumping if isinstance(dumping, str) else "running"
    dump = TableDump(T, state_of, first_low_seq=35, first_manifest=3)
    requests = (OpenRequest(DumpRequest("d", (T,)), (dump,)),) if dumping else ()
    last = tail or manifests[-1].manifest_number
    state = TableState(schema=BAG.fingerprint, last_data_manifest=last, complete_seq=0)
    scope = PlanScope("p", "file:///s", "file:///w", parts_max, 10_000)
    return make_plan(
        scope,
        manifests,
        state=OpenState(requests, {T: state}),
        applied={T: applied},
        schemas={BAG.fingerprint: BAG},
        tail=tail,
    )


@pytest.mark.parametrize("from_manifest", [0, 1, 3])
@pytest.mark.parametrize("parts_max", [1, 2, 3, 4, 5, 6, 100])
def test_caps_do_not_cut_a_copy(from_manifest: int, parts_max: int) -> None:
    applied = Applied(from_manifest, seq=from_manifest * 10, exists=True)
    made = plan(copied_chain(9), applied=applied, parts_max=parts_max)
    (table,) = made.tables
    assert table.to_manifest <= 3 or table.to_manifest >= 7
    assert (table.copied == COPY, table.delete_before == 35) == (table.to_manifest >= 7,) * 2
    assert table.to_manifest > from_manifest


def test_one_that_is_under_way_is_not_begun() -> None:
    applied = Applied(1, seq=10, exists=True)
    (table,) = plan(copied_chain(6, done=False), applied=applied, dumping=True).tables
    assert (table.to_manifest, table.copied) == (3, None)
    standing = Applied(3, seq=30, exists=True)
    assert plan(copied_chain(6, done=False), applied=standing, dumping=True).tables == ()


def test_one_that_ended_does_not_wait_for_other_tables_of_its_request() -> None:
    (table,) = plan(copied_chain(8), applied=Applied(), dumping="done").tables
    assert (table.to_manifest, table.create, table.copied) == (8, True, COPY)


def test_one_whose_end_is_not_in_sight_is_not_begun() -> None:
    applied = Applied(1, seq=10, exists=True)
    (table,) = plan(copied_chain(6, done=False), applied=applied, tail=9).tables
    assert (table.to_manifest, table.copied) == (3, None)


def test_one_that_was_given_up_counts_for_nothing() -> None:
    applied = Applied(1, seq=10, exists=True)
    (table,) = plan(copied_chain(6, done=False), applied=applied).tables
    assert (table.to_manifest, table.copied, table.delete_before) == (6, None, None)


def test_no_target_is_made_without_one() -> None:
    made = plan(copied_chain(6, done=False), applied=Applied())
    assert made.tables == () and "no copy" in made.delayed[T]
    (table,) = plan(copied_chain(7), applied=Applied()).tables
    assert (table.create, table.copied) == (True, COPY)


def test_a_change_log_needs_none() -> None:
    from tideline.contract.modes import Mode

    applied = msgspec.structs.replace(Applied(1, seq=10, exists=True), mode=Mode.APPEND)
    (table,) = plan(copied_chain(6, done=False), applied=applied, dumping=True).tables
    assert table.to_manifest == 6
