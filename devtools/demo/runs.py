"""DAG runs, started and watched through Airflow's REST API as any client would."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from devtools.demo.screen import Screen
from devtools.demo.stage import DemoStage
from tideline.contract.errors import Unavailable

RUN_TIMEOUT_S = 1_000.0
POLL_S = 1.0
MERGE = "merge"
"""The task whose success means that the run's data is in the warehouse."""


class DagRuns:
    """The runs of this demo. A run's report may still be on its way when the next scene begins;
    ``confirm`` waits for the ends of all."""

    def __init__(self, stage: DemoStage, screen: Screen) -> None:
        self._stage = stage
        self._screen = screen
        self._runs: list[tuple[str, str]] = []

    def merge(self, dag: str, conf: Mapping[str, Any]) -> list[str]:
        """Run ``dag`` until it has merged; return the ids of its plans."""
        api = self._stage.airflow().api
        run = api.trigger(dag, conf)
        self._runs.append((dag, run))
        self._wait(dag, run, lambda state, tasks: tasks.get(MERGE) == "success")
        return [str(plan) for plan in api.xcom(dag, run, MERGE)["plans"]]

    def confirm(self) -> None:
        """Wait until every run has ended; Unavailable when one has failed."""
        for dag, run in self._runs:
            self._wait(dag, run, lambda state, tasks: state == "success")

    def _wait(
        self, dag: str, run: str, done: Callable[[str, Mapping[str, str | None]], bool]
    ) -> None:
        api = self._stage.airflow().api
        failed = False

        def ended() -> bool:
            nonlocal failed
            try:
                state, tasks = api.state(dag, run), api.tasks(dag, run)
            except Unavailable as error:  # a busy machine; the run's time-out bounds it
                self._screen.progress(f"{dag}: {error}")
                return False
            words = ", ".join(f"{name} {at or 'waits'}" for name, at in tasks.items())
            self._screen.progress(f"{dag}: {words}")
            failed = state == "failed"
            return failed or done(state, tasks)

        self._stage.wait(ended, what=f"the run of {dag}", timeout_s=RUN_TIMEOUT_S, poll_s=POLL_S)
        if failed:
            tasks = api.tasks(dag, run)
            culprit = next((name for name, at in tasks.items() if at == "failed"), None)
            log = api.log(dag, run, culprit)[-3000:] if culprit else ""
            text = f"the run of {dag} failed: {tasks}"
            raise Unavailable(text, lines=tuple(log.splitlines()))
