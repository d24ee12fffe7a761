"""Shows that the parity suite sees: `python -m tests.spark.parity_mutants [NAME…]`.

Each mutant changes one decision of the code that merges are made of; within a few histories the
model must differ from the target, or the merge must fail. In the history that catches it neither
may happen without the mutant. All of that on Delta tables, and again on Iceberg tables; ``FORMATS``
picks some (delta,iceberg), or bigquery, in the emulator (10 minutes).
Exit status 1 when one survives, or the suite complains of nothing.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

from msgspec import structs
from pyspark.sql import functions as F

from tests.fixtures.bigquery_place import use_project, with_endpoint
from tests.fixtures.iceberg import use_catalog, with_catalog
from tests.fixtures.spark import PLAIN
from tests.spark.test_parity import compare
from tideline.contract import evolution
from tideline.contract.evolution import Ancestor
from tideline.contract.modes import Mode
from tideline.contract.part import OP, UNCHANGED
from tideline.contract.steps import StepKind
from tideline.contract.target_properties import DEFAULT_FORMAT
from tideline.contract.target_url import BIGQUERY, ICEBERG
from tideline.java import java_home
from tideline.local_spark import short_lived
from tideline.settings import Warehouse
from tideline.warehouse.iceberg.names import MARKER_SETTING
from tideline.warehouse.job_jars import every_jar
from tideline_spark import columns, refill, target_columns, versions
from tideline_spark.formats.statements import RowMerge, RowUpdate
from tideline_spark.modes import history, soft_deletes, versioned
from tideline_spark.schemas import column as col
from tideline_spark.session import make_session
from tideline_spark.version_context import VersionContext

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SEEDS = (10, 11, 12, 13, 27, 29, 218)
"""What happens in a history depends on the names that columns may have. With BigQuery's, the last
is the only one where rows end that no change of the same plan touches: a truncate ends three."""


def _without(name: str) -> Callable[..., RowUpdate | None]:
    """The refill, but for one of the things that it does."""

    def mutant(schema: Any, stands: Any, mode: Any) -> RowUpdate | None:
        less = structs.replace(stands, refill=structs.replace(stands.refill, **{name: {}}))
        return _REFILL(schema, less, mode)

    return mutant


_REFILL = refill.refill_rows


def _nulls(ancestor: Ancestor, data_type: Any) -> Any:
    return F.lit(None).cast(data_type)


def _one_epoch(plan: Any, schema: Any) -> list[int]:
    return [len(plan.changes)]


def _no_drop(state: Any, name: str, *, ignored: bool) -> None:
    return None


def _nothing_carried(state: Any, ignored: bool) -> bool:
    return False


def _story(**less: Any) -> Callable[..., Any]:
    """What versions are made of, but for one of the things that are known."""

    def mutant(*given: Any, **more: Any) -> Any:
        return _STORY(*given, **{**more, **less})

    return mutant


def _never_ended(plan: Any, came: Any) -> RowMerge:
    return replace(_HISTORY(plan, came), unmatched=None)


def _blanked(found: Any, plan: Any) -> Any:
    """Soft deletes that keep the key alone."""
    rows = _LAST(found, plan)
    kept = [
        F.when(col(soft_deletes.DELETED), None).otherwise(col(name)).alias(name)
        if name in plan.schema.column_names and name not in plan.schema.key
        else col(name)
        for name in rows.columns
    ]
    return rows.select(*kept)


_STORY, _HISTORY, _LAST = VersionContext, history._merge, soft_deletes._last


@dataclass(frozen=True, slots=True)
class Mutant:
    """``where.attribute`` is ``instead``; it is looked for in targets of ``mode``."""

    where: object
    attribute: str
    instead: Any
    mode: Mode = Mode.CURRENT
    ignored: frozenset[StepKind] = frozenset()


_DROP = frozenset({StepKind.DROP})
MUTANTS: Mapping[str, Mutant] = {
    "rows skip the later steps": Mutant(
        columns, "ancestors", lambda n, c: {x: Ancestor(x) for x in n}
    ),
    "older rows have no default": Mutant(columns, "default_value", _nulls),
    "all rows are of the newest schema": Mutant(columns, "_epochs", _one_epoch),
    "overflow of parts keeps old names": Mutant(columns, "_renamed", lambda r, name: col(name)),
    "unchanged keeps old names": Mutant(columns, "_unchanged", lambda r: col(UNCHANGED)),
    "the target is not filled": Mutant(target_columns, "refill_rows", _without("fills")),
    "overflow of the target keeps old names": Mutant(
        target_columns, "refill_rows", _without("names")
    ),
    "a dropped column keeps its values": Mutant(evolution._State, "_drop", _no_drop),
    "rows lose what a drop left them": Mutant(
        evolution._State, "_carries", _nothing_carried, Mode.SOFT_DELETES, _DROP
    ),
    "versions lose what a drop left them": Mutant(
        evolution._State, "_carries", _nothing_carried, Mode.HISTORY, _DROP
    ),
    "dumped rows empty dropped columns": Mutant(
        versioned, "VersionContext", _story(dropped_at={}), Mode.HISTORY
    ),
    "closed versions get later defaults": Mutant(
        versioned, "VersionContext", _story(added_at={}), Mode.HISTORY
    ),
    "a delete opens a version": Mutant(versions, "gone", lambda: col(OP) == "m", Mode.HISTORY),
    "nothing that was not touched is ended": Mutant(history, "_merge", _never_ended, Mode.HISTORY),
    "a deleted row keeps its key only": Mutant(soft_deletes, "_last", _blanked, Mode.SOFT_DELETES),
}


def caught(spark: SparkSession, mutant: Mutant, table_format: str) -> tuple[int, str] | None:
    """The history that the mutant was caught in, and how; None: it survived all."""
    with patch.object(mutant.where, mutant.attribute, mutant.instead):
        for seed in _SEEDS:
            if wrong := _wrong(spark, mutant, table_format, seed):
                return seed, wrong
    return None


def _wrong(spark: SparkSession, mutant: Mutant, table_format: str, seed: int) -> str:
    """What the code as it is now does wrong with a target of the mutant's mode; "": nothing."""
    with tempfile.TemporaryDirectory() as root:
        place = _place(spark, Path(root), table_format)
        try:
            compare(
                spark,
                Path(root),
                mutant.mode,
                seed,
                mutant.ignored,
                drop_columns=False,
                place=place,
            )
        except AssertionError as error:
            found = _REASON.search(str(error))
            assert found is not None, error
            assert Path(__file__).name not in found[0], f"the mutant itself fails: {found[0]}"
            return found[0]
    return ""


