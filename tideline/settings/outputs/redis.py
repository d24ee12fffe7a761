"""The Redis that a publisher's events go to."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from tideline.settings.base import Count, Effect
from tideline.settings.outputs.templates import Unambiguous
from tideline.settings.redis_server import RedisServer

_STREAM = r"^([A-Za-z0-9._:/-]|\{pipeline\}|\{schema\}|\{table\})+$"


class RedisSettings(RedisServer):
    """The Redis or Valkey that a publisher's events go to."""

    section = "publish.….redis"
    effect = Effect.COMMAND

    stream: Annotated[str, Field(pattern=_STREAM, max_length=500), Unambiguous] = (
        "tideline:{pipeline}:events:{schema}.{table}"
    )
    """The stream of a table's events; without `{schema}` and `{table}` one stream has them all, in
    one order. A character of a name other than A-Z, a-z, 0-9, `_` and `-` is `_x`, its code in hex,
    and `_` ([PUBLISHING](PUBLISHING.md#names))."""
    entries_max: Count | None = None
    """A stream keeps about this many entries, the newest (`MAXLEN ~`); None: all of them."""
