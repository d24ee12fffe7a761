"""The manifest of a segment says all that the core sealed."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import Any

from tests.fixtures.core import IDENTITY, TABLE, first_manifest
from tests.fixtures.systems import REAL
from tests.unit.contract.documents import part
from tideline.contract.manifest import (
    DeleteBefore,
    Manifest,
    SchemaEvent,
    Truncate,
    VerificationChunk,
)
from tideline.contract.messages import FEATURE, message_schema
from tideline.contract.open_state import OpenState
from tideline.contract.position import PostgresPosition
from tideline.contract.request import Answer, RequestState
from tideline.store.chain import ManifestEntry
from tideline_capture.core.segment import Segment
from tideline_capture.manifests import Manifests

OF_THE_CHAIN = {
    "pipeline",
    "incarnation",
    "manifest_number",
    "term",
    "writer",
    "previous_digest",
    "kind",
    "version",
    "requires",
    "written_at_us",
    "parts",
    "logged_messages",
    "verification_chunks",
    "state_at",
    "uploading",
    "released",
}
"""Fields of a manifest that its place in the chain, or the upload, gives."""


def test_what_the_core_decides_of_a_manifest_is_in_a_segment() -> None:
    """A field that is new in one of them is to be decided on: here, or in a segment."""
    decided = set(Manifest.__struct_fields__) - OF_THE_CHAIN
    assert decided <= {one.name for one in fields(Segment)}


def test_every_field_of_a_segment_arrives() -> None:
    reported: dict[str, Any] = {
        "first_seq": 1,
        "last_seq": 2,
        "position": PostgresPosition(7),
        "identity": IDENTITY,
        "source_time_us": 9,
        "schema_events": (SchemaEvent(1, TABLE, "f", None, "neutral"),),
        "truncates": (Truncate(2, TABLE),),
        "deletes_before": (DeleteBefore(TABLE, 1, "r"),),
        "accepted": ("r",),
        "state": OpenState(),
    }
    segment = Segment(
        **reported,
        state_changed=True,
        finished=(Answer("r", RequestState.DONE),),
        refused=(Answer("q", RequestState.REFUSED),),
    )
    chunk = VerificationChunk("v", TABLE, "f", 0, 0, 0)
    manifest = Manifests(ManifestEntry(first_manifest(), b"", "d"), OpenState(), REAL).segment(
        segment, (), (chunk,)
    )
    assert {name: getattr(manifest, name) for name in reported} == reported
    assert manifest.verification_chunks == (chunk,)
    ended = (*manifest.finished, *manifest.refused)
    assert [(one.request_id, one.manifest_number) for one in ended] == [("r", 2), ("q", 2)]


def test_parts_of_messages_are_named_apart_and_require_a_reader_that_knows_them() -> None:
    schema = message_schema("outbox")
    messages = part(1, 1, table=schema.table, schema=schema.fingerprint)
    made = Manifests(ManifestEntry(first_manifest(), b"", "d"), OpenState(), REAL)
    segment = replace(segment_of("a", ended="a"), last_seq=2)
    manifest = made.segment(segment, [part(2, 2), messages])
    assert (manifest.parts, manifest.logged_messages) == ((part(2, 2),), (messages,))
    assert manifest.requires == (FEATURE,)
    assert made.segment(segment, [part(1, 2)]).requires == ()


def segment_of(*recent: str, ended: str) -> Segment:
    """A segment in which ``ended`` ends; answers of ``recent`` have no number yet."""
    answers = tuple(Answer(one, RequestState.DONE) for one in recent)
    return Segment(
        first_seq=1,
        last_seq=0,
        position=PostgresPosition(7),
        identity=IDENTITY,
        source_time_us=None,
        state=OpenState(recent=answers),
        state_changed=True,
        finished=(Answer(ended, RequestState.DONE),),
    )


def test_an_answer_keeps_the_number_of_the_manifest_that_has_it() -> None:
    """A segment that was sealed while the one before it was still being uploaded has both answers
    without a number: clients look for each in the manifest that it names."""
    made = Manifests(ManifestEntry(first_manifest(), b"", "d"), OpenState(), REAL)
    sealed = [segment_of("a", ended="a"), segment_of("a", "b", ended="b")]
    for segment in sealed:
        manifest = made.segment(segment, ())
        made.appended(ManifestEntry(manifest, b"", "d"))
        assert [one.manifest_number for one in manifest.finished] == [manifest.manifest_number]
    assert manifest.state is not None
    recent = {one.request_id: one.manifest_number for one in manifest.state.recent}
    assert recent == {"a": manifest.manifest_number - 1, "b": manifest.manifest_number}
