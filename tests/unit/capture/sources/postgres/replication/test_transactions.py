"""The log reader over a scripted stream: wherever batches are cut, the log says the same."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import psycopg2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fixtures.pgoutput_messages import (
    begin,
    commit,
    delete,
    described,
    insert,
    logical_message,
    of_relation,
    truncate,
    update,
)
from tideline.contract.errors import (
    CorruptData,
    Misconfigured,
    SourceLost,
    Unavailable,
)
from tideline.contract.position import PostgresPosition
from tideline.contract.schema import Column, TableSchema
from tideline_capture.core.events import (
    LogBatch,
    SchemaSeen,
    Truncated,
    UnknownWatermark,
    Watermark,
    WatermarkKind,
)
from tideline_capture.sources.postgres.replication.pgoutput import POSTGRES_EPOCH_US, Relation
from tideline_capture.sources.postgres.replication.relations import Relations
from tideline_capture.sources.postgres.replication.transactions import TransactionReader
from tideline_capture.sources.watermark_key import CLOCK_MAX_US, WatermarkKey

A, B, IGNORED, DATED = 16_384, 16_400, 16_500, 16_600
KEY = WatermarkKey("inc")
NAMES = {A: "public.a", B: "public.b", IGNORED: "public.ignored", DATED: "public.dated"}
CLOCK_US = 1_700_000_000_000_000
Said = tuple[Any, ...]
"""One thing that the log said, in order: a row, a control, a commit."""


@dataclass(frozen=True)
class _Message:
    payload: bytes
    data_start: int = 0


class FakeCursor:
    """A replication cursor that has ``messages``; None in between says: nothing more for now."""

    def __init__(self, messages: Iterable[bytes | None]) -> None:
        self.messages = list(messages)
        self.feedback: list[int | None] = []
        self.error: psycopg2.Error | None = None

    def read_message(self) -> _Message | None:
        if self.error is not None:
            raise self.error
        payload = self.messages.pop(0) if self.messages else None
        return None if payload is None else _Message(payload)

    def send_feedback(self, *, flush_lsn: int | None = None, force: bool) -> None:
        assert force
        self.feedback.append(flush_lsn)


class FakeRelations:
    """Every relation is known by its message alone; its first column is the key."""

    def __init__(self) -> None:
        self._schemas: dict[int, TableSchema] = {}

    def observe(self, relation: Relation, xid: int) -> SchemaSeen:
        date = relation.oid == DATED
        columns = tuple(
            Column(column.name, "date" if date else "string", "date" if date else "text", place > 0)
            for place, column in enumerate(relation.columns)
        )
        schema = TableSchema(f"{relation.schema}.{relation.name}", columns, (columns[0].name,))
        self._schemas[relation.oid] = schema
        return SchemaSeen(schema, xid)

    def schema(self, oid: int) -> TableSchema:
        return self._schemas[oid]


def written(kind: WatermarkKind, token: str, clock_us: int, *, key: WatermarkKey = KEY) -> bytes:
    """The content of a mark of ``key``'s session."""
    signature = key.sign(kind, token, clock_us)
    return f"{key.incarnation} {kind.value} {token} {clock_us} {signature}".encode()


def reader_of(
    messages: Iterable[bytes | None], **more: Any
) -> tuple[TransactionReader, FakeCursor]:
    cursor = FakeCursor(messages)
    made = TransactionReader(
        cursor,
        cast(Relations, FakeRelations()),
        key=KEY,
        captures=lambda table: table != NAMES[IGNORED],
        messages=("out", "outbox"),
        **more,
    )
    return made, cursor


@dataclass
class Script:
    """The messages of a stream, and what they say."""

    messages: list[bytes] = field(default_factory=list)
    reported: list[Said] = field(default_factory=list)
    seq: int = 0
    lsn: int = 1000

    def observe(self, relation: int, *columns: str) -> None:
        schema, name = NAMES[relation].split(".")
        self.messages.append(described(relation, schema, name, *columns))
        self.reported.append(("schema", NAMES[relation], columns))

    def row(self, relation: int, message: bytes, op: str, key: str, *, xid: int, ts: int) -> None:
        self.messages.append(of_relation(relation, message))
        if relation != IGNORED:
            self.seq += 1
            self.reported.append(("row", self.seq, op, NAMES[relation], key, xid, ts))

    def begin(self, xid: int, ts: int) -> None:
        self.messages.append(begin(xid, time_us=ts - POSTGRES_EPOCH_US))

    def commit(self, xid: int) -> None:
        self.lsn += 100
        self.messages.append(commit(self.lsn))
        self.reported.append(("commit", xid, self.lsn))


