"""The fields of the DAGs' forms, and what a form asks for.

Fields whose values may be rows' (keys, bounds of keys) or texts that must stay as they were typed
are read from the run when the task runs. They are not templates: Airflow keeps and shows what it
renders, and native rendering takes a text such as ``1e5`` for a number.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from airflow.sdk import Param
from airflow.sdk.exceptions import AirflowFailException

from tideline.contract.modes import Mode
from tideline.contract.request import (
    CHUNK_ROWS_MAX,
    DELAY_MS_MAX,
    KEYS_MAX,
    PRIORITY_MAX,
    TABLES_MAX,
    Action,
)

TICK = 'In Airflow\'s backfill, tick "Override parameters on existing runs"'
"""Without it Airflow 3.3 makes the runs with the form's first values, whatever was typed."""
FromRun = Callable[[Any], Any]
"""A value that is made of the task's context when it runs."""

_LINE = {"type": "string"}
_PART = {"type": ["string", "integer"]}
_KEY = {"type": "array", "items": _PART, "minItems": 1}
_EMPTY = "Empty: the worker's setting."
_SEVERAL = (
    "A key of several columns: its values separated by commas, such as 17,2 (one that holds a comma"
    ' in double quotes: 17,"Smith, John"), or as JSON: ["17", "2"].'
)


def tables(default: list[str] | None = None, *, more: str = "") -> Param:
    """The tables; required unless there is a ``default``. ``more`` is said beside the field."""
    given: dict[str, Any] = {"minItems": 1} if default is None else {"default": default}
    return Param(
        **given,
        type="array",
        items=_LINE,
        maxItems=TABLES_MAX,
        title="Tables",
        description=f"One schema.table per line; shell patterns work (public.*, all: *.*).{more}",
    )


def keys(beside: str) -> Param:
    """Keys of one table. ``beside`` says what they do beside a range.

    Without a type of its items Airflow's page shows a field of lines, and takes each for a text.
    """
    return Param(
        None,
        type=["null", "array"],
        items={"anyOf": [_PART, _KEY]},
        maxItems=KEYS_MAX,
        title="Keys",
        description=f"Of one table, one key per line, such as 17. {_SEVERAL} {beside}",
    )


