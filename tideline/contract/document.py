"""The fields that every document between Tideline's programs has: ``version`` and ``requires``.

Both are checked before anything else, so that a reader which is too old reports that and does not
stop at the first field it does not know. Readers are upgraded first.

A stored document ends in a ``checksum`` of all before it, so that a flipped byte is an error and
never another value. Older documents have none, and are read without.
"""

from __future__ import annotations

import hashlib
from typing import Generic, TypeVar

import msgspec

from tideline.contract.errors import CorruptData

_T = TypeVar("_T")


class _Header(msgspec.Struct, frozen=True):
    version: int
    requires: tuple[str, ...] = ()


_HEADER = msgspec.json.Decoder(_Header)


def written_version(version: int) -> int:
    """Declare a default that is still written: documents leave out plain defaults."""
    field: int = msgspec.field(default_factory=lambda: version)
    return field


def written_features() -> tuple[str, ...]:
    """Declare the default of ``requires``, no feature, which is still written."""
    field: tuple[str, ...] = msgspec.field(default_factory=lambda: ())
    return field


_CHECKSUM = b',"checksum":"'
_CHECKSUM_BYTES = len(_CHECKSUM) + 16 + len(b'"}')


def with_checksum(raw: bytes) -> bytes:
    """Append to ``raw``, a document with at least one field, a last field ``checksum``: 16 hex
    digits of the sha256 over all bytes before it."""
    return raw[:-1] + _CHECKSUM + _digits(raw[:-1]) + b'"}'


def checksum_holds(raw: bytes) -> bool:
    """Return whether ``raw`` ends in no checksum, or in the right one.

    A byte that flips in the field's name leaves a document without one, and whole otherwise.
    """
    at = len(raw) - _CHECKSUM_BYTES
    if at < 1 or not raw.startswith(_CHECKSUM, at):
        return True
    return raw[at + len(_CHECKSUM) :] == _digits(raw[:at]) + b'"}'


def placed(message: str, at: str) -> str:
    """Add to ``message`` where the document lies, if that is known."""
    return f"{message}, at {at}" if at else message


def _digits(raw: bytes) -> bytes:
    return hashlib.sha256(raw).hexdigest()[:16].encode()


class DocumentReader(Generic[_T]):
    """Reads documents of one kind; unknown fields are ignored.

    Make it once, when a module is imported: msgspec looks a type up when it is first used, and
    crashes the process when two threads do that at once.
    """

    def __init__(
        self, kind: type[_T], *, version: int, features: frozenset[str], name: str
    ) -> None:
        self._decoder = msgspec.json.Decoder(kind)
        self._version = version
        self._features = features
        self._name = name

    def read(self, raw: bytes, at: str = "") -> _T:
        """Decode ``raw``, which lies ``at`` a key or an address.

        Raises CorruptData, with the name of the kind (``manifest``), for bytes that are not one or
        have another checksum, for another version and for a required feature that is not known.
        """
        name = self._name
        try:
            if not checksum_holds(raw):
                raise CorruptData(
                    placed(f"the bytes of a {name} have another checksum than it says", at),
                    hint="restore the object from a copy of the store",
                )
            header = _HEADER.decode(raw)
            unknown = sorted(set(header.requires) - self._features)
            if unknown or header.version != self._version:
                raise CorruptData(
                    placed(
                        f"a {name} of version {header.version} requires"
                        f" {', '.join(unknown) or 'nothing unknown'}; version {self._version} is"
                        " known here",
                        at,
                    ),
                    hint=f"upgrade the side that reads the {name}",
                )
            return self._decoder.decode(raw)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            reason = error if isinstance(error, msgspec.MsgspecError) else "it is not JSON in UTF-8"
            raise CorruptData(placed(f"not a {name}: {reason}", at)) from None
