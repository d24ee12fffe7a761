"""The names of Kafka's topics."""

from __future__ import annotations

import re

from tideline.contract.errors import Misconfigured
from tideline.contract.schema import TableId

_NAME_MAX = 249
_OTHER = re.compile(r"[^A-Za-z0-9_-]")
"""A dot is written as its code, too: one in a name must not look like one of the template."""


def topic_of(template: str, pipeline: str, table: TableId) -> str:
    """Return the topic of ``table``. Raises Misconfigured for a name that no topic can have."""
    topic = template.format(
        pipeline=pipeline, schema=_encoded(table.schema), table=_encoded(table.name)
    )
    if len(topic) > _NAME_MAX:
        raise Misconfigured(
            f"the topic of {table} would have {len(topic)} characters; Kafka takes {_NAME_MAX}",
            hint="shorten kafka.topic, or leave the table out (publish.….exclude_tables)",
        )
    return topic


def _encoded(name: str) -> str:
    return _OTHER.sub(lambda found: f"_x{ord(found[0]):x}_", name)
