"""The checksums behind the log's events: a CRC32 of header and body, checked before anything else.

One call checks many events. The CRC of an event with its checksum behind it is the same number for
every event, `RESIDUE`; `LEAD` and a zero byte lead from there to where a CRC begins. With LEAD in
the place of the packets' headers between events (a zero byte follows each), the CRC of all together
is that number again, exactly when each event's is or when damage to several of them cancels out:
one chance in 2³², and none for damage to one event within 32 bits.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from isal import isal_zlib

from tideline_capture.core.events import Int64Array
from tideline_capture.sources.mysql.binlog.framing import HEADER_BYTES, LEAD_BYTES, Bytes

CHECKSUM_BYTES = 4
RESIDUE = 0x2144DF1C
LEAD = b"/\xd9\xc0*"
_LEAD_NUMBER = np.uint32(int.from_bytes(LEAD, "little"))
_FLAGS_AT, _IN_USE_FLAG = 17, 1
_ALGORITHM_AT = -CHECKSUM_BYTES - 1
_CRC32 = 1


def with_checksum(event: bytes, checksum_bytes: int) -> bytes:
    """Return ``event`` (header and body) with its checksum behind it, if there is to be one."""
    return event + checksum_of(event, checksum_bytes=checksum_bytes)


def checksum_of(*event: bytes, checksum_bytes: int) -> bytes:
    """Return the checksum of an event that is given in pieces; nothing if there is to be none."""
    if not checksum_bytes:
        return b""
    crc = 0
    for piece in event:
        crc = isal_zlib.crc32(piece, crc)
    return crc.to_bytes(CHECKSUM_BYTES, "little")


def has_checksum(event: bytes) -> bool:
    """Return whether ``event`` ends in its checksum."""
    return isal_zlib.crc32(event) == RESIDUE


def first_damaged(data: Bytes, starts: Int64Array, stops: Int64Array) -> int | None:
    """Return the place of the first event that does not match its checksum; None if all do.

    ``starts`` and ``stops`` (checksums included) bound them in ``data``, which must be writable:
    the bytes between them are changed while this runs.
    """
    if not len(starts):
        return None
    short = np.flatnonzero(stops - starts < HEADER_BYTES + CHECKSUM_BYTES)
    if len(short):
        before = first_damaged(data, starts[: short[0]], stops[: short[0]])
        return int(short[0]) if before is None else before
    between: npt.NDArray[np.uint32] = np.ndarray((len(data) - 3,), "<u4", data, strides=(1,))
    at = starts[1:] - LEAD_BYTES
    kept = between[at]
    between[at] = _LEAD_NUMBER
    whole = _crc(data, int(starts[0]), int(stops[-1]))
    between[at] = kept
    if whole == RESIDUE:
        return None
    bounds = zip(starts.tolist(), stops.tolist(), strict=True)
    return next(place for place, (a, b) in enumerate(bounds) if _crc(data, a, b) != RESIDUE)


def _crc(data: Bytes, start: int, stop: int) -> int:
    return isal_zlib.crc32(data[start:stop].data)


def description_damaged(event: bytes, *, checked: bool) -> bool:
    """Return whether ``event``, a FORMAT_DESCRIPTION, differs visibly from what the server wrote.

    It always ends in a checksum, which is right if it says that the other events have one. If not,
    the server may have changed the event without a new checksum when it sent it. So an event that
    is right in everything except that field is damaged. While a file is open the server flags it
    so, and the checksum excludes that flag. ``checked``: the events before it in this file have
    checksums.
    """
    if len(event) < HEADER_BYTES + CHECKSUM_BYTES + 1:
        return True
    flags = event[_FLAGS_AT] & ~_IN_USE_FLAG
    event = event[:_FLAGS_AT] + bytes([flags]) + event[_FLAGS_AT + 1 :]
    if has_checksum(event):
        return False
    at = len(event) + _ALGORITHM_AT
    if checked or event[at] == _CRC32:
        return True
    return has_checksum(event[:at] + bytes([_CRC32]) + event[at + 1 :])
