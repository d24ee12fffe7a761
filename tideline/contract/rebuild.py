"""The record of a rebuild: a shadow table is built from scratch, to take the live one's place.

Records of a table are numbered from 1 and never overwritten, so that of two rebuilds that begin at
once one wins. The one with the highest number counts; a number is the *build* that the live table
has once the rebuild is done. The state of the build is read from the shadow table, never from here.
"""

from __future__ import annotations

import msgspec

from tideline.contract.document import DocumentReader, written_features, written_version
from tideline.contract.modes import Mode
from tideline.contract.moves import MOVES

REBUILD_VERSION = 1
FEATURES: frozenset[str] = frozenset({MOVES})


class RebuildRecord(msgspec.Struct, frozen=True, omit_defaults=True):
    """One rebuild of ``table``, of its ``generation``, to be kept as ``mode``.

    ``since_dump``: it begins with the latest full dump, though its mode keeps older rows.
    ``asked``: the name of its caller, if that may be tried again and is to find it then.
    ``target``: the url of the table that it makes; records of older versions have none. ``to``: the
    table format that it moves the table to; "" where it keeps the one that it has.
    """

    table: str
    build: int
    incarnation: str
    generation: int
    mode: Mode
    since_dump: bool = False
    begun_us: int = 0
    asked: str = ""
    version: int = written_version(REBUILD_VERSION)
    requires: tuple[str, ...] = written_features()
    target: str = ""
    to: str = ""


def encode_rebuild(record: RebuildRecord) -> bytes:
    return msgspec.json.encode(record)


def decode_rebuild(raw: bytes, at: str = "") -> RebuildRecord:
    """Decode a record; CorruptData for bytes that are not one, or that need a newer reader."""
    return _READER.read(raw, at)


_READER = DocumentReader(
    RebuildRecord, version=REBUILD_VERSION, features=FEATURES, name="rebuild record"
)
