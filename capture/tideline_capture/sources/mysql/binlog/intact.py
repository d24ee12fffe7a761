"""A check that events are as the server wrote them, before anything else is read from them.

Where a file's events have checksums, each is compared with its own, once, before any other use. A
file's FORMAT_DESCRIPTION says which checksums it has, so nothing of a file is trusted before that
event, and nothing behind it is checked together with it.
"""

from __future__ import annotations

import numpy as np

from tideline.contract.errors import CorruptData
from tideline_capture.core.events import Int64Array
from tideline_capture.sources.mysql.binlog.bulk import EventColumns, position_behind
from tideline_capture.sources.mysql.binlog.checksums import description_damaged, first_damaged
from tideline_capture.sources.mysql.binlog.event_codes import EventCode
from tideline_capture.sources.mysql.binlog.framing import Bytes
from tideline_capture.sources.mysql.binlog.stream import BinlogStream

_BEFORE_DESCRIPTION = (
    EventCode.ROTATE,
    EventCode.HEARTBEAT,
    EventCode.HEARTBEAT_V2,
    EventCode.FORMAT_DESCRIPTION,
)


def check_events(source: BinlogStream, data: Bytes, starts: Int64Array, stops: Int64Array) -> int:
    """Check events of ``source``, the next ones behind those accepted; return how many more may be
    checked together.

    ``starts`` and ``stops`` (checksums included) bound them in ``data``, which is the buffer's.
    Raises CorruptData, with the file and the place in it, at one that is damaged.
    """
    codes = data[starts + 4]
    descriptions = np.flatnonzero(codes == EventCode.FORMAT_DESCRIPTION)
    count = int(descriptions[0]) if len(descriptions) else len(starts)
    if source.awaits_description:
        strange = np.flatnonzero(~np.isin(codes[: count + 1], _BEFORE_DESCRIPTION))
        if len(strange):
            raise _damaged(source, int(strange[0]), "it comes before what describes the file")
    begin = max(0, source.buffer.checked - source.accepted.count)
    if source.checksum_bytes and begin < count:
        damaged = first_damaged(data, starts[begin:count], stops[begin:count])
        if damaged is not None:
            raise _damaged(source, begin + damaged, "it is not what its checksum says")
    source.buffer.checked = source.accepted.count + max(begin, count)
    if count == len(starts):
        return count
    event = data[starts[count] : stops[count]].tobytes()
    inside = source.checksum_bytes > 0 and not source.awaits_description
    if description_damaged(event, checked=inside):
        raise _damaged(source, count, "it is not what its checksum says")
    return count + 1


def _damaged(source: BinlogStream, index: int, why: str) -> CorruptData:
    """Return the error for the damaged event at ``index`` behind the accepted ones. It begins where
    the one before it ends."""
    before = source.accepted.count + index
    starts = np.array(source.buffer.starts[:before], np.int64)
    stops = source.buffer.stops(0, before)
    at = position_behind(EventColumns(source.buffer.view(), starts, stops), source.at)
    return CorruptData(
        f"an event of the binlog is damaged, in {source.file} at {at}: {why}",
        hint="start the worker again: what was damaged on its way is whole then (TLS keeps it so)."
        f" If it stops there again, {source.file} is damaged on the server's disk, as"
        " mysqlbinlog --verify-binlog-checksum shows: point source.url at a replica that has"
        " these transactions, or start a new pipeline under another name (docs/RESTORE.md)",
    )
