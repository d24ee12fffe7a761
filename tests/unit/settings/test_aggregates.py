"""Sections of aggregates, and the publishers that name them."""

from __future__ import annotations

from typing import Any

import pytest

from tideline.contract.aggregates import Aggregate, Member, lookups, nodes, tables
from tideline.contract.errors import Misconfigured
from tideline.settings import make_settings

CHILD = {"table": "public.b", "keys": {"a_id": "id"}}


def made(aggregate: dict[str, Any], **publisher: Any) -> Aggregate:
    settings = make_settings(
        {
            "pipeline": "shop",
            "source": {"url": "postgresql://h/shop"},
            "store": {"url": "file:///s"},
            "warehouse": {"url": "file:///w"},
            "aggregates": {"one": aggregate},
            "publish": {"p": {"output": "null", "aggregates": ["one"], **publisher}},
        }
    )
    return settings.aggregates["one"].aggregate("one")


def test_a_section_is_a_definition() -> None:
    inner = {"table": 'public."C d"', "keys": {"x": "b", "w": "a"}, "many": False}
    found = made({"root": '"public"."a"', "children": {"b": {**CHILD, "children": {"c": inner}}}})
    leaf = Member('public."C d"', "c", (("w", "a"), ("x", "b")), many=False)
    branch = Member("public.b", "b", (("a_id", "id"),), children=(leaf,))
    assert found == Aggregate("one", Member("public.a", children=(branch,)))
    assert tables([found]) == ('public."C d"', "public.a", "public.b")
    assert [node.member.field for node in nodes(found)] == ["", "b", "c"]
    assert lookups([found]) == [
        ('public."C d"', ("w", "x")),
        ("public.a", ("id",)),
        ("public.b", ("a", "b")),
        ("public.b", ("a_id",)),
    ]


def test_another_definition_has_another_fingerprint() -> None:
    one = made({"root": "public.a", "children": {"b": CHILD}})
    other = made({"root": "public.a", "children": {"b": {**CHILD, "many": False}}})
    assert one.fingerprint != other.fingerprint
    assert one.fingerprint == made({"root": "public.a", "children": {"b": CHILD}}).fingerprint


def deep(levels: int) -> dict[str, Any]:
    return {**CHILD, "children": {"b": deep(levels - 1)}} if levels else CHILD


@pytest.mark.parametrize(
    ("aggregate", "publisher", "message"),
    [
        ({"root": "nothing"}, {}, "not a table name of the form schema.table"),
        ({"root": "public.a", "children": {"b": {**CHILD, "keys": {}}}}, {}, "at least 1 item"),
        ({"root": "public.a", "columns": []}, {}, "at least 1 item"),
        ({"root": "public.a", "children": {"b": deep(10)}}, {}, "more than 10 deep"),
        ({"root": "public.a"}, {"aggregates": ["two"]}, "write a section [aggregates.two]"),
        ({"root": "public.a"}, {"aggregates": ["one", "one"]}, "names an aggregate twice"),
        ({"root": "public.a"}, {"format": "debezium"}, 'format must be "json" or "cloudevents"'),
    ],
)
def test_what_cannot_be_is_named(
    aggregate: dict[str, Any], publisher: dict[str, Any], message: str
) -> None:
    with pytest.raises(Misconfigured) as caught:
        made(aggregate, **publisher)
    assert message in str(caught.value)
