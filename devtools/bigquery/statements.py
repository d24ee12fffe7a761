# ruff: noqa: S608  statements are made of what a script has
"""Statements as the emulator can run them: what it lacks or has wrong in SQL is put into them.

BigQuery refuses a MERGE by which several source rows change one row of its target; the emulator
changes it. A query in front of such a MERGE looks for them: it fails, and so does the job. Its
DuckDB ends with an internal error at a MERGE with a clause NOT MATCHED BY SOURCE of which another
one has a subquery: what such clauses do is a statement of its own, in front of the rest. And a
NUMERIC without its digits, or of a column that is made together with its rows, gets three behind
the point there: the digits are written out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from zetasql.wasi._pb2.zetasql.parser import ast_enums_pb2 as enums

from devtools.bigquery.answers import JobError, unsupported
from devtools.bigquery.language import descendants, kind_of, parse, span
from devtools.bigquery.merge_counts import counting
from devtools.bigquery.zetasql_service import ZetaSqlError

SEVERAL_ROWS = "UPDATE/MERGE must match at most one source row for each target row"
_MATCHED = enums.ASTMergeWhenClauseEnums.MATCHED
_BY_SOURCE = enums.ASTMergeWhenClauseEnums.NOT_MATCHED_BY_SOURCE
_UPDATE = enums.ASTMergeActionEnums.UPDATE
_NUMERIC = ("NUMERIC", "DECIMAL")
_DIGITS = "(38, 9)"
"""Of a NUMERIC without digits of its own."""
_GUARD = (
    "SELECT ERROR('{message}') FROM (SELECT 1 FROM {target} AS {name}"
    " INNER JOIN {source} ON ({condition}) WHERE {used}"
    " GROUP BY {name}.rowid HAVING COUNT(*) > 1 LIMIT 1)"
)
"""Of DuckDB, which numbers a table's rows. It has no asterisk: see `merge_counts`."""
_ASSERTION = "SELECT ERROR({message}) FROM (SELECT 1) WHERE NOT IFNULL(({wanted}), FALSE)"


def known(kind: str) -> str:
    """Return ``kind``, a type's name; HttpError for one that the emulator has rounded values of."""
    if kind in ("BIGNUMERIC", "BIGDECIMAL"):
        raise unsupported(f"{kind}: its emulator has no decimals of more than 38 digits")
    return kind


_QUOTED = re.compile(r"`([^`]+)`")
_WRITES = {
    "AlterTableStatement": "path",
    "CreateTableStatement": "name",
    "DeleteStatement": "target_path",
    "InsertStatement": "target_path",
    "MergeStatement": "target_path",
    "UpdateStatement": "target_path",
}
"""The statements that write or declare a table, and where they name it."""
_UNKNOWN = {
    "CallStatement",
    "CreateProcedureStatement",
    "ExceptionHandler",
    "ExecuteImmediateStatement",
}
"""Where a MERGE could be that is not seen here, or a failure that is no end."""


