"""Decides whether this worker is active or passive, by the chain alone.

Several workers may run; the one that extends the chain is active. Another probes the next
manifest's name, and when the chain has not grown for ``takeover_after_s`` it appends a *takeover*
with the next term. The store's create-only PUT decides: the old worker's next append finds its
number taken and fails as `Fenced`. No lease, no other machine's clock and no Redis is involved.
Only answered probes count towards a takeover; a failed one restarts the wait, so that no worker
takes over in haste when a store comes back.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import structlog

from tideline.contract.errors import Fenced, Unavailable
from tideline.contract.manifest import Manifest
from tideline.contract.open_state import OpenState
from tideline.contract.position import SourceIdentity, SourcePosition
from tideline.store.chain import Chain, ManifestEntry
from tideline.system import Event, System
from tideline_capture.health import Health
from tideline_capture.manifests import first_manifest, takeover

log = structlog.get_logger("tideline.leadership")


@dataclass(frozen=True, slots=True)
class Lead:
    """The chain's end, which this worker wrote, and the open state there.

    ``since``: when that was known (monotonic seconds).
    """

    entry: ManifestEntry
    state: OpenState
    since: float


class Candidate:
    """A worker that waits to become active.

    ``on_passive`` is called with the chain's end while waiting; ``health`` is notified of each
    answered probe of the chain.
    """

    def __init__(
        self,
        chain: Chain,
        *,
        writer: str,
        takeover_after_s: float,
        stopping: Event,
        system: System,
        on_passive: Callable[[ManifestEntry], None] = lambda entry: None,
        health: Health | None = None,
    ) -> None:
        self._chain = chain
        self._writer = writer
        self._takeover_after_s = takeover_after_s
        self._stopping = stopping
        self._on_passive = on_passive
        self._health = health or Health(clock=system.monotonic)
        self._system = system
        self._pause_s = min(1.0, takeover_after_s / 5)
        self._waiting = False

    def acquire(self, origin: Callable[[], tuple[SourceIdentity, SourcePosition]]) -> Lead | None:
        """Become active; None when stopped before that.

        ``origin`` is called only for a pipeline that has no chain yet: it returns which source it
        is of, and a position before everything (the real start is known once this worker owns the
        chain).
        """
        tail: ManifestEntry | None = None
        while not self._stopping.is_set():
            self._health.main.turn()
            try:
                tail = self._chain.tail(tail.manifest.manifest_number if tail else 0)
                self._health.saw_chain()
                lead = None if tail is None else self._follow(tail)
            except Unavailable as error:
                log.warning("the store is unavailable; the wait starts again", reason=str(error))
                self._stopping.wait(self._pause_s)
                continue
            if tail is None:
                lead = self._found(*origin())
            if lead is not None:
                return lead
        return None

    def _follow(self, tail: ManifestEntry) -> Lead | None:
        """Take over behind ``tail``, if its writer has stopped."""
        if tail.manifest.writer == self._writer:
            # Our own takeover, which the store took without an answer.
            return Lead(tail, self._chain.open_state(tail), self._system.monotonic())
        if tail.manifest.released or self._abandoned(tail):
            return self._take_over(tail)
        return None

    def _found(self, identity: SourceIdentity, begin: SourcePosition) -> Lead | None:
        """Write manifest 1, unless another worker does first."""
        first = first_manifest(self._chain.pipeline, self._writer, identity, begin, self._system)
        return self._append(first, OpenState())

    def _take_over(self, tail: ManifestEntry) -> Lead | None:
        state = self._chain.open_state(tail)
        manifest = takeover(tail, self._writer, state, self._system)
        lead = self._append(manifest, state)
        if lead is not None:
            log.info("took over", term=manifest.term, manifest_number=manifest.manifest_number)
        return lead

    def _append(self, manifest: Manifest, state: OpenState) -> Lead | None:
        """Append a manifest; None when another worker was first: then read on, and judge again."""
        try:
            return Lead(self._chain.append(manifest), state, self._system.monotonic())
        except Fenced:
            return None

    def _abandoned(self, tail: ManifestEntry) -> bool:
        """Return whether the chain did not grow behind ``tail`` for as long as a takeover
        requires."""
        number = tail.manifest.manifest_number + 1
        since = self._system.monotonic()
        if not self._waiting:
            self._waiting = True
            log.info(
                "waiting: the chain is another worker's until it has not grown for so long",
                writer=tail.manifest.writer,
                takeover_after_s=self._takeover_after_s,
            )
        while not self._stopping.is_set():
            self._health.main.turn()
            self._on_passive(tail)
            asked = self._system.monotonic()
            try:
                if self._chain.read(number) is not None:
                    return False
                self._health.saw_chain()
            except Unavailable as error:
                log.warning("the store is unavailable; the wait starts again", reason=str(error))
                since = self._system.monotonic()
            # A probe shows the chain at the time it was sent, however late the answer came.
            if asked - since >= self._takeover_after_s:
                return True
            self._stopping.wait(self._pause_s)
        return False
