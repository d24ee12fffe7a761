"""The fields of the DAGs' forms, and the values that a form asks for.

Fields whose values may be rows' (keys, bounds of keys) or texts that must stay as they were typed
are read from the run when the task runs. They are not templates: Airflow keeps and shows what it
renders, and native rendering takes a text such as ``1e5`` for a number.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, get_args

from airflow.sdk import Param

from tideline.contract.modes import Mode
from tideline.contract.options import THROTTLE, Option, OptionKind, Purpose, options_of
from tideline.contract.request import KEYS_MAX, TABLES_MAX, Action, DumpRequest
from tideline.contract.target_url import TableFormatName
from tideline_airflow.compat import AirflowFailException
from tideline_airflow.request_options import RENDERED

TICK = 'In Airflow\'s backfill, tick "Override parameters on existing runs"'
"""Without it Airflow 3.3 makes the runs with the form's first values, whatever was typed."""
FromRun = Callable[[Any], Any]
"""A value that is computed from the task's context when it runs."""

_LINE = {"type": "string"}
_PART = {"type": ["string", "integer"]}
_KEY = {"type": "array", "items": _PART, "minItems": 1}
_TEXT: dict[str, Any] = {"type": ["null", "string"]}
_BOUND: dict[str, Any] = {"type": ["null", "string", "array"], "items": _PART}
_SEVERAL = (
    "A key of several columns: its values separated by commas, such as 17,2 (one that holds a comma"
    ' in double quotes: 17,"Smith, John"), or as JSON: ["17", "2"].'
)


def tables(default: list[str] | None = None, *, more: str = "") -> Param:
    """Return the field of the tables; required unless there is a ``default``. ``more`` is shown
    next to the field."""
    given: dict[str, Any] = {"minItems": 1} if default is None else {"default": default}
    return Param(
        **given,
        type="array",
        items=_LINE,
        maxItems=TABLES_MAX,
        title="Tables",
        description=f"One schema.table per line; shell patterns work (public.*, all: *.*).{more}",
    )


AGGREGATES = Param(
    [],
    type="array",
    items=_LINE,
    title="Aggregates",
    description="Names of aggregates in the settings, one per line. Empty: all.",
)

CANCEL = Param(
    False,
    type="boolean",
    title="Cancel with the task",
    description="Whether the dump is cancelled when the task ask is cleared or marked."
    " Otherwise it goes on: it is the worker's.",
    section=THROTTLE,
)


def fields(purpose: Purpose, *without: str) -> dict[str, Param]:
    """Return the fields of options of requests of ``purpose``, except those named in
    ``without``."""
    made: dict[str, Param] = {}
    for option in _options(purpose, without):
        made |= FIELDS[option.kind](option)
    return {**made, "cancel_with_task": CANCEL}


def values(purpose: Purpose, *without: str) -> dict[str, Any]:
    """Return the same options as arguments of a `DumpOperator`."""
    made: dict[str, Any] = {}
    for option in _options(purpose, without):
        if option.parts:
            made[option.name] = _parts(option)
        else:
            read = template if option.kind in RENDERED else param
            made[option.name] = read(option.name)
    return {**made, "cancel_with_task": template("cancel_with_task")}


def _options(purpose: Purpose, without: Sequence[str]) -> list[Option]:
    return [one for one in options_of(DumpRequest, purpose) if one.name not in without]


def _name(option: Option, part: Option) -> str:
    return f"{option.name.removesuffix('_range')}_{part.name}"


def _section(option: Option) -> dict[str, Any]:
    return {"section": option.section} if option.section else {}


_LIMITED = {OptionKind.NUMBER: "integer", OptionKind.DECIMAL: "number"}


def _number(option: Option) -> dict[str, Param]:
    return _one(option, _LIMITED[option.kind], minimum=option.least, maximum=option.most)


def _one(option: Option, kind: str, **more: Any) -> dict[str, Param]:
    """Return the field of a single value."""
    optional = option.default is None
    made = Param(
        str(option.default) if option.choices else option.default,
        type=["null", kind] if optional else kind,
        **more,
        title=option.title,
        description=option.help + (f" Empty: {option.empty}." if optional else ""),
        **_section(option),
    )
    return {option.name: made}


def _choice(option: Option) -> dict[str, Param]:
    return _one(option, "string", enum=list(option.choices))


