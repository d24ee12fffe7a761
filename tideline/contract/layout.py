"""Object keys and warehouse paths: built and parsed only here.

::

    {pipeline}/log/{manifest_number:020d}.json
    {pipeline}/data/{manifest_number:020d}/t-{schema}.{table}-{fingerprint}-{nonce}.parquet
    {pipeline}/blocks/{block_number:012d}.json
    {pipeline}/blocks/{block_number:012d}/t-{schema}.{table}-{fingerprint}-{digest}.parquet
    {pipeline}/schemas/{fingerprint}.json
    {pipeline}/descriptions/{fingerprint}.json
    {pipeline}/plans/{plan_id}.json
    {pipeline}/receipts/{plan_id}.json
    {pipeline}/maintenance/{maintenance_id}.json  {maintenance_id}.receipt.json
    {pipeline}/aggregates/{order_id}.json  {order_id}.receipt.json
    {pipeline}/runs/{ended_us:020d}-{digest of the plan's id}.json
    {pipeline}/consumers/{consumer}.json
    {pipeline}/publishers/{publisher}/{number:020d}.json
    {pipeline}/publishers/{publisher}/state/{definition}/{manifest_number:020d}.json
    {pipeline}/publishers/{publisher}/state/{definition}/{manifest_number:020d}-{nonce}/{number:06d}
    {pipeline}/rebuilds/{schema}.{table}/{build:06d}.json
    {pipeline}/checks/{manifest_number:020d}/t-{schema}.{table}-{fingerprint}-{nonce}.parquet
    {pipeline}/verifications/{verify_id}/plan.json, result.json
    {pipeline}/verified/{schema}.{table}.json

Names are encoded outside ``[A-Za-z0-9_-]``, and at a leading ``_``, as ``~XX`` per UTF-8 byte;
above 100 bytes the first 60 bytes, ``~~`` and 16 hex digits of the name's sha256 stand for it.
``~`` and not ``%``, because deltalake decodes percent signs in a table's path once too often.
Parts begin with ``t-``, because Spark ignores files whose names begin with ``_`` or ``.``.
"""

from __future__ import annotations

import hashlib
import re
from datetime import datetime

from tideline.contract.schema import TableId

REBUILDS_FOLDER = "~rebuild"
"""The folder of the warehouse that holds the shadow tables, each below its rebuild's number."""
AGGREGATES_FOLDER = "~aggregates"
"""The folder of the warehouse that holds the tables of aggregates."""
ICEBERG_FOLDER = "~iceberg"
"""The folder of the warehouse that holds the files of Iceberg tables."""
_NAME_BYTES_MAX = 100
_NAME_BYTES_KEPT = 60
_SAFE = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_-")
_PART = re.compile(r"[^/]+/data/(?P<number>[0-9]{20})/t-[^/]+\.parquet")
_ROLLUP = re.compile(r"[^/]+/blocks/(?P<number>[0-9]{12})/t-[^/]+\.parquet")
_PUBLISHER = re.compile(r"[^/]+/publishers/[^/]+/(?P<number>[0-9]{20})\.json")
_MERGERS = re.compile(
    r"[^/]+/(?:plans|receipts)/merger-[0-9]{8}T[0-9]{6}-[0-9a-f]{8}-[0-9]+~2F[0-9]+\.json"
)
_VERIFICATION_PART = re.compile(r"[^/]+/checks/(?P<number>[0-9]{20})/t-[^/]+\.parquet")


def encode_name(name: str) -> str:
    """Encode ``name`` as one path segment, injectively (long names: by digest)."""
    raw = name.encode()
    encoded = "".join(
        chr(byte) if byte in _SAFE and not (at == 0 and byte == 0x5F) else f"~{byte:02X}"
        for at, byte in enumerate(raw)
    )
    if len(encoded) <= _NAME_BYTES_MAX:
        return encoded
    kept = re.sub(r"~[0-9A-F]?$", "", encoded[:_NAME_BYTES_KEPT])
    return f"{kept}~~{hashlib.sha256(raw).hexdigest()[:16]}"


def _file_name(table: TableId) -> str:
    """Return the table within a file's name."""
    return f"{encode_name(table.schema)}.{encode_name(table.name)}"


def manifest_key(pipeline: str, manifest_number: int) -> str:
    return f"{encode_name(pipeline)}/log/{manifest_number:020d}.json"


def part_prefix(pipeline: str, manifest_number: int) -> str:
    """Return the prefix of parts whose upload began while ``manifest_number`` was the next
    number."""
    return f"{encode_name(pipeline)}/data/{manifest_number:020d}"


