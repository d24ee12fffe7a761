"""Spark's event logs, by which a test knows where the tasks of an application have run."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

DRIVER = "driver"
"""The id of the executor that a local master's driver is to itself."""


@dataclass(frozen=True, slots=True)
class Application:
    """One that has ended. ``tasks`` are counted by the id of the executor that each ran on;
    ``executors`` are the ids of those that joined; ``text`` is all of its log."""

    id: str
    name: str
    executors: frozenset[str]
    tasks: Mapping[str, int]
    text: str = field(repr=False)


class SparkEvents:
    """A folder for ``SPARK_CONF_DIR`` whose applications log their events. ``defaults`` are more
    lines of its ``spark-defaults.conf``."""

    def __init__(self, folder: Path, defaults: str = "") -> None:
        self.configuration = folder / "client"
        self._logs = folder / "events"
        self._seen: set[Path] = set()
        for one in (self.configuration, self._logs):
            one.mkdir(parents=True)
        settings = {
            "spark.eventLog.enabled": "true",
            "spark.eventLog.dir": self._logs.as_uri(),
            "spark.eventLog.compress": "false",
            "spark.eventLog.rolling.enabled": "false",
        }
        lines = "".join(f"{name} {value}\n" for name, value in settings.items())
        (self.configuration / "spark-defaults.conf").write_text(f"{lines}{defaults}")

    def ended(self) -> list[Application]:
        """Return the applications that have ended since it was asked last, in their order."""
        found = sorted(set(self._logs.iterdir()) - self._seen)
        self._seen.update(found)
        return [_read(path.read_text()) for path in found]


def _read(text: str) -> Application:
    events = [json.loads(line) for line in text.splitlines()]
    [start] = _of("ApplicationStart", events)
    assert len(_of("ApplicationEnd", events)) == 1, "it has not ended"
    return Application(
        id=start["App ID"],
        name=start["App Name"],
        executors=frozenset(one["Executor ID"] for one in _of("ExecutorAdded", events)),
        tasks=Counter(one["Task Info"]["Executor ID"] for one in _of("TaskEnd", events)),
        text=text,
    )


def _of(kind: str, events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [one for one in events if one["Event"] == f"SparkListener{kind}"]
