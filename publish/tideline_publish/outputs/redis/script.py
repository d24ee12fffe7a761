"""The script by which events are appended: in order, up to the first that Redis refuses.

A pipeline goes on behind a command that was refused: with one event missing, the next would be
appended, and no lower id can be any more. So a batch is a script, which ends there. What it
appended is on record in the same step: the last id of each stream, and then the position.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import redis

from tideline_publish.events import ChangeEvent

REMOVED = "REMOVED"
"""The reply for a stream that is not there."""

HEADER = "header:"
"""The prefix of fields that are headers."""

_APPEND = """
local position, writer, entries_max = ARGV[1], ARGV[2], ARGV[3]
local done, reply, last = 0, '', {}
local at = 4
while at <= #ARGV do
  local stream = tonumber(ARGV[at])
  local command = {'XADD', KEYS[stream], 'NOMKSTREAM'}
  local function add(...) for _, one in ipairs({...}) do command[#command + 1] = one end end
  if entries_max ~= '' then add('MAXLEN', '~', entries_max) end
  add(ARGV[at + 1], 'table', ARGV[at + 2], 'op', ARGV[at + 3])
  local fields = tonumber(ARGV[at + 4])
  for field = at + 5, at + 4 + fields do add(ARGV[field]) end
  local found = redis.pcall(unpack(command))
  if not found then reply = 'REMOVED' break end
  if type(found) == 'table' and found.err then reply = found.err break end
  last[stream] = ARGV[at + 1]
  done = done + 1
  at = at + 5 + fields
end
for stream, id in pairs(last) do
  redis.call('SET', KEYS[stream + 1], writer .. ' ' .. id)
end
if reply == '' and position ~= '' then
  local found = redis.pcall('SET', KEYS[1], position)
  if found.err then reply = found.err end
end
return {done, reply}
"""


@dataclass(frozen=True, slots=True)
class StreamEntry:
    """An event, and the stream that it goes to."""

    stream: str
    event: ChangeEvent


def writer_key(stream: str) -> str:
    """Return the key that holds who writes to ``stream``, and the last id that it wrote."""
    return f"{stream}:writer"


def id_of(event: ChangeEvent) -> str:
    return f"{event.seq}-{event.part}"


def _fields(event: ChangeEvent) -> list[str | bytes]:
    """Return the names and values of an entry's fields, behind those of all events. A payload of
    no bytes is there; that of a tombstone is not."""
    found: list[str | bytes] = []
    if event.key:
        found += ["key", event.key]
    if event.value or (event.route and event.value is not None):
        found += ["value", event.value]
    for name, value in event.headers:
        found += [HEADER + name, value]
    return found


def append(
    client: redis.Redis,
    entries: Sequence[StreamEntry],
    *,
    writer: str,
    entries_max: int | None,
    position_key: str,
    position: bytes,
) -> tuple[int, str]:
    """Append ``entries`` up to the first that is refused. Return how many were appended, and the
    server's reply to that one, ``""`` where there is none: then ``position`` is kept, too, unless
    it is empty. Raises as the client does."""
    places: dict[str, int] = {}
    keys = [position_key]
    arguments: list[Any] = [position, writer, entries_max or ""]
    for entry in entries:
        if entry.stream not in places:
            places[entry.stream] = len(keys) + 1
            keys += [entry.stream, writer_key(entry.stream)]
        event = entry.event
        fields = _fields(event)
        arguments += [places[entry.stream], id_of(event), event.table, event.op, len(fields)]
        arguments += fields
    found = client.eval(_APPEND, len(keys), *keys, *arguments)
    done, reply = cast("tuple[int, bytes]", found)
    return done, reply.decode(errors="replace")
