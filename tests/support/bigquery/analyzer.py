"""What BigQuery refuses when it analyzes a statement, by Google's own analyzer, ZetaSQL.

It judges syntax, names and types. Of scripts it judges each statement with what the ones before it
declared and created. It does not judge options' names, rights, quotas and limits; names of tables
are case-sensitive in BigQuery and not here. An ALTER shows in no later statement of the script, and
what a script runs by EXECUTE IMMEDIATE, CALL, CASE, FOR or in an exception handler is refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from zetasql.wasi._pb2.zetasql.local_service import local_service_pb2 as calls
from zetasql.wasi._pb2.zetasql.proto import options_pb2 as analysis
from zetasql.wasi._pb2.zetasql.proto import simple_catalog_pb2 as catalogs
from zetasql.wasi._pb2.zetasql.public import options_pb2 as public
from zetasql.wasi._pb2.zetasql.public import type_pb2 as types

from devtools.bigquery.language import (
    INT64_NAMES,
    SYSTEM_VARIABLES,
    kind_of,
    language_options,
    parse,
    span,
    statements_in,
    unwrapped,
)
from devtools.bigquery.zetasql_service import ZetaSqlError, zetasql_service

_BOOL = types.TypeProto(type_kind=types.TYPE_BOOL)
_STRING = types.TypeProto(type_kind=types.TYPE_STRING)
_INT64 = types.TypeProto(type_kind=types.TYPE_INT64)
_DDL = ("Create", "Drop", "Alter", "Rename")
_TEMPORARY = b"TEMP"


class Refused(Exception):
    """BigQuery would refuse the statement; ZetaSQL's words, and the statement."""


class Analyzer:
    """Judges statements on the tables of ``catalog``: BigQuery's types by column by name of table.

    A name is as statements have it, ``dataset.table`` or ``project.dataset.table``; backticks may
    stand around each part of it, or around several.
    """

    def __init__(self, catalog: Mapping[str, Mapping[str, str]]) -> None:
        self._types: dict[str, Any] = {}
        self._tables = {
            name: {column: self._type(text) for column, text in columns.items()}
            for name, columns in catalog.items()
        }

    def check(self, sql: str, parameters: Mapping[str, str] | None = None) -> None:
        """Raise Refused unless BigQuery would accept ``sql``, a statement or a script.

        ``parameters`` are the types of the query's named parameters.
        """
        given = {name: self._type(text) for name, text in (parameters or {}).items()}
        try:
            statements = parse(sql)
        except ZetaSqlError as error:
            raise Refused(f"{error}\n{sql}") from None
        if not statements:
            raise Refused(f"no statement\n{sql}")
        _Script(sql, dict(self._tables), given).check(statements)

    def _type(self, text: str) -> Any:
        if text not in self._types:
            self._types[text] = _Script("", {}, {}).type_of(f"CAST(NULL AS {text})")
        return self._types[text]


