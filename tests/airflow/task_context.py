"""What Airflow gives a task, as much of it as the operators look at."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from airflow.sdk.execution_time.context import OutletEventAccessors

from tideline_airflow.dump import DEFER_AFTER_S

WAITING = "running" if DEFER_AFTER_S is None else "deferred"
"""The state of a task that waits for a dump for longer than a few seconds."""


@dataclass
class FakeRun:
    run_type: str = "manual"
    logical_date: datetime | None = datetime(2026, 11, 21, tzinfo=UTC)
    start_date: datetime | None = datetime(2026, 11, 21, 12, tzinfo=UTC)


@dataclass
class FakeTask:
    """A task instance; ``try_number`` is there to show that nothing depends on it."""

    task: Any
    dag_id: str = "tideline_repair"
    run_id: str = "manual__1"
    map_index: int = -1
    try_number: int = 1
    max_tries: int = 0
    xcoms: dict[str, Any] = field(default_factory=dict)

    def xcom_pull(self, *, key: str, **of: Any) -> Any:
        assert of == {"task_ids": self.task_id, "map_indexes": -1, "include_prior_dates": True}
        return self.xcoms.get(key)

    def xcom_push(self, key: str, value: Any) -> None:
        self.xcoms[key] = json.loads(json.dumps(value))

    @property
    def task_id(self) -> str:
        return str(self.task.task_id)


@dataclass
class TaskContext:
    """``values`` is the mapping for ``execute``; one per try of a task. ``xcoms``: those that the
    task's earlier runs have left, and that this one leaves."""

    task: Any
    try_number: int = 1
    clears: int = 0
    run: FakeRun = field(default_factory=FakeRun)
    params: dict[str, Any] = field(default_factory=dict)
    xcoms: dict[str, Any] = field(default_factory=dict)

    @property
    def values(self) -> dict[str, Any]:
        instance = FakeTask(
            self.task,
            try_number=self.try_number,
            max_tries=self.task.retries + self.clears,
            xcoms=self.xcoms,
        )
        return {
            "ti": instance,
            "dag_run": self.run,
            "params": self.params,
            "outlet_events": OutletEventAccessors(),
        }
