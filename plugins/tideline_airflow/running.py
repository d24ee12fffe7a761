"""Lists the running dumps for a form: workers are asked when Airflow reads the file of DAGs."""

from __future__ import annotations

import logging
from contextlib import closing

from tideline.contract.errors import TidelineError
from tideline.contract.printable import as_code
from tideline_airflow.hooks import TidelineHook

TIMEOUT_S = 1.0
SHOWN_MAX = 20

log = logging.getLogger(__name__)


def running(config: str | None) -> list[str] | None:
    """Return a line of Markdown for each request that has not ended: its id, tables and state. It
    holds no figure, because each change would make a new version of the DAG. None: no worker could
    be asked.
    """
    try:
        with closing(TidelineHook(config).control_client(timeout_s=TIMEOUT_S)) as control_client:
            dumps = {
                dump.request_id: dump for one in control_client.workers() for dump in one.dumps
            }
    except TidelineError as error:
        log.info("what runs could not be asked: %s", error)
        return None
    return [
        f"{as_code(dump.request_id)} {dump.state.value}: "
        + ", ".join(as_code(table.table) for table in dump.tables[:SHOWN_MAX])
        for _, dump in sorted(dumps.items())
    ]


def described(lines: list[str] | None) -> str:
    """Return the lines as Markdown, as of now; Airflow's page shows the state when the file was
    read."""
    if lines is None:
        return "What runs could not be asked: `tideline status` shows it."
    if not lines:
        return "When Airflow last read the file of the DAGs, none ran."
    more = [f"* … and {len(lines) - SHOWN_MAX} more"] if len(lines) > SHOWN_MAX else []
    listed = [f"* {line}" for line in lines[:SHOWN_MAX]]
    return "\n".join(["When Airflow last read the file of the DAGs, these ran:", *listed, *more])
