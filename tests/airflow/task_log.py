"""What a task of ours logs, whatever logs it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
import structlog
from structlog.testing import capture_logs


class TaskLog:
    """All that would stand in the log of a task, on every level and before Airflow masks what it
    takes for a secret: lines of operators, hooks and the Spark provider, whose loggers are
    structlog's; those of the standard library's loggers; and what is printed.

    ``caplog`` by itself has none of the first, so that nothing can be missed in it.
    """

    def __init__(
        self,
        events: Sequence[Mapping[str, Any]],
        caplog: pytest.LogCaptureFixture,
        capfd: pytest.CaptureFixture[str],
    ) -> None:
        self._events = events
        self._caplog = caplog
        self._capfd = capfd
        self._printed = ""

    def lines(self) -> list[str]:
        """Lines of operators, hooks and the provider, each event split at its line ends."""
        return [line for one in self._events for line in str(one["event"]).split("\n")]

    @property
    def text(self) -> str:
        """Everything, with the values and errors that belong to an event."""
        self._printed += "".join(self._capfd.readouterr())
        return "\n".join([*map(str, self._events), self._caplog.text, self._printed])


@contextmanager
def logged(
    caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> Iterator[TaskLog]:
    """Collect what is logged meanwhile."""
    before = structlog.get_config()["wrapper_class"]
    with caplog.at_level("DEBUG"), capture_logs() as events:
        # Airflow's has a level, from its settings.
        structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(0))
        try:
            yield TaskLog(events, caplog, capfd)
        finally:
            structlog.configure(wrapper_class=before)
