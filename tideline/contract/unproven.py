"""Keeps the external commits of a target in a property, which outlives its log.

Every commit of ours names them in its `Stamp`. Delta removes the log's old entries (after 30 days):
of a table without merges for so long our newest commit is then gone. Its properties stay: this one
is set once anything is unproven, and removed once nothing is.
"""

from __future__ import annotations

import msgspec

from tideline.contract.errors import CorruptData

UNPROVEN_PROPERTY = "tideline.unproven"


class Unproven(msgspec.Struct, frozen=True, omit_defaults=True):
    """``changes`` as in `Stamp.unproven`, found when everything up to ``seq`` was applied."""

    changes: tuple[str, ...] = ()
    seq: int = 0

    @classmethod
    def parse(cls, text: str | None) -> Unproven:
        """Parse a target's property; empty where it has none."""
        try:
            return cls() if text is None else _DECODER.decode(text)
        except msgspec.MsgspecError:
            raise CorruptData(
                "the warehouse's table does not say what others have changed in it",
                hint="somebody changed its property tideline.unproven: remove it, dump the table"
                " and merge again",
            ) from None

    def text(self) -> str:
        return msgspec.json.encode(self).decode()


_DECODER = msgspec.json.Decoder(Unproven)
