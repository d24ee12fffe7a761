"""Names that a retried task finds again: of dump requests and of merge plans.

A name comes from what a task *is* (DAG, run, task, map index), never from which try it is: a
retried task joins what a killed try began. It changes when a user clears the task, or deletes its
run and starts one of the same name, because both ask for the work to be done again.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from datetime import datetime
from typing import Any

_PLAIN = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:+/@=-]{0,179}")
_OTHER = re.compile(r"[^A-Za-z0-9_.:+/@=-]")
_KEPT = 120


@dataclass(frozen=True, slots=True)
class TaskIdentity:
    """The facts that stay the same over all tries of a task.

    ``clears`` is Airflow's ``max_tries`` without the task's own retries: clearing a task raises
    the first and not the second. ``started`` is when the run began; it moves when a finished run
    is cleared or created again.
    """

    dag_id: str
    run_id: str
    task_id: str
    map_index: int = -1
    clears: int = 0
    started: datetime | None = None

    @property
    def name(self) -> str:
        """Return at most 180 characters that request ids may have; long or odd names end in a
        digest."""
        parts = [self.dag_id, self.run_id, self.task_id]
        if self.map_index >= 0:
            parts.append(str(self.map_index))
        text = "/".join(parts)
        if self.started is not None:
            text += f"@{self.started:%Y%m%dT%H%M%S.%f}"
        if self.clears > 0:
            text += f"+{self.clears}"
        if _PLAIN.fullmatch(text):
            return text
        kept = _OTHER.sub("-", text)[:_KEPT].lstrip("_.:+/@=-")
        return f"tideline-{kept}-{hashlib.sha256(text.encode()).hexdigest()[:24]}"


def identity_of(context: Any) -> TaskIdentity:
    """Return the identity of the task that runs in Airflow's ``context``."""
    task = context["ti"]
    run = context["dag_run"]
    return TaskIdentity(
        dag_id=task.dag_id,
        run_id=task.run_id,
        task_id=task.task_id,
        map_index=-1 if task.map_index is None else task.map_index,
        clears=max(0, task.max_tries - task.task.retries),
        started=run.start_date,
    )
