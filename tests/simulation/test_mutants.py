"""The mutation gate: every seeded bug passes a fine day, and is caught within a few seeds."""

from __future__ import annotations

import multiprocessing
from concurrent.futures import ProcessPoolExecutor

import pytest

from devtools.simulation.gate import SEEDS_MAX, begin_process, catch
from devtools.simulation.mutants import MUTANTS
from tests.simulation.processes import PROCESSES


@pytest.mark.timeout(900)
def test_every_mutant_is_caught() -> None:
    names = [mutant.name for mutant in MUTANTS]
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(PROCESSES, mp_context=context, initializer=begin_process) as pool:
        verdicts = list(pool.map(catch, names))

    for one in verdicts:
        print(f"{one.mutant:32} caught after {one.seeds} seeds: {one.words}")
    assert not [one.mutant for one in verdicts if not one.clean], "these fail without any fault"
    survived = [one.mutant for one in verdicts if one.seeds is None]
    assert not survived, f"not caught within {SEEDS_MAX} seeds"


def test_names_are_not_used_twice() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)
