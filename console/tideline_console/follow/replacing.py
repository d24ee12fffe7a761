"""Decides when a merger's session process is replaced, and how soon. Sans I/O."""

from __future__ import annotations

from dataclasses import dataclass

from tideline.contract.pauses import growing_pause_s
from tideline_console.follow.messages import Beat

START_MAX_S = 300.0
"""The time that a session may take to start."""
SILENCE_MAX_S = 60.0
"""The time without an answer of the session after which it counts as hanging."""
STEP_MAX_S = 2.0
"""Of a longer time between two looks only this counts: the whole machine may have been paused."""
FAILURES_MAX = 10
"""Table merges that fail in a row before another session is tried."""
UNMENDED_S = 600.0
"""A session is replaced for failed merges only if it is older: another one did not mend them."""
PAUSE_FIRST_S = 1.0
PAUSE_MAX_S = 60.0
HEALTHY_S = 300.0
"""A session that lived as long is replaced at once."""


@dataclass
class SessionHealth:
    """The health of one session process, as its supervisor sees it."""

    memory_bytes_max: int
    age_s: float = 0.0
    silent_s: float = 0.0
    beat: Beat | None = None

    def step(self, elapsed_s: float) -> None:
        """Let time pass, as much as the process surely had."""
        elapsed_s = min(elapsed_s, STEP_MAX_S)
        self.age_s += elapsed_s
        self.silent_s += elapsed_s

    def hear(self, beat: Beat) -> None:
        self.beat, self.silent_s = beat, 0.0

    def sick(self) -> str | None:
        """Return why the process is to be replaced; None where it is well."""
        beat = self.beat
        if beat is None:
            if self.silent_s > START_MAX_S:
                return f"Spark did not start within {START_MAX_S:g} s"
            return None
        if self.silent_s > SILENCE_MAX_S:
            return f"the session has answered nothing for {SILENCE_MAX_S:g} s"
        if beat.memory_bytes > self.memory_bytes_max:
            return (
                f"it takes {beat.memory_bytes >> 20} MiB of memory, above merge"
                f".follow_memory_bytes_max, {self.memory_bytes_max >> 20} MiB"
            )
        if beat.failures_in_a_row >= FAILURES_MAX and self.age_s > UNMENDED_S:
            return f"{beat.failures_in_a_row} merges failed one after the other"
        return None


@dataclass
class Pauses:
    """The pauses before replacements: longer each time, unless a session lived long."""

    failures: int = 0

    def next_s(self, lived_s: float) -> float:
        """Return how long to wait after a session that lived for ``lived_s``."""
        if lived_s >= HEALTHY_S:
            self.failures = 0
        pause_s = growing_pause_s(self.failures, first_s=PAUSE_FIRST_S, most_s=PAUSE_MAX_S)
        self.failures += 1
        return pause_s
