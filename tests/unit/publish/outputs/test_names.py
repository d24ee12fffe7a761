"""The names of tables at outputs: no two tables have the same, whatever the template."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from tideline.contract.errors import Misconfigured
from tideline.contract.schema import TableId
from tideline.settings.outputs.kafka import KafkaSettings
from tideline.settings.outputs.opensearch import OpenSearchSettings
from tideline.settings.outputs.redis import RedisSettings
from tideline_publish.outputs.names import name_of

TEMPLATES = (
    "{pipeline}.{schema}.{table}",
    "{pipeline}-{schema}-{table}",
    "{table}-{schema}",
    "{schema}:{table}",
    "all/{schema}_/{table}_",
    "{schema}{schema}_{pipeline}-x_{table}",
)
NAMES = st.text("ab_-x20. A", min_size=1, max_size=6)
TABLES = st.builds(TableId, NAMES, NAMES)


def named(template: str, table: TableId, *, lower: bool = False) -> str:
    return name_of(template, "shop", table, setting="s", chars_max=500, lower=lower)


@pytest.mark.parametrize("lower", [False, True])
@pytest.mark.parametrize("template", TEMPLATES)
@given(one=TABLES, other=TABLES)
@example(TableId("a-b", "c"), TableId("a", "b-c"))
@example(TableId("s", "a b"), TableId("s", "a_x20_b"))
@example(TableId("s", "_x20 "), TableId("s", " x20_"))
@example(TableId("s", "A"), TableId("s", "_x41_"))
def test_no_two_tables_have_one_name(
    template: str, lower: bool, one: TableId, other: TableId
) -> None:
    found = {named(template, table, lower=lower) for table in (one, other)}
    assert len(found) == (1 if one == other else 2)


@pytest.mark.parametrize(
    ("table", "wanted"),
    [
        (TableId("public", "order_items"), "shop.public.order_items"),
        (TableId("public", "wire_xfer"), "shop.public.wire_xfer"),
        (TableId("a.b", "c-d"), "shop.a_x2e_b.c-d"),
        (TableId("public", "Ä_x41_"), "shop.public._xc4__x5f_x41_"),
    ],
)
def test_names_change_no_more_than_they_must(table: TableId, wanted: str) -> None:
    assert named("{pipeline}.{schema}.{table}", table) == wanted


def test_a_dash_is_coded_where_it_tells_schema_and_table_apart() -> None:
    table = TableId("a-b", "c")
    assert named("{schema}-{table}", table) == "a_x2d_b-c"
    assert named("x-{table}", table) == "x-c"
    assert name_of("{pipeline}-{schema}-{table}", "my-shop", table, setting="s", chars_max=99) == (
        "my-shop-a_x2d_b-c"
    )


def test_a_name_that_is_too_long_is_refused() -> None:
    with pytest.raises(Misconfigured, match=r"public\.orders would have 6 characters; 5 may be"):
        name_of("{table}", "shop", TableId("public", "orders"), setting="s", chars_max=5)


@pytest.mark.parametrize(
    "template",
    ["{schema}_{table}", "{table}{schema}", "x.{schema}{pipeline}{table}", "a{schema}b{table}"],
)
@pytest.mark.parametrize(
    ("settings", "key"),
    [(KafkaSettings, "topic"), (RedisSettings, "stream"), (OpenSearchSettings, "index")],
)
def test_a_template_that_may_mix_tables_is_refused(settings: type, key: str, template: str) -> None:
    with pytest.raises(ValidationError, match=rf"{key}\n.*a\.b_c and a_b\.c would have one name"):
        TypeAdapter(settings).validate_python({key: template})
    for sound in ("{schema}.{table}", "{table}_-_{schema}", "one"):
        TypeAdapter(settings).validate_python({key: sound})