def _ranged(option: Option) -> dict[str, Param]:
    return {_name(option, part): _part(option, part) for part in option.parts}


def _keys(option: Option) -> dict[str, Param]:
    """Return a field of lines: without a type of its items Airflow's page takes each line for a
    text."""
    made = Param(
        None,
        type=["null", "array"],
        items={"anyOf": [_PART, _KEY]},
        maxItems=KEYS_MAX,
        title=option.title,
        description=f"{option.help} One key per line, such as 17. {_SEVERAL}",
        **_section(option),
    )
    return {option.name: made}


def _key(option: Option) -> dict[str, Param]:
    words = f"{option.help} Written like a line of keys. Empty: {option.empty}."
    return {
        option.name: Param(
            None, **_BOUND, title=option.title, description=words, **_section(option)
        )
    }


def _part(option: Option, part: Option) -> Param:
    """Return the field of an end of a range of keys, which is written like a key; or of a text."""
    if part.kind is OptionKind.TEXT:
        words, kind = part.help, dict(_TEXT)
    else:
        words = f"{part.help} {option.help} Written like a key, or its first columns only."
        words, kind = f"{words} Empty: no bound.", dict(_BOUND)
    return Param(None, **kind, title=part.title, description=words, **_section(option))


FIELDS: Mapping[OptionKind, Callable[[Option], dict[str, Param]]] = {
    OptionKind.NUMBER: _number,
    OptionKind.DECIMAL: _number,
    OptionKind.FLAG: lambda option: _one(option, "boolean"),
    OptionKind.TEXT: lambda option: _one(option, "string"),
    OptionKind.CHOICE: _choice,
    OptionKind.KEY: _key,
    OptionKind.KEYS: _keys,
    OptionKind.KEY_RANGE: _ranged,
    OptionKind.TIME_RANGE: _ranged,
}


def _parts(option: Option) -> FromRun:
    """Return the parts of ``option``, by their names; None where none is filled in."""

    def read(context: Any) -> dict[str, Any] | None:
        params = context["params"]
        given = {part.name: params[_name(option, part)] or None for part in option.parts}
        return given if any(given.values()) else None

    return read


_CONTROL = {
    "action": Param(
        type="string",
        enum=[action.value for action in Action],
        title="What to do",
        description="pause: no more chunks are begun; resume; cancel: the request fails, what was"
        " read is kept; tune: another throttle.",
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
"""The choice for no mode: Airflow's page submits no form in which a choice is empty."""
AS_IT_IS = "as it is"
"""The choice for the table format that the table has."""
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
    "restart": Param(
        False,
        type="boolean",
        title="Restart",
        description="Give up a rebuild of the table that is under way.",
    ),
    "to": Param(
        AS_IT_IS,
        type="string",
        enum=[AS_IT_IS, *get_args(TableFormatName)],
        title="Table format",
        description="Move the table to this format, with all that it holds.",
    ),
}


def control(running: str) -> dict[str, Param]:
    """Return the form of the control DAG; ``running`` lists, in Markdown, the dumps that run."""
    requests = Param(
        None,
        type=["null", "array"],
        items=_LINE,
        title="Requests",
        description_md=f"Ids, one per line. {running}",
    )
    return {"action": _CONTROL["action"], "requests": requests, **_CONTROL}


def time_column(default: str | None) -> Param:
    """Return the field for the column whose value says which interval a row belongs to."""
    return Param(
        default,
        type=["null", "string"],
        title="Time column",
        description="Rows are read whose value here lies in the run's data interval (UTC).",
    )


def template(name: str) -> str:
    """Return the template of a field's value, for a field that holds no row's value."""
    return f"{{{{ params.{name} }}}}"


def param(name: str) -> FromRun:
    """Return the function that reads a field's value from the run."""
    return lambda context: context["params"][name]


def not_ticked(context: Any) -> str:
    """Return what to do where a run of a backfill lacks what was typed; "" for other runs."""
    return f". {TICK} and run it again" if context["dag_run"].run_type == "backfill" else ""


def interval(context: Any) -> dict[str, Any]:
    """Return the run's data interval, of the column that the field `time_column` names."""
    begin, end = context["data_interval_start"], context["data_interval_end"]
    column = context["params"]["column"]
    if not column:
        words = "name the time column in the param `column`"
        raise AirflowFailException(words + not_ticked(context))
    return {"column": column, "from": begin.isoformat(), "to": end.isoformat()}
