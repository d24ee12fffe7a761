"""Decides which plans a session process is given, and which Redis has as open. Sans I/O."""

from __future__ import annotations

from collections.abc import Iterable

from tideline_console.follow.messages import Beat


class OpenPlans:
    """The plans of one session process: its own, and those that it was asked to run.

    Redis has all of them until they have ended, so that the next process, of this merger or
    another one, is asked for what this one leaves.
    """

    def __init__(self) -> None:
        self._running: set[str] = set()
        self._given: set[str] = set()
        self._recorded: set[str] = set()
        self._done: set[str] = set()

    def note(self, beat: Beat) -> None:
        """Take up what the process reports."""
        self._running = set(beat.plans)
        # Most begin and end between two looks: Redis never has them.
        self._done |= set(beat.ended) & self._recorded

    def new(self, asked: Iterable[str]) -> list[str]:
        """Return those of ``asked``, which Redis has, that the process is to be given; they count
        as given then."""
        known = self._given | self._running | self._done
        found = [plan for plan in asked if plan not in known]
        self._given.update(found)
        self._recorded.update(found)
        return found

    def unrecorded(self) -> set[str]:
        """Return the process's own plans that Redis does not have yet."""
        return self._running - self._recorded

    def recorded(self, plans: Iterable[str]) -> None:
        """Note that Redis has these."""
        self._recorded.update(plans)

    def over(self) -> set[str]:
        """Return the plans that Redis has and that have ended."""
        return self._done & self._recorded

    def removed(self, plans: Iterable[str]) -> None:
        """Note that Redis has these no more: asked for again, they are given again."""
        gone = set(plans)
        self._given -= gone
        self._recorded -= gone
        self._done -= gone
