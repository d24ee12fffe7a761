"""Whatever is durable, each of its bytes turned over: a named error, or the same value.

Documents have a checksum in themselves, schemas and descriptions are named by theirs, parts and
manifests are named with theirs by what comes after. What each thing is caught by is in
docs/PROTOCOL.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.fuzz.target import CORPUS, GOLDEN
from tests.fuzz.users import SCHEMA, part_of, read_part
from tideline.contract import layout
from tideline.contract.block import decode_block, raw_manifests
from tideline.contract.description import decode_description
from tideline.contract.document import with_checksum
from tideline.contract.errors import CorruptData
from tideline.contract.maintenance import decode_maintenance_receipt, decode_order
from tideline.contract.manifest import decode_manifest
from tideline.contract.plan import CommitMetadata, decode_plan
from tideline.contract.rebuild import decode_rebuild
from tideline.contract.receipt import decode_receipt
from tideline.contract.timeliness import decode_run
from tideline.contract.verification import (
    decode_verification,
    decode_verified,
    decode_verify_plan,
)
from tideline.planner.consumer_records import CONSUMER_READER as CONSUMERS
from tideline.settings import Store
from tideline.store.chain import Chain
from tideline.store.objects import ObjectStore, open_store
from tideline_capture.rollup_file import RollUpFile

BYTES_MAX = 3_000
"""Of a document, so many bytes are turned over, spread over all of it."""
Decode = Callable[[bytes], Any]


def decode_whole_block(raw: bytes) -> Any:
    block = decode_block(raw)
    return [manifest for manifest, _ in raw_manifests(block)], msgspec.structs.replace(
        block, manifests=()
    )


DOCUMENTS: dict[str, tuple[Path, Decode]] = {
    "manifest": (GOLDEN / "manifest" / "v1" / "2-segment.json", decode_manifest),
    "block": (GOLDEN / "block" / "v1" / "full.json", decode_whole_block),
    "plan": (GOLDEN / "plan" / "v1" / "full.json", decode_plan),
    "receipt": (GOLDEN / "receipt" / "v1" / "full.json", decode_receipt),
    "run": (GOLDEN / "run" / "v1" / "full.json", decode_run),
    "maintenance-order": (GOLDEN / "maintenance-order" / "v1" / "full.json", decode_order),
    "maintenance": (GOLDEN / "maintenance" / "v1" / "full.json", decode_maintenance_receipt),
    "verification-plan": (GOLDEN / "verification-plan" / "v1" / "full.json", decode_verify_plan),
    "verification": (GOLDEN / "verification" / "v1" / "differs.json", decode_verification),
    "verified": (GOLDEN / "verified" / "v1" / "whole.json", decode_verified),
    "rebuild": (CORPUS / "rebuild" / "seed-00", decode_rebuild),
    "consumer": (CORPUS / "consumer" / "seed-00", CONSUMERS.read),
}


def turned_over(raw: bytes) -> Iterator[bytes]:
    """``raw`` with one bit of one byte turned over, for each byte of it or of a sample."""
    for at in range(0, len(raw), -(-len(raw) // BYTES_MAX)):
        changed = bytearray(raw)
        changed[at] ^= 1 << at % 8
        yield bytes(changed)


def harmless(decode: Decode, raw: bytes) -> int:
    """How many of the flips leave the value as it is; all others are errors."""
    value, same = decode(raw), 0
    for changed in turned_over(raw):
        try:
            assert decode(changed) == value, f"another value: {changed!r}"
            same += 1
        except CorruptData:
            continue
    return same


@pytest.mark.parametrize("name", sorted(DOCUMENTS))
def test_a_document_with_its_checksum_is_never_another(name: str) -> None:
    path, decode = DOCUMENTS[name]
    raw = with_checksum(compact(path.read_bytes()))
    assert decode(raw) == decode(compact(path.read_bytes())), "a checksum is no part of the value"
    assert harmless(decode, raw) <= len("checksum"), "in the name of the field alone"


def test_a_targets_stamp_is_the_one_that_was_written() -> None:
    """One that cannot be read at all is none: the target is held then."""
    commit_metadata = CommitMetadata(
        "app", "shop", "i1", "p", 1, 2, 3, 4, ("a",), 5, True, 6, "0" * 64
    )
    text = commit_metadata.text()
    assert CommitMetadata.parse(text) == commit_metadata
    found = []
    for changed in turned_over(text.encode()):
        with suppress(CorruptData):
            found.append(CommitMetadata.parse(changed.decode("utf-8", "replace")))
    assert len(found) < len(text)
    assert [one for one in found if one not in (commit_metadata, None)] == []


@pytest.mark.parametrize("name", sorted(set(DOCUMENTS) - {"block"}))
def test_without_one_it_would_be(name: str) -> None:
    """Documents of before have none, and are still read."""
    path, decode = DOCUMENTS[name]
    with pytest.raises(AssertionError, match="another value"):
        harmless(decode, compact(path.read_bytes()))


def test_an_error_of_a_document_says_where_it_lies() -> None:
    path, _ = DOCUMENTS["plan"]
    raw = with_checksum(compact(path.read_bytes()))
    with pytest.raises(CorruptData, match=r"of a merge plan .* at shop/plans/1\.json"):
        decode_plan(raw.replace(b"shop", b"shoq", 1), "shop/plans/1.json")
    with pytest.raises(CorruptData, match=r"not a merge plan: .* at shop/plans/1\.json"):
        decode_plan(raw[:-1], "shop/plans/1.json")


def test_schemas_and_descriptions_are_what_their_names_say(tmp_path: Path) -> None:
    store = open_store(Store(url=tmp_path.as_uri()))
    chain = Chain(store, "shop")
    schema = chain.write_schema(SCHEMA)
    path = GOLDEN / "description" / "v1" / "full.json"
    description = decode_description(path.read_bytes())
    chain.write_description(description)
    keys = {
        layout.schema_key("shop", schema): lambda: chain.read_schema(schema),
        layout.description_key("shop", description.fingerprint): (
            lambda: chain.read_description(description.fingerprint)
        ),
    }
    for key, look in keys.items():
        raw = store.get(key)
        assert raw is not None
        harmless(stored_at(store, key, look), raw)


def stored_at(store: ObjectStore, key: str, look: Callable[[], object]) -> Decode:
    """What ``look`` finds when these bytes lie at ``key``."""

    def decode(raw: bytes) -> object:
        store.put(key, raw)
        return look()

    return decode


def test_a_part_is_the_one_that_its_manifest_names() -> None:
    raw = (CORPUS / "part" / "seed-00").read_bytes()
    read_part(raw)
    part = part_of(raw)
    for changed in turned_over(raw):
        with pytest.raises(CorruptData, match="another digest"):
            RollUpFile(SCHEMA, [part]).add(part, changed)


def compact(raw: bytes) -> bytes:
    """A golden file as it would be stored: without white space, embedded documents alike."""
    return msgspec.json.format(raw, indent=-1)
