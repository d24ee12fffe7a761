"""What every document that couples the rooms has in common: ``version`` and ``requires``.

Both are looked at before anything else is, so that a reader which is too old stops by saying so
and not at the first field it does not know. Readers are upgraded first.
"""

from __future__ import annotations

from typing import Generic, TypeVar

import msgspec

from tideline.contract.errors import CorruptData

_T = TypeVar("_T")


class _Header(msgspec.Struct, frozen=True):
    version: int
    requires: tuple[str, ...] = ()


_HEADER = msgspec.json.Decoder(_Header)


def written_version(version: int) -> int:
    """A field's default that is written all the same: documents leave out plain defaults."""
    field: int = msgspec.field(default_factory=lambda: version)
    return field


def written_features() -> tuple[str, ...]:
    """The default of ``requires``, no feature, which is written all the same."""
    field: tuple[str, ...] = msgspec.field(default_factory=lambda: ())
    return field


class DocumentReader(Generic[_T]):
    """Reads documents of one kind; unknown fields are ignored.

    To be made once, when a module is imported: msgspec looks a type up when it is first used, and
    crashes the process when two threads do that at once.
    """

    def __init__(
        self, kind: type[_T], *, version: int, features: frozenset[str], name: str
    ) -> None:
        self._decoder = msgspec.json.Decoder(kind)
        self._version = version
        self._features = features
        self._name = name

    def read(self, raw: bytes) -> _T:
        """``raw`` as a document.

        Raises CorruptData, with the name of the kind (``manifest``), for bytes that are not one,
        for another version and for a required feature that is not known.
        """
        name = self._name
        try:
            header = _HEADER.decode(raw)
            unknown = sorted(set(header.requires) - self._features)
            if unknown or header.version != self._version:
                raise CorruptData(
                    f"a {name} of version {header.version} requires"
                    f" {', '.join(unknown) or 'nothing unknown'}; version {self._version} is known"
                    " here",
                    hint=f"upgrade the side that reads the {name}",
                )
            return self._decoder.decode(raw)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            reason = error if isinstance(error, msgspec.MsgspecError) else "it is not JSON in UTF-8"
            raise CorruptData(f"not a {name}: {reason}") from None
