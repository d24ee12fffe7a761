"""Errors cross process borders (Spark, Airflow) whole, with their hint."""

from __future__ import annotations

import copy
import pickle

import pytest

from tideline.contract import errors
from tideline.contract.errors import TidelineError

KINDS = [
    errors.TidelineError,
    errors.Unavailable,
    errors.Misconfigured,
    errors.SourceLost,
    errors.CorruptData,
    errors.Fenced,
    errors.InvariantBroken,
]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("hint", [None, "ALTER SYSTEM SET wal_level = logical"])
def test_pickled_and_copied(kind: type[TidelineError], hint: str | None) -> None:
    error = kind("wal_level is replica", hint)
    for again in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
        assert type(again) is kind
        assert (again.message, again.hint, str(again)) == (error.message, hint, str(error))


def test_text() -> None:
    assert str(errors.Unavailable("no answer")) == "no answer"
    assert str(errors.Misconfigured("no slot", hint="make one")) == "no slot; make one"


def test_the_six_and_their_base() -> None:
    defined = {item for item in vars(errors).values() if isinstance(item, type)}
    assert defined == set(KINDS)
    assert all(kind.__base__ is TidelineError for kind in KINDS[1:])
