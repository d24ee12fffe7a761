"""Seeded runs: every promise is kept, and every fault was met. `make long` plays a thousand."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor

import pytest

from devtools.simulation.gate import Summary, begin_process, replay_command, run_seed, shrink
from devtools.simulation.mutants import named
from devtools.simulation.run import simulate
from devtools.simulation.scenario import TRANSACTIONS, draw
from tests.simulation.processes import PROCESSES

RUNS = int(os.environ.get("SIMULATED_RUNS", "100"))
RARE = (372,)
"""Seeds whose runs meet what none of the first ones does."""
_DIGEST = """
from devtools.simulation.run import simulate
from devtools.simulation.scenario import draw
print(simulate(draw({seed})).digest)
"""


@pytest.fixture(scope="module")
def pool() -> Iterator[ProcessPoolExecutor]:
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(PROCESSES, mp_context=context, initializer=begin_process) as made:
        yield made


@pytest.mark.drawn
@pytest.mark.timeout(900 + 5 * RUNS)
def test_every_promise_is_kept_in_every_run(pool: ProcessPoolExecutor) -> None:
    summary = Summary()
    seeds = {*range(1, RUNS + 1), *RARE}
    for result in pool.map(run_seed, sorted(seeds), chunksize=10):
        summary.add(*result)

    for name, count in sorted(summary.hits.items()):
        print(f"{name:40} {count}")
    print(f"{summary.runs} runs: {dict(summary.counts)}")
    failed = [f"seed {seed}: {words[0]}" for seed, words in sorted(summary.failed.items())]
    assert not failed, (
        f"replay with `python -m devtools simulate --seed N`: {failed[:5]} of {len(failed)}"
    )
    assert not summary.unhit()
    assert summary.counts["transactions"] >= 300 * len(seeds)


def test_the_same_seed_gives_the_same_run_in_any_process() -> None:
    digests = set()
    for hashes in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": hashes}
        done = subprocess.run(
            [sys.executable, "-c", _DIGEST.format(seed=11)],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
        digests.add(done.stdout.strip())
    digests.add(simulate(draw(11)).digest)
    assert len(digests) == 1


def test_seeds_differ() -> None:
    assert simulate(draw(6)).digest != simulate(draw(7)).digest


def test_a_run_has_what_it_promises() -> None:
    for seed in range(1, 200):
        scenario = draw(seed)
        assert scenario.transactions >= TRANSACTIONS
        assert len(scenario.faults) >= 5
        assert len(scenario.dumps) >= 2


def test_a_failing_run_is_cut_down_to_what_still_fails() -> None:
    mutant = named("taken-is-foreign")
    with mutant.installed():
        scenario = draw(1, focus=mutant.focus)
        faults, dumps, transactions = shrink(scenario, mutant)
    assert len(faults) < len(scenario.faults)
    assert len(dumps) < len(scenario.dumps) or transactions < scenario.transactions
    command = replay_command(scenario, (faults, dumps, transactions), mutant.name)
    begins = "python -m devtools simulate --seed 1 --mutant taken-is-foreign --faults "
    assert command.startswith(begins)
