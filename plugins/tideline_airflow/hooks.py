"""The hook: a pipeline's settings, its control queue and its store.

Secrets of the settings are registered with Airflow's log masking as soon as they are loaded.
Libraries that take long to import (object store, table format) are imported by the calls that need
them.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import closing
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseHook
from airflow.sdk.log import mask_secret

from tideline.contract import layout
from tideline.contract.errors import TidelineError
from tideline.contract.request import Action, Command
from tideline.control import CLIENT_TIMEOUT_S, ControlClient
from tideline.settings import CONFIG_VARIABLE, Settings, load_settings

if TYPE_CHECKING:
    from tideline.control.record import Record


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
        return _masked(load_settings(self._config))

    async def load(self) -> None:
        """Load the settings in a thread, for a trigger.

        Their secrets are registered on the event loop: Airflow 3.1 ends its triggerer when a thread
        registers one.
        """
        self.settings = _masked(await asyncio.to_thread(load_settings, self._config))

    def get_conn(self) -> Any:
        return self.control_client()

    def control_client(self, *, timeout_s: float = CLIENT_TIMEOUT_S) -> ControlClient:
        """Return the client's side of the pipeline's control queue."""
        return ControlClient(self.settings.control, self.settings.pipeline, timeout_s=timeout_s)

    def record(self) -> Record:
        """Return the chain's record of requests, which has the ends that the queue may have
        lost."""
        from tideline.control.record import Record

        return Record(self.settings)

    def cancel(self, request_id: str) -> None:
        """Have the worker end a request that no one waits for any more; a repeated call changes
        nothing. An unreachable queue is only logged, because the caller is ending itself."""
        command = Command(
            f"{request_id}:cancel", Action.CANCEL, requests=(request_id,), requested_by="airflow"
        )
        try:
            with closing(self.control_client()) as control_client:
                control_client.command(command)
            self.log.info("the worker is asked to cancel request %s", request_id)
        except TidelineError as error:
            self.log.warning(
                "request %s goes on, no worker could be reached: %s", request_id, error
            )

    def url(self, key: str) -> str:
        """Return the address of an object of the store, as Spark reads it."""
        return layout.object_url(self.settings.store.url, key)


def _masked(settings: Settings) -> Settings:
    for secret in _secrets(settings):
        mask_secret(secret)
    return settings


def _secrets(settings: Settings) -> list[str]:
    """Return the texts that no log may show. A password that only the worker has is not known
    here."""
    api_key = settings.openlineage.api_key
    return [
        *settings.source.secrets(),
        *settings.control.secrets(),
        *settings.store.secrets(),
        *settings.warehouse.secrets(),
        *settings.merge.secrets(),
        *([] if api_key is None else [api_key.get_secret_value()]),
    ]
