"""The operator that rebuilds a table: step after step, each a Spark job with a receipt.

It may be killed anywhere and tried again: the next step follows from the tables and the chain, and
a rebuild that is under way is joined. Each step holds a slot of the pool that merges hold, so
merges of the live table wait while it runs. A merger, which holds none, leaves the table alone from
the first try to swap it.
"""

from __future__ import annotations

from typing import Any

from tideline.contract.modes import Mode
from tideline.contract.receipt import Outcome
from tideline_airflow.compat import AirflowException, AirflowFailException
from tideline_airflow.forms import AS_IT_IS, AS_SET
from tideline_airflow.hooks import TidelineHook
from tideline_airflow.identity import identity_of
from tideline_airflow.log_lines import clear_errors, log_line
from tideline_airflow.merge import PlanJobOperator
from tideline_airflow.renamed import warn
from tideline_airflow.scope import flag_of

STEPS_MAX = 1_000
_RESTART_BEFORE_0_2 = "anew"
_CALLED = "`anew` is called `restart` since 0.2.0, and goes with 0.3.0"


class RebuildOperator(PlanJobOperator):
    """Rebuild ``table`` from the chain, check it against the live one, and swap them.

    ``mode`` is one of `Mode` (None, empty or `forms.AS_SET`: the settings'); ``since_dump``,
    ``accept_differences`` and ``restart`` as in ``tideline rebuild``; so is ``to`` (None, empty or
    `forms.AS_IT_IS`: the table keeps its format). Returns ``{"table", "build",
    "mode", "plans"}``. Fails for good where the rebuilt table is not what the live one is, or the
    table is delayed. Until 0.3.0, ``restart`` may be called `anew`, as in 0.1.0: as an argument,
    and in a run's params.
    """

    template_fields = (
        *PlanJobOperator.template_fields,
        "table",
        "mode",
        "since_dump",
        "accept_differences",
        "restart",
        "to",
    )

    def __init__(
        self,
        *,
        table: Any,
        mode: Any = None,
        since_dump: Any = False,
        accept_differences: Any = False,
        restart: Any = False,
        to: Any = None,
        **kwargs: Any,
    ) -> None:
        kwargs.setdefault("name", "tideline_rebuild")
        if _RESTART_BEFORE_0_2 in kwargs:
            warn(f"the argument {_CALLED}")
            restart = kwargs.pop(_RESTART_BEFORE_0_2)
        super().__init__(**kwargs)
        self.table = table
        self.mode = mode
        self.since_dump = since_dump
        self.accept_differences = accept_differences
        self.restart = restart
        self.to = to

    @clear_errors
    def execute(self, context: Any) -> Any:
        from tideline.control.reservation import Reservation
        from tideline.planner import begin_rebuild, next_step

        hook = TidelineHook(self.config)
        record = begin_rebuild(
            hook.settings,
            self.table,
            mode=None if self.mode in (None, "", AS_SET) else Mode(self.mode),
            since_dump=flag_of(self.since_dump),
            restart=flag_of(self.restart) or self._restart_before_0_2(context),
            # A task that is tried again joins what an earlier try began, if that came so far.
            asked=identity_of(context).name,
            to="" if self.to in (None, "", AS_IT_IS) else self.to,
        )
        name = log_line(record.table)
        self.log.info("rebuild %d of %s, in mode %s", record.build, name, record.mode.value)
        done: list[str] = []
        accept = flag_of(self.accept_differences)
        with Reservation(hook.settings, record.table, self.warn) as reservation:
            while plan := next_step(hook.settings, record, accept_differences=accept):
                if plan.delayed:
                    raise AirflowFailException(log_line("; ".join(plan.delayed.values())))
                if len(done) == STEPS_MAX:
                    raise AirflowException("the table is merged faster than it can be rebuilt")
                if plan.takes_over and reservation.begin():
                    continue  # A merger stands still from here on, not where it stood.
                self._step(hook, plan.plan_id, context)
                done.append(plan.plan_id)
        self.register(hook, [record.table])
        mode = record.mode.value
        return {"table": record.table, "build": record.build, "mode": mode, "plans": done}

    def _restart_before_0_2(self, context: Any) -> bool:
        """Return whether the run was triggered with the old name: Airflow takes params that no form
        has, and a rebuild that the user gives up would be joined."""
        given = context["params"].get(_RESTART_BEFORE_0_2)
        if given is not None:
            self.log.warning("the param %s", _CALLED)
        return flag_of(given)

    def _step(self, hook: TidelineHook, plan_id: str, context: Any) -> None:
        receipt = self.submit_plan(hook, plan_id, context)
        if receipt is None:
            raise AirflowException(f"the Spark job left no receipt of plan {plan_id}")
        for one in receipt.tables:
            for change in one.external_changes:
                text = f"{one.table}: changed by someone else: {change}"
                self.log.warning("%s", log_line(text))
            if one.outcome is Outcome.FAILED:
                raise AirflowFailException(log_line(f"{one.error} ({one.hint or 'no hint'})"))
            if one.outcome is Outcome.REFUSED:
                self.log.info("%s", log_line(str(one.error)))