@st.composite
def scripts(draw: st.DrawFn) -> Script:
    script = Script()
    observed = [False]
    for number in range(draw(st.integers(1, 5))):
        xid, ts = 700 + number, CLOCK_US + number
        if draw(st.booleans()):
            prefix = draw(st.sampled_from(("other", "outbox")))
            script.messages.append(logical_message(prefix, b"x", transactional=False))
        script.begin(xid, ts)
        if not observed[0]:
            observed[0] = True
            for relation in (A, B, IGNORED):
                script.observe(relation, "k", "v")
        for kind in draw(st.lists(st.sampled_from("iudmtra"), max_size=6)):
            _extend(script, draw, kind, xid, ts)
        script.commit(xid)
    return script


def _extend(script: Script, draw: st.DrawFn, kind: str, xid: int, ts: int) -> None:
    relation = draw(st.sampled_from((A, B, IGNORED)))
    key = draw(st.sampled_from(("1", "2")))
    row = (key.encode(), b"value")
    if kind == "i":
        script.row(relation, insert(row), "c", key, xid=xid, ts=ts)
    elif kind == "u":
        script.row(relation, update(row, old_key=(b"0", None)), "u", key, xid=xid, ts=ts)
    elif kind == "d":
        script.row(relation, delete(old_key=(key.encode(), None)), "d", key, xid=xid, ts=ts)
    elif kind == "m":
        script.messages.append(logical_message("tideline", written(WatermarkKind.LOW, "token", 17)))
        script.reported.append(("mark", Watermark(WatermarkKind.LOW, "token", 17)))
    elif kind == "a":
        prefix = draw(st.sampled_from(("out", "outbox", "outbox2", "ou")))
        script.messages.append(logical_message(prefix, key.encode()))
        if prefix in ("out", "outbox"):
            script.seq += 1
            table = f"_tl_messages.{prefix}"
            script.reported.append(("row", script.seq, "c", table, key.encode(), xid, ts))
    elif kind == "t":
        script.messages.append(truncate(A, relation))
        script.reported.append(("truncate", (NAMES[A], NAMES[relation]), xid))
    else:
        script.observe(A, "k", "v")


def say(batch: LogBatch) -> list[Said]:
    """What a batch says, in log order; commits apart."""
    rows: list[Said] = []
    for part in (*batch.rows, *batch.messages):
        key = "_tl_content" if part in batch.messages else "k"
        names = ("_tl_seq", "_tl_op", key, "_tl_tx")
        columns = [part.batch.column(name).to_pylist() for name in names]
        times = part.batch.column("_tl_ts").cast("int64").to_pylist()
        for seq, op, key, xid, ts in zip(*columns, times, strict=True):
            rows.append(("row", seq, op, part.schema.table, key, xid, ts))
    assert len(rows) == batch.changes
    reported = sorted(rows, key=lambda row: row[1])
    for control in batch.controls:
        if isinstance(control, SchemaSeen):
            reported.append(("schema", control.schema.table, control.schema.column_names))
        elif isinstance(control, Truncated):
            reported.append(("truncate", control.tables, control.xid))
        else:
            reported.append(("mark", control))
    return reported


