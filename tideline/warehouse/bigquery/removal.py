"""Removes a pipeline's tables from BigQuery: targets, and the tables of ours beside them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from tideline.contract.errors import CorruptData, Misconfigured
from tideline.contract.target_properties import owner_of
from tideline.settings import Warehouse
from tideline.warehouse.bigquery.client import BigQueryPlace, asking, open_client
from tideline.warehouse.bigquery.log import read_commits
from tideline.warehouse.bigquery.names import TableName, name_of, target_of_log, target_of_staged

if TYPE_CHECKING:
    from google.cloud.bigquery import Client

_REBUILDS = re.compile(r"(.+__)?rebuild_[0-9]{6}__.+")
"""The datasets of shadow tables (`Warehouse.shadow`)."""


class OwnedTarget(NamedTuple):
    """A target, and the tables with rows that runs have staged for it and left."""

    name: TableName
    staged: tuple[TableName, ...]


def owned_targets(
    place: Warehouse, pipeline: str, incarnation: str | None
) -> Iterator[OwnedTarget]:
    """Yield the targets whose log names ``pipeline``, and ``incarnation`` where it is known, from
    every dataset of the project that has the prefix of ``place``.

    A target that is gone is yielded as long as its log is there. One whose log is damaged, or may
    not be read, is left. Raises Misconfigured where datasets may not be listed, Unavailable where
    BigQuery gives no answer.
    """
    found = BigQueryPlace.of(place)
    client = open_client(found)
    for dataset in _datasets(client, place.bigquery.dataset_prefix):
        with asking(f"to list the tables of the dataset {dataset}"):
            listed = list(client.list_tables(f"{found.project}.{dataset}"))
            tables = [TableName(found.project, dataset, one.table_id) for one in listed]
        for log in tables:
            target = target_of_log(log.table)
            if target is not None:
                name = log._replace(table=target)
                if _is_of(client, name, pipeline, incarnation):
                    staged = [one for one in tables if target_of_staged(one.table) == target]
                    yield OwnedTarget(name, tuple(staged))


def remove_target(place: Warehouse, owned: OwnedTarget) -> None:
    """Remove a target, its staged rows, and at last its log, by which another try finds it; and the
    dataset of shadow tables, once it is empty.

    Raises Misconfigured where BigQuery refuses, Unavailable where it gives no answer.
    """
    remove_tables(open_client(BigQueryPlace.of(place)), owned.name, owned.staged)


def remove_bigquery(url: str, place: Warehouse) -> None:
    """Remove the target at ``url``, as `remove_target` does, but for staged rows."""
    remove_tables(open_client(BigQueryPlace.of(place)), name_of(url))


def remove_tables(client: Client, name: TableName, staged: Sequence[TableName] = ()) -> None:
    """Remove a target with its log, as far as they are there. Raises as `remove_target` does."""
    with asking(f"to remove {name}"):
        for one in (*staged, name, name.log):
            client.delete_table(str(one), not_found_ok=True)
    _remove_shadow_dataset(client, name)


def _remove_shadow_dataset(client: Client, name: TableName) -> None:
    """Remove the dataset of ``name`` if it was made for a shadow table and is empty; one that may
    not be removed stays. Raises Unavailable where BigQuery gives no answer."""
    # heavy: only pipelines with BigQuery tables need it
    from google.api_core.exceptions import Forbidden, NotFound

    if not _REBUILDS.fullmatch(name.dataset):
        return
    dataset = f"{name.project}.{name.dataset}"
    with (
        asking(f"to remove the dataset {dataset}"),
        suppress(Forbidden, NotFound),  # An empty one costs nothing.
    ):
        if not list(client.list_tables(dataset, max_results=1)):
            client.delete_dataset(dataset, not_found_ok=True)


def _datasets(client: Client, prefix: str) -> list[str]:
    with asking("to list the datasets"):
        names = [str(one.dataset_id) for one in client.list_datasets()]
    return sorted(name for name in names if not prefix or name.startswith(f"{prefix}__"))


def _is_of(client: Client, name: TableName, pipeline: str, incarnation: str | None) -> bool:
    try:
        with asking(f"to read the log of {name}"):
            commits = read_commits(client, name)
    except (CorruptData, Misconfigured):
        return False
    if not commits:
        return False
    newest = commits[0]
    made = newest.entry if newest.pending is None else newest.pending.after
    owner = owner_of(made.properties)
    return owner[0] == pipeline and incarnation in (None, owner[1])
