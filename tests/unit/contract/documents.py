"""Small documents for tests: manifests that follow one another, and what they hold."""

from __future__ import annotations

from typing import Any

import msgspec

from tideline.contract.manifest import (
    Manifest,
    ManifestKind,
    Part,
    digest,
    stored_manifest,
)
from tideline.contract.open_state import OpenState
from tideline.contract.position import PostgresPosition, SourceIdentity

IDENTITY = SourceIdentity("postgres", system_id="7300000000000000001", timeline=1, database="shop")
ORDERS = "public.orders"
FINGERPRINT = "0123456789abcdef"


def first_manifest(**changes: Any) -> Manifest:
    """Manifest 1 of the pipeline ``shop``, empty, with its state in full."""
    manifest = Manifest(
        pipeline="shop",
        incarnation="5f0c",
        manifest_number=1,
        term=1,
        writer="writer-a",
        previous_digest="",
        kind=ManifestKind.HEARTBEAT,
        first_seq=1,
        last_seq=0,
        position=PostgresPosition(0x1000),
        identity=IDENTITY,
        state=OpenState(),
    )
    return msgspec.structs.replace(manifest, **changes)


def following(previous: Manifest, *, rows: int = 0, **changes: Any) -> Manifest:
    """The lawful successor of ``previous`` with ``rows`` inserts into one table."""
    assert isinstance(previous.position, PostgresPosition)
    number = previous.manifest_number + 1
    first, last = previous.last_seq + 1, previous.last_seq + rows
    in_full = previous.state is not None
    manifest = msgspec.structs.replace(
        previous,
        manifest_number=number,
        previous_digest=digest(stored_manifest(previous)),
        kind=ManifestKind.SEGMENT if rows else ManifestKind.HEARTBEAT,
        first_seq=first,
        last_seq=last,
        position=PostgresPosition(previous.position.end_lsn + rows),
        parts=(part(first, last),) if rows else (),
        schema_events=(),
        truncates=(),
        deletes_before=(),
        state=None,
        state_at=previous.manifest_number if in_full else previous.state_at,
        released=False,
    )
    return msgspec.structs.replace(manifest, **changes)


def part(first: int, last: int, **changes: Any) -> Part:
    """A part of inserts ``first..last`` into ``public.orders``."""
    rows = last - first + 1
    made = Part(
        key=f"shop/data/{first:020d}/t-public.orders-{FINGERPRINT}-00.parquet",
        table=ORDERS,
        schema=FINGERPRINT,
        rows=rows,
        operations={"c": rows},
        bytes=1000,
        digest="00" * 32,
        first_seq=first,
        last_seq=last,
    )
    return msgspec.structs.replace(made, **changes)


def manifest_number(key: str) -> int:
    """Of the manifest that lies at ``key``."""
    return int(key.removesuffix(".json").rpartition("/")[2])
