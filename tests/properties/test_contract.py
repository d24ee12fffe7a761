"""Properties of the contract: names stay apart, documents and texts survive a round trip."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Literal

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.contract.documents import first_manifest, following, manifest_number, part
from tideline.contract import layout
from tideline.contract.errors import CorruptData, InvariantBroken
from tideline.contract.manifest import (
    DeleteBefore,
    Manifest,
    Part,
    SchemaEvent,
    Truncate,
    decode_manifest,
    encode_manifest,
    roll_forward,
)
from tideline.contract.open_state import (
    OpenRequest,
    OpenState,
    TableCondition,
    TableDump,
    TableState,
)
from tideline.contract.patterns import matches
from tideline.contract.plan import Plan, PlannedPart, TablePlan, decode_plan, encode_plan
from tideline.contract.position import PostgresPosition, format_lsn, parse_lsn
from tideline.contract.receipt import (
    Outcome,
    Receipt,
    TableReceipt,
    decode_receipt,
    encode_receipt,
)
from tideline.contract.request import (
    Answer,
    DumpRequest,
    RequestState,
    TableProgress,
    TimeRange,
    encode_answer,
    encode_request,
    parse_answer,
    parse_request,
)
from tideline.contract.schema import Column, TableId, TableSchema, difference, parse_table
from tideline.contract.types import (
    DECIMAL_PRECISION_MAX,
    Kind,
    LogicalType,
    decimal,
    parse_type,
    widens,
)
from tideline.settings import Store
from tideline.store.chain import Chain
from tideline.store.objects import ObjectStore

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=30)
NAMES = TEXT.filter(bool) | st.text('ab_.~/% "*[', min_size=1, max_size=130)
TABLES = st.builds(TableId, NAMES, NAMES)
NUMBERS = st.integers(1, 10**20 - 1)
HEX = st.text("0123456789abcdef", min_size=1, max_size=16)


@st.composite
def logical_types(draw: st.DrawFn) -> LogicalType:
    kind = draw(st.sampled_from(Kind))
    if kind is not Kind.DECIMAL:
        return LogicalType(kind)
    precision = draw(st.integers(1, DECIMAL_PRECISION_MAX))
    return decimal(precision, draw(st.integers(0, precision)))


@given(NAMES, NAMES)
def test_encoded_names_stay_apart(one: str, other: str) -> None:
    assert (layout.encode_name(one) == layout.encode_name(other)) == (one == other)


@given(NAMES)
def test_encoded_names_are_safe_segments(name: str) -> None:
    encoded = layout.encode_name(name)
    assert 1 <= len(encoded) <= 100
    assert encoded[0] != "_"
    assert not set(encoded) - set(
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-~"
    )


@given(TABLES, TABLES, HEX, HEX)
def test_keys_and_paths_of_tables_stay_apart(
    one: TableId, other: TableId, fingerprint: str, nonce: str
) -> None:
    keys = {layout.part_key("p", 1, table, fingerprint, nonce) for table in (one, other)}
    paths = {layout.table_path("file:///w", table) for table in (one, other)}
    assert len(keys) == len(paths) == (1 if one == other else 2)


@given(st.lists(NUMBERS, min_size=2, max_size=5))
def test_manifest_keys_sort_like_numbers(numbers: list[int]) -> None:
    keys = [layout.manifest_key("p", number) for number in sorted(numbers)]
    assert keys == sorted(keys)


@given(TABLES)
def test_table_text_round_trip(table: TableId) -> None:
    assert parse_table(str(table)) == table


@given(TABLES, TABLES)
def test_a_tables_text_as_a_pattern_means_that_table(table: TableId, other: TableId) -> None:
    assert matches(table, [str(table)])
    assert matches(other, [str(table)]) == (table == other)


@given(logical_types())
def test_type_text_round_trip(logical: LogicalType) -> None:
    assert parse_type(str(logical)) == logical


@given(logical_types(), logical_types(), logical_types())
def test_widening_is_an_order(one: LogicalType, two: LogicalType, three: LogicalType) -> None:
    assert widens(one, one)
    assert not (widens(one, two) and widens(two, one)) or one == two
    assert not (widens(one, two) and widens(two, three)) or widens(one, three)


@given(st.integers(0, 2**64 - 1))
def test_lsn_text_round_trip(lsn: int) -> None:
    assert parse_lsn(format_lsn(lsn)) == lsn


@st.composite
def schemas(draw: st.DrawFn) -> TableSchema:
    names = draw(st.lists(NAMES, min_size=1, max_size=5, unique=True))
    columns = tuple(
        Column(name, str(draw(logical_types())), draw(TEXT), draw(st.booleans())) for name in names
    )
    key = tuple(draw(st.lists(st.sampled_from(names), min_size=1, unique=True)))
    return TableSchema("public.t", columns, key)


@given(schemas(), schemas())
def test_equal_schemas_have_equal_fingerprints_and_no_difference(
    old: TableSchema, new: TableSchema
) -> None:
    assert (old == new) == (old.fingerprint == new.fingerprint) == (difference(old, new) == ())
    again = msgspec.json.decode(msgspec.json.encode(old), type=TableSchema)
    assert again.fingerprint == old.fingerprint
    assert difference(old, old) == ()


KEY_LISTS = st.integers(1, 3).flatmap(
    lambda width: st.lists(st.tuples(*[TEXT] * width), min_size=1, max_size=4).map(tuple)
)
TIMES = st.builds(TimeRange, column=NAMES, start=TEXT, end=TEXT)
SCOPES = st.tuples(KEY_LISTS, st.none()) | st.tuples(st.none(), st.none() | TIMES)


@st.composite
def requests(draw: st.DrawFn) -> DumpRequest:
    keys, time = draw(SCOPES)
    return DumpRequest(
        draw(st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_.:+/@=-]{0,199}", fullmatch=True)),
        tuple(draw(st.lists(NAMES, min_size=1, max_size=1 if keys else 4))),
        keys=keys,
        time=time,
        chunk_rows=draw(st.none() | st.integers(1, 1_000_000)),
        delay_ms=draw(st.none() | st.integers(0, 3_600_000)),
        requested_by=draw(TEXT),
    )


@given(requests())
def test_request_round_trip(request: DumpRequest) -> None:
    assert parse_request(encode_request(request)) == request


PROGRESS = st.builds(
    TableProgress,
    table=TABLES.map(str),
    state=st.sampled_from(RequestState),
    chunks=st.integers(0, 9),
    rows_estimate=st.none() | st.integers(0, 2**60),
    waiting=st.none() | TEXT,
)
ANSWERS = st.builds(
    Answer,
    request_id=TEXT,
    state=st.sampled_from(RequestState),
    manifest_number=st.none() | st.integers(1, 2**60),
    tables=st.lists(PROGRESS, max_size=3).map(tuple),
    error=st.none() | TEXT,
    hint=st.none() | TEXT,
)


@given(ANSWERS)
def test_answer_round_trip(answer: Answer) -> None:
    assert parse_answer(encode_answer(answer)) == answer


@st.composite
def parts_of(draw: st.DrawFn, first: int, last: int) -> tuple[Part, ...]:
    made = []
    while first <= last:
        end = draw(st.integers(first, last))
        rows = end - first + 1
        inserts = draw(st.integers(0, rows))
        counts = {op: n for op, n in (("c", inserts), ("d", rows - inserts)) if n}
        bounds = draw(st.none() | st.just("-5"))
        made.append(part(first, end, table=str(draw(TABLES)), operations=counts, key_min=bounds))
        first = end + 1
    return tuple(made)


STATES = st.builds(
    TableState,
    condition=st.sampled_from(TableCondition),
    schema=st.none() | HEX,
    last_data_manifest=st.integers(0, 9),
    since_seq=st.none() | st.integers(1, 9),
    reason=st.none() | TEXT,
)
DUMPS = st.builds(
    TableDump,
    table=TABLES.map(str),
    first_low_seq=st.none() | st.integers(0, 9),
    last_key=st.none() | st.lists(TEXT, max_size=3).map(tuple),
)
OPEN_REQUESTS = st.builds(OpenRequest, requests(), st.lists(DUMPS, max_size=3).map(tuple))
OPEN_STATES = st.builds(
    OpenState,
    st.lists(OPEN_REQUESTS, max_size=2).map(tuple),
    st.dictionaries(TABLES.map(str), STATES, max_size=3),
)


@st.composite
def manifests(draw: st.DrawFn) -> Manifest:
    rows = draw(st.integers(0, 20))
    manifest = following(first_manifest(), rows=rows)
    table = draw(TABLES.map(str))
    in_full = draw(st.none() | OPEN_STATES)
    return msgspec.structs.replace(
        manifest,
        last_seq=rows + 2,
        position=PostgresPosition(draw(st.integers(0, 2**64 - 1))),
        source_time_us=draw(st.none() | st.integers(0, 2**53)),
        parts=draw(parts_of(1, rows)),
        schema_events=(SchemaEvent(rows + 1, table, "ff", changes=(draw(TEXT),)),),
        truncates=(Truncate(rows + 2, table),),
        deletes_before=(DeleteBefore(table, 1, "r"),),
        state=in_full,
        state_at=1 if in_full is None else None,
        released=draw(st.booleans()),
    )


@given(manifests())
def test_manifest_round_trip(manifest: Manifest) -> None:
    raw = encode_manifest(manifest)
    assert decode_manifest(raw) == manifest
    assert encode_manifest(decode_manifest(raw)) == raw


@given(manifests(), st.integers(-3, 3), st.integers(-3, 3))
def test_a_manifest_with_moved_sequences_is_never_written(
    manifest: Manifest, first: int, last: int
) -> None:
    moved = msgspec.structs.replace(
        manifest, first_seq=manifest.first_seq + first, last_seq=manifest.last_seq + last
    )
    try:
        encode_manifest(moved)
    except InvariantBroken:
        assert (first, last) != (0, 0)
    else:
        assert (first, last) == (0, 0)


@given(manifests(), st.data())
def test_damaged_bytes_are_never_another_error(manifest: Manifest, data: st.DataObject) -> None:
    raw = bytearray(encode_manifest(manifest))
    at = data.draw(st.integers(0, len(raw) - 1))
    raw[at] = data.draw(st.integers(0, 255))
    try:
        decode_manifest(bytes(raw))
    except CorruptData:
        return


@given(OPEN_STATES, st.lists(manifests(), max_size=4), st.integers(0, 4))
def test_rolling_forward_in_two_steps_is_the_same(
    state: OpenState, later: list[Manifest], cut: int
) -> None:
    halfway = roll_forward(state, later[:cut])
    assert roll_forward(halfway, later[cut:]) == roll_forward(state, later)


HELD = st.dictionaries(TABLES.map(str), TEXT, max_size=2)
PLANNED_PARTS = st.builds(
    PlannedPart,
    key=TEXT,
    schema=HEX,
    rows=st.integers(1, 2**40),
    operations=st.dictionaries(st.sampled_from("cudr"), st.integers(1, 9)),
    bytes=st.integers(1, 2**40),
    first_seq=st.integers(1, 2**63 - 1),
    last_seq=st.integers(1, 2**63 - 1),
)


@st.composite
def table_plans(draw: st.DrawFn) -> TablePlan:
    schema = draw(schemas())
    return TablePlan(
        table=str(draw(TABLES)),
        target=draw(TEXT),
        schema=schema,
        schemas={schema.fingerprint: schema},
        parts=tuple(draw(st.lists(PLANNED_PARTS, max_size=3))),
        from_manifest=draw(st.integers(0, 9)),
        from_seq=0,
        to_manifest=draw(NUMBERS.filter(lambda number: number < 2**63)),
        to_seq=2**63 - 1,
        app_id=draw(TEXT),
        delete_before=draw(st.none() | st.integers(0, 9)),
        truncates=tuple(draw(st.lists(st.integers(1, 9), max_size=2))),
        replace=draw(st.booleans()),
        key_min=draw(st.none() | TEXT),
    )


PLANS = st.builds(
    Plan,
    plan_id=TEXT,
    pipeline=TEXT,
    incarnation=TEXT,
    store_url=TEXT,
    to_manifest=st.integers(0, 9),
    tables=st.lists(table_plans(), max_size=2).map(tuple),
    delayed=HELD,
)


@given(PLANS)
def test_plan_round_trip(plan: Plan) -> None:
    assert decode_plan(encode_plan(plan)) == plan


TABLE_RECEIPTS = st.builds(
    TableReceipt,
    table=TABLES.map(str),
    outcome=st.sampled_from(Outcome),
    applied_manifest=st.integers(0, 9),
    applied_seq=st.integers(0, 2**63 - 1),
    complete_through_us=st.none() | st.integers(0, 2**60),
    external_changes=st.lists(TEXT, max_size=2).map(tuple),
    seconds=st.floats(0, 1e6),
    error=st.none() | TEXT,
)
RECEIPTS = st.builds(
    Receipt,
    plan_id=TEXT,
    pipeline=TEXT,
    incarnation=TEXT,
    tables=st.lists(TABLE_RECEIPTS, max_size=3).map(tuple),
    delayed=HELD,
)


@given(RECEIPTS)
def test_receipt_round_trip(receipt: Receipt) -> None:
    assert decode_receipt(encode_receipt(receipt)) == receipt


class Numbers:
    """A client that knows manifests by number only."""

    def __init__(self, last: int) -> None:
        self.last = last

    def head(self, path: str) -> object:
        if not 1 <= manifest_number(path) <= self.last:
            raise FileNotFoundError(path)
        return {}

    def get(self, path: str) -> Any:
        raise FileNotFoundError(path)

    def put(
        self, path: str, file: bytes, *, mode: Literal["create", "overwrite"], use_multipart: bool
    ) -> object:
        raise NotImplementedError(path)

    def delete(self, paths: str) -> None:
        raise NotImplementedError(paths)

    def list(
        self, prefix: str, *, offset: str | None = None, chunk_size: int = 1
    ) -> Iterable[Sequence[Any]]:
        raise NotImplementedError(prefix)


class KnownByNumber(Chain):
    """Says the tail's number by way of the error for a manifest that vanished after the search."""

    def number(self, hint: int) -> int:
        try:
            self.tail(hint)
        except CorruptData as error:
            return int(error.message.split()[1])
        return 0


@given(st.integers(0, 3000), st.integers(-2, 5000))
def test_the_tail_is_what_a_linear_search_finds(last: int, hint: int) -> None:
    client = Numbers(last)
    linear = 0
    while linear < last:
        linear += 1
    chain = KnownByNumber(ObjectStore(Store(url="memory://numbers"), client), "shop")
    assert chain.number(hint) == linear
