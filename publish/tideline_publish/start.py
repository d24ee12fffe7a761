"""Finds places of the chain as people name them: its ends, a sequence, a manifest, a time."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Self

from tideline.contract.errors import CorruptData, Misconfigured
from tideline.contract.manifest import Manifest
from tideline.contract.publishing import ChainPosition
from tideline.settings.publish import START
from tideline.store.chain import Chain

_FORMS = "beginning, now, sequence:N, manifest:N or time:2026-11-28T16:00:00Z"


@dataclass(frozen=True, slots=True)
class Start:
    """A place: ``kind`` is its first word, ``number`` a sequence, a manifest or µs since 1970."""

    kind: str
    number: int = 0

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse what settings and commands have. Raises Misconfigured for anything else."""
        kind, _, value = text.partition(":")
        if re.fullmatch(START, text) is None:
            raise Misconfigured(f"{text!r} is no place of the chain", hint=f"write {_FORMS}")
        if kind != "time":
            return cls(kind, int(value or 0))
        try:
            at = datetime.fromisoformat(value)
        except ValueError:
            raise Misconfigured(f"{value!r} is no time", hint=f"write {_FORMS}") from None
        at = at.replace(tzinfo=UTC) if at.tzinfo is None else at
        return cls(kind, round(at.timestamp() * 1_000_000))

    def find(self, chain: Chain) -> ChainPosition:
        """Return the position. Raises Misconfigured for a place that the chain has not, and like
        the chain."""
        tail = chain.tail()
        if tail is None:
            raise Misconfigured(
                f"nothing is captured yet of {chain.pipeline}", hint="run `tideline capture`"
            )
        last = tail.manifest
        if self.kind == "beginning":
            return ChainPosition(last.incarnation, 0, 0)
        if self.kind == "now":
            return _behind(last)
        if self.kind == "manifest":
            return self._behind_manifest(chain, last)
        if self.kind == "sequence":
            if self.number > last.last_seq:
                raise Misconfigured(f"the chain ends at sequence {last.last_seq}")
            number = _last_with(chain, last, lambda one: one.last_seq <= self.number)
            return ChainPosition(last.incarnation, number, self.number)
        return self._behind_time(chain, last)

    def _behind_manifest(self, chain: Chain, last: Manifest) -> ChainPosition:
        if self.number > last.manifest_number:
            raise Misconfigured(f"the chain ends at manifest {last.manifest_number}")
        if self.number == 0:
            return ChainPosition(last.incarnation, 0, 0)
        return _behind(_read(chain, self.number))

    def _behind_time(self, chain: Chain, last: Manifest) -> ChainPosition:
        """Return a position with all changes behind it that committed after the time.

        Changes may follow a manifest's heartbeat in it: only those of the manifest before are known
        to be older than that.
        """
        number = _last_with(chain, last, lambda one: (one.through_us or 0) <= self.number)
        beat_us = (_read(chain, number).through_us or 0) if number else 0
        number = _last_with(chain, last, lambda one: (one.through_us or 0) < beat_us)
        if number == 0:
            return ChainPosition(last.incarnation, 0, 0)
        return _behind(_read(chain, number))


def _behind(manifest: Manifest) -> ChainPosition:
    return ChainPosition(manifest.incarnation, manifest.manifest_number, manifest.last_seq)


def _last_with(chain: Chain, last: Manifest, holds: Callable[[Manifest], bool]) -> int:
    """Return the number of the last manifest for which ``holds``; 0 for none. It holds for all up
    to one, and for none behind it."""
    low, high = 0, last.manifest_number + 1
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if holds(_read(chain, middle)) else (low, middle)
    return low


def _read(chain: Chain, number: int) -> Manifest:
    entry = chain.read(number)
    if entry is None:
        raise CorruptData(f"manifest {number} of {chain.pipeline} is missing")
    return entry.manifest
