"""What a real server logs for each kind of change, under each replica identity."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pytest

from tests.fixtures.services import Database
from tideline.contract.part import PartCounts
from tideline.contract.schema import Column, TableSchema
from tideline_capture.sources.decoded import Decoded
from tideline_capture.sources.postgres.replication import decode
from tideline_capture.sources.postgres.replication.decode import decode_rows, decode_rows_loop
from tideline_capture.sources.postgres.replication.pgoutput import (
    Begin,
    CommitMessage,
    Relation,
    TruncateMessage,
    parse_message,
)

ROW_KINDS = b"IUD"
KEY = ("region", "id")
COLUMNS = (
    Column("note", "string", "text"),
    Column("id", "int64", "bigint", nullable=False),
    Column("big", "string", "text"),
    Column("region", "string", "text", nullable=False),
    Column("price", "decimal(8,2)", "numeric(8,2)"),
)
TABLE = (
    "CREATE TABLE t (note text, id bigint, big text, region text, price numeric(8,2),"
    " PRIMARY KEY (region, id))",
    "ALTER TABLE t ALTER big SET STORAGE EXTERNAL",
)
# ``big`` is stored EXTERNAL: 12,800 characters always lie in the TOAST table.
CHANGES = (
    "INSERT INTO t VALUES ('one', 1, repeat('8 digits', 1600), 'eu', 1.5),"
    " ('', 2, NULL, 'eu', 'NaN')",
    "UPDATE t SET note = 'first' WHERE id = 1",
    "UPDATE t SET id = 11 WHERE id = 1",
    "UPDATE t SET big = 'short' WHERE id = 11",
    "UPDATE t SET region = 'us', price = NULL WHERE id = 2",
    "DELETE FROM t WHERE id = 11",
)


@pytest.fixture(params=[decode_rows_loop, decode_rows], ids=["loop", "vectorised"])
def decoder(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., Decoded]]:
    monkeypatch.setattr(decode, "PLAIN_ROWS_MAX", -1)
    yield request.param


def logged(database: Database, *statements: str) -> list[bytes]:
    """The messages that ``statements`` leave in the log, after `TABLE` and the publication."""
    database.run(*TABLE, "CREATE PUBLICATION p FOR TABLE t")
    database.run("SELECT pg_create_logical_replication_slot('s', 'pgoutput')", *statements)
    rows = database.rows(
        "SELECT data FROM pg_logical_slot_peek_binary_changes('s', NULL, NULL,"
        " 'proto_version', '1', 'publication_names', 'p')"
    )
    return [bytes(data) for (data,) in rows]


def decoded(
    messages: list[bytes], key: tuple[str, ...], decoder: Callable[..., Decoded]
) -> Decoded:
    rows = [message for message in messages if message[0] in ROW_KINDS]
    numbers = np.arange(len(rows), dtype=np.int64)
    return decoder(rows, TableSchema("public.t", COLUMNS, key), seq=numbers, tx=numbers, ts=numbers)


def test_default_identity(database: Database, decoder: Callable[..., Decoded]) -> None:
    """Unchanged TOAST is named, and is never NULL without being named."""
    result = decoded(logged(database, *CHANGES), KEY, decoder)
    rows = result.rows.batch.to_pydict()
    assert "".join(rows["_tl_op"]) == "ccuuuud"
    assert rows["id"] == [1, 2, 1, 11, 11, 2, 11]
    assert rows["region"] == ["eu", "eu", "eu", "eu", "eu", "us", "eu"]
    assert rows["note"] == ["one", "", "first", "first", "first", "", None]
    assert [big and len(big) for big in rows["big"]] == [12_800, None, None, None, 5, None, None]
    assert rows["_tl_unchanged"] == [None, None, ["big"], ["big"], None, None, None]
    assert rows["_tl_before_region"] == [None, None, None, "eu", None, "eu", None]
    assert rows["_tl_before_id"] == [None, None, None, 1, None, 2, None]
    assert rows["_tl_overflow"] == [None, [("price", "NaN")], *[None] * 5]
    assert result.rows.counts == PartCounts(unchanged_rows=2, before_rows=2, overflow_rows=1)
    assert result.key_overflow == ()


def test_full_identity(database: Database, decoder: Callable[..., Decoded]) -> None:
    """The old row fills in for TOAST; the old key is only told where it differs."""
    changes = ("ALTER TABLE t REPLICA IDENTITY FULL", *CHANGES)
    result = decoded(logged(database, *changes), KEY, decoder)
    rows = result.rows.batch.to_pydict()
    assert "".join(rows["_tl_op"]) == "ccuuuud"
    lengths = [big and len(big) for big in rows["big"]]
    assert lengths == [12_800, None, 12_800, 12_800, 5, None, None]
    assert rows["note"] == ["one", "", "first", "first", "first", "", None]
    assert rows["_tl_before_id"] == [None, None, None, 1, None, 2, None]
    assert rows["_tl_before_region"] == [None, None, None, "eu", None, "eu", None]
    assert "_tl_unchanged" not in rows
    assert result.rows.counts.before_rows == 2


def test_index_identity(database: Database, decoder: Callable[..., Decoded]) -> None:
    """The key is the index's; a change of the primary key is no change of it."""
    changes = (
        "ALTER TABLE t ALTER note SET NOT NULL",
        "CREATE UNIQUE INDEX by_note ON t (note)",
        "ALTER TABLE t REPLICA IDENTITY USING INDEX by_note",
        *CHANGES,
    )
    result = decoded(logged(database, *changes), ("note",), decoder)
    rows = result.rows.batch.to_pydict()
    assert rows["note"] == ["one", "", "first", "first", "first", "", "first"]
    assert rows["id"] == [1, 2, 1, 11, 11, 2, None]
    assert rows["_tl_before_note"] == [None, None, "one", None, None, None, None]
    assert "_tl_before_id" not in rows


