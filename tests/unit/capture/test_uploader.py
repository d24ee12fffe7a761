"""The uploader: order, the same bytes again after a lost answer, and one manifest per segment."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from msgspec.structs import replace

from tests.fixtures.core import IDENTITY, SCHEMA, TABLE, first_manifest, make_rows
from tests.fixtures.systems import REAL
from tests.fixtures.troubled_store import Failing, TroubledStore
from tideline.contract.errors import Fenced, TidelineError, Unavailable
from tideline.contract.manifest import (
    STATE_DISTANCE_MAX,
    Manifest,
    ManifestKind,
    SchemaEvent,
)
from tideline.contract.open_state import OpenState, TableState
from tideline.contract.position import PostgresPosition
from tideline.contract.request import Answer, RequestState
from tideline.control.record import confirmed
from tideline.store.chain import Chain, ManifestEntry
from tideline_capture.core.events import Rows
from tideline_capture.core.segment import PartialFlush, Segment
from tideline_capture.health import Health
from tideline_capture.leadership import Lead
from tideline_capture.uploader import Restart, Uploader

PATIENCE_S = 60.0
STATE = OpenState(tables={TABLE: TableState(schema=SCHEMA.fingerprint)})


EMPTY = Segment(
    first_seq=1,
    last_seq=0,
    position=PostgresPosition(0),
    source_time_us=None,
    rows=(),
    schemas=(),
    schema_events=(),
    truncates=(),
    deletes_before=(),
    accepted=(),
    finished=(),
    refused=(),
    state=STATE,
    state_changed=False,
    messages=(),
    identity=IDENTITY,
)


def sealed(first: int, *rows: Rows, last: int | None = None, **fields: Any) -> Segment:
    """A segment of ``rows``; ``last`` when some of its sequences are not among them."""
    end = first + sum(item.batch.num_rows for item in rows) - 1 if last is None else last
    return dataclasses.replace(
        EMPTY,
        first_seq=first,
        last_seq=end,
        position=PostgresPosition(end),
        rows=rows,
        **fields,
    )


def segment(first: int, count: int = 1, **fields: Any) -> Segment:
    rows = make_rows([("c", first + n, "a") for n in range(count)], first)
    return sealed(first, rows, **fields)


class Rig:
    """A chain with its first manifest, and an uploader behind it."""

    def __init__(self, heartbeat_s: float = 60.0) -> None:
        self.store = TroubledStore()
        self.chain = Chain(self.store, "p")
        self.durable: list[tuple[ManifestEntry, Segment | None]] = []
        self.heartbeat_s = heartbeat_s
        self.uploader = self.build(self.chain.append(first_manifest()), OpenState())

    def build(self, tail: ManifestEntry, state: OpenState) -> Uploader:
        made = Uploader(
            self.store, self.chain, Lead(tail, state, 0.0), REAL, heartbeat_s=self.heartbeat_s
        )
        made.on_durable = lambda entry, sealed: self.durable.append((entry, sealed))
        return made

    def run(self, *items: Segment | PartialFlush | Restart) -> list[Manifest]:
        """Submit, wait until all is durable; the manifests after the first."""
        if not self.uploader._thread.is_alive():
            self.uploader.start()
        for item in items:
            self.uploader.submit(item)
        self.uploader.drain(PATIENCE_S)
        return self.manifests()

    def manifests(self) -> list[Manifest]:
        tail = self.chain.tail()
        assert tail is not None
        return [entry.manifest for entry in self.chain.entries(1, tail.manifest.manifest_number)][
            1:
        ]

    def stored(self, manifest: Manifest) -> list[bytes | None]:
        return [self.store.get(part.key) for part in manifest.parts]


@pytest.fixture
def rig(monkeypatch: pytest.MonkeyPatch) -> Iterator[Rig]:
    monkeypatch.setattr("tideline_capture.uploader._RETRY_S", 0.01)
    rig = Rig()
    yield rig
    rig.uploader.stop()


@pytest.fixture
def beating(monkeypatch: pytest.MonkeyPatch) -> Iterator[Rig]:
    """A rig whose heartbeats are due all the time."""
    monkeypatch.setattr("tideline_capture.uploader._RETRY_S", 0.01)
    rig = Rig(heartbeat_s=0.04)
    yield rig
    rig.uploader.stop()


def test_ownership_counts_from_when_a_manifest_was_sent(rig: Rig) -> None:
    """The answer may come after another worker lost patience."""

    def late(kind: str, key: str) -> None:
        if kind == "create":
            time.sleep(0.3)

    rig.store.after = late
    rig.run(segment(1))
    assert 0.3 <= rig.uploader.silent_s < PATIENCE_S


def eventually(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end, "it never happened"
        time.sleep(0.005)


class TestOrder:
    def test_manifests_follow_each_other(self, rig: Rig) -> None:
        manifests = rig.run(segment(1, 2), segment(3), segment(4, 5))
        assert [(m.manifest_number, m.first_seq, m.last_seq) for m in manifests] == [
            (2, 1, 2),
            (3, 3, 3),
            (4, 4, 8),
        ]
        assert [entry.manifest for entry, _ in rig.durable] == manifests
        assert rig.uploader.pending_bytes == 0

    def test_parts_and_schemas_are_there_before_the_manifest(self, rig: Rig) -> None:
        missing: list[str] = []

        def look(kind: str, key: str) -> None:
            if kind == "create" and "/log/" in key:
                written = {name for name, _ in rig.store.writes[:-1]}
                if not any("/data/" in name for name in written):
                    missing.append("part")
                if not any("/schemas/" in name for name in written):
                    missing.append("schema")

        rig.store.before = look
        event = SchemaEvent(1, TABLE, SCHEMA.fingerprint)
        rows = make_rows([("c", 1, "a")], 2)
        rig.run(sealed(1, rows, last=2, schemas=(SCHEMA,), schema_events=(event,)))
        assert missing == []
        assert rig.chain.read_schema(SCHEMA.fingerprint) == SCHEMA

    def test_a_part_is_what_its_manifest_says(self, rig: Rig) -> None:
        manifest = rig.run(segment(1, 3))[0]
        part = manifest.parts[0]
        data = rig.stored(manifest)[0]
        assert data is not None and (part.bytes, part.rows) == (len(data), 3)

    def test_an_empty_segment_is_a_heartbeat(self, rig: Rig) -> None:
        manifest = rig.run(sealed(1))[0]
        assert (manifest.kind, manifest.first_seq, manifest.last_seq) == ("heartbeat", 1, 0)

    def test_a_change_of_state_is_none(self, rig: Rig) -> None:
        assert rig.run(sealed(1, state_changed=True))[0].kind is ManifestKind.SEGMENT


class TestRetry:
    @pytest.mark.parametrize("where", ["before", "after"])
    @pytest.mark.parametrize(("kind", "part"), [("put", "/data/"), ("create", "/log/")])
    def test_the_same_bytes_go_to_the_same_key(
        self, rig: Rig, where: str, kind: str, part: str
    ) -> None:
        setattr(rig.store, where, Failing(kind, part, 3))
        manifests = rig.run(segment(1, 2))
        writes = [
            write for write in rig.store.writes if part in write[0] and "1.json" not in write[0]
        ]
        assert len(writes) == 4 and len(set(writes)) == 1
        assert len(manifests) == 1 and None not in rig.stored(manifests[0])

    def test_heartbeats_too(self, beating: Rig) -> None:
        beating.store.after = Failing("create", "/log/", 2)
        beating.uploader.start()
        eventually(lambda: len(beating.durable) > 3)
        beating.uploader.release(PATIENCE_S)
        assert all(m.kind is ManifestKind.HEARTBEAT for m in beating.manifests())

    def test_how_long_the_store_is_away_is_known(self, rig: Rig) -> None:
        failing = Failing("put", "/data/", 1_000_000)
        rig.store.before = failing
        rig.uploader.start()
        rig.uploader.submit(segment(1))
        eventually(lambda: rig.uploader.unavailable_since is not None)
        assert rig.uploader.pending_bytes > 0
        failing.left = 0
        rig.run()
        assert rig.uploader.unavailable_since is None

    def test_a_stop_does_not_wait_for_ever(self, rig: Rig) -> None:
        rig.store.before = Failing("put", "/data/", 1_000_000)
        rig.uploader.start()
        rig.uploader.submit(segment(1))
        with pytest.raises(Unavailable):
            rig.uploader.drain(0.05)
        rig.uploader.stop()
        rig.uploader._thread.join(PATIENCE_S)
        assert not rig.uploader._thread.is_alive()


class TestFenced:
    def test_another_writers_manifest_ends_it(self, rig: Rig) -> None:
        tail = rig.uploader.last
        rig.chain.append(
            replace(
                first_manifest(),
                manifest_number=2,
                term=2,
                writer="other",
                previous_digest=tail.digest,
                kind=ManifestKind.TAKEOVER,
            )
        )
        with pytest.raises(Fenced):
            rig.run(segment(1))
        assert isinstance(rig.uploader.failure, Fenced)
        assert [m.writer for m in rig.manifests()] == ["other"]
        assert rig.durable == []
        with pytest.raises(Fenced):
            rig.uploader.release()

    def test_what_ended_it_is_raised_to_those_who_wait(self, rig: Rig) -> None:
        def broken(kind: str, key: str) -> None:
            raise TidelineError("broken")

        rig.store.before = broken
        with pytest.raises(TidelineError, match="broken"):
            rig.run(segment(1))


class TestSpill:
    def spills(self) -> list[PartialFlush]:
        return [
            PartialFlush((make_rows([("c", 1, "a")], 1),), ()),
            PartialFlush((make_rows([("c", 2, "b")], 2),), ()),
        ]

    def test_one_manifest_names_them_all(self, rig: Rig) -> None:
        manifests = rig.run(*self.spills(), sealed(1, make_rows([("c", 3, "c")], 3), last=3))
        assert len(manifests) == 1
        parts = manifests[0].parts
        assert [(part.first_seq, part.last_seq) for part in parts] == [(1, 1), (2, 2), (3, 3)]
        assert None not in rig.stored(manifests[0])
        assert len({part.key for part in parts}) == 3
        assert rig.run(segment(4))[-1].uploading == ()

    def test_heartbeats_between_them_name_where_they_lie(self, beating: Rig) -> None:
        spills = self.spills()
        beating.run(spills[0])
        eventually(
            lambda: bool(beating.durable) and bool(beating.durable[-1][0].manifest.uploading)
        )
        prefix = beating.durable[-1][0].manifest.uploading[0]
        before = beating.uploader.last.manifest.manifest_number
        eventually(lambda: beating.uploader.last.manifest.manifest_number > before)
        beating.run(spills[1])
        manifests = beating.run(sealed(1, make_rows([("c", 3, "c")], 3), last=3))
        manifest = next(m for m in manifests if m.parts)
        folders = {int(part.key.split("/")[2]) for part in manifest.parts[:2]}
        assert prefix in folders and len(folders) == 2
        named = {
            number
            for m in manifests
            if m.manifest_number < manifest.manifest_number
            for number in m.uploading
        }
        assert folders <= named | {manifest.manifest_number}
        assert all(
            not m.uploading for m in manifests if m.manifest_number > manifest.manifest_number
        )

    def test_a_queue_full_of_them_does_not_silence_the_writer(self) -> None:
        """Otherwise a passive worker takes over from a live one, and again, and again."""
        rig = Rig(heartbeat_s=0.3)
        rig.store.after = lambda kind, key: time.sleep(0.005) if kind == "put" else None
        for number in range(80):
            rig.uploader.submit(PartialFlush((make_rows([("c", 1, "a")], number + 1),), ()))
        rig.uploader.start()
        rig.uploader.drain(PATIENCE_S)
        rig.uploader.stop()
        assert [m.manifest_number for m in rig.manifests() if m.uploading]

    def test_nor_does_one_slow_upload(self, beating: Rig) -> None:
        released = threading.Event()

        def hold(kind: str, key: str) -> None:
            if kind == "put":
                assert released.wait(PATIENCE_S)

        beating.store.before = hold
        beating.uploader.submit(segment(1))
        beating.uploader.start()
        eventually(lambda: len(beating.manifests()) >= 3)
        assert all(m.uploading for m in beating.manifests()[-2:])
        released.set()
        manifest = next(m for m in beating.run() if m.parts)
        assert manifest.uploading == ()

    def test_nor_does_a_slow_schema(self, beating: Rig) -> None:
        released = threading.Event()

        def hold(kind: str, key: str) -> None:
            if "/schemas/" in key:
                assert released.wait(PATIENCE_S)

        beating.store.before = hold
        beating.uploader.submit(
            sealed(1, make_rows([("c", 1, "a")], 1), schemas=(SCHEMA, replace(SCHEMA, table="b.c")))
        )
        beating.uploader.start()
        eventually(lambda: len(beating.manifests()) >= 3)
        released.set()
        assert next(m for m in beating.run() if m.parts)

    def test_those_of_a_session_that_ended_are_forgotten(self, rig: Rig) -> None:
        manifests = rig.run(self.spills()[0], Restart(), segment(1, 2))
        assert [m.kind for m in manifests] == [ManifestKind.HEARTBEAT, ManifestKind.SEGMENT]
        assert [len(m.parts) for m in manifests] == [0, 1]
        assert manifests[0].uploading == ()


class TestState:
    def test_it_is_in_full_when_it_changed_and_else_a_number(self, rig: Rig) -> None:
        manifests = rig.run(segment(1, state_changed=True), segment(2), segment(3))
        assert [m.state_at for m in manifests] == [None, 2, 2]

    def test_the_last_manifest_with_data_is_filled_in(self, rig: Rig) -> None:
        rig.run(segment(1), segment(2), sealed(3, state_changed=True))
        tail = rig.chain.tail()
        assert tail is not None and tail.manifest.state is not None
        assert tail.manifest.state.tables[TABLE].last_data_manifest == 3
        assert rig.uploader.state == tail.manifest.state

    def test_it_is_what_a_reader_of_the_chain_derives(self, rig: Rig) -> None:
        rig.run(segment(1, state_changed=True), segment(2), sealed(3), segment(3))
        tail = rig.chain.tail()
        assert tail is not None and tail.manifest.state is None
        assert rig.chain.open_state(tail) == rig.uploader.state

    def test_it_is_restated_before_it_is_out_of_reach(self, rig: Rig) -> None:
        """By heartbeats as well as by segments."""
        rig.run(*(sealed(1) for _ in range(STATE_DISTANCE_MAX + 40)))
        full = [m.manifest_number for m in rig.manifests() if m.state is not None]
        assert full == [1 + STATE_DISTANCE_MAX]

    def test_a_successor_goes_on_counting_the_distance(self, rig: Rig) -> None:
        rig.run(*(sealed(1) for _ in range(200)))
        rig.uploader.stop()
        rig.uploader._thread.join(PATIENCE_S)
        tail = rig.chain.tail()
        assert tail is not None
        rig.uploader = rig.build(tail, rig.chain.open_state(tail))
        manifests = rig.run(*(sealed(1) for _ in range(100)))
        assert [m.manifest_number for m in manifests if m.state] == [1 + STATE_DISTANCE_MAX]

    def test_answers_in_it_know_the_manifest_that_made_them_durable(self, rig: Rig) -> None:
        answer = Answer("r", RequestState.DONE)
        state = replace(STATE, recent=(answer,))
        done = sealed(1, finished=(answer,), state=state, state_changed=True)
        manifest = rig.run(sealed(1), done)[-1]
        assert manifest.state is not None
        assert [one.manifest_number for one in manifest.state.recent] == [3]
        assert [one.manifest_number for one in manifest.finished] == [3]

    def test_so_do_refusals(self, rig: Rig) -> None:
        """Clients believe an end where the manifest that it names has it, and no other."""
        refused = Answer("r", RequestState.REFUSED, error="no captured table matches 'x'")
        manifest = rig.run(sealed(1), sealed(1, refused=(refused,)))[-1]
        (reported,) = manifest.refused
        assert reported == replace(refused, manifest_number=3)
        assert confirmed(rig.chain, reported) == reported


class TestRelease:
    def test_the_last_manifest_says_so(self, rig: Rig) -> None:
        rig.run(segment(1))
        rig.uploader.release(PATIENCE_S)
        assert [m.released for m in rig.manifests()] == [False, True]
        assert not rig.uploader._thread.is_alive()

    def test_what_was_submitted_comes_first(self, rig: Rig) -> None:
        rig.uploader.start()
        rig.uploader.submit(segment(1))
        rig.uploader.release(PATIENCE_S)
        assert [(len(m.parts), m.released) for m in rig.manifests()] == [(1, False), (0, True)]


def test_who_waits_for_a_store_that_is_away_still_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """The main loop, which waits in `drain`, and the uploader's, which tries again and again."""
    monkeypatch.setattr("tideline_capture.uploader._RETRY_S", 0.01)
    now = [0.0]
    health = Health(limit_s=150.0, clock=lambda: now[0])
    store = TroubledStore()
    chain = Chain(store, "p")
    tail = chain.append(first_manifest(state=STATE))
    made = Uploader(store, chain, Lead(tail, STATE, 0.0), REAL, heartbeat_s=60.0, health=health)
    assert health.uploader.silent_s is None, "it has not begun"
    now[0] = 500.0
    assert not health.alive().ok
    made.submit(Restart())
    with pytest.raises(Unavailable):
        made.drain(timeout_s=0.01)
    assert (health.alive().ok, health.main.silent_s) == (True, 0.0)
    tries = 0

    def away() -> None:
        nonlocal tries
        tries += 1
        assert health.uploader.silent_s == 0.0
        now[0] += 100.0
        if tries == 5:
            made.stop()
        raise Unavailable("away")

    with pytest.raises(Unavailable):
        made._until_available(away)
    assert tries == 5
