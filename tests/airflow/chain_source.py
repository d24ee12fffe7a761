"""A source of one table that lives in memory and writes a real chain: manifests, parts, schema.

It stands where database and capture worker stand, so that planner, Spark and Airflow run for
real without them: ``dump`` is what a `StubWorker` calls.
"""

from __future__ import annotations

import io
import threading
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

import pyarrow as pa
import pyarrow.parquet as pq

from tideline.contract import layout
from tideline.contract.manifest import (
    DeleteBefore,
    Manifest,
    ManifestKind,
    Part,
    SchemaEvent,
    digest,
)
from tideline.contract.open_state import OpenState, TableState
from tideline.contract.position import PostgresPosition, SourceIdentity
from tideline.contract.request import Answer, DumpRequest, RequestState, TableProgress
from tideline.contract.schema import Column, TableId, TableSchema
from tideline.settings import Settings
from tideline.store.chain import Chain, ManifestEntry
from tideline.store.objects import open_store

TABLE = "public.orders"
SCHEMA = TableSchema(
    TABLE,
    (
        Column("id", "int64", "bigint", nullable=False),
        Column("note", "string", "text"),
        Column("placed_at", "timestamp", "timestamp with time zone"),
    ),
    ("id",),
)
FIELDS = pa.schema(
    [
        ("_tl_seq", pa.int64()),
        ("_tl_op", pa.string()),
        ("_tl_tx", pa.int64()),
        ("_tl_ts", pa.timestamp("us", tz="UTC")),
        ("id", pa.int64()),
        ("note", pa.string()),
        ("placed_at", pa.timestamp("us", tz="UTC")),
    ]
)


@dataclass(frozen=True, slots=True)
class Order:
    id: int
    note: str | None
    placed_at: datetime | None


class ChainSource:
    """``rows`` is what the source holds now; changes through `change` are also in its log."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._store = open_store(settings.store)
        self._chain = Chain(self._store, settings.pipeline)
        self._lock = threading.Lock()
        self._tail: ManifestEntry | None = None
        self.rows: dict[int, Order] = {}

    def change(self, *orders: Order) -> None:
        """Insert or update, as the log would show it."""
        with self._lock:
            ops = ["u" if order.id in self.rows else "c" for order in orders]
            self.rows |= {order.id: order for order in orders}
            self._append(list(zip(ops, orders, strict=True)))

    def dump(self, request: DumpRequest) -> Answer:
        """Do what the request asks for in one chunk, in one manifest."""
        with self._lock:
            found = list(self._rows_of(request))
            number = 1 if self._tail is None else self._tail.manifest.manifest_number + 1
            done = RequestState.DONE
            tables = (TableProgress(TABLE, done, chunks=1, chunks_estimate=1, rows=len(found)),)
            answer = Answer(request.request_id, done, manifest_number=number, tables=tables)
            self._append(found, finished=(answer,), whole=request.whole)
            return answer

    def _rows_of(self, request: DumpRequest) -> Iterable[tuple[str, Order]]:
        if request.keys is not None:
            for (key,) in request.keys:
                row = self.rows.get(int(key))
                yield ("d", Order(int(key), None, None)) if row is None else ("r", row)
            return
        for row in self.rows.values():
            bounds = request.time
            if bounds is None or (
                row.placed_at is not None
                and datetime.fromisoformat(bounds.start) <= row.placed_at
                and row.placed_at < datetime.fromisoformat(bounds.end)
            ):
                yield "r", row

    def _append(
        self,
        changes: list[tuple[str, Order]],
        *,
        finished: tuple[Answer, ...] = (),
        whole: bool = False,
    ) -> None:
        before = None if self._tail is None else self._tail.manifest
        number = 1 if before is None else before.manifest_number + 1
        first = 1 if before is None else before.last_seq + 1
        events = (SchemaEvent(first, TABLE, SCHEMA.fingerprint),) if before is None else ()
        rows_from = first + len(events)
        parts = () if not changes else (self._put_part(number, rows_from, changes),)
        deletes_before = tuple(
            DeleteBefore(TABLE, first - 1, one.request_id) for one in finished if whole
        )
        state = TableState(schema=SCHEMA.fingerprint, last_data_manifest=number, complete_seq=0)
        if before is None:
            self._chain.write_schema(SCHEMA)
        self._tail = self._chain.append(
            Manifest(
                pipeline=self._settings.pipeline,
                incarnation="one" if before is None else before.incarnation,
                manifest_number=number,
                term=1,
                writer="test",
                previous_digest="" if self._tail is None else self._tail.digest,
                kind=ManifestKind.SEGMENT,
                first_seq=first,
                last_seq=rows_from + len(changes) - 1,
                position=PostgresPosition(number),
                identity=SourceIdentity("postgres", "1", 1, "shop"),
                source_time_us=number * 1_000_000,
                parts=parts,
                schema_events=events,
                deletes_before=deletes_before,
                accepted=tuple(one.request_id for one in finished),
                finished=finished,
                state=OpenState(tables={TABLE: state}, recent=finished),
            )
        )

    def _put_part(self, number: int, first: int, changes: list[tuple[str, Order]]) -> Part:
        columns = [
            list(range(first, first + len(changes))),
            [op for op, _ in changes],
            [0] * len(changes),
            [datetime.now(UTC)] * len(changes),
            [row.id for _, row in changes],
            [row.note for _, row in changes],
            [row.placed_at for _, row in changes],
        ]
        buffer = io.BytesIO()
        arrays = [
            pa.array(values, field.type) for values, field in zip(columns, FIELDS, strict=True)
        ]
        pq.write_table(pa.Table.from_arrays(arrays, schema=FIELDS), buffer)
        data = buffer.getvalue()
        key = layout.part_key(
            self._settings.pipeline,
            number,
            TableId("public", "orders"),
            SCHEMA.fingerprint,
            uuid.uuid4().hex[:8],
        )
        self._store.put(key, data)
        ids = [row.id for _, row in changes]
        ops = [op for op, _ in changes]
        return Part(
            key=key,
            table=TABLE,
            schema=SCHEMA.fingerprint,
            rows=len(changes),
            operations={op: ops.count(op) for op in sorted(set(ops))},
            bytes=len(data),
            digest=digest(data),
            first_seq=first,
            last_seq=first + len(changes) - 1,
            key_min=str(min(ids)),
            key_max=str(max(ids)),
        )
