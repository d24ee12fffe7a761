"""The records of the consumers of a chain's parts, as the store holds them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from tideline.contract import layout
from tideline.contract.document import (
    DocumentReader,
    with_checksum,
    written_features,
    written_version,
)
from tideline.contract.errors import CorruptData
from tideline.settings import Settings
from tideline.store.objects import Entry, ObjectStore

_VERSION = 1
WAREHOUSE = "warehouse"
REBUILD = "rebuild"
PUBLISHER = "publisher"
KINDS = (WAREHOUSE, REBUILD, PUBLISHER)


class ConsumerRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """``kind`` is one of `KINDS`. ``tried``: endpoints at which a warehouse in an object store was
    probed ("": the default). ``target``: the url of the table that a rebuild makes; older versions
    name none. ``publisher``: the name of one, which has no ``url``."""

    kind: str
    url: str
    table: str = ""
    ended: Mapping[str, int] = msgspec.field(default_factory=dict)
    tried: tuple[str, ...] = ()
    version: int = written_version(_VERSION)
    requires: tuple[str, ...] = written_features()
    target: str = ""
    publisher: str = ""


CONSUMER_READER = DocumentReader(
    ConsumerRecord, version=_VERSION, features=frozenset(), name="consumer"
)


def stored_record(record: ConsumerRecord) -> bytes:
    return with_checksum(msgspec.json.encode(record))


def consumer_records(
    settings: Settings, store: ObjectStore
) -> Iterator[tuple[Entry, ConsumerRecord]]:
    """Yield the records of all consumers, and where each lies; CorruptData for one of unknown
    content."""
    for page in store.entries(layout.consumers_prefix(settings.pipeline)):
        for entry in page:
            raw = store.get(entry.key)
            if raw is None:
                continue
            record = CONSUMER_READER.read(raw, entry.key)
            if record.kind not in KINDS:
                raise CorruptData(
                    f"{entry.key} is of the unknown kind {record.kind!r}",
                    hint="upgrade this program, or remove the record of a consumer that is gone",
                )
            yield entry, record
