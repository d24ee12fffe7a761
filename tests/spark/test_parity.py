"""Random histories, schema steps of every kind among them, merged in plans that are cut anywhere,
in every mode that has rows of the source: the target holds what a model in plain Python says, and
that is, of the present, what the source holds.

``PARITY_HISTORIES`` says how many, besides three that are always the same (1).
"""

from __future__ import annotations

import os
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, Phase, example, given, note, settings
from hypothesis import strategies as st

from tests.fixtures.parts import Event, History, Shaped
from tests.spark.evolving_source import BIGQUERY_NAMES, TABLE, EvolvingSource, Value
from tests.spark.target_model import TargetModel, in_target
from tideline.contract.modes import Mode
from tideline.contract.receipt import Outcome
from tideline.contract.steps import StepKind
from tideline.contract.target_url import BIGQUERY
from tideline.settings import Warehouse

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FOLLOWED = (StepKind.ADD, StepKind.DROP, StepKind.RENAME, StepKind.WIDEN)
HISTORIES = int(os.environ.get("PARITY_HISTORIES", "1"))
_MANIFESTS = 4
_EVENTS = 24


@pytest.mark.drawn
@pytest.mark.timeout(1_080 + 120 * HISTORIES)
@settings(
    max_examples=HISTORIES,
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    deadline=None,
)
@given(
    mode=st.sampled_from([Mode.HISTORY, Mode.SOFT_DELETES, Mode.CURRENT]),
    seed=st.integers(0, 2**32),
    ignored=st.frozensets(st.sampled_from(FOLLOWED)),
    drop_columns=st.booleans(),
)
@example(mode=Mode.CURRENT, seed=1, ignored=frozenset(), drop_columns=True)
@example(
    mode=Mode.SOFT_DELETES,
    seed=2,
    ignored=frozenset({StepKind.DROP, StepKind.RENAME}),
    drop_columns=False,
)
@example(  # Its target is made from a dump, and keeps columns that older rows had values in.
    mode=Mode.CURRENT,
    seed=1728,
    ignored=frozenset({StepKind.DROP, StepKind.RENAME, StepKind.WIDEN}),
    drop_columns=True,
)
def test_targets_hold_what_the_model_says(
    spark: SparkSession,
    tmp_path_factory: Any,
    mode: Mode,
    seed: int,
    ignored: frozenset[StepKind],
    drop_columns: bool,
) -> None:
    note(f"{mode}, seed {seed}, ignored {sorted(ignored)}, drop_columns {drop_columns}")
    root = tmp_path_factory.mktemp("parity")
    compare(spark, root, mode, seed, ignored, drop_columns=drop_columns)


def compare(
    spark: SparkSession,
    root: Path,
    mode: Mode,
    seed: int,
    ignored: frozenset[StepKind],
    *,
    drop_columns: bool,
    place: Warehouse | None = None,
    **more: str,
) -> None:
    """Let one history happen, and compare its target with the model after every merge. Columns have
    the names that the format of ``place`` has; ``more`` are settings of the table."""
    random = Random(seed)
    policy = {
        "mode": mode.value,
        "on_change": {kind.value: "ignore" for kind in ignored},
        "dropped_columns": "drop" if drop_columns else "keep",
        **more,
    }
    history = History(root, tables={TABLE: policy}, place=place)
    source, model = EvolvingSource(random), TargetModel(ignored, mode)
    if place is not None and place.format == BIGQUERY:
        source.names = BIGQUERY_NAMES
    # A target that is still to be made begins with the newest dump, unless its mode keeps the past:
    # what only older rows had, in columns that the source has no more, is not in it.
    since_dump, made = model, mode.keeps_history
    low: int | None = None
    for number in range(_MANIFESTS):
        begins = low is None and number > 0 and random.random() < 0.4
        if begins:
            low = history.last_seq
            source.lose()
            since_dump = TargetModel(ignored, mode, dict(source.columns))
        events: list[Event] = source.some(_EVENTS) if number else [Shaped(source.schema)]
        if random.random() < 0.1:
            events.append(source.empty())
        deletes_before = []
        if low is not None and not begins:
            events += list(source.dump())
            deletes_before, low = [(TABLE, low)], None
        for seq, event in enumerate(events, history.last_seq + 1):
            model.take(seq, event)
            if since_dump is not model:
                since_dump.take(seq, event)
        for _, delete_before in deletes_before:
            model.end(delete_before, history.last_seq + len(events))
            model = model if made else since_dump
        history.commit(*events, deletes_before=deletes_before, parts_per_table=random.randint(1, 2))
        if not ignored and low is None:
            _check_model(model, source)
        if random.random() < 0.3 or number == _MANIFESTS - 1:
            (receipt,) = history.merge(spark).tables
            assert receipt.outcome is Outcome.APPLIED, receipt
            made = True
            found = in_target(history.rows(spark, TABLE), mode)
            wrong = _differences(found, model.content())
            assert not wrong, f"after manifest {history.last_number}"


def _check_model(model: TargetModel, source: EvolvingSource) -> None:
    """Check that the model has the source's rows; raises AssertionError."""
    assert {k: set(r) for k, r in model.rows.items()} == {k: set(r) for k, r in source.rows.items()}
    assert model.rows == source.rows, "the model does not follow the source"


def _differences(
    found: dict[Any, dict[str, Value]], expected: dict[Any, dict[str, Value]]
) -> dict[Any, Any]:
    """By key what is there, and what should be, as far as they differ; None: no such row."""
    wrong: dict[Any, Any] = {}
    for key in found.keys() | expected.keys():
        there, reported = found.get(key), expected.get(key)
        if there is None or reported is None:
            wrong[key] = (there, reported)
        elif there != reported:
            names = {n for n in there.keys() | reported.keys() if there.get(n) != reported.get(n)}
            wrong[key] = {name: (there.get(name), reported.get(name)) for name in sorted(names)}
    return wrong