class _Script:
    """One script, statement by statement."""

    def __init__(self, sql: str, tables: dict[str, Any], parameters: Mapping[str, Any]) -> None:
        self._sql, self._bytes = sql, sql.encode()
        self._tables = tables
        self._variables: dict[str, Any] = {}
        self._options = _options(parameters)
        self._catalog = _catalog(tables, self._variables)
        self._in_transaction = False
        self._checks: dict[str, Callable[[Any], None]] = {
            "VariableDeclaration": self._declare,
            "SingleAssignment": self._assign,
            "AssignmentFromStruct": self._assign_several,
            "IfStatement": self._if,
            "WhileStatement": self._while,
            "BeginEndBlock": self._block,
            "RaiseStatement": self._raise,
        }

    def check(self, statements: Sequence[Any]) -> None:
        for node in statements:
            kind = kind_of(node)
            if kind in self._checks:
                self._checks[kind](node)
            elif kind.startswith(("Case", "ForIn", "Repeat", "ExecuteImmediate", "Call")):
                raise Refused(f"this analyzer does not know {kind}\n{self._text(node)}")
            elif kind not in ("BreakStatement", "ContinueStatement", "ReturnStatement"):
                self._statement(node, kind)

    def type_of(self, expression: str) -> Any:
        """Return the type of an expression."""
        answer = self._analyze(expression, sql_expression=expression)
        node = unwrapped(answer.resolved_expression)
        while "type" not in node.DESCRIPTOR.fields_by_name:
            node = node.parent
        return node.type

    def _statement(self, node: Any, kind: str) -> None:
        self._transaction(node, kind)
        # From its place in the whole, so that messages have the script's lines.
        place = {"input": self._sql, "byte_position": span(node).start}
        answer = self._analyze(self._text(node), parse_resume_location=place)
        resolved = unwrapped(answer.resolved_statement)
        if kind_of(resolved).startswith("CreateTable"):
            self._create(resolved.parent)

    def _transaction(self, node: Any, kind: str) -> None:
        if kind in ("BeginStatement", "CommitStatement", "RollbackStatement"):
            if self._in_transaction == (kind == "BeginStatement"):
                raise Refused(f"a transaction within one, or none to end\n{self._sql}")
            self._in_transaction = not self._in_transaction
        text = self._bytes[span(node)]
        if self._in_transaction and kind.startswith(_DDL) and _TEMPORARY not in text[:40].upper():
            raise Refused(f"DDL of what is not temporary in a transaction\n{text.decode()}")

    def _create(self, table: Any) -> None:
        if table.HasField("primary_key") and not table.primary_key.unenforced:
            raise Refused(f"an enforced primary key\n{self._sql}")
        columns = {one.name: one.type for one in table.column_definition_list}
        if columns:
            self._tables[".".join(table.parent.name_path)] = columns
            self._catalog = _catalog(self._tables, self._variables)

    def _declare(self, node: Any) -> None:
        names = [one.id_string for one in node.variable_list.identifier_list]
        declared = None
        if node.HasField("type"):
            declared = self.type_of(f"CAST(NULL AS {self._text(node.type)})")
        if node.HasField("default_value"):
            default = self._text(node.default_value)
            declared = self._assigned(default, declared or self.type_of(default))
        for name in names:
            if name.lower() in self._variables:
                raise Refused(f"Variable '{name}' redeclaration\n{self._text(node)}")
            self._variables[name.lower()] = declared
        self._catalog = _catalog(self._tables, self._variables)

    def _assign(self, node: Any) -> None:
        self._assigned(self._text(node.expression), self._variable(node.variable, node))

    def _assign_several(self, node: Any) -> None:
        names = node.variables.identifier_list
        kind = types.TypeProto(type_kind=types.TYPE_STRUCT)
        for name in names:
            kind.struct_type.field.add().field_type.CopyFrom(self._variable(name, node))
        self._assigned(self._text(node.struct_expression), kind)

    def _variable(self, name: Any, node: Any) -> Any:
        found = self._variables.get(name.id_string.lower())
        if found is None:
            raise Refused(f"Undeclared variable: {name.id_string}\n{self._text(node)}")
        return found

    def _if(self, node: Any) -> None:
        for one in (node, *node.elseif_clauses.elseif_clauses):
            self._assigned(self._text(one.condition), _BOOL)
        bodies = [node.then_list, *(one.body for one in node.elseif_clauses.elseif_clauses)]
        for body in (*bodies, node.else_list):
            self.check(statements_in(body))

    def _while(self, node: Any) -> None:
        if node.HasField("condition"):  # LOOP is one without
            self._assigned(self._text(node.condition), _BOOL)
        self.check(statements_in(node.parent.body))

    def _block(self, node: Any) -> None:
        if node.HasField("handler_list"):
            raise Refused(f"this analyzer does not know EXCEPTION\n{self._text(node)}")
        before = dict(self._variables)
        self.check(statements_in(node.statement_list_node))
        self._variables = before
        self._catalog = _catalog(self._tables, self._variables)

    def _raise(self, node: Any) -> None:
        if node.HasField("message"):
            self._assigned(self._text(node.message), _STRING)

    def _assigned(self, expression: str, kind: Any) -> Any:
        """Refuse an expression that cannot be assigned to what has the type ``kind``."""
        options = analysis.AnalyzerOptionsProto()
        options.CopyFrom(self._options)
        options.target_column_types.append(kind)
        self._analyze(expression, options, sql_statement=f"SELECT ({expression})")
        return kind

    def _analyze(self, shown: str, options: Any = None, **target: Any) -> Any:
        request = calls.AnalyzeRequest(
            options=options or self._options, simple_catalog=self._catalog, **target
        )
        try:
            return zetasql_service().call("Analyze", request, calls.AnalyzeResponse)
        except ZetaSqlError as error:
            raise Refused(f"{error}\n{shown}") from None

    def _text(self, node: Any) -> str:
        return self._bytes[span(node)].decode()


def _options(parameters: Mapping[str, Any]) -> Any:
    options = analysis.AnalyzerOptionsProto(
        language_options=language_options(), error_message_mode=public.ERROR_MESSAGE_ONE_LINE
    )
    for name, kind in parameters.items():
        options.query_parameters.add(name=name, type=kind)
    kinds = {"STRING": _STRING, "INT64": _INT64}
    for name, text in SYSTEM_VARIABLES.items():
        options.system_variables.add(name_path=name.split("."), type=kinds[text])
    return options


def _catalog(tables: Mapping[str, Mapping[str, Any]], variables: Mapping[str, Any]) -> Any:
    """Return ZetaSQL's catalog. BigQuery's variables of scripts are constants in it."""
    root = catalogs.SimpleCatalogProto(name="bigquery")
    root.builtin_function_options.language_options.CopyFrom(language_options())
    for name in INT64_NAMES:
        root.named_type.add(name=name, type=_INT64)
    for name, kind in variables.items():
        root.constant.add(name_path=[name], type=kind).value.SetInParent()
    folders: dict[tuple[str, ...], Any] = {}
    for number, (name, columns) in enumerate(sorted(tables.items())):
        for *path, last in _spellings(name.split(".")):
            folder = root
            for end in range(1, len(path) + 1):
                key = tuple(path[:end])
                if key not in folders:
                    folders[key] = folder.catalog.add(name=path[end - 1])
                folder = folders[key]
            table = folder.table.add(name=last, serialization_id=number + 1)
            for column, kind in columns.items():
                table.column.add(name=column, type=kind)
    return root


def _spellings(parts: list[str]) -> list[list[str]]:
    """Return a name's parts with any neighbours of them in one, as in `` `dataset.table` ``."""
    if len(parts) == 1:
        return [parts]
    first, second, *rest = parts
    return [
        *([first, *one] for one in _spellings([second, *rest])),
        *_spellings([f"{first}.{second}", *rest]),
    ]