KEY_RANGE = {
    name: Param(
        None,
        type=["null", "string", "array"],
        items=_PART,
        title=title,
        description=f"{what} Of one table; written like a key, or its first columns only."
        " Empty: no bound.",
        section="A range of rows",
    )
    for name, title, what in (
        (
            "key_from",
            "From key",
            "Only rows with this key or a later one, in the database's order.",
        ),
        ("key_to", "To key", "Only rows before this key."),
    )
}
TIME_RANGE = {
    "time_column": Param(
        None,
        type=["null", "string"],
        title="Time column",
        description="Only rows whose value here is in the range, of every table named.",
        section="A range of rows",
    ),
    "time_from": Param(
        None,
        type=["null", "string"],
        title="From time",
        description="As the database writes it: 2026-01-31 00:00:00. Included.",
        section="A range of rows",
    ),
    "time_to": Param(
        None,
        type=["null", "string"],
        title="To time",
        description="As the database writes it. Not included.",
        section="A range of rows",
    ),
}
PACE = {
    "priority": Param(
        0,
        type="integer",
        minimum=-PRIORITY_MAX,
        maximum=PRIORITY_MAX,
        title="Priority",
        description="The higher one is served first, at the next chunk.",
        section="Pace",
    ),
    "chunk_rows": Param(
        None,
        type=["null", "integer"],
        minimum=1,
        maximum=CHUNK_ROWS_MAX,
        title="Rows per chunk",
        description=f"How many rows one query reads. {_EMPTY}",
        section="Pace",
    ),
    "delay_ms": Param(
        None,
        type=["null", "integer"],
        minimum=0,
        maximum=DELAY_MS_MAX,
        title="Pause between chunks (ms)",
        description=f"Spares a busy source. {_EMPTY}",
        section="Pace",
    ),
    "cancel_with_task": Param(
        False,
        type="boolean",
        title="Cancel with the task",
        description="Whether the dump is cancelled when somebody clears the task ask or marks"
        " it. Otherwise it goes on: it is the worker's.",
        section="Pace",
    ),
}
SAMPLE = Param(
    None,
    type=["null", "integer"],
    minimum=1,
    maximum=100,
    title="Sample (%)",
    description="Read so many chunks of a hundred only. Empty: all rows.",
    section="A range of rows",
)
_STEER = {
    "action": Param(
        type="string",
        enum=[action.value for action in Action],
        title="What to do",
        description="pause: no more chunks are begun; resume; cancel: the request fails, what was"
        " read is kept; tune: another pace.",
    ),
    "all": Param(
        False,
        type="boolean",
        title="All requests",
        description="Instead of ids; also those that come later, unless they are to be cancelled.",
    ),
    "chunk_rows": Param(
        None,
        type=["null", "string"],
        pattern="^([0-9]+|default)$",
        title="Rows per chunk",
        description="For tune: a number, or the word default.",
    ),
    "delay_ms": Param(
        None,
        type=["null", "string"],
        pattern="^([0-9]+|default)$",
        title="Pause between chunks (ms)",
        description="For tune: a number, or the word default.",
    ),
}
AS_SET = "as the settings say"
"""Instead of a mode. Airflow's page sends no form off whose choice among words is an empty one."""
REBUILD = {
    "table": Param(type="string", minLength=3, title="Table", description="schema.table"),
    "mode": Param(
        AS_SET,
        type="string",
        enum=[AS_SET, *(mode.value for mode in Mode)],
        title="Mode",
        description="How the table is kept from then on.",
    ),
    "since_dump": Param(
        False,
        type="boolean",
        title="Since the latest dump",
        description="Begin there also where the mode keeps what was before it.",
    ),
    "accept_differences": Param(
        False,
        type="boolean",
        title="Accept differences",
        description="Swap although the live table holds something else.",
    ),
    "anew": Param(
        False,
        type="boolean",
        title="Anew",
        description="Give up a rebuild of the table that is under way.",
    ),
}


def steer(running: str) -> dict[str, Param]:
    """The form of what steers; ``running`` says, in Markdown, which dumps run."""
    requests = Param(
        None,
        type=["null", "array"],
        items=_LINE,
        title="Requests",
        description_md=f"Ids, one per line. {running}",
    )
    return {"action": _STEER["action"], "requests": requests, **_STEER}


def time_column(default: str | None) -> Param:
    """The column whose value says which interval a row belongs to."""
    return Param(
        default,
        type=["null", "string"],
        title="Time column",
        description="Rows are read whose value here lies in the run's data interval (UTC).",
    )


def template(name: str) -> str:
    """What Airflow renders to the value of a field: of one that holds no row's value."""
    return f"{{{{ params.{name} }}}}"


def pace() -> dict[str, Any]:
    """The fields `PACE`, as a `DumpOperator` takes them."""
    return {name: template(name) for name in PACE}


def param(name: str) -> FromRun:
    """The value of a field."""
    return lambda context: context["params"][name]


def key_range(context: Any) -> dict[str, Any] | None:
    """The fields `KEY_RANGE`, as a `DumpOperator` takes them."""
    params = context["params"]
    ends = {"from": params["key_from"] or None, "to": params["key_to"] or None}
    return ends if any(ends.values()) else None


def time_range(context: Any) -> dict[str, Any] | None:
    """The fields `TIME_RANGE`, as a `DumpOperator` takes them."""
    params = context["params"]
    given = {end: params[f"time_{end}"] or None for end in ("column", "from", "to")}
    return given if any(given.values()) else None


def not_ticked(context: Any) -> str:
    """What to do where a run of a backfill lacks what was typed; "" for other runs."""
    return f". {TICK} and run it again" if context["dag_run"].run_type == "backfill" else ""


def interval(context: Any) -> dict[str, Any]:
    """The run's data interval, of the column that the field `time_column` names."""
    begin, end = context["data_interval_start"], context["data_interval_end"]
    column = context["params"]["column"]
    if not column:
        words = "name the time column in the param `column`"
        raise AirflowFailException(words + not_ticked(context))
    return {"column": column, "from": begin.isoformat(), "to": end.isoformat()}
