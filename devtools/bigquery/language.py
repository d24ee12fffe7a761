"""BigQuery's dialect as options of ZetaSQL, and ZetaSQL's parser with them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

from zetasql.wasi._pb2.zetasql.local_service import local_service_pb2 as calls
from zetasql.wasi._pb2.zetasql.proto import options_pb2 as analysis
from zetasql.wasi._pb2.zetasql.public import options_pb2 as public

from devtools.bigquery.zetasql_service import zetasql_service

SYSTEM_VARIABLES = {
    "dataset_id": "STRING",
    "error.message": "STRING",
    "error.statement_text": "STRING",
    "last_job_id": "STRING",
    "project_id": "STRING",
    "query_label": "STRING",
    "row_count": "INT64",
    "script.job_id": "STRING",
    "script.num_child_jobs": "INT64",
    "session_id": "STRING",
    "time_zone": "STRING",
    "transaction_id": "STRING",
}
"""BigQuery's that a script of ours could use, with their types."""
INT64_NAMES = ("INT", "SMALLINT", "INTEGER", "BIGINT", "TINYINT", "BYTEINT")
"""Other names that BigQuery has for INT64."""
MORE_FEATURES = (
    public.FEATURE_ALTER_COLUMN_SET_DATA_TYPE,
    public.FEATURE_CREATE_TABLE_CLONE,
    public.FEATURE_V_1_4_DISABLE_FLOAT32,
)
"""Those that BigQuery has besides ZetaSQL's maximum, which leaves out what is new in ZetaSQL."""
OTHERS_FEATURES = {public.FEATURE_TOKENIZED_SEARCH, public.FEATURE_V_1_4_UUID_TYPE}
"""Those of the maximum that other products of Google have: types that BigQuery has not."""


@cache
def language_options() -> Any:
    """Return ZetaSQL's `LanguageOptionsProto` for BigQuery: every feature, the types of
    Google's public products (no INT32), every kind of statement."""
    request = calls.LanguageOptionsRequest(maximum_features=True)
    options = zetasql_service().call("GetLanguageOptions", request, analysis.LanguageOptionsProto)
    options.product_mode = public.PRODUCT_EXTERNAL
    features = set(options.enabled_language_features) | set(MORE_FEATURES)
    options.enabled_language_features[:] = sorted(features - OTHERS_FEATURES)
    options.ClearField("supported_statement_kinds")
    # Without it, QUALIFY is refused in a query that has no WHERE.
    options.reserved_keywords[:] = ["QUALIFY"]
    return options


def parse(script: str) -> list[Any]:
    """Return the syntax nodes of a script's statements; one statement is a script, too."""
    request = calls.ParseRequest(
        sql_statement=script, options=language_options(), allow_script=True
    )
    answer = zetasql_service().call("Parse", request, calls.ParseResponse)
    return statements_in(answer.parsed_script.statement_list_node)


def statements_in(found: Any) -> list[Any]:
    """Return the syntax nodes in a list of statements."""
    return [unwrapped(one) for one in found.statement_list]


def unwrapped(message: Any) -> Any:
    """Return the node inside of messages that only say which kind of node they have."""
    while message.DESCRIPTOR.name.startswith("Any"):
        [oneof] = message.DESCRIPTOR.oneofs
        message = getattr(message, message.WhichOneof(oneof.name))
    return message


def kind_of(node: Any) -> str:
    """Return the kind of a node: ``MergeStatement``, ``IfStatement``."""
    name: str = node.DESCRIPTOR.name
    return name.removeprefix("AST").removeprefix("Resolved").removesuffix("Proto")


def span(node: Any) -> slice:
    """Return where a syntax node stands in its script, in bytes."""
    node = unwrapped(node)
    while "parse_location_range" not in node.DESCRIPTOR.fields_by_name:
        node = node.parent
    return slice(node.parse_location_range.start, node.parse_location_range.end)


def descendants(node: Any) -> Iterator[Any]:
    """Yield ``node`` and every node below it; of one node also the kinds that it is a kind of."""
    yield node
    for field, value in node.ListFields():
        if field.message_type is not None:
            for one in [value] if hasattr(value, "DESCRIPTOR") else value:
                yield from descendants(one)
