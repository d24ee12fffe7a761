"""A binlog's checksums: no byte of an event is another without an error that says where."""

from __future__ import annotations

import random
import struct
import zlib

import numpy as np
import pytest

from tests.fixtures.odd_events import FOLDER, packet
from tests.unit.capture.sources.mysql.binlog.test_transactions import (
    anonymous,
    operations,
    query,
    raw_events,
    read_all,
    reader_of,
)
from tideline.contract.errors import CorruptData, TidelineError
from tideline_capture.sources.mysql.binlog import checksums, framing
from tideline_capture.sources.mysql.binlog.checksums import (
    CHECKSUM_BYTES,
    first_damaged,
    has_checksum,
    with_checksum,
)
from tideline_capture.sources.mysql.binlog.event_codes import ARTIFICIAL_FLAG, EventCode
from tideline_capture.sources.mysql.binlog.framing import LEAD_BYTES, PAYLOAD_MAX

CHECKED = sorted(path.stem for path in FOLDER.glob("*.bin") if "no-checksum" not in path.name)
UNCHECKED = sorted(path.stem for path in FOLDER.glob("*no-checksum.bin"))
STEP = 7
IN_USE_AT = 17
ALGORITHM_AT = -CHECKSUM_BYTES - 1


def rotate(file: bytes = b"binlog.000001") -> bytes:
    """What a server sends first, with its checksum: which file it is, and from where on."""
    body = struct.pack("<Q", 4) + file
    flags = ARTIFICIAL_FLAG
    header = struct.pack("<IBIIIH", 0, EventCode.ROTATE, 7, 23 + len(body), 0, flags)
    return with_checksum(header + body, CHECKSUM_BYTES)


def flipped(event: bytes, at: int, bits: int) -> bytes:
    at %= len(event)
    return event[:at] + bytes([event[at] ^ bits]) + event[at + 1 :]


def outcome(sent: list[bytes], name: str) -> str:
    """What reading ``sent`` ends in: an error's message, or which changes were read."""
    try:
        return operations(read_all(reader_of(sent, flavour=name.partition("-")[0])))
    except TidelineError as error:
        return f"{type(error).__name__}: {error.message}"


def test_the_numbers_that_lead_from_an_event_to_the_next() -> None:
    """By another implementation of CRC32."""
    event = b"any event"
    assert zlib.crc32(event + zlib.crc32(event).to_bytes(4, "little")) == checksums.RESIDUE
    assert zlib.crc32(checksums.LEAD + b"\0", checksums.RESIDUE) == zlib.crc32(b"")
    assert len(checksums.LEAD) + 1 == LEAD_BYTES
    assert with_checksum(event, CHECKSUM_BYTES) == event + zlib.crc32(event).to_bytes(4, "little")


@pytest.mark.parametrize("step", [STEP, pytest.param(1, marks=pytest.mark.long)])
@pytest.mark.parametrize("name", CHECKED)
@pytest.mark.thorough
def test_no_byte_of_a_recorded_log_is_another_value(
    name: str, step: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One bit of each byte, in turn, of what a server sends: the error names the event's place. Of
    bytes ``step`` apart, that is, and not the same ones in each event."""
    monkeypatch.setattr(framing, "_CAPACITY", 1 << 16)
    monkeypatch.setattr(framing, "_RECEIVE_BYTES", 1 << 14)
    sent = [rotate(), *raw_events(f"{name}.bin")]
    assert "damaged" not in outcome(sent, name)
    offset = 4
    for place, event in enumerate(sent):
        for at in range(place % step, len(event), step):
            if place == 1 and at == IN_USE_AT:
                continue
            harmed = [*sent[:place], flipped(event, at, 1 << at % 8), *sent[place + 1 :]]
            found = outcome(harmed, name)
            if place:
                assert f"damaged, in binlog.000001 at {offset}: " in found, (place, at)
            else:
                assert found.startswith("CorruptData"), at
        offset += len(event) if place else 0


@pytest.mark.parametrize("name", [*CHECKED, *UNCHECKED])
def test_what_a_server_may_change_of_a_description(name: str) -> None:
    """The mark of an open file; of a file without checksums also the time that it was made at."""
    sent = [rotate(), *raw_events(f"{name}.bin")]
    whole = outcome(sent, name)
    sent[1] = flipped(sent[1], IN_USE_AT, 1)
    assert outcome(sent, name) == whole
    sent[1] = flipped(sent[1], 19 + 2 + 50, 1)
    assert ("damaged" in outcome(sent, name)) is (name in CHECKED)


@pytest.mark.parametrize("name", [*CHECKED, *UNCHECKED])
def test_a_description_that_is_wrong_about_checksums(name: str) -> None:
    sent = [rotate(), *raw_events(f"{name}.bin")]
    sent[1] = flipped(sent[1], ALGORITHM_AT, 1)
    assert "damaged, in binlog.000001 at 4: " in outcome(sent, name)


def test_the_first_of_many_that_are_damaged_is_named() -> None:
    sent = [rotate(), *raw_events("mysql-8.0.15-savepoint.bin")]
    offset = 4 + sum(map(len, sent[1:5]))
    sent[5], sent[7] = flipped(sent[5], 30, 1), flipped(sent[7], 30, 1)
    with pytest.raises(CorruptData, match=f"in binlog.000001 at {offset}: .*checksum") as caught:
        read_all(reader_of(sent))
    assert "mysqlbinlog --verify-binlog-checksum" in str(caught.value.hint)


def test_an_event_before_the_description_of_its_file() -> None:
    with pytest.raises(CorruptData, match="before what describes the file"):
        read_all(reader_of([rotate(), anonymous(48), query(b"CREATE TABLE x (id INT)", at=99)]))


@pytest.mark.parametrize("sizes", [[23], [40] * 7, [23, PAYLOAD_MAX + 5, 60], [5000] * 40])
def test_many_are_compared_at_once(sizes: list[int]) -> None:
    """Whichever is damaged, that one is found; the bytes between events are what they were."""
    draw = random.Random(len(sizes))
    events = [
        with_checksum(draw.randbytes(size - CHECKSUM_BYTES), CHECKSUM_BYTES) for size in sizes
    ]
    buffer = bytearray(b"".join(packet(event)[:LEAD_BYTES] + event for event in events) + bytes(64))
    stops = np.cumsum([LEAD_BYTES + size for size in sizes]).astype(np.int64)
    starts = stops - sizes
    data, before = np.frombuffer(buffer, np.uint8), bytes(buffer)
    assert first_damaged(data, starts, stops) is None
    assert bytes(buffer) == before
    for place, start in enumerate(starts.tolist()):
        at = start + draw.randrange(sizes[place])
        buffer[at] ^= 1 << draw.randrange(8)
        harmed = bytes(buffer)
        assert first_damaged(data, starts, stops) == place
        assert bytes(buffer) == harmed
        buffer[at] = before[at]


def test_events_too_short_for_a_checksum() -> None:
    event = with_checksum(bytes(30), CHECKSUM_BYTES)
    data = np.frombuffer(bytearray(bytes(5) + event + bytes(64)), np.uint8)
    starts, stops = np.array([5, 44]), np.array([5 + len(event), 47])
    assert first_damaged(data, starts, stops) == 1
    data[20] = 1
    assert first_damaged(data, starts, stops) == 0


def test_sealing() -> None:
    assert has_checksum(with_checksum(b"plain", CHECKSUM_BYTES))
    assert not has_checksum(with_checksum(b"plain", CHECKSUM_BYTES)[:-1])
    assert with_checksum(b"plain", 0) == b"plain"
