# ruff: noqa: S608  statements are made of quoted names, literals and our own expressions
"""BigQuery's SQL. A map of texts is an array of structs of ``key`` and ``value``.

An array is never NULL in a table of BigQuery's: one that is NULL becomes empty.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from sqlglot import expressions as sg

from tideline.contract.errors import InvariantBroken
from tideline.contract.target_types import target_type
from tideline.contract.target_url import BIGQUERY
from tideline.contract.types import decimal
from tideline_spark.dialects.base import Dialect, Names, function_of, lambda_of

_TYPES = {
    sg.DType.BOOLEAN: "BOOL",
    sg.DType.TINYINT: "INT64",
    sg.DType.SMALLINT: "INT64",
    sg.DType.INT: "INT64",
    sg.DType.BIGINT: "INT64",
    sg.DType.FLOAT: "FLOAT64",
    sg.DType.DOUBLE: "FLOAT64",
    sg.DType.TEXT: "STRING",
    sg.DType.BINARY: "BYTES",
    sg.DType.DATE: "DATE",
    sg.DType.TIMESTAMPTZ: "TIMESTAMP",
    sg.DType.TIMESTAMPNTZ: "DATETIME",
}
TEXTS = "ARRAY<STRUCT<key STRING, value STRING>>"
"""The type of a map of texts."""
_E, _AT = "_tl_item", "_tl_at"


def decimal_type(precision: int, scale: int) -> str:
    """Return the smallest type for all decimals of at most 38 digits."""
    return target_type(decimal(precision, scale), BIGQUERY)


class BigQueryDialect(Dialect):
    """See `Dialect`."""

    def quote(self, name: str) -> str:
        """See `Dialect`; a column's name has neither ``\\`` nor a backtick (`checked_name`)."""
        return f"`{name}`"

    def literal(self, text: str) -> str:
        """See `Dialect`."""
        escaped = text.replace("\\", "\\\\").replace("'", "\\'")
        escaped = escaped.replace("\n", "\\n").replace("\r", "\\r").replace("\0", "\\000")
        return f"'{escaped}'"

    def type_name(self, data_type: sg.DataType) -> str:
        """See `Dialect`."""
        kind = data_type.this
        if kind is sg.DType.DECIMAL:
            precision, scale = (int(one.name) for one in data_type.expressions)
            return decimal_type(precision, scale)
        if kind is sg.DType.ARRAY:
            return f"ARRAY<{self.type_name(data_type.expressions[0])}>"
        if kind is sg.DType.MAP:
            return TEXTS
        if kind not in _TYPES:
            raise InvariantBroken(f"{kind} has no type in BigQuery")
        return _TYPES[kind]

    def cast(self, node: sg.Cast, names: Names) -> str:
        """See `Dialect`; an empty array has a type only by its constructor."""
        if isinstance(node.this, sg.Array | sg.VarMap):
            return f"{self.type_name(node.to)}{self.write(node.this, names)}"
        return super().cast(node, names)

    @property
    def functions(self) -> Mapping[str, Callable[[Sequence[sg.Expr], Names], str]]:
        """See `Dialect`."""
        return {
            "coalesce": self._called("COALESCE"),
            "least": self._called("LEAST"),
            "timestampmicros": self._called("TIMESTAMP_MICROS"),
            "unhex": self._called("FROM_HEX"),
            "arraysize": self._called("ARRAY_LENGTH"),
            "mapconcat": self._called("ARRAY_CONCAT"),
            "mapentries": self._same,
            "mapfromentries": self._same,
            "array": lambda given, names: f"[{self.listed(given, names)}]",
            "map": self._map,
            "struct": lambda given, names: f"STRUCT({self.listed(given, names)})",
            "propertyeq": self._field,
            "nullsafeeq": lambda given, names: (
                f"{self.write(given[0], names)} IS NOT DISTINCT FROM {self.write(given[1], names)}"
            ),
            "arraycontains": self._contains,
            "arrayintersect": lambda given, names: self._kept(given, names, "IN"),
            "arrayexcept": lambda given, names: self._kept(given, names, "NOT IN"),
            "arrayunion": lambda given, names: self._distinct(
                f"ARRAY_CONCAT({self.listed(given, names)})"
            ),
            "arraydistinct": lambda given, names: self._distinct(self.write(given[0], names)),
            "arraysoverlap": self._overlap,
            "mapkeys": lambda given, names: (
                f"ARRAY(SELECT {_E}.key FROM UNNEST({self.write(given[0], names)}) AS {_E})"
            ),
            "mapfilter": self._filtered,
            "transform": self._transformed,
            "flatten": self._flattened,
            "bracket": self._looked_up,
        }

    def _called(self, name: str) -> Callable[[Sequence[sg.Expr], Names], str]:
        return lambda given, names: f"{name}({self.listed(given, names)})"

    def _same(self, given: Sequence[sg.Expr], names: Names) -> str:
        return self.write(given[0], names)

    def _field(self, given: Sequence[sg.Expr], names: Names) -> str:
        name, value = given
        return f"{self.write(value, names)} AS {name.name}"

    def _map(self, given: Sequence[sg.Expr], names: Names) -> str:
        pairs = zip(given[::2], given[1::2], strict=True)
        listed = (
            f"STRUCT({self.write(key, names)} AS key, {self.write(value, names)} AS value)"
            for key, value in pairs
        )
        return f"[{', '.join(listed)}]"

    def _contains(self, given: Sequence[sg.Expr], names: Names) -> str:
        array, item = given
        return f"{self.write(item, names)} IN UNNEST({self.write(array, names)})"

    def _kept(self, given: Sequence[sg.Expr], names: Names, relation: str) -> str:
        array, others = (self.write(one, names) for one in given)
        return self._distinct(array, f" WHERE {_E} {relation} UNNEST({others})")

    def _distinct(self, array: str, where: str = "") -> str:
        """Return the items of an array, each once, in the order in which they first come."""
        return (
            f"ARRAY(SELECT {_E} FROM UNNEST({array}) AS {_E} WITH OFFSET AS {_AT}{where}"
            f" GROUP BY {_E} ORDER BY MIN({_AT}))"
        )

    def _overlap(self, given: Sequence[sg.Expr], names: Names) -> str:
        array, others = (self.write(one, names) for one in given)
        return f"EXISTS(SELECT 1 FROM UNNEST({array}) AS {_E} WHERE {_E} IN UNNEST({others}))"

    def _filtered(self, given: Sequence[sg.Expr], names: Names) -> str:
        texts, condition = given
        (key, value), body = lambda_of(condition)
        inner = {**names, key: f"{_E}.key", value: f"{_E}.value"}
        return (
            f"ARRAY(SELECT AS STRUCT {_E}.key, {_E}.value FROM UNNEST({self.write(texts, names)})"
            f" AS {_E} WHERE {self.write(body, inner)})"
        )

    def _transformed(self, given: Sequence[sg.Expr], names: Names) -> str:
        array, change = given
        (item,), body = lambda_of(change)
        kind = "AS STRUCT " if isinstance(body, sg.Struct) else ""
        value = self.write(body, {**names, item: item})
        if kind:
            value = self.listed(body.expressions, {**names, item: item})
        source = f"UNNEST({self.write(array, names)}) AS {item} WITH OFFSET AS {item}_at"
        return f"ARRAY(SELECT {kind}{value} FROM {source} ORDER BY {item}_at)"

    def _flattened(self, given: Sequence[sg.Expr], names: Names) -> str:
        """Return a list of lists as one: BigQuery has no array of arrays in between."""
        name, (array, change) = function_of(given[0])
        if name != "transform":
            raise InvariantBroken(f"{name} is not a list of lists")
        (item,), body = lambda_of(change)
        inner = self.write(body, {**names, item: item})
        return (
            f"ARRAY(SELECT {_E} FROM UNNEST({self.write(array, names)}) AS {item} WITH OFFSET AS"
            f" {item}_at, UNNEST({inner}) AS {_E} WITH OFFSET AS {_AT}"
            f" ORDER BY {item}_at, {_AT})"
        )

    def _looked_up(self, given: Sequence[sg.Expr], names: Names) -> str:
        """Return the value of a constant map for a key; NULL without it."""
        name, pairs = function_of(given[0])
        if name != "map":
            raise InvariantBroken(f"{name} is not a constant map")
        key = self.write(given[1], names)
        whens = " ".join(
            f"WHEN {self.write(one, names)} THEN {self.write(value, names)}"
            for one, value in zip(pairs[::2], pairs[1::2], strict=True)
        )
        return f"CASE {key} {whens} END"
