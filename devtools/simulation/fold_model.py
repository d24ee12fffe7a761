"""The fold again, in plain Python, one change after another: the oracle of `tideline_spark.fold`.

It shares no step with the DataFrame version: it keeps the state of every key and applies each
change to it, as a database would.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

Key = tuple[object, ...]
Value = tuple[object, str | None]
"""A column's value and its overflow text."""


@dataclass(frozen=True, slots=True)
class Change:
    """One row change.

    ``values`` are of the columns it carries, by name, the key's left out. ``op`` is ``c``, ``u``,
    ``d`` or ``r``; ``before`` the key it had, when the change moved it.
    """

    seq: int
    op: str
    key: Key
    values: Mapping[str, Value] = field(default_factory=dict)
    before: Key | None = None


@dataclass(frozen=True, slots=True)
class State:
    """A key's state after the range.

    ``absent`` are the columns without a value; they are in the target's row of key ``origin``, or
    nowhere (None).
    """

    seq: int
    gone: bool
    values: Mapping[str, Value]
    origin: Key | None
    absent: frozenset[str]


def fold(
    changes: Iterable[Change],
    columns: tuple[str, ...],
    *,
    truncates: Iterable[int] = (),
    delete_before: int | None = None,
) -> dict[Key, State]:
    """Return the state of every key that ``changes`` touch, by key; ``columns`` without the
    key's."""
    states: dict[Key, State] = {}
    truncated = False
    events = sorted([*((c.seq, c) for c in changes), *((seq, None) for seq in truncates)], key=_seq)
    for _, change in events:
        if change is None:
            states.clear()
            truncated = True
            continue
        moved = change.before is not None and change.before != change.key
        source = change.before if moved and change.before is not None else change.key
        row = states.get(source) or _untouched(source, columns, truncated=truncated)
        if moved:
            states[source] = State(change.seq, True, {}, None, frozenset())
        states[change.key] = _after(row, change, columns)
    return {
        key: state
        for key, state in states.items()
        if delete_before is None or state.seq > delete_before
    }


def _seq(event: tuple[int, Change | None]) -> int:
    return event[0]


def _untouched(key: Key, columns: tuple[str, ...], *, truncated: bool) -> State:
    return State(0, False, {}, None if truncated else key, frozenset(columns))


def _after(row: State, change: Change, columns: tuple[str, ...]) -> State:
    if change.op == "d":
        return State(change.seq, True, {}, None, frozenset())
    if row.gone:
        row = State(0, False, {}, None, frozenset(columns))
    absent = row.absent - set(change.values)
    return replace(
        row,
        seq=change.seq,
        values={**row.values, **change.values},
        absent=absent,
        origin=row.origin if absent else None,
    )
