"""The cells of rows as texts of JSON, with what the log left out and what has no form."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tideline_publish.formats.debezium.fields import FieldType, as_json

NULL = "null"
Column = pa.StringArray


@dataclass(slots=True)
class Notes:
    """By row, what is not in its fields as it was in the source: ``overflow`` and
    ``before_overflow``, texts of values without a form in their type, by column; ``unchanged``,
    the columns that the log left out."""

    overflow: dict[int, dict[str, str]] = field(default_factory=dict)
    before_overflow: dict[int, dict[str, str]] = field(default_factory=dict)
    unchanged: dict[int, list[str]] = field(default_factory=dict)

    def texts(self, rows: int) -> pa.StringArray:
        """Return them as members of an object, for ``rows`` rows."""
        found = [""] * rows
        for name in ("overflow", "before_overflow", "unchanged"):
            for at, noted in getattr(self, name).items():
                found[at] += f',"{name}":{as_json(noted)}'
        return pa.array(found, pa.string())


def field_texts(
    name: str, values: pa.Array, kind: FieldType, overflow: dict[int, dict[str, str]]
) -> Column:
    """Return a column as texts of JSON, ``null`` for NULL; values without a form are noted in
    ``overflow``."""
    texts = kind.texts(values)
    if texts.null_count > values.null_count:
        for at in _rows(pc.and_(texts.is_null(), values.is_valid())):
            overflow.setdefault(at, {})[name] = str(values[at].as_py())
    return pc.fill_null(texts, NULL) if texts.null_count else texts


def with_overflow(
    columns: dict[str, Column],
    kinds: Mapping[str, FieldType],
    marks: pa.Array,
    overflow: dict[int, dict[str, str]],
) -> None:
    """Write into ``columns`` the values that a part keeps as the source's text (``marks``); those
    without a form are noted in ``overflow``."""
    cells: dict[str, dict[int, str]] = {}
    for at, pairs in _marked(marks):
        for name, text in pairs:
            if name in columns:
                written = kinds[name].overflow(text)
                if written is None:
                    overflow.setdefault(at, {})[name] = text
                else:
                    cells.setdefault(name, {})[at] = written
    _write(columns, cells)


def with_placeholders(
    columns: dict[str, Column],
    write: Callable[[str], str],
    marks: pa.Array,
    notes: Notes,
) -> None:
    """Write what ``write`` returns for a column into the cells that the log left out, and note
    their columns."""
    cells: dict[str, dict[int, str]] = {}
    for at, names in _marked(marks):
        noted = [name for name in names if name in columns]
        if noted:
            notes.unchanged[at] = noted
        for name in noted:
            cells.setdefault(name, {})[at] = write(name)
    _write(columns, cells)


def objects(columns: Mapping[str, pa.StringScalar | Column]) -> Column:
    """Return JSON objects with all of ``columns``, which have no NULL."""
    pieces: list[pa.StringScalar | Column] = []
    for at, (name, column) in enumerate(columns.items()):
        pieces += [pa.scalar(f"{',' if at else '{'}{as_json(name)}:"), column]
    return pc.binary_join_element_wise(*pieces, pa.scalar("}"), "")


def _write(columns: dict[str, Column], cells: Mapping[str, Mapping[int, str]]) -> None:
    for name, written in cells.items():
        texts = columns[name].to_pylist()
        for at, text in written.items():
            texts[at] = text
        columns[name] = pa.array(texts, pa.string())


def _marked(marks: pa.Array) -> Iterable[tuple[int, list]]:  # type: ignore[type-arg]
    """Yield the rows that have a mark, with it."""
    for at in _rows(marks.is_valid()):
        yield at, marks[at].as_py()


def _rows(flags: pa.BooleanArray) -> list[int]:
    found: list[int] = np.flatnonzero(flags.to_numpy(zero_copy_only=False)).tolist()
    return found
