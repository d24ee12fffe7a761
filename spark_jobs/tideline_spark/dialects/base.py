"""Writes an expression of Spark SQL in another dialect.

Only what our own statements use is known; anything else is an error, never a guess. So what a
statement means is written once, in Spark's SQL (`tideline_spark.statement`), and a dialect says how
its own SQL means the same. Lists of texts are arrays; maps of texts are what the dialect says.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import sqlglot
from sqlglot import expressions as sg

from tideline.contract.errors import InvariantBroken
from tideline_spark.formats.statements import RowClause, RowMerge, RowUpdate

_INFIX: Mapping[type[sg.Expr], str] = {
    sg.And: "AND",
    sg.Or: "OR",
    sg.EQ: "=",
    sg.NEQ: "<>",
    sg.GT: ">",
    sg.GTE: ">=",
    sg.LT: "<",
    sg.LTE: "<=",
    sg.Add: "+",
    sg.Sub: "-",
    sg.Is: "IS",
}
Names = Mapping[str, str]
"""What the parameters of lambdas around an expression are in the dialect, by name."""


class Dialect(ABC):
    """One dialect; stateless."""

    def expression(self, text: str) -> str:
        """Return an expression of Spark SQL in the dialect."""
        return self.write(sqlglot.parse_one(text, read="spark"), {})

    def merge(self, rows: RowMerge) -> RowMerge:
        """Return ``rows`` with its expressions in the dialect."""

        def clause(one: RowClause) -> RowClause:
            when = None if one.when is None else self.expression(one.when)
            return RowClause(when, None if one.values is None else self._values(one.values))

        return replace(
            rows,
            on=self.expression(rows.on),
            matched=tuple(map(clause, rows.matched)),
            inserted=None if rows.inserted is None else clause(rows.inserted),
            unmatched=None if rows.unmatched is None else clause(rows.unmatched),
        )

    def update(self, update: RowUpdate) -> RowUpdate:
        """Return ``update`` with its expressions in the dialect."""
        when = None if update.when is None else self.expression(update.when)
        return RowUpdate(self._values(update.values), when)

    def _values(self, values: Mapping[str, str]) -> dict[str, str]:
        return {name: self.expression(value) for name, value in values.items()}

    @abstractmethod
    def quote(self, name: str) -> str:
        """Quote ``name`` as one identifier."""

    @abstractmethod
    def literal(self, text: str) -> str:
        """Quote ``text`` as a literal."""

    @abstractmethod
    def type_name(self, data_type: sg.DataType) -> str:
        """Return the dialect's name of a type."""

    @property
    @abstractmethod
    def functions(self) -> Mapping[str, Callable[[Sequence[sg.Expr], Names], str]]:
        """The writers of Spark's functions from their arguments, by name."""

    def write(self, node: sg.Expr, names: Names) -> str:
        """Return ``node`` in the dialect. Raises InvariantBroken for what is not known."""
        if type(node) in _INFIX:
            left, right = self.write(node.this, names), self.write(node.expression, names)
            return f"{left} {_INFIX[type(node)]} {right}"
        match node:
            case sg.Paren():
                return f"({self.write(node.this, names)})"
            case sg.Not():
                return f"NOT {self.write(node.this, names)}"
            case sg.Neg():
                return f"-{self.write(node.this, names)}"
            case sg.Null():
                return "NULL"
            case sg.Boolean():
                return "TRUE" if node.this else "FALSE"
            case sg.Literal():
                return self.literal(node.this) if node.is_string else str(node.this)
            case sg.Column() | sg.Identifier() | sg.Dot():
                return self._name(node, names)
            case sg.Case():
                return self._case(node, names)
            case sg.Cast():
                return self.cast(node, names)
            case sg.In():
                listed = ", ".join(self.write(one, names) for one in node.expressions)
                return f"{self.write(node.this, names)} IN ({listed})"
        return self._function(node, names)

    def cast(self, node: sg.Cast, names: Names) -> str:
        """Return a cast."""
        return f"CAST({self.write(node.this, names)} AS {self.type_name(node.to)})"

    def listed(self, nodes: Sequence[sg.Expr], names: Names) -> str:
        """Return ``nodes`` as a list."""
        return ", ".join(self.write(one, names) for one in nodes)

    def _name(self, node: sg.Expr, names: Names) -> str:
        if isinstance(node, sg.Dot):
            return f"{self.write(node.this, names)}.{self.quote(node.expression.name)}"
        if isinstance(node, sg.Identifier):
            return names.get(node.name, self.quote(node.name))
        assert isinstance(node, sg.Column)
        first, *rest = (one.name for one in node.parts)
        return ".".join([names.get(first, self.quote(first)), *map(self.quote, rest)])

    def _case(self, node: sg.Case, names: Names) -> str:
        whens = [
            f"WHEN {self.write(one.this, names)} THEN {self.write(one.args['true'], names)}"
            for one in node.args["ifs"]
        ]
        default = node.args.get("default")
        rest = "" if default is None else f" ELSE {self.write(default, names)}"
        return f"CASE {' '.join(whens)}{rest} END"

    def _function(self, node: sg.Expr, names: Names) -> str:
        name, arguments = function_of(node)
        writer = self.functions.get(name)
        if writer is None:
            raise InvariantBroken(f"{name} is not known in {type(self).__name__}")
        return writer(arguments, names)


def function_of(node: sg.Expr) -> tuple[str, list[sg.Expr]]:
    """Return the name of a function without ``_``, and its arguments; of a map's constructor, keys
    and values in turn."""
    if isinstance(node, sg.Anonymous):
        return str(node.this).lower().replace("_", ""), list(node.expressions)
    if isinstance(node, sg.VarMap):
        keys, values = (node.args[name].expressions for name in ("keys", "values"))
        return "map", [one for pair in zip(keys, values, strict=True) for one in pair]
    arguments: list[Any] = [node.args.get("this"), node.args.get("expression")]
    return node.key, [one for one in (*arguments, *node.expressions) if one is not None]


def lambda_of(node: sg.Expr) -> tuple[list[str], sg.Expr]:
    """Return a lambda's parameters and its body."""
    if not isinstance(node, sg.Lambda):
        raise InvariantBroken(f"{node.key} is not a lambda")
    return [one.name for one in node.expressions], node.this