def part_key(
    pipeline: str, manifest_number: int, table: TableId, fingerprint: str, nonce: str
) -> str:
    prefix = part_prefix(pipeline, manifest_number)
    name = _file_name(table)
    return f"{prefix}/t-{name}-{fingerprint}-{nonce}.parquet"


def parts_prefix(pipeline: str) -> str:
    return f"{encode_name(pipeline)}/data"


def parse_part_key(key: str) -> int | None:
    """Parse the number of the prefix that a part's upload began under; None for another kind of
    key."""
    match = _PART.fullmatch(key)
    return None if match is None else int(match["number"])


def block_key(pipeline: str, block_number: int) -> str:
    return f"{encode_name(pipeline)}/blocks/{block_number:012d}.json"


def blocks_prefix(pipeline: str) -> str:
    """Return the folder of all blocks and roll-ups."""
    return f"{encode_name(pipeline)}/blocks"


def rollup_key(
    pipeline: str, block_number: int, table: TableId, fingerprint: str, digest: str
) -> str:
    """Return the key of a block's roll-up; its ``digest`` is in its name, so that other bytes have
    another key."""
    folder = f"{encode_name(pipeline)}/blocks/{block_number:012d}"
    name = _file_name(table)
    return f"{folder}/t-{name}-{fingerprint}-{digest[:16]}.parquet"


def parse_rollup_key(key: str) -> int | None:
    """Parse the number of the block that a roll-up belongs to; None for another kind of key."""
    match = _ROLLUP.fullmatch(key)
    return None if match is None else int(match["number"])


def schema_key(pipeline: str, fingerprint: str) -> str:
    return f"{encode_name(pipeline)}/schemas/{fingerprint}.json"


def description_key(pipeline: str, fingerprint: str) -> str:
    return f"{encode_name(pipeline)}/descriptions/{fingerprint}.json"


def plan_key(pipeline: str, plan_id: str) -> str:
    return f"{encode_name(pipeline)}/plans/{encode_name(plan_id)}.json"


def plans_prefix(pipeline: str) -> str:
    return f"{encode_name(pipeline)}/plans"


def merger_id(started: datetime, nonce: str) -> str:
    """Return the beginning of the ids of a merger's own plans; ``/`` and a number are in each."""
    return f"merger-{started:%Y%m%dT%H%M%S}-{nonce}"


def is_mergers(key: str) -> bool:
    """Return whether a plan of a merger's own, or its receipt, lies at ``key``."""
    return _MERGERS.fullmatch(key) is not None


def receipts_prefix(pipeline: str) -> str:
    return f"{encode_name(pipeline)}/receipts"


def receipt_key(pipeline: str, plan_id: str) -> str:
    return f"{encode_name(pipeline)}/receipts/{encode_name(plan_id)}.json"


def receipt_key_of(plan_key: str) -> str:
    """Return the key of the receipt of the plan that lies at ``plan_key``."""
    return plan_key.replace("/plans/", "/receipts/", 1)


def maintenance_key(pipeline: str, maintenance_id: str) -> str:
    return f"{encode_name(pipeline)}/maintenance/{encode_name(maintenance_id)}.json"


def maintenance_receipt_key(pipeline: str, maintenance_id: str) -> str:
    return f"{encode_name(pipeline)}/maintenance/{encode_name(maintenance_id)}.receipt.json"


def maintenance_prefix(pipeline: str) -> str:
    """Return the folder of the orders of maintenance and of their receipts."""
    return f"{encode_name(pipeline)}/maintenance"


def aggregates_key(pipeline: str, order_id: str) -> str:
    return f"{aggregates_prefix(pipeline)}/{encode_name(order_id)}.json"


def aggregates_receipt_key(pipeline: str, order_id: str) -> str:
    return f"{aggregates_prefix(pipeline)}/{encode_name(order_id)}.receipt.json"


def aggregates_prefix(pipeline: str) -> str:
    """Return the folder of the orders of aggregates' tables and of their receipts."""
    return f"{encode_name(pipeline)}/aggregates"


def aggregate_url(warehouse_url: str, name: str) -> str:
    """Return the url of the table of an aggregate, which no table of a source can have."""
    return f"{warehouse_url.rstrip('/')}/{AGGREGATES_FOLDER}/{encode_name(name)}"


def run_key(pipeline: str, ended_us: int, plan_id: str) -> str:
    """Return the key of a plan's run: under its end, µs since 1970, so that names sort by time."""
    plan = hashlib.sha256(plan_id.encode()).hexdigest()[:12]
    return f"{runs_prefix(pipeline)}/{ended_us:020d}-{plan}.json"