@given(script=scripts(), data=st.data())
@settings(max_examples=200, deadline=None)
def test_wherever_batches_are_cut_the_log_says_the_same(
    script: Script, data: st.DataObject
) -> None:
    gaps = data.draw(st.sets(st.integers(0, len(script.messages))), label="where nothing comes")
    stream = [
        m for n, one in enumerate(script.messages) for m in ((None, one) if n in gaps else (one,))
    ]
    reader, cursor = reader_of(stream)
    reported: list[Said] = []
    ended: list[int] = []
    open_xid: int | None = None
    next_seq = 1
    while cursor.messages:
        size = data.draw(st.integers(1, 6), label="messages")
        until_commit = data.draw(st.booleans(), label="until commit")
        count = reader.poll(size, until_commit=until_commit)
        assert count <= size
        if not (reader.must_take or data.draw(st.booleans(), label="take")) and cursor.messages:
            continue
        batch = reader.take(next_seq)
        next_seq += batch.changes
        reported += say(batch)
        ended += batch.transactions.tolist()
        consumed = len(script.messages) - sum(m is not None for m in cursor.messages)
        open_xid = _open_at(script.messages[:consumed])
        assert batch.in_transaction is (open_xid is not None)
        commits = [one for one in script.messages[:consumed] if one[:1] == b"C"]
        if batch.boundary is not None:
            assert not batch.in_transaction
            assert batch.boundary.position == PostgresPosition(1000 + 100 * len(commits))
        elif len(batch.transactions) and not batch.in_transaction:
            raise AssertionError("transactions ended, and nobody may resume after them")
    assert open_xid is None
    assert reported == [one for one in script.reported if one[0] != "commit"]
    assert ended == [one[1] for one in script.reported if one[0] == "commit"]


def _open_at(messages: Sequence[bytes]) -> int | None:
    ends = [message[:1] for message in messages if message[:1] in (b"B", b"C")]
    return 1 if ends and ends[-1] == b"B" else None


def take_all(*messages: bytes, next_seq: int = 1) -> LogBatch:
    """One batch of ``messages``, of which only the last may be a rare one; ``a`` is announced."""
    reader, _ = reader_of([begin(1), described(A, "public", "a", "k", "v"), *messages])
    reader.poll(2, until_commit=False)
    reader.take(1)
    reader.poll(1000, until_commit=False)
    return reader.take(next_seq)


class TestBoundary:
    def test_a_foreign_message_after_a_commit_hides_nothing(self) -> None:
        """Else the rows would be sealed under a position before them, and come again."""
        foreign = logical_message("other", b"x", transactional=False)
        batch = take_all(insert((b"1", b"a")), commit(2000), foreign)
        assert batch.boundary is not None
        assert batch.boundary.position == PostgresPosition(2000)

    def test_a_mark_inside_a_transaction_is_none(self) -> None:
        batch = take_all(
            commit(2000), begin(2), logical_message("tideline", written(WatermarkKind.HIGH, "t", 1))
        )
        assert (batch.boundary, batch.in_transaction) == (None, True)

    def test_an_empty_batch_is_none(self) -> None:
        reader, _ = reader_of([])
        batch = reader.take(1)
        assert (batch.boundary, batch.changes, batch.in_transaction) == (None, 0, False)

    def test_polling_ends_at_a_commit_when_it_shall(self) -> None:
        reader, _ = reader_of([begin(1), commit(10), begin(2), commit(20)])
        assert reader.poll(100, until_commit=True) == 2
        assert reader.at_commit
        assert reader.poll(100, until_commit=False) == 2
        assert len(reader.take(1).transactions) == 2
        assert not reader.at_commit


def test_large_rows_do_not_come_all_at_once() -> None:
    """Whoever polls looks in between at how much is in memory."""
    rows = [insert((b"%d" % n, b"x" * 400_000)) for n in range(50)]
    reader, _ = reader_of([begin(1), described(A, "public", "a", "k", "v"), *rows, commit(10)])
    reader.poll(100, until_commit=False)
    reader.take(1)
    assert reader.poll(2_000, until_commit=False) == 3
    assert reader.buffered_bytes < 2_000_000


class TestConfirm:
    def confirmed(self, *positions: int) -> list[int | None]:
        reader, cursor = reader_of([begin(1), commit(100), begin(2), commit(200)])
        for _ in range(2):
            reader.poll(100, until_commit=True)
            reader.take(1)
        for position in positions:
            reader.confirm(PostgresPosition(position))
        return cursor.feedback

    def test_the_byte_before_the_newest_durable_commit(self) -> None:
        assert self.confirmed(100, 200) == [89, 189]
        assert self.confirmed(200) == [189]

    def test_nothing_that_is_not_durable(self) -> None:
        assert self.confirmed(99) == [None]
        assert self.confirmed(150, 150) == [89, None]