_REASON = re.compile(r"after manifest \d+|(?<=error=)('[^']*'|\"[^\"]*\")")
"""What `compare` found: rows that are others than the model's, or a merge that failed."""
_ENDPOINTS: dict[str, str] = {}
"""The address of BigQuery's stand-in, by the format's name, while it is there."""


@contextmanager
def _bigquery(folder: Path) -> Iterator[None]:
    """BigQuery's emulator, and the stand-in before it."""
    # heavy: needs the emulator's packages
    from devtools.bigquery.front import BigQueryFront
    from devtools.services.bigquery import BigQueryServer

    with (
        BigQueryServer(folder / "emulator") as server,
        BigQueryFront(server.endpoint, folder) as front,
    ):
        _ENDPOINTS[BIGQUERY] = front.endpoint
        yield


def _place(spark: SparkSession, root: Path, table_format: str) -> Warehouse | None:
    """A warehouse of that format below ``root``; None for the format that is meant anyway."""
    if table_format == BIGQUERY:
        prefix = f"test_{uuid.uuid4().hex[:12]}"
        made = with_endpoint(Warehouse(url=root.as_uri()), _ENDPOINTS[BIGQUERY], prefix)
        use_project(spark, made)
        return made
    if table_format != ICEBERG:
        return None
    place = with_catalog(Warehouse(url=root.as_uri()), root / "catalog.db")
    use_catalog(spark, place)
    return place


def main(names: list[str]) -> int:
    formats = os.environ.get("FORMATS", f"{DEFAULT_FORMAT},{ICEBERG}").split(",")
    os.environ["JAVA_HOME"] = str(java_home())
    with tempfile.TemporaryDirectory() as scratch:
        spark = make_session(
            master="local[2]",
            driver_memory="1g",
            jars=every_jar(),
            scratch=scratch,
            java_options=short_lived(),
            others=PLAIN | {MARKER_SETTING: "true"},
        )
        needed = _bigquery(Path(scratch)) if BIGQUERY in formats else nullcontext()
        with needed:
            survived = sum(_survivors(spark, names, one) for one in formats)
        spark.stop()
    return 1 if survived else 0


def _survivors(spark: SparkSession, names: list[str], table_format: str) -> int:
    """How many of the mutants survive on tables of a format."""
    survived, clean = 0, set[tuple[Mode, frozenset[StepKind], int]]()
    for name in names or MUTANTS:
        began, mutant = time.monotonic(), MUTANTS[name]
        found = caught(spark, mutant, table_format)
        survived += found is None
        end = "survived" if found is None else "caught by history {}, {}".format(*found)
        if found is not None and (history := (mutant.mode, mutant.ignored, found[0])) not in clean:
            wrong = _wrong(spark, mutant, table_format, found[0])
            assert not wrong, f"a suite that cries wolf: {wrong}"
            clean.add(history)
        print(f"{table_format:8} {name:40} {end} ({time.monotonic() - began:.0f} s)")
        sys.stdout.flush()
    return survived


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
