"""The plan that is made from manifests and what is applied: pure, so are these tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import pytest

from tideline.contract.errors import CorruptData, InvariantBroken
from tideline.contract.manifest import (
    DeleteBefore,
    Manifest,
    ManifestKind,
    Part,
    SchemaEvent,
    Truncate,
)
from tideline.contract.modes import Mode
from tideline.contract.open_state import OpenState, TableCondition, TableState
from tideline.contract.plan import (
    Applied,
    Plan,
    PlanScope,
    TablePlan,
    app_id,
    build_of,
    decode_plan,
    encode_plan,
    newest_generation,
)
from tideline.contract.planning.maker import make_plan
from tideline.contract.position import PostgresPosition, SourceIdentity
from tideline.contract.schema import Column, TableSchema

T = "public.t"
U = "public.u"


def schema(table: str = T, **columns: str) -> TableSchema:
    kinds = columns or {"id": "int64", "a": "string"}
    return TableSchema(table, tuple(Column(n, k, k) for n, k in kinds.items()), ("id",))


PLAIN = schema()
OTHER = schema(U)
SCHEMAS = {each.fingerprint: each for each in (PLAIN, OTHER)}


def part(first: int, last: int, table: str = T, **changes: Any) -> Part:
    fingerprint = (PLAIN if table == T else OTHER).fingerprint
    made = Part(
        key=f"p/{table}/{first}",
        table=table,
        schema=fingerprint,
        rows=last - first + 1,
        operations={"c": last - first + 1},
        bytes=100,
        digest="00",
        first_seq=first,
        last_seq=last,
        key_min=str(first),
        key_max=str(last),
    )
    return msgspec.structs.replace(made, **changes)


def manifest(number: int, *, size: int = 10, **content: Any) -> Manifest:
    """Manifest ``number`` of a chain whose manifests hold ``size`` sequences each."""
    return Manifest(
        pipeline="shop",
        incarnation="one",
        manifest_number=number,
        term=1,
        writer="w",
        previous_digest="",
        kind=ManifestKind.SEGMENT,
        first_seq=(number - 1) * size + 1,
        last_seq=number * size,
        position=PostgresPosition(number),
        identity=SourceIdentity("postgres", "7", 1, "shop"),
        source_time_us=number * 1_000_000,
        **content,
    )


def chain(last: int, **by_table: Sequence[int]) -> list[Manifest]:
    """Manifests 1 to ``last``, with a part of a table in each of the numbers given."""
    tables = {"t": T, "u": U}
    return [
        manifest(
            number,
            parts=tuple(
                part(number * 10 - 9, number * 10, tables[name])
                for name, numbers in by_table.items()
                if number in numbers
            ),
        )
        for number in range(1, last + 1)
    ]


def states(last: int = 0, **changes: Any) -> OpenState:
    state = TableState(schema=PLAIN.fingerprint, last_data_manifest=last, complete_seq=0)
    return OpenState(tables={T: msgspec.structs.replace(state, **changes)})


def plan_of(
    manifests: Sequence[Manifest],
    state: OpenState,
    applied: Mapping[str, Applied],
    schemas: Mapping[str, TableSchema] = SCHEMAS,
    **scope: Any,
) -> Plan:
    asked = PlanScope("p1", "file:///s", "file:///w", parts_max=100, bytes_max=10_000)
    asked = msgspec.structs.replace(asked, **scope)
    return make_plan(asked, manifests, state=state, applied=applied, schemas=schemas)


def only(plan: Plan) -> TablePlan:
    (table,) = plan.tables
    return table


@pytest.mark.parametrize(
    ("state", "through"),
    [
        ({}, 5_000_000),
        ({"complete_seq": None}, None),
        ({"complete_seq": 50}, 5_000_000),
        ({"complete_seq": 51}, None),
        ({"condition": TableCondition.NEEDS_RESNAPSHOT, "since_seq": 50}, None),
        ({"condition": TableCondition.NEEDS_RESNAPSHOT, "since_seq": 51}, 5_000_000),
        ({"condition": TableCondition.QUARANTINED, "since_seq": 30}, None),
        ({"condition": TableCondition.QUARANTINED}, None),
    ],
)
def test_nothing_is_called_complete_that_lacks_anything(
    state: dict[str, Any], through: int | None
) -> None:
    plan = plan_of(chain(5, t=[5]), states(5, **state), {T: Applied(manifest=2, exists=True)})
    assert only(plan).complete_through_us == through


def test_columns_that_were_dropped_are_named_unless_they_are_back() -> None:
    state = states(5, dropped={"b": "string", "a": "int32"})
    plan = plan_of(chain(5, t=[5]), state, {T: Applied(manifest=2, exists=True)})
    assert only(plan).dropped == ("b",)


def test_a_table_is_brought_from_what_is_applied_to_the_tail() -> None:
    manifests = chain(5, t=[2, 3, 5])
    plan = plan_of(manifests, states(5), {T: Applied(manifest=2, seq=20, exists=True)})
    table = only(plan)
    assert (table.from_manifest, table.from_seq, table.to_manifest, table.to_seq) == (2, 20, 5, 50)
    assert [planned.first_seq for planned in table.parts] == [21, 41]
    assert (table.key_min, table.key_max) == ("21", "50")
    assert (table.create, table.replace, table.delete_before) == (False, False, None)
    assert table.complete_through_us == 5_000_000
    assert table.app_id == app_id("shop", "one", T, 0)
    assert table.target == "file:///w/public/t"
    assert (plan.to_manifest, plan.tail, plan.delayed) == (5, 5, {})


def test_an_idle_table_needs_no_commit_and_holds_nothing_back() -> None:
    state = OpenState(
        tables={
            T: TableState(schema=PLAIN.fingerprint, last_data_manifest=2),
            U: TableState(schema=OTHER.fingerprint, last_data_manifest=9),
        }
    )
    applied = {
        T: Applied(manifest=2, seq=20, exists=True),
        U: Applied(manifest=8, seq=80, exists=True),
    }
    plan = plan_of(chain(9, u=[9])[8:], state, applied)
    assert [table.table for table in plan.tables] == [U]


def test_tables_start_where_each_stands_and_end_together() -> None:
    state = OpenState(
        tables={
            T: TableState(schema=PLAIN.fingerprint, last_data_manifest=4),
            U: TableState(schema=OTHER.fingerprint, last_data_manifest=3),
        }
    )
    applied = {
        T: Applied(manifest=1, seq=10, exists=True),
        U: Applied(manifest=2, seq=20, exists=True),
    }
    plan = plan_of(chain(4, t=[1, 2, 4], u=[1, 2, 3]), state, applied)
    assert [(t.table, t.from_manifest, t.to_manifest, len(t.parts)) for t in plan.tables] == [
        (T, 1, 4, 2),
        (U, 2, 4, 1),
    ]


def test_nothing_past_a_missing_number() -> None:
    manifests = [m for m in chain(6, t=[2, 3, 5, 6]) if m.manifest_number != 4]
    plan = plan_of(manifests, states(6), {T: Applied(manifest=1, seq=10, exists=True)})
    assert (plan.to_manifest, only(plan).to_manifest, len(only(plan).parts)) == (3, 3, 2)
    assert plan.tail == 6


@pytest.mark.parametrize(
    ("caps", "end"), [({"parts_max": 2}, 4), ({"bytes_max": 250}, 4), ({"parts_max": 1}, 2)]
)
def test_caps_lower_the_end(caps: dict[str, int], end: int) -> None:
    manifests = chain(7, t=[2, 4, 5, 7])
    plan = plan_of(manifests, states(7), {}, SCHEMAS, **caps)
    last_without_more = {4: 4, 2: 3}[end]
    assert only(plan).to_manifest == last_without_more
    assert plan.to_manifest < plan.tail


def test_a_manifest_above_the_caps_is_taken_whole() -> None:
    huge = manifest(1, size=10, parts=tuple(part(n, n) for n in range(1, 11)))
    plan = plan_of([huge, *chain(2, t=[2])[1:]], states(2), {}, parts_max=3)
    assert len(only(plan).parts) == 10
    assert only(plan).to_manifest == 1


def test_parts_of_other_tables_do_not_count() -> None:
    plan = plan_of(chain(9, u=range(1, 9), t=[9]), states(9), {}, parts_max=1)
    assert only(plan).to_manifest == 9


def test_a_table_without_a_target_is_created_even_when_empty() -> None:
    event = SchemaEvent(1, T, PLAIN.fingerprint)
    manifests = [manifest(1, schema_events=(event,)), *chain(2)[1:]]
    table = only(plan_of(manifests, states(1), {}))
    assert (table.create, table.replace, table.parts) == (True, False, ())
    assert table.schema == PLAIN
    assert not plan_of(manifests, states(1), {T: Applied(manifest=2, seq=20, exists=True)}).tables


def test_a_table_is_not_created_before_it_has_a_schema() -> None:
    event = SchemaEvent(31, T, PLAIN.fingerprint)
    manifests = [*chain(3, u=[1, 2, 3]), manifest(4, schema_events=(event,))]
    both = states(4).tables[T], TableState(schema=OTHER.fingerprint, last_data_manifest=3)
    state = OpenState(tables=dict(zip((T, U), both, strict=True)))
    plan = plan_of(manifests, state, {}, parts_max=2)
    assert [table.table for table in plan.tables] == [U]
    assert plan_of(manifests, OpenState(tables={T: TableState()}), {}).tables == ()


def test_floor_and_truncates_of_the_range() -> None:
    manifests = chain(6, t=[2, 3, 4, 5, 6])
    content: dict[int, dict[str, Any]] = {
        2: {"deletes_before": (DeleteBefore(T, 1, "old"),)},
        4: {"truncates": (Truncate(31, T), Truncate(35, T), Truncate(36, U))},
        5: {"deletes_before": (DeleteBefore(T, 22, "dump"), DeleteBefore(U, 49, "dump"))},
    }
    manifests = [
        msgspec.structs.replace(m, **content.get(m.manifest_number, {})) for m in manifests
    ]
    applied = {T: Applied(manifest=2, seq=20, exists=True)}
    table = only(plan_of(manifests, states(6), applied))
    assert (table.delete_before, table.truncates) == (34, (31, 35))
    later = only(plan_of(manifests, states(6), {T: Applied(manifest=4, seq=40, exists=True)}))
    assert (later.delete_before, later.truncates) == (22, ())


@pytest.mark.parametrize(
    ("kinds", "bounds", "expected"),
    [
        (["int64", "int64"], [("-5", "9"), ("10", "100")], ("-5", "100")),
        (["int16", "int64"], [("1", "2"), ("3", "4")], ("1", "4")),
        (["int64", "int64"], [("1", "2"), (None, None)], (None, None)),
        (["date", "date"], [("2024-01-02", "2024-01-03"), ("1999-12-31", "2000-01-01")],
         ("1999-12-31", "2024-01-03")),
        (["timestamp"] * 2, [("2024-01-01 00:00:00+00:00", "2024-01-01 00:00:00.5+00:00"),
                             ("2024-01-01 00:00:00.25+00:00", "2024-01-01 00:00:01+00:00")],
         ("2024-01-01 00:00:00+00:00", "2024-01-01 00:00:01+00:00")),
        (["date", "date"], [("0044-03-15 BC", "2024-01-03"), ("1999-12-31", "2000-01-01")],
         (None, None)),
        (["int64", "decimal(22,0)"], [("1", "2"), ("3", "4")], (None, None)),
        (["string", "string"], [("a", "b"), ("c", "d")], (None, None)),
    ],
)  # fmt: skip
def test_key_bounds_are_compared_as_values(
    kinds: list[str], bounds: list[tuple[str, str]], expected: tuple[str | None, str | None]
) -> None:
    shapes = [schema(id=kind, n=f"decimal({at + 1},0)") for at, kind in enumerate(kinds)]
    manifests = [
        manifest(
            at,
            parts=(
                part(at * 10 - 9, at * 10, schema=shape.fingerprint, key_min=low, key_max=high),
            ),
        )
        for at, (shape, (low, high)) in enumerate(zip(shapes, bounds, strict=True), 1)
    ]
    state = states(2, schema=shapes[-1].fingerprint)
    found = {shape.fingerprint: shape for shape in shapes}
    table = only(plan_of(manifests, state, {}, found))
    assert (table.key_min, table.key_max) == expected
    assert set(table.schemas) == set(found)


def test_the_schema_is_that_of_the_plans_end_not_of_the_tail() -> None:
    wider = schema(id="int64", a="string", b="string")
    event = SchemaEvent(31, T, wider.fingerprint, before=PLAIN.fingerprint)
    later = part(32, 40, schema=wider.fingerprint)
    manifests = [*chain(3, t=[1, 2, 3]), manifest(4, schema_events=(event,), parts=(later,))]
    found = {**SCHEMAS, wider.fingerprint: wider}
    state = states(4, schema=wider.fingerprint)
    early = only(plan_of(manifests, state, {}, found, parts_max=3))
    assert (early.to_manifest, early.schema) == (3, PLAIN)
    late = only(plan_of(manifests, state, {}, found))
    assert (late.to_manifest, late.schema, len(late.schemas)) == (4, wider, 2)
    # A range with a floor only, before the event.
    floored = msgspec.structs.replace(
        manifests[1], parts=(), deletes_before=(DeleteBefore(T, 3, "dump"),)
    )
    run = [floored, msgspec.structs.replace(manifests[2], parts=()), manifests[3]]
    applied = {T: Applied(manifest=1, seq=10, exists=True)}
    blocked = states(
        4,
        schema=wider.fingerprint,
        condition=TableCondition.SCHEMA_BLOCKED,
        since_seq=31,
        reason="x",
    )
    assert only(plan_of(run, blocked, applied, found)).schema == PLAIN


def test_a_blocked_table_stops_before_its_event_and_others_go_on() -> None:
    manifests = chain(5, t=[1, 2, 3, 4, 5], u=[5])
    blocked = states(5, condition=TableCondition.SCHEMA_BLOCKED, since_seq=35, reason="retype a")
    tables = {**blocked.tables, U: TableState(schema=OTHER.fingerprint, last_data_manifest=5)}
    plan = plan_of(manifests, OpenState(tables=tables), {T: Applied(1, 10, exists=True)})
    assert [(table.table, table.to_manifest) for table in plan.tables] == [(T, 3), (U, 5)]
    assert plan.delayed == {T: "schema-blocked since sequence 35: retype a"}
    stands = {T: Applied(3, 30, exists=True)}
    assert plan_of(manifests[3:], blocked, stands).tables == ()


def test_a_quarantined_table_is_merged_to_where_it_stopped() -> None:
    quarantined = states(2, condition=TableCondition.QUARANTINED, since_seq=21, reason="no key")
    plan = plan_of(chain(4, t=[1, 2]), quarantined, {T: Applied(1, 10, exists=True)})
    assert len(only(plan).parts) == 1
    assert plan.delayed == {T: "quarantined since sequence 21: no key"}
    never = OpenState(tables={T: TableState(condition=TableCondition.QUARANTINED, reason="no key")})
    plan = plan_of(chain(2), never, {})
    assert (plan.tables, plan.delayed) == ((), {T: "quarantined: no key"})


def test_a_generation_starts_after_its_manifest_and_replaces_the_target() -> None:
    manifests = chain(6, t=[3, 4, 5, 6])
    mixed = msgspec.structs.replace(
        manifests[3],
        parts=(part(31, 33), part(34, 36), part(37, 40)),
        truncates=(Truncate(32, T),),
    )
    done = msgspec.structs.replace(manifests[5], deletes_before=(DeleteBefore(T, 35, "dump"),))
    run = [*manifests[:3], mixed, manifests[4], done]
    state = states(6, generation=2, generation_manifest=3, generation_seq=35)
    table = only(plan_of(run, state, {T: Applied(None, 30, exists=True)}))
    assert (table.from_manifest, table.from_seq, table.create, table.replace) == (3, 30, True, True)
    assert [planned.first_seq for planned in table.parts] == [34, 37, 41, 51]
    assert (table.delete_before, table.truncates) == (35, ())
    assert table.app_id.endswith("/2")
    assert only(plan_of(run, state, {T: Applied(None, 30)})).replace is False
    # Cut before the dump's end, what is older than the generation is left out all the same.
    cut = only(plan_of(run, state, {T: Applied(None, 30)}, parts_max=2))
    assert (cut.to_manifest, cut.delete_before) == (4, 35)


def test_a_restored_target_waits_for_a_full_dump_that_caps_do_not_cut() -> None:
    restored = {T: Applied(manifest=2, seq=20, exists=True, went_back=True)}
    manifests = chain(6, t=[3, 4, 5, 6])
    held = plan_of(manifests, states(6), restored)
    assert held.tables == ()
    assert "tideline dump public.t" in held.delayed[T]

    def with_floor(seq: int) -> list[Manifest]:
        done = msgspec.structs.replace(manifests[5], deletes_before=(DeleteBefore(T, seq, "dump"),))
        return [*manifests[:5], done]

    assert plan_of(with_floor(19), states(6), restored).tables == ()
    healed = only(plan_of(with_floor(20), states(6), restored, parts_max=1))
    assert (healed.to_manifest, healed.delete_before, len(healed.parts)) == (6, 20, 4)


@pytest.mark.parametrize("mode", [Mode.SOFT_DELETES, Mode.HISTORY, Mode.APPEND])
def test_no_dump_heals_a_restored_target_that_keeps_the_past(mode: Mode) -> None:
    restored = {T: Applied(manifest=2, seq=20, exists=True, went_back=True, mode=mode)}
    manifests = chain(6, t=[3, 4, 5, 6])
    manifests[5] = msgspec.structs.replace(
        manifests[5], deletes_before=(DeleteBefore(T, 20, "dump"),)
    )
    held = plan_of(manifests, states(6), restored)
    assert held.tables == ()
    assert f"tideline rebuild {T} --mode {mode.value}" in held.delayed[T]


def test_of_what_a_target_has_applied_its_newest_generation_is_known() -> None:
    apps = [app_id("shop", "i", T, 0), app_id("shop", "i", T, 10, 3), "shop/i/public.t2/99"]
    apps += [f"{app_id('shop', 'i', T, 9)}/columns", "shop/i/public.t/x", "someone's/12"]
    for mine in (app_id("shop", "i", T, 0), app_id("shop", "i", T, 2, 1)):
        assert newest_generation(apps, mine) == 10
        assert newest_generation(apps[2:], mine) == 9
        assert newest_generation([], mine) == -1
        assert newest_generation([mine], mine) == build_of(mine) * 2
    # A name's signs are not a pattern's.
    assert newest_generation(["shop/i/publicxt/7"], app_id("shop", "i", T, 0)) == -1


def test_a_problem_holds_its_table_only() -> None:
    tables = {**states(2).tables, U: TableState(schema=OTHER.fingerprint, last_data_manifest=2)}
    applied = {T: Applied(problem="gone wrong")}
    plan = plan_of(chain(2, t=[2], u=[2]), OpenState(tables=tables), applied)
    assert [table.table for table in plan.tables] == [U]
    assert plan.delayed == {T: "gone wrong"}


def test_manifests_that_begin_too_late_are_a_bug_of_the_caller() -> None:
    manifests = chain(5, t=[2, 5])[3:]
    with pytest.raises(InvariantBroken):
        plan_of(manifests, states(5), {T: Applied(manifest=1, seq=10, exists=True)})
    proven = {T: Applied(manifest=1, seq=10, exists=True, clear_until=3)}
    assert len(only(plan_of(manifests, states(5), proven)).parts) == 1
    with pytest.raises(InvariantBroken):
        plan_of([], states(5), {})


def test_only_the_tables_asked_for() -> None:
    tables = {**states(2).tables, U: TableState(schema=OTHER.fingerprint, last_data_manifest=2)}
    plan = plan_of(chain(2, t=[2], u=[2]), OpenState(tables=tables), {}, tables=(U,))
    assert [table.table for table in plan.tables] == [U]


def test_a_plan_round_trips_and_strangers_are_refused() -> None:
    plan = plan_of(chain(3, t=[1, 3]), states(3), {})
    assert decode_plan(encode_plan(plan)) == plan
    newer = msgspec.structs.replace(plan, requires=("time-travel",))
    with pytest.raises(CorruptData, match="time-travel"):
        decode_plan(encode_plan(newer))
    with pytest.raises(CorruptData):
        decode_plan(b'{"plan_id": 1}')