class TestErrors:
    @pytest.mark.parametrize(
        ("text", "kind"),
        [
            ("server closed the connection unexpectedly", Unavailable),
            ('can no longer get changes from replication slot "s"', SourceLost),
            ('publication "tideline_p" does not exist', SourceLost),
        ],
    )
    def test_what_the_stream_says_is_named(self, text: str, kind: type[Exception]) -> None:
        reader, cursor = reader_of([])
        cursor.error = psycopg2.OperationalError(text)
        with pytest.raises(kind):
            reader.poll(1, until_commit=False)

    def test_a_row_outside_a_transaction_is_a_broken_log(self) -> None:
        reader, _ = reader_of([insert((b"1", b"a"))])
        reader.poll(1, until_commit=False)
        with pytest.raises(CorruptData, match="between 0/0 and 0/"):
            reader.take(1)


class TestLargeMessages:
    """Every role may send one of a gigabyte."""

    def test_those_of_others_are_not_kept(self) -> None:
        other = logical_message("another", b"x" * 100_000)
        reader, _ = reader_of([begin(1), other, other, commit(2000)])
        assert reader.poll(1000, until_commit=False) == 4
        assert not reader.must_take
        assert sum(map(len, reader._pending)) < 100
        batch = reader.take(1)
        assert batch.controls == ()
        assert batch.boundary is not None

    @pytest.mark.parametrize("prefix", ["", "x", "tideline"[:-1], "tidelines", "another"])
    @pytest.mark.parametrize("content", [b"", b"x", b"tideline"])
    def test_short_ones_of_others_are_passed_over(self, prefix: str, content: bytes) -> None:
        """A message shorter than one of ours once stopped the capture as a broken log."""
        other = logical_message(prefix, content)
        reader, _ = reader_of([begin(1), other, commit(2000)])
        assert reader.poll(1000, until_commit=False) == 3
        batch = reader.take(1)
        assert batch.controls == () and batch.boundary is not None

    @pytest.mark.parametrize("content", [b"", b"x"])
    def test_short_ones_with_our_prefix_are_not_ours(self, content: bytes) -> None:
        reader, _ = reader_of([begin(1), logical_message("tideline", content), commit(2000)])
        reader.poll(1000, until_commit=False)
        assert reader.take(1).controls == ()

    def test_those_that_look_like_ours_are_cut(self) -> None:
        content = written(WatermarkKind.LOW, "token", 17) + b"x" * 100_000
        reader, _ = reader_of([begin(1), logical_message("tideline", content)])
        reader.poll(1000, until_commit=False)
        assert sum(map(len, reader._pending)) < 1000
        assert reader.take(1).controls == (UnknownWatermark(),)

    def test_a_row_above_the_limit_stops(self) -> None:
        rows = [insert((b"1", b"x" * 50)), insert((b"2", b"x" * 1000))]
        messages = [begin(1), described(A, "public", "a", "k", "v"), *rows]
        reader, _ = reader_of(messages, event_bytes_max=1000)
        reader.poll(2, until_commit=False)
        reader.take(1)
        with pytest.raises(Misconfigured, match=r"behind .*event_bytes_max, 1000") as caught:
            reader.poll(1000, until_commit=False)
        assert "raise it" in str(caught.value.hint)
        reader, _ = reader_of(messages, event_bytes_max=len(rows[1]))
        reader.poll(2, until_commit=False)
        reader.take(1)
        reader.poll(1000, until_commit=False)
        assert reader.take(1).changes == 2

    def test_of_large_rows_the_heads_are_taken_apart(self) -> None:
        """The values are the same."""
        rows = [insert((b"%d" % number, b"y" * 9_000)) for number in range(5)]
        batch = take_all(*rows, commit(2000))
        assert batch.rows[0].batch.column("v").to_pylist() == ["y" * 9_000] * 5
        assert batch.transactions.tolist() == [1]
        assert batch.boundary is not None
        assert batch.boundary.position == PostgresPosition(2000)