class Script:
    """The SQL of the query job ``job_id``; JobError when ZetaSQL cannot parse it."""

    def __init__(self, sql: str, job_id: str = "") -> None:
        self._sql, self._job_id = sql.encode(), job_id
        try:
            self._statements = parse(sql)
        except ZetaSqlError as error:
            raise JobError("invalidQuery", str(error)) from None

    @property
    def alone(self) -> str | None:
        """The kind of the only statement; None of a script with several."""
        return kind_of(self._statements[0]) if len(self._statements) == 1 else None

    def guard(self) -> str | None:
        """Return the query in front of the only statement, if it is a MERGE that needs one."""
        return self._guard(self._statements[0]) if self.alone == "MergeStatement" else None

    def countings(self) -> list[str]:
        """Return the queries that count what each MERGE of a script is to do, before it does."""
        if self.alone:
            return []
        merges = [
            node
            for top in self._statements
            for node in descendants(top)
            if kind_of(node) == "MergeStatement"
        ]
        return [counting(one, self._alias(one), self._text) for one in merges]

    def _alias(self, merge: Any) -> str:
        if merge.HasField("alias"):
            return str(merge.alias.identifier.id_string)
        return str(merge.target_path.names[-1].id_string.rpartition(".")[2])

    def written(self) -> Iterator[tuple[tuple[str, str], str]]:
        """Yield the dataset and the name of each table that its statements write or declare, and
        the kind of the statement."""
        for top in self._statements:
            for node in descendants(top):
                kind = kind_of(node)
                if kind in _WRITES:
                    yield self._named(node, _WRITES[kind]), kind

    def primary_keys(self) -> Iterator[tuple[tuple[str, str], tuple[str, ...]]]:
        """Yield the dataset and the name of each table that is made, and its declared key, () for
        none."""
        for top in self._statements:
            for node in descendants(top):
                if kind_of(node) == "CreateTableStatement":
                    keys = [one for one in descendants(node) if kind_of(one) == "PrimaryKey"]
                    columns = _QUOTED.findall(self._text(keys[0])) if keys else []
                    yield self._named(node, "name"), tuple(columns)

    def _named(self, node: Any, field: str) -> tuple[str, str]:
        """Return the dataset and the name of the table that ``field`` of a statement names."""
        while field not in node.DESCRIPTOR.fields_by_name:
            node = node.parent
        names = self._text(getattr(node, field)).replace("`", "").split(".")
        return names[-2], names[-1]

    def emulated(self) -> str:
        """Return what the emulator is to run instead, without the guard of the only statement."""
        edits = sorted(self._edits(), key=lambda edit: edit[0].start)
        found, end = [], 0
        for place, text in edits:
            if place.start < end:  # It is in what another one has replaced.
                continue
            found += [self._sql[end : place.start].decode(), text]
            end = place.stop
        return "".join([*found, self._sql[end:].decode()])

    def _edits(self) -> Iterator[tuple[slice, str]]:
        changed: Mapping[str, Callable[[Any], str]] = {
            "AssertStatement": self._assertion,
            "RaiseStatement": self._failure,
            "SystemVariableExpr": self._variable,
        }
        for top in self._statements:
            for node in descendants(top):
                kind = kind_of(node)
                if kind in _UNKNOWN:
                    raise unsupported(kind)
                if kind == "UpdateStatement" and node.HasField("from_clause"):
                    raise unsupported("UPDATE with FROM: write a MERGE")
                if kind == "MergeStatement" and not self.alone:
                    place = span(node)
                    before = [self._guard(node), *self._by_source(node)]
                    text = "".join(f"{one};\n" for one in before if one)
                    yield slice(place.start, place.start), text
                elif kind == "MergeWhenClause" and node.match_type == _BY_SOURCE:
                    if not self.alone:
                        yield span(node), ""
                elif kind == "PrimaryKey":
                    yield self._with_comma(span(node)), ""
                elif kind == "AlterTableStatement":
                    yield from self._one_by_one(node)
                elif kind in ("SimpleType", "SimpleColumnSchema"):
                    name = known(node.type_name.names[-1].id_string.upper())
                    own = node if kind == "SimpleType" else node.parent
                    if name in _NUMERIC and not own.HasField("type_parameters"):
                        yield span(node.type_name), f"NUMERIC{_DIGITS}"
                elif kind == "CreateTableStatement":
                    yield from self._columns_by_casts(node)
                elif kind in changed:
                    yield span(node), changed[kind](node)

    def _columns_by_casts(self, node: Any) -> Iterator[tuple[slice, str]]:
        """Yield, for a table that is made with its rows, its columns as casts of what the rows
        have."""
        columns = node.parent.table_element_list
        if not (node.HasField("query") and columns.elements):
            return
        casts = []
        for one in columns.elements:
            if not one.HasField("ast_column_definition_node"):  # The primary key.
                continue
            column = one.ast_column_definition_node
            name, kind = self._text(column.name), self._text(column.schema)
            if "OPTIONS" in kind.upper():
                raise unsupported("options of columns that are made with rows")
            if kind.upper() in _NUMERIC:
                kind += _DIGITS
            casts.append(f"CAST({name} AS {kind}) AS {name}")
        query = span(node.query)
        yield span(columns), ""
        yield slice(query.start, query.start), f"SELECT {', '.join(casts)} FROM ("
        yield slice(query.stop, query.stop), ")"

    def _one_by_one(self, node: Any) -> Iterator[tuple[slice, str]]:
        """Yield several changes of a table as a statement each: the emulator makes one alone."""
        place = span(node)
        while "action_list" not in node.DESCRIPTOR.fields_by_name:
            node = node.parent
        actions = node.action_list.actions
        if len(actions) > 1:
            table = self._text(node.path)
            yield place, ";\n".join(f"ALTER TABLE {table} {self._text(one)}" for one in actions)

    def _guard(self, merge: Any) -> str | None:
        clauses = [one for one in merge.when_clauses.clause_list if one.match_type == _MATCHED]
        if not clauses:
            return None
        name = self._alias(merge)
        used = " OR ".join(
            f"({self._text(one.search_condition)})" if one.HasField("search_condition") else "TRUE"
            for one in clauses
        )
        values = {
            "message": SEVERAL_ROWS,
            "target": self._text(merge.target_path),
            "name": f"`{name}`",
            "source": self._text(merge.table_expression),
            "condition": self._text(merge.merge_condition),
            "used": used,
        }
        return _GUARD.format(**values)

    def _by_source(self, merge: Any) -> Iterator[str]:
        """Yield a statement for each clause of rows that the source lacks, of which the first that
        fits a row counts."""
        table, name = self._text(merge.target_path), self._alias(merge)
        source, same = self._text(merge.table_expression), self._text(merge.merge_condition)
        lacking = f"NOT EXISTS(SELECT 1 FROM {source} WHERE ({same}))"
        clauses = [one for one in merge.when_clauses.clause_list if one.match_type == _BY_SOURCE]
        if len(clauses) > 1:
            raise unsupported("several clauses of WHEN NOT MATCHED BY SOURCE")
        for one in clauses:
            when = self._text(one.search_condition) if one.HasField("search_condition") else "TRUE"
            do = f"DELETE FROM {table} AS `{name}`"
            if one.action.action_type == _UPDATE:
                do = f"UPDATE {table} AS `{name}` SET {self._text(one.action.update_item_list)}"
            yield f"{do} WHERE ({when}) AND {lacking}"

    def _assertion(self, node: Any) -> str:
        message = "'Assertion failed'"
        if node.HasField("description"):
            message = self._text(node.description)
        return _ASSERTION.format(message=message, wanted=self._text(node.expr))

    def _failure(self, node: Any) -> str:
        if not node.HasField("message"):
            raise unsupported("RAISE without a message")
        return f"SELECT ERROR({self._text(node.message)})"

    def _variable(self, node: Any) -> str:
        if self._text(node) != "@@script.job_id":
            raise unsupported(self._text(node))
        return f"'{self._job_id}'"

    def _with_comma(self, place: slice) -> slice:
        """Return ``place`` with the comma before it, or after it where it is the first."""
        before = self._sql[: place.start].rstrip()
        if before.endswith(b","):
            return slice(len(before) - 1, place.stop)
        rest = self._sql[place.stop :]
        return slice(place.start, place.stop + len(rest) - len(rest.lstrip().removeprefix(b",")))

    def _text(self, node: Any) -> str:
        return self._sql[span(node)].decode()
