"""Targets: documents, ours and others', as they lie in stores, queues and tables.

What decodes is encoded again, and must then decode to the same value.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from tests.fuzz.target import Target
from tideline.contract.block import (
    check_files,
    decode_block,
    encode_block,
    raw_manifests,
)
from tideline.contract.description import Described, decode_description, encode_description
from tideline.contract.errors import CorruptData, Misconfigured
from tideline.contract.evolution import TargetColumns
from tideline.contract.external_commits import UnhealedCommits, since_ours
from tideline.contract.maintenance import decode_maintenance_receipt, decode_order
from tideline.contract.manifest import decode_manifest, encode_manifest
from tideline.contract.plan import decode_plan, encode_plan
from tideline.contract.rebuild import decode_rebuild, encode_rebuild
from tideline.contract.receipt import decode_receipt, encode_receipt
from tideline.contract.request import (
    encode_answer,
    encode_command,
    encode_request,
    parse_answer,
    parse_command,
    parse_request,
)
from tideline.contract.schema import decode_schema, encode_schema
from tideline.contract.timeliness import decode_run, encode_run
from tideline.contract.verification import (
    decode_verification,
    decode_verified,
    decode_verify_plan,
    encode_verification,
    encode_verified,
    encode_verify_plan,
)
from tideline.control import REQUEST_FIELD
from tideline.control.queue import _parse_status
from tideline.planner.consumer_records import CONSUMER_READER as CONSUMERS
from tideline.warehouse.delta.log import parse_commit
from tideline_capture.queue import _arrival

Decode = Callable[[bytes], Any]
Encode = Callable[[Any], bytes]


def there_and_back(decode: Decode, encode: Encode) -> Callable[[bytes], None]:
    """Decode; and what was decoded, encoded and decoded again."""

    def run(data: bytes) -> None:
        found = decode(data)
        assert decode(encode(found)) == found, "another value after a round trip"

    return run


def _block(data: bytes) -> None:
    found = decode_block(data)
    manifests = [decode_manifest(raw) for raw, _ in raw_manifests(found)]
    check_files(found, manifests)
    assert encode_block(decode_block(encode_block(found))) == encode_block(found)


def _commit(data: bytes) -> None:
    """Written by anybody who writes to the table."""
    found = parse_commit(7, data)
    since_ours([found], "shop/5f0c/public.orders/0")


def _properties(data: bytes) -> None:
    """Texts that a table's properties hold, where anybody may change them."""
    text = data.decode("utf-8", "replace")
    for parse in (UnhealedCommits.parse, TargetColumns.parse, Described.parse):
        try:
            parse(text)
        except CorruptData:
            continue


def _queue(data: bytes) -> None:
    """A message of the queue is a request, or refused: never an error."""
    _arrival("1-0", len(data), data, field=REQUEST_FIELD, bytes_max=1 << 20)


def _document(name: str, decode: Decode, encode: Encode = msgspec.json.encode) -> Target:
    return Target(name, there_and_back(decode, encode), golden=(name,), length_max=16_384)


TARGETS = (
    _document("manifest", decode_manifest, encode_manifest),
    _document("description", decode_description, encode_description),
    _document("answer", parse_answer, encode_answer),
    _document("plan", decode_plan, encode_plan),
    _document("receipt", decode_receipt, encode_receipt),
    _document("run", decode_run, encode_run),
    _document("maintenance-order", decode_order),
    _document("maintenance", decode_maintenance_receipt),
    _document("verification-plan", decode_verify_plan, encode_verify_plan),
    _document("verification", decode_verification, encode_verification),
    _document("verified", decode_verified, encode_verified),
    _document("schema", decode_schema, encode_schema),
    _document("rebuild", decode_rebuild, encode_rebuild),
    _document("consumer", CONSUMERS.read),
    _document("worker-status", _parse_status),
    Target("block", _block, golden=("block",), length_max=65_536),
    Target(
        "request",
        there_and_back(parse_request, encode_request),
        allows=(Misconfigured,),
        golden=("request",),
        length_max=8_192,
    ),
    Target("command", there_and_back(parse_command, encode_command), allows=(Misconfigured,)),
    Target("queue", _queue, allows=(), golden=("request",), length_max=8_192),
    Target("delta-commit", _commit, length_max=8_192),
    Target("properties", _properties, allows=()),
)
