"""The end of a chain as a long-lived reader follows it: each manifest is read once.

What is kept does not change in a chain. Where a restore of the store replaced it, the next manifest
does not follow the last one (CorruptData), and jobs refuse a plan of manifests that are gone.
"""

from __future__ import annotations

import threading
from collections import OrderedDict

from tideline.contract.manifest import check_entry, roll_forward
from tideline.contract.open_state import OpenState
from tideline.store.chain import Chain, ManifestEntry
from tideline.store.objects import ObjectStore

RECENT_BYTES_MAX = 16 * 1024 * 1024
"""Stored bytes of the manifests that are kept; decoded they take several times as much."""


class RecentChain(Chain):
    """A chain that keeps the manifests that were read last. Used by many threads."""

    def __init__(
        self, store: ObjectStore, pipeline: str, bytes_max: int = RECENT_BYTES_MAX
    ) -> None:
        super().__init__(store, pipeline)
        self._recent: OrderedDict[int, ManifestEntry] = OrderedDict()
        self._bytes = 0
        self._bytes_max = bytes_max
        self._lock = threading.Lock()

    def read(self, number: int) -> ManifestEntry | None:
        """See `Chain`."""
        with self._lock:
            known = self._recent.get(number)
            if known is not None:
                self._recent.move_to_end(number)
                return known
        entry = super().read(number)
        if entry is not None:
            self._keep(number, entry)
        return entry

    def _keep(self, number: int, entry: ManifestEntry) -> None:
        with self._lock:
            if number in self._recent:
                return
            self._recent[number] = entry
            self._bytes += len(entry.raw)
            while self._bytes > self._bytes_max and len(self._recent) > 1:
                _, oldest = self._recent.popitem(last=False)
                self._bytes -= len(oldest.raw)


class FollowedChain:
    """The newest manifest of ``chain``, and the open state after it; ``entry`` is None while there
    is no manifest."""

    def __init__(self, chain: Chain) -> None:
        self._chain = chain
        self.entry: ManifestEntry | None = None
        self.state = OpenState()

    def advance(self) -> bool:
        """Read what is new; return whether anything is.

        One request where nothing is. Raises like the chain, and CorruptData where the chain was
        replaced.
        """
        if self.entry is None:
            self.entry = self._chain.tail()
            if self.entry is None:
                return False
            self.state = self._chain.open_state(self.entry)
            return True
        moved = False
        while (following := self._chain.read(self._number + 1)) is not None:
            self._append(following)
            moved = True
        return moved

    @property
    def _number(self) -> int:
        return 0 if self.entry is None else self.entry.manifest.manifest_number

    def _append(self, following: ManifestEntry) -> None:
        if self.entry is not None:
            check_entry(self.entry.manifest, self.entry.raw, following.manifest)
        manifest = following.manifest
        if manifest.state is not None or manifest.state_at is None:
            self.state = manifest.state or OpenState()
        else:
            self.state = roll_forward(self.state, [manifest])
        self.entry = following
