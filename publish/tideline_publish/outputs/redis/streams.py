"""Claims streams: each has one writer, which is on record at a key by its name."""

from __future__ import annotations

from typing import Any

import redis

from tideline.contract.errors import Misconfigured
from tideline_publish.outputs.redis.script import writer_key

EventId = tuple[int, int]
"""The sequence and the part of an event."""
NONE_YET: EventId = (0, 0)
_MISSING, _WRONG_TYPE = "no such key", "WRONGTYPE"
_GROUP = "tideline"


def claim(client: redis.Redis, stream: str, writer: str, incarnation: str) -> EventId:
    """Make ``stream`` this writer's, if it is not yet, and return the last id in it.

    Raises Misconfigured for one that others write to, that is of another incarnation, or that was
    removed; and as the client does.
    """
    with client.pipeline(transaction=True) as asked:
        asked.get(writer_key(stream))
        asked.xinfo_stream(stream)
        record, about = asked.execute(raise_on_error=False)
    for answer in (record, about):
        if isinstance(answer, Exception) and _MISSING not in str(answer):
            raise wrong_type(stream) if _WRONG_TYPE in str(answer) else answer
    last = None if isinstance(about, Exception) else _parsed(about["last-generated-id"])
    if record is None:
        if last not in (None, NONE_YET):
            raise _of_others(stream)
        _make(client, stream, f"{writer} {incarnation}", made=last is not None)
        return claim(client, stream, writer, incarnation)
    return _checked(stream, record.decode(errors="replace"), last, writer, incarnation)


def _checked(
    stream: str, record: str, last: EventId | None, writer: str, incarnation: str
) -> EventId:
    owner, known, written = (*record.split(" "), "", "", "")[:3]
    if owner != writer:
        raise Misconfigured(
            f"the stream {stream} is of another publisher, {owner}",
            hint="have each publisher write to streams of its own (redis.stream)",
        )
    if known != incarnation:
        raise Misconfigured(
            f"the stream {stream} has events of the pipeline before it was started again: their ids"
            " are as high as those of new ones",
            hint=f"{_removal(stream)} removes it, for a new one; or change redis.stream",
        )
    if last is None or last < _parsed(written):
        raise removed(stream)
    if last > _parsed(written):
        raise _of_others(stream)
    return last


def removed(stream: str) -> Misconfigured:
    """Return the error for a stream that someone removed."""
    return Misconfigured(
        f"the stream {stream} was removed: what its consumers had not read is gone",
        hint=f"{_removal(stream)} has it begin again, with the next event; to have earlier ones"
        " again, move the publisher back (docs/PUBLISHING.md#redis-streams)",
    )


def wrong_type(stream: str) -> Misconfigured:
    """Return the error for a key that holds something else."""
    return Misconfigured(
        f"the key {stream} holds no stream",
        hint="remove it, or change redis.stream",
    )


def _of_others(stream: str) -> Misconfigured:
    return Misconfigured(
        f"the stream {stream} has an entry that this publisher did not write, with an id above its"
        " own: no event could follow",
        hint="a stream has one writer: give the other one a stream of its own, and then"
        f" {_removal(stream)}; or change redis.stream",
    )


def _removal(stream: str) -> str:
    return f'DEL "{stream}" "{writer_key(stream)}"'


def _make(client: redis.Redis, stream: str, record: str, *, made: bool) -> None:
    """Put down the writer, and make an empty stream: only a group of consumers can."""
    with client.pipeline(transaction=True) as asked:
        if not made:
            asked.xgroup_create(stream, _GROUP, "0", mkstream=True)
            asked.xgroup_destroy(stream, _GROUP)
        asked.set(writer_key(stream), f"{record} 0-0", nx=True)
        asked.execute()


def _parsed(found: Any) -> EventId:
    text = found.decode() if isinstance(found, bytes) else str(found)
    seq, _, part = text.partition("-")
    return int(seq or 0), int(part or 0)
