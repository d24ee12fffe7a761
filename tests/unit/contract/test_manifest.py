"""Manifests: what one must satisfy in itself, against its predecessor, and as bytes."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest

from tests.fixtures.parts import schema_of
from tests.unit.contract.documents import IDENTITY, first_manifest, following, part
from tideline.contract.errors import CorruptData, InvariantBroken
from tideline.contract.manifest import (
    STATE_DISTANCE_MAX,
    DeleteBefore,
    Manifest,
    ManifestKind,
    SchemaEvent,
    Truncate,
    VerificationChunk,
    check_entry,
    check_manifest,
    decode_manifest,
    digest,
    encode_manifest,
    roll_forward,
    stored_manifest,
    tables_in,
)
from tideline.contract.messages import FEATURE, is_message_table, message_schema
from tideline.contract.open_state import OpenState, TableState
from tideline.contract.position import PostgresPosition

ONE = first_manifest()
TWO = following(ONE, rows=10)
EVENT = SchemaEvent(seq=11, table="public.new", after="ff")


def mixed(**changes: Any) -> Manifest:
    """Sequences 1..12: ten rows in two parts, a schema event and a truncate."""
    given: dict[str, Any] = {
        "last_seq": 12,
        "parts": (part(1, 4), part(5, 10, operations={"c": 2, "u": 3, "d": 1})),
        "schema_events": (EVENT,),
        "truncates": (Truncate(12, "public.orders"),),
    }
    return following(ONE, **{**given, **changes})


@pytest.mark.parametrize(
    "manifest", [ONE, TWO, mixed(), following(TWO, state=OpenState(), state_at=None)]
)
def test_good_ones(manifest: Manifest) -> None:
    check_manifest(manifest)
    assert decode_manifest(encode_manifest(manifest)) == manifest


def test_messages_take_sequences_and_require_a_reader_that_knows_them() -> None:
    messages = part(1, 4, table=message_schema("outbox").table)
    manifest = mixed(
        parts=(part(5, 10, operations={"c": 2, "u": 3, "d": 1}),),
        logged_messages=(messages,),
        requires=(FEATURE,),
    )
    assert decode_manifest(encode_manifest(manifest)) == manifest
    assert tables_in(manifest) == {"public.orders", "public.new"}
    for wrong in (
        msgspec.structs.replace(manifest, requires=()),
        mixed(requires=(FEATURE,)),
        msgspec.structs.replace(manifest, logged_messages=(part(1, 3, table="_tl_messages.a"),)),
    ):
        with pytest.raises(InvariantBroken):
            check_manifest(wrong)


def test_messages_are_known_by_their_schema() -> None:
    schema = message_schema("out.box")
    assert schema.table == '_tl_messages."out.box"'
    assert is_message_table(schema.table, schema.fingerprint)
    assert not is_message_table(schema.table, message_schema("outbox").fingerprint)
    # A source may have a schema of that name.
    table = schema_of("_tl_messages.outbox", {"id": "int32"}, ["id"])
    assert not is_message_table(table.table, table.fingerprint)


def verified(**changes: Any) -> VerificationChunk:
    chunk = VerificationChunk("v", "public.orders", "f", 0, low_seq=2, high_seq=12, complete=True)
    return msgspec.structs.replace(chunk, **changes)


def test_verification_parts_take_no_sequences() -> None:
    manifest = mixed(verification_chunks=(verified(), verified(key="k", rows=1_000)))
    check_manifest(manifest)
    assert tables_in(manifest) == tables_in(mixed())


@pytest.mark.parametrize(
    ("manifest", "reason"),
    [
        (mixed(last_seq=13), "10 rows and 2 events in 13 sequences"),
        (mixed(truncates=()), "10 rows and 1 events in 12 sequences"),
        (mixed(parts=(part(1, 10, rows=9),)), "part counts differ"),
        (mixed(parts=(part(1, 10, operations={"c": 9}),)), "part counts differ"),
        (mixed(parts=(part(1, 10), part(1, 1, rows=0, operations={}))), "part counts differ"),
        (mixed(parts=(part(4, 13),)), "part outside its sequences"),
        (mixed(parts=(part(0, 9),)), "part outside its sequences"),
        (mixed(parts=(part(1, 10, first_seq=9, last_seq=8),)), "part outside its sequences"),
        (mixed(verification_chunks=(verified(high_seq=13),)), "outside the chain's sequences"),
        (
            mixed(verification_chunks=(verified(low_seq=4, high_seq=3),)),
            "outside the chain's sequences",
        ),
        (mixed(verification_chunks=(verified(chunk=-1),)), "outside the chain's sequences"),
        (mixed(verification_chunks=(verified(rows=1),)), "its rows do not agree"),
        (mixed(verification_chunks=(verified(key="k"),)), "its rows do not agree"),
        (
            mixed(verification_chunks=(verified(key="k", rows=1, skipped=True),)),
            "its rows do not agree",
        ),
        (mixed(schema_events=(msgspec.structs.replace(EVENT, seq=13),)), "event 13 outside"),
        (mixed(truncates=(Truncate(0, "public.orders"),)), "event 0 outside"),
        (mixed(state=OpenState()), "neither or both"),
        (mixed(state_at=None), "neither or both"),
        (mixed(state_at=2), "state_at 2 is out of reach"),
        (mixed(state_at=0), "state_at 0 is out of reach"),
        (mixed(first_seq=14), "range is not valid: 14..12"),
        (mixed(first_seq=0, parts=()), "range is not valid: 0..12"),
        (mixed(previous_digest=""), "do not agree"),
        (mixed(term=0), "do not agree"),
        (first_manifest(manifest_number=0), "do not agree"),
        (first_manifest(previous_digest="ff"), "do not agree"),
        (first_manifest(first_seq=5, last_seq=4), "begins with sequence 1"),
        (first_manifest(state=None, state_at=0), "begins with sequence 1"),
    ],
)
def test_contradictions_stop_on_writing_and_on_reading(manifest: Manifest, reason: str) -> None:
    with pytest.raises(InvariantBroken, match=reason):
        encode_manifest(manifest)
    with pytest.raises(CorruptData, match=reason):
        decode_manifest(msgspec.json.encode(manifest))


def test_state_may_be_so_far_back() -> None:
    far = following(ONE, manifest_number=1000, state_at=1000 - STATE_DISTANCE_MAX)
    check_manifest(far)
    with pytest.raises(InvariantBroken, match="out of reach"):
        check_manifest(msgspec.structs.replace(far, manifest_number=1001))


def test_version_and_features_are_always_written() -> None:
    """Left out as defaults, a later version would read them as its own."""
    raw = msgspec.json.decode(encode_manifest(ONE))
    assert (raw["version"], raw["requires"]) == (1, [])


def raw_with(**changes: Any) -> bytes:
    return msgspec.json.encode({**msgspec.json.decode(encode_manifest(TWO)), **changes})


def test_unknown_fields_are_ignored() -> None:
    assert decode_manifest(raw_with(colour="blue")) == TWO


@pytest.mark.parametrize(
    ("raw", "reason"),
    [
        (raw_with(requires=["rolled-up", "aes"]), "requires aes, rolled-up; version 1 is known"),
        (raw_with(requires=["aes"], kind="rollup", position={"type": "x"}), "requires aes"),
        (raw_with(version=2), "manifest of version 2 requires nothing unknown"),
        (raw_with(version=2, first_seq="11"), "manifest of version 2"),
        (raw_with(version=None), "not a manifest"),
        (raw_with(kind="rollup"), "not a manifest: Invalid enum value"),
        (raw_with(first_seq="1"), "not a manifest"),
        (raw_with(position={"type": "mysql"}), "not a manifest"),
        (b'{"version":1,"requires":[]}', "not a manifest: Object missing required field"),
        (b"", "not a manifest"),
        (b"[]", "not a manifest"),
        (b'{"version":1,"pipeline":"\xff"}', "not JSON in UTF-8"),
        (b"[" * 100_000, "not a manifest"),
        (encode_manifest(TWO)[:-1], "not a manifest"),
    ],
)
def test_what_a_reader_refuses(raw: bytes, reason: str) -> None:
    with pytest.raises(CorruptData, match=reason):
        decode_manifest(raw)


def test_a_refusal_names_the_way_out() -> None:
    with pytest.raises(CorruptData) as caught:
        decode_manifest(raw_with(requires=["aes"]))
    assert caught.value.hint == "upgrade the side that reads the manifest"


TAKEOVER = following(TWO, kind=ManifestKind.TAKEOVER, term=2, writer="writer-b")


@pytest.mark.parametrize("manifest", [following(TWO), following(TWO, rows=3), TAKEOVER])
def test_lawful_successors(manifest: Manifest) -> None:
    check_entry(TWO, stored_manifest(TWO), manifest)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"manifest_number": 4}, "manifest_number"),
        ({"previous_digest": digest(b"")}, "previous_digest"),
        ({"first_seq": 12, "last_seq": 11}, "first_seq"),
        ({"incarnation": "other"}, "incarnation"),
        ({"term": 2}, "term"),
        ({"kind": ManifestKind.TAKEOVER}, "term"),
        ({"position": PostgresPosition(1)}, "position"),
    ],
)
def test_what_does_not_follow(changes: dict[str, Any], field: str) -> None:
    with pytest.raises(CorruptData) as raised:
        check_entry(TWO, stored_manifest(TWO), following(TWO, **changes))
    assert re.fullmatch(f"manifest . does not follow .*: {field}", raised.value.message)
    assert "docs/RESTORE.md" in (raised.value.hint or "")


def test_a_failover_of_the_source_may_follow() -> None:
    moved = msgspec.structs.replace(IDENTITY, timeline=2)
    check_entry(TWO, stored_manifest(TWO), following(TWO, identity=moved))


def test_tables_in() -> None:
    manifest = mixed(deletes_before=(DeleteBefore("public.done", 3, "r"),))
    assert tables_in(manifest) == {"public.orders", "public.new", "public.done"}
    assert tables_in(ONE) == set()


def test_roll_forward_moves_only_the_last_manifest_with_data() -> None:
    orders = TableState(schema="aa", last_data_manifest=1, generation=2)
    idle = TableState(schema="bb", last_data_manifest=1)
    state = OpenState(tables={"public.orders": orders, "public.idle": idle})
    three = following(TWO)
    four = following(three, deletes_before=(DeleteBefore("public.new", 3, "r"),))
    rolled = roll_forward(state, [TWO, three, four])
    assert rolled.tables == {
        "public.orders": msgspec.structs.replace(orders, last_data_manifest=2),
        "public.idle": idle,
        "public.new": TableState(last_data_manifest=4),
    }
    assert roll_forward(roll_forward(state, [TWO]), [three, four]) == rolled
    assert state.tables["public.orders"] is orders
