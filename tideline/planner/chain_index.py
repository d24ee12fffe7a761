"""Searches a long chain without reading all of it: open states describe the manifests between them.

An open state says for each table when it last had data and which full dump made it complete. Both
only ever grow, and every manifest names the full state that is nearest behind it, so any question
"since when" is answered by bisection: a few dozen requests, however long the chain.
"""

from __future__ import annotations

from dataclasses import dataclass

from tideline.contract.errors import CorruptData
from tideline.contract.manifest import STATE_DISTANCE_MAX, Manifest
from tideline.contract.open_state import OpenState, TableState
from tideline.store.chain import Chain

_KEPT_MAX = 512
"""Number of manifests that are cached, because questions about other tables probe the same ones."""


@dataclass(frozen=True, slots=True)
class FullDump:
    """A table's newest dump that is delete-complete, finished in manifest ``finished_in``.

    All that the table consists of is in manifests after ``begin_manifest``, with sequences above
    ``first_low_seq``.
    """

    finished_in: int
    begin_manifest: int
    first_low_seq: int


class ChainIndex:
    """The history of a chain, from its manifests. Raises like the chain."""

    def __init__(self, chain: Chain) -> None:
        self._chain = chain
        self._manifests: dict[int, tuple[Manifest, str]] = {}
        self._dumps: dict[tuple[str, int], FullDump | None] = {}

    def manifest(self, number: int) -> Manifest:
        """Return manifest ``number``, which exists."""
        return self._read(number)[0]

    def has(self, number: int) -> bool:
        """Return whether there is a manifest ``number`` by now."""
        return number in self._manifests or self._chain.read(number) is not None

    def digest(self, number: int) -> str:
        """Return the digest of manifest ``number``, which exists."""
        return self._read(number)[1]

    def _read(self, number: int) -> tuple[Manifest, str]:
        found = self._manifests.get(number)
        if found is None:
            entry = self._chain.read(number)
            if entry is None:
                raise CorruptData(f"manifest {number} is missing")
            if len(self._manifests) >= _KEPT_MAX:
                self._manifests.pop(next(iter(self._manifests)))
            found = self._manifests[number] = entry.manifest, entry.digest
        return found

    def known(self, number: int) -> tuple[int, OpenState]:
        """Return the newest full open state at or before manifest ``number``, and the number of its
        manifest."""
        manifest = self.manifest(number)
        at = number if manifest.state_at is None else manifest.state_at
        state = self.manifest(at).state
        if state is None:
            raise CorruptData(f"manifest {at} has no open state")
        return at, state

    def clear_until(self, table: str, from_manifest: int, last: int) -> int:
        """Return a manifest up to which none after ``from_manifest`` holds anything of ``table``;
        at least ``from_manifest``.

        ``last`` is one that does. The result is less than two states' distance before the first one
        that does.
        """
        low, high = from_manifest, last
        while high - low > 2 * STATE_DISTANCE_MAX:
            at, state = self.known(_between(low + STATE_DISTANCE_MAX, high))
            then = state.tables.get(table, TableState()).last_data_manifest
            if then > at:
                raise CorruptData(f"the open state of manifest {at} names a later one, {then}")
            if then <= from_manifest:
                low = at
            else:
                high = then
        return low

    def full_dump(self, table: str, state: TableState, tail: int) -> FullDump | None:
        """Return the newest finished full dump of ``table``, whose ``state`` is that at ``tail``.

        None before the first one, and when the chain does not show it.
        """
        complete = state.complete_seq
        if complete is None:
            return None
        if (table, complete) not in self._dumps:
            self._dumps[table, complete] = self._find_dump(table, complete, tail)
        return self._dumps[table, complete]

    def _find_dump(self, table: str, complete: int, tail: int) -> FullDump | None:
        low, high = 0, tail
        while high - low > 1:
            middle = _between(low, high)
            at, state = self.known(middle)
            then = state.tables.get(table, TableState()).complete_seq
            if then is not None and then >= complete:
                high = at
            else:
                low = middle
        deletes_before = [
            delete_before.seq
            for delete_before in self.manifest(high).deletes_before
            if delete_before.table == table
        ]
        if not deletes_before:
            return None
        return FullDump(high, self._last_before(max(deletes_before), high), max(deletes_before))

    def _last_before(self, seq: int, number: int) -> int:
        """Return the last manifest before ``number`` with nothing above ``seq``; 0 for none."""
        low, high = 0, number
        while high - low > 1:
            middle = _between(low, high)
            if self.manifest(middle).last_seq > seq:
                high = middle
            else:
                low = middle
        return low


def _between(low: int, high: int) -> int:
    """Return a number between the two, the roundest one near the middle, so that other searches
    meet it.

    ``high - low`` is at least 2.
    """
    step = 1 << ((high - low).bit_length() - 1)
    while (high - 1) // step * step <= low:
        step //= 2
    return (high - 1) // step * step
