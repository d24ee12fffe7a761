"""The hook: a pipeline's settings, its control queue, its plans and receipts.

Secrets of the settings are registered with Airflow's log masking as soon as they are loaded.
Libraries that take long to import (object store, Delta) are imported by the calls that need them.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from contextlib import closing
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

from airflow.sdk import BaseHook
from airflow.sdk.log import mask_secret

from tideline.contract import layout
from tideline.contract.errors import TidelineError
from tideline.contract.maintenance import MaintenanceOrder, MaintenanceReceipt
from tideline.contract.plan import Plan
from tideline.contract.receipt import Receipt
from tideline.contract.request import Action, Answer, Command, DumpRequest
from tideline.contract.timeliness import MergeRun
from tideline.control import ASKER_TIMEOUT_S, Asker
from tideline.settings import CONFIG_VARIABLE, Settings, load_settings
from tideline_airflow.log_lines import log_line


class PlanUrls(NamedTuple):
    """Where a plan lies and its receipt will, as Spark addresses them."""

    plan: str
    receipt: str


class TidelineHook(BaseHook):
    """Access to one pipeline, configured by ``config`` (a path), else ``$TIDELINE_CONFIG``."""

    def __init__(self, config: str | None = None) -> None:
        super().__init__()
        self._config = config

    @property
    def config(self) -> str | None:
        """The settings file as an absolute path, for a process that starts elsewhere."""
        path = self._config or os.environ.get(CONFIG_VARIABLE)
        return None if path is None else str(Path(path).absolute())

    @cached_property
    def settings(self) -> Settings:
        """The pipeline's settings; Misconfigured names every mistake in them."""
        settings = load_settings(self._config)
        for secret in _secrets(settings):
            mask_secret(secret)
        return settings

    def get_conn(self) -> Any:
        return self.asker()

    def asker(self, *, timeout_s: float = ASKER_TIMEOUT_S) -> Asker:
        """The asker's side of the pipeline's control queue."""
        return Asker(self.settings.control, self.settings.pipeline, timeout_s=timeout_s)

    def confirmed(self, answer: Answer) -> Answer | None:
        """The chain's own word on a request that ``answer`` says has ended; None where the chain
        has no such end. Whoever may ask may write answers into the queue."""
        from tideline.store.chain import Chain
        from tideline.store.ended import confirmed
        from tideline.store.objects import open_store

        return confirmed(Chain(open_store(self.settings.store), self.settings.pipeline), answer)

    def plan(self, plan_id: str, tables: Sequence[str] | None = None) -> Plan:
        """The plan of that id, made now unless it exists; of all tables without ``tables``."""
        from tideline.planner import plan_merge

        return plan_merge(self.settings, plan_id=plan_id, tables=tables)

    def key_columns(self, table: str) -> tuple[str, ...] | None:
        """The columns that tell a table's rows apart; None where the chain does not know it."""
        from tideline.planner import key_columns

        return key_columns(self.settings, table)

    def receipt(self, plan_id: str) -> Receipt | None:
        """The newest receipt of a plan; None when no run of it has ended."""
        from tideline.planner import read_receipt

        return read_receipt(self.settings, plan_id)

    def record_held(self, plan: Plan) -> None:
        """Put on record what a plan without tables was held back from."""
        from tideline.planner.runs import record_run

        if not plan.held:
            return
        run = MergeRun(plan.plan_id, time.time_ns() // 1_000, held=plan.held)
        record_run(self.settings, run)

    def reread(self, requests: Sequence[DumpRequest]) -> None:
        """Have rows that a merge left pending read again. What is merged is merged: nobody to ask
        is no failure of it, and whoever plans next asks again."""
        for request in requests:
            try:
                with closing(self.asker()) as asker:
                    asker.ask(request)
                name = log_line(request.tables[0])
                self.log.info("rows of %s lack values; the worker is asked", name)
            except TidelineError as error:
                self.log.warning("the worker could not be asked for what is pending: %s", error)

    def cancel(self, request_id: str) -> None:
        """Have the worker end a request that nobody waits for any more; the same again changes
        nothing. That nobody can be told is logged: what asked for it is ending itself."""
        command = Command(
            f"{request_id}:cancel", Action.CANCEL, requests=(request_id,), requested_by="airflow"
        )
        try:
            with closing(self.asker()) as asker:
                asker.command(command)
            self.log.info("the worker is told to cancel request %s", request_id)
        except TidelineError as error:
            self.log.warning("request %s goes on, nobody could be told: %s", request_id, error)

    def pending(self, tables: Sequence[str] | None = None) -> list[DumpRequest]:
        """What to ask the worker for, because merges have left rows pending."""
        from tideline.planner import pending_requests

        return pending_requests(self.settings, tables)

    def order_maintenance(
        self, maintenance_id: str, tables: Sequence[str] | None = None
    ) -> MaintenanceOrder:
        """The order of that id, made now unless it exists; of all tables without ``tables``."""
        from tideline.planner.maintaining import order_maintenance

        return order_maintenance(self.settings, maintenance_id=maintenance_id, tables=tables)

    def maintenance(self, maintenance_id: str) -> MaintenanceReceipt | None:
        """The newest receipt of a maintenance run; None when none has ended."""
        from tideline.planner.maintaining import read_maintenance

        return read_maintenance(self.settings, maintenance_id)

    def maintenance_urls(self, maintenance_id: str) -> PlanUrls:
        store, pipeline = self.settings.store.url, self.settings.pipeline
        return PlanUrls(
            plan=layout.object_url(store, layout.maintenance_key(pipeline, maintenance_id)),
            receipt=layout.object_url(
                store, layout.maintenance_receipt_key(pipeline, maintenance_id)
            ),
        )

    def urls(self, plan_id: str) -> PlanUrls:
        store, pipeline = self.settings.store.url, self.settings.pipeline
        return PlanUrls(
            plan=layout.object_url(store, layout.plan_key(pipeline, plan_id)),
            receipt=layout.object_url(store, layout.receipt_key(pipeline, plan_id)),
        )


def _secrets(settings: Settings) -> list[str]:
    """What no log may show. A password that only the worker has is not here to be shown."""
    api_key = settings.openlineage.api_key
    return [
        *settings.source.secrets(),
        *settings.control.secrets(),
        *settings.store.secrets(),
        *([] if api_key is None else [api_key.get_secret_value()]),
    ]
