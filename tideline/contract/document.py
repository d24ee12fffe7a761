"""What every document that couples the rooms has in common: ``version`` and ``requires``.

Both are looked at before anything else is, so that a reader which is too old stops by saying so
and not at the first field it does not know. Readers are upgraded first.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec

from tideline.contract.errors import CorruptData

_T = TypeVar("_T")


class _Header(msgspec.Struct, frozen=True):
    version: int
    requires: tuple[str, ...] = ()


def written_version(version: int) -> int:
    """A field's default that is written all the same: documents leave out plain defaults."""
    field: int = msgspec.field(default_factory=lambda: version)
    return field


def written_features() -> tuple[str, ...]:
    """The default of ``requires``, no feature, which is written all the same."""
    field: tuple[str, ...] = msgspec.field(default_factory=lambda: ())
    return field


def decode_document(
    raw: bytes, kind: type[_T], *, version: int, features: frozenset[str], name: str
) -> _T:
    """``raw`` as a ``kind``; unknown fields are ignored.

    Raises CorruptData, with ``name`` (``manifest``), for bytes that are not one, for another
    version and for a required feature that is not among ``features``.
    """
    try:
        header = msgspec.json.decode(raw, type=_Header)
        unknown = sorted(set(header.requires) - features)
        if unknown or header.version != version:
            raise CorruptData(
                f"a {name} of version {header.version} requires"
                f" {', '.join(unknown) or 'nothing unknown'}; version {version} is known here",
                hint=f"upgrade the side that reads the {name}",
            )
        return msgspec.json.decode(raw, type=kind)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        reason = error if isinstance(error, msgspec.MsgspecError) else "it is not JSON in UTF-8"
        raise CorruptData(f"not a {name}: {reason}") from None