def test_a_toasted_key_is_known_in_every_row(
    database: Database, decoder: Callable[..., Decoded]
) -> None:
    """An unchanged key that lies in TOAST is logged as the old key, and no change of the key."""
    changes = (
        "ALTER TABLE t DROP CONSTRAINT t_pkey",
        "ALTER TABLE t ALTER region SET STORAGE EXTERNAL",
        "ALTER TABLE t ADD PRIMARY KEY (region)",
        "INSERT INTO t VALUES ('a', 1, NULL, repeat('k', 2600), 1)",
        "UPDATE t SET note = repeat('n', 1000)",
        "UPDATE t SET region = repeat('j', 2600)",
        "DELETE FROM t",
    )
    result = decoded(logged(database, *changes), ("region",), decoder)
    rows = result.rows.batch.to_pydict()
    assert [key[0] * (len(key) // 2600) for key in rows["region"]] == ["k", "k", "j", "j"]
    assert [key and key[0] for key in rows["_tl_before_region"]] == [None, None, "k", None]
    assert result.key_overflow == ()


def test_rare_messages(database: Database) -> None:
    messages = logged(database, CHANGES[0], "TRUNCATE t RESTART IDENTITY")
    rare = [parse_message(m) for m in messages if m[0] not in ROW_KINDS]
    assert [type(message) for message in rare] == [
        *(Begin, Relation, CommitMessage),
        *(Begin, Relation, TruncateMessage, CommitMessage),
    ]
    begin, relation, commit, *_, truncate, _ = rare
    assert isinstance(begin, Begin)
    assert isinstance(commit, CommitMessage)
    assert begin.final_lsn == commit.commit_lsn < commit.end_lsn
    ((server_us,),) = database.rows("SELECT (extract(epoch FROM now()) * 1000000)::bigint")
    assert 0 <= server_us - begin.commit_time_us < 60_000_000
    assert isinstance(relation, Relation)
    assert [column.name for column in relation.columns if column.key] == ["id", "region"]
    assert relation.identity == "d"
    assert truncate == TruncateMessage((relation.oid,))