class TestMarksOfOthers:
    """Every role may write messages under our prefix, and know what ours look like."""

    def test_what_is_not_of_this_chain_is_nothing(self) -> None:
        ours = written(WatermarkKind.LOW, "t", 1)
        other = written(WatermarkKind.LOW, "t", 1, key=WatermarkKey("other"))
        for prefix, content in (("theirs", ours), ("tideline", other), ("tideline", b"\xff\0")):
            assert take_all(logical_message(prefix, content)).controls == ()
        assert take_all(logical_message("tideline", ours)).controls == (
            Watermark(WatermarkKind.LOW, "t", 1),
        )

    @pytest.mark.parametrize(
        "content",
        [
            b"inc x tok 1",
            b"inc P tok 5",
            b"inc P tok 5 x",
            b"inc H tok xx",
            b"inc H \xff\xfe 1 AAAAAAAAAAAAAAAAAAAA",
            "inc H t ٣ AAAAAAAAAAAAAAAAAAAA".encode(),
            b"inc B tok 9000000000000000000",
            b"inc B tok 9000000000000000000 AAAAAAAAAAAAAAAAAAAA",
            b"inc B tok 1764000000000000 AAAAAAAAAAAAAAAAAAAA",
            b"inc B tok -1 AAAAAAAAAAAAAAAAAAAA",
            b"inc L t 1 " + b"a" * 1_000_000,
            b"inc ",
            written(WatermarkKind.HEARTBEAT, "t", 1) + b" ",
            written(WatermarkKind.HEARTBEAT, "t", 1).replace(b" 1 ", b" 2 "),
            written(WatermarkKind.HEARTBEAT, "t", 1).replace(b" 1 ", b" 01 "),
            written(WatermarkKind.LOW, "t", 1).replace(b" L ", b" H "),
            written(WatermarkKind.LOW, "t", 1, key=WatermarkKey("inc")),
            written(WatermarkKind.HEARTBEAT, "t", CLOCK_MAX_US),
        ],
        # Signatures differ in every process, and names of cases may not.
        ids=lambda content: f"{len(content)} bytes",
    )
    def test_what_only_looks_like_ours_is_counted_and_stops_nothing(self, content: bytes) -> None:
        """Wrong kinds, tokens, clocks and signatures; one is of a session before."""
        batch = take_all(insert((b"1", b"a")), logical_message("tideline", content))
        assert (batch.controls, batch.changes) == ((UnknownWatermark(),), 1)

    def test_a_prefix_may_be_any_bytes(self) -> None:
        message = logical_message("tideline", b"x").replace(b"tideline", b"tide\xff\xfene")
        assert take_all(message).controls == ()


def test_a_table_whose_key_does_not_fit_is_left_out_and_the_rest_is_contiguous() -> None:
    reader, _ = reader_of(
        [
            begin(1),
            described(A, "public", "a", "k", "v"),
            described(DATED, "public", "dated", "k"),
            insert((b"1", b"a")),
            of_relation(DATED, insert((b"infinity",))),
            insert((b"2", b"b")),
            commit(100),
        ]
    )
    for _ in range(2):
        reader.poll(100, until_commit=False)
        reader.take(1)
    reader.poll(100, until_commit=False)
    batch = reader.take(1)
    assert batch.unholdable == (("public.dated", "k"),)
    assert [rows.schema.table for rows in batch.rows] == ["public.a"]
    assert batch.rows[0].batch.column("_tl_seq").to_pylist() == [1, 2]
    assert batch.changes == 2


def test_the_content_of_a_message_that_is_too_large_is_left_out() -> None:
    stream = [begin(7), logical_message("outbox", b"x" * 79), logical_message("outbox", b"y")]
    reader, _ = reader_of([*stream, commit(1100)], event_bytes_max=100)
    reader.poll(10, until_commit=True)
    batch = reader.take(1)
    (messages,) = batch.messages
    assert messages.batch.column("_tl_content").to_pylist() == [b"x" * 79, b"y"]
    reader, _ = reader_of([*stream, commit(1100)], event_bytes_max=99)
    reader.poll(10, until_commit=True)
    (messages,) = reader.take(1).messages
    assert messages.batch.column("_tl_content").to_pylist() == [None, b"y"]


def test_a_message_that_is_broken_is_a_named_error() -> None:
    broken = logical_message("outbox", b"content")[:-1]
    reader, _ = reader_of([begin(7), broken])
    with pytest.raises(CorruptData, match="a pgoutput message is broken: kind b'M'"):
        reader.poll(10, until_commit=True)