def runs_since(pipeline: str, since_us: int) -> str:
    """Return the key behind which runs that ended at ``since_us`` or later have theirs."""
    return f"{runs_prefix(pipeline)}/{max(0, since_us - 1):020d}~"


def runs_prefix(pipeline: str) -> str:
    return f"{encode_name(pipeline)}/runs"


def consumer_key(pipeline: str, consumer: str) -> str:
    return f"{encode_name(pipeline)}/consumers/{encode_name(consumer)}.json"


def consumers_prefix(pipeline: str) -> str:
    """Return the folder of the consumers of parts, which must have applied a part before it is
    removed."""
    return f"{encode_name(pipeline)}/consumers"


def publisher_key(pipeline: str, publisher: str, number: int) -> str:
    return f"{publisher_prefix(pipeline, publisher)}/{number:020d}.json"


def publisher_prefix(pipeline: str, publisher: str) -> str:
    """Return the folder of a publisher's positions, whose names sort by their numbers."""
    return f"{encode_name(pipeline)}/publishers/{encode_name(publisher)}"


def publisher_state_prefix(pipeline: str, publisher: str) -> str:
    """Return the folder of the checkpoints of a publisher's aggregates."""
    return f"{publisher_prefix(pipeline, publisher)}/state"


def parse_publisher_key(key: str) -> int | None:
    """Parse the number of a publisher's position; None for another kind of key."""
    match = _PUBLISHER.fullmatch(key)
    return None if match is None else int(match["number"])


def rebuild_key(pipeline: str, table: TableId, build: int) -> str:
    return f"{rebuilds_prefix(pipeline, table)}/{build:06d}.json"


def rebuilds_prefix(pipeline: str, table: TableId) -> str:
    """Return the folder of the records of a table's rebuilds, whose names sort by their numbers."""
    name = _file_name(table)
    return f"{encode_name(pipeline)}/rebuilds/{name}"


def verification_part_key(
    pipeline: str, manifest_number: int, table: TableId, fingerprint: str, nonce: str
) -> str:
    """Return the key of a verification part whose upload began while ``manifest_number`` was the
    next."""
    folder = f"{verification_parts_prefix(pipeline)}/{manifest_number:020d}"
    name = _file_name(table)
    return f"{folder}/t-{name}-{fingerprint}-{nonce}.parquet"


def verification_parts_prefix(pipeline: str) -> str:
    """Return the folder of all verification parts."""
    return f"{encode_name(pipeline)}/checks"


def parse_verification_part_key(key: str) -> int | None:
    """Parse the number in a verification part's key; None for another kind of key."""
    match = _VERIFICATION_PART.fullmatch(key)
    return None if match is None else int(match["number"])


def verification_plan_key(pipeline: str, verify_id: str) -> str:
    return f"{verifications_prefix(pipeline)}/{encode_name(verify_id)}/plan.json"


def verification_key(pipeline: str, verify_id: str) -> str:
    """Return the key of a verification's result, next to its plan."""
    return f"{verifications_prefix(pipeline)}/{encode_name(verify_id)}/result.json"


def verifications_prefix(pipeline: str) -> str:
    return f"{encode_name(pipeline)}/verifications"


def verified_key(pipeline: str, table: TableId) -> str:
    """Return the key of the record up to where a table was last found equal."""
    name = _file_name(table)
    return f"{encode_name(pipeline)}/verified/{name}.json"


def probe_key(pipeline: str, nonce: str) -> str:
    """Return the key at which the start-up probe races its create-only PUTs; its object means
    nothing later."""
    return f"{encode_name(pipeline)}/probe/{nonce}"


def table_path(warehouse_url: str, table: TableId) -> str:
    """Return the address of a table's directory in the warehouse."""
    name = f"{encode_name(table.schema)}/{encode_name(table.name)}"
    return f"{warehouse_url.rstrip('/')}/{name}"


def shadow_url(warehouse_url: str, build: int) -> str:
    """Return the warehouse in which a rebuild keeps its shadow table until it replaces the live
    one.

    No schema's folder has such a name: what follows a ``~`` is in hex.
    """
    return f"{warehouse_url.rstrip('/')}/{REBUILDS_FOLDER}/{build:06d}"


def object_url(store_url: str, key: str) -> str:
    """Return the address of an object, as Spark reads it."""
    return f"{store_url.rstrip('/')}/{key}"
