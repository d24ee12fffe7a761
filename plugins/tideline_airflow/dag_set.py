"""The eight DAGs of a pipeline.

A file in Airflow's folder of DAGs makes them::

    from tideline_airflow.dag_set import tideline_dags

    tideline_dags()

Two pipelines in one Airflow are two calls, each with its own settings and prefix::

    tideline_dags("/etc/tideline/shop.toml", prefix="shop")
    tideline_dags("/etc/tideline/bank.toml", prefix="bank", merge_schedule="@hourly")
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from airflow.sdk import DAG, get_parsing_context

from tideline_airflow import descriptions, forms
from tideline_airflow.aggregate import AggregateOperator
from tideline_airflow.assets import MERGED
from tideline_airflow.compat import CronDataIntervalTimetable, failing_at_once
from tideline_airflow.control import ControlOperator
from tideline_airflow.dump import DumpOperator
from tideline_airflow.maintain import MaintainOperator
from tideline_airflow.merge import MergeOperator
from tideline_airflow.pools import SPARK_POOL
from tideline_airflow.rebuild import RebuildOperator
from tideline_airflow.running import described, running
from tideline_airflow.spark_job import CONNECTION, CONNECTION_VARIABLE
from tideline_airflow.verify import (
    ChangedKeysOperator,
    CompareOperator,
    ReadOperator,
    ResultOperator,
)

PREFIX = "tideline"
AFTER_MERGES = "merged"
"""The schedule of runs that follow the asset of merges."""
NOT_BY_RETRYING = failing_at_once(
    "tideline.contract.errors.Misconfigured",
    "tideline.contract.errors.CorruptData",
    "tideline.contract.errors.InvariantBroken",
)
"""Arguments of tasks, for errors that stay until an operator acts; every other one is worth another
try."""


def tideline_dags(
    config: str | None = None,
    *,
    prefix: str = PREFIX,
    merge_schedule: str | None = None,
    maintain_schedule: str | None = None,
    aggregate_schedule: str | None = None,
    backfill: Backfill | None = None,
    spark: Spark | None = None,
) -> dict[str, DAG]:
    """Make the DAGs ``{prefix}_merge``, ``_repair``, ``_backfill``, ``_verify``, ``_rebuild``,
    ``_maintain``, ``_aggregate`` and ``_control``, by id, and have Airflow find them in the file
    that calls this.

    ``config`` is the path of the pipeline's ``tideline.toml``; None: ``$TIDELINE_CONFIG``.
    Schedules are cron expressions or presets such as ``@continuous``; empty: only when triggered;
    None: ``TIDELINE_MERGE_SCHEDULE`` (every 5 minutes), ``TIDELINE_MAINTAIN_SCHEDULE`` (daily) and
    ``TIDELINE_AGGREGATE_SCHEDULE`` (only when triggered); that one may be `AFTER_MERGES`, too.
    The DAGs arrive unpaused. The form of ``_control`` lists the dumps that run when Airflow reads
    the file, which it does every 30 seconds by default (``min_file_process_interval``).
    """
    made = _DagSet(config, prefix, spark or Spark())
    merges = _schedule("TIDELINE_MERGE_SCHEDULE", "*/5 * * * *", merge_schedule)
    maintains = _schedule("TIDELINE_MAINTAIN_SCHEDULE", "30 3 * * *", maintain_schedule)
    aggregates = _schedule("TIDELINE_AGGREGATE_SCHEDULE", "", aggregate_schedule)
    makers: dict[str, Callable[[], DAG]] = {
        "merge": lambda: made.merge(merges),
        "repair": made.repair,
        "backfill": lambda: made.backfill(backfill or Backfill()),
        "verify": made.verify,
        "rebuild": made.rebuild,
        "maintain": lambda: made.maintain(maintains),
        "aggregate": lambda: made.aggregate(aggregates),
        "control": made.control,
    }
    # A task's process reads the file for its own DAG; only the DAG processor for all.
    wanted = get_parsing_context().dag_id
    dags = (make() for name, make in makers.items() if wanted in (None, f"{prefix}_{name}"))
    return {dag.dag_id: dag for dag in dags}


@dataclass(frozen=True, slots=True)
class Backfill:
    """The first values of the backfill DAG's form.

    With ``tables``, each interval of ``schedule`` (a cron expression, UTC) is also read once when
    it ends. None: ``TIDELINE_BACKFILL_TABLES`` (separated by commas), ``TIDELINE_BACKFILL_COLUMN``
    and ``TIDELINE_BACKFILL_SCHEDULE`` (days).
    """

    tables: tuple[str, ...] | None = None
    column: str | None = None
    schedule: str | None = None


@dataclass(frozen=True, slots=True)
class Spark:
    """The place where the jobs run: an Airflow connection (None: ``TIDELINE_SPARK_CONN_ID``, else
    ``spark_default``) and the pool whose slots say how many may run at once."""

    connection: str | None = None
    pool: str = SPARK_POOL


class _DagSet:
    def __init__(self, config: str | None, prefix: str, spark: Spark) -> None:
        self._prefix = prefix
        self._config: dict[str, Any] = {"config": config}
        connection = spark.connection or os.environ.get(CONNECTION_VARIABLE, CONNECTION)
        self._spark: dict[str, Any] = {"config": config, "conn_id": connection, "pool": spark.pool}

    def merge(self, schedule: str | None) -> DAG:
        with self._dag("merge", schedule=schedule, max_active_runs=1) as dag:
            MergeOperator(task_id="merge", **self._spark)
        return dag

    def repair(self) -> DAG:
        params = {"tables": forms.tables(), **forms.fields("dump")}
        with self._dag("repair", params=params) as dag:
            ask = self._ask(**forms.values("dump"))
            MergeOperator(task_id="merge", tables=ask.output, **self._spark)
        return dag

    def backfill(self, given: Backfill) -> DAG:
        named = os.environ.get("TIDELINE_BACKFILL_TABLES", "").split(",")
        tables = [name for name in named if name] if given.tables is None else list(given.tables)
        params = {
            "tables": forms.tables(tables, more=f" {forms.TICK}: what is typed counts only then."),
            "column": forms.time_column(
                given.column or os.environ.get("TIDELINE_BACKFILL_COLUMN") or None
            ),
            **forms.fields("dump", "time", "key_range"),
        }
        cron = given.schedule or os.environ.get("TIDELINE_BACKFILL_SCHEDULE", "0 0 * * *")
        with self._dag(
            "backfill",
            schedule=CronDataIntervalTimetable(cron, timezone="UTC"),
            start_date=datetime(2000, 1, 1, tzinfo=UTC),
            max_active_runs=2,
            params=params,
        ) as dag:
            ask = self._ask(**forms.values("dump", "time", "key_range"), time=forms.interval)
            MergeOperator(task_id="merge", tables=ask.output, **self._spark)
        return dag

    def verify(self) -> DAG:
        params = {"tables": forms.tables(), **forms.fields("verify")}
        with self._dag("verify", params=params) as dag:
            read = ReadOperator(
                task_id="read",
                tables=forms.template("tables"),
                **forms.values("verify"),
                **self._config,
            )
            compare = CompareOperator(task_id="compare", reads=read.output, **self._spark)
            changed = ChangedKeysOperator(task_id="moving", compared=compare.output)
            read_again = ReadOperator.partial(
                task_id="read_again",
                first=compare.output,
                **forms.values("verify", "key_range"),
                **self._config,
            ).expand(tables=changed.output)
            compare_again = CompareOperator(
                task_id="compare_again",
                reads=read_again.output,
                first=compare.output,
                **self._spark,
            )
            report = ResultOperator(
                task_id="report",
                compared=compare.output,
                trigger_rule="none_failed",
                **self._config,
            )
            compare_again >> report
        return dag

    def rebuild(self) -> DAG:
        with self._dag("rebuild", params=forms.REBUILD, max_active_runs=1, native=False) as dag:
            given = {name: forms.template(name) for name in forms.REBUILD}
            RebuildOperator(task_id="rebuild", **given, **self._spark)
        return dag

    def maintain(self, schedule: str | None) -> DAG:
        params = {"tables": forms.tables([])}
        with self._dag("maintain", schedule=schedule, params=params, max_active_runs=1) as dag:
            MaintainOperator(task_id="maintain", tables=forms.template("tables"), **self._spark)
        return dag

    def aggregate(self, schedule: str | None) -> DAG:
        """Make the DAG that writes aggregates' tables; ``schedule`` may be `AFTER_MERGES`."""
        when: Any = [MERGED] if schedule == AFTER_MERGES else schedule
        params = {"names": forms.AGGREGATES}
        with self._dag("aggregate", schedule=when, params=params, max_active_runs=1) as dag:
            AggregateOperator(task_id="aggregate", names=forms.template("names"), **self._spark)
        return dag

    def control(self) -> DAG:
        asked = None if get_parsing_context().dag_id else running(self._config["config"])
        with self._dag("control", params=forms.control(described(asked))) as dag:
            ControlOperator(task_id="control", **self._config)
        return dag

    def _ask(self, **options: Any) -> DumpOperator:
        tables = forms.template("tables")
        return DumpOperator(task_id="ask", tables=tables, **options, **self._config)

    def _dag(self, name: str, *, schedule: Any = None, native: bool = True, **options: Any) -> DAG:
        """Make a DAG. ``native``: templates become the values that they hold, lists and numbers; a
        text that looks like a number would become one."""
        return DAG(
            f"{self._prefix}_{name}",
            schedule=schedule,
            catchup=False,
            is_paused_upon_creation=False,
            render_template_as_native_obj=native,
            default_args={
                "retries": 2,
                "retry_delay": timedelta(seconds=10),
                **NOT_BY_RETRYING,
            },
            doc_md=descriptions.DAGS[name],
            tags=["tideline"],
            **options,
        )


def _schedule(variable: str, default: str, given: str | None) -> str | None:
    return (os.environ.get(variable, default) if given is None else given) or None
