"""``python -m devtools simulate``: exit codes; its printed command replays a failure."""

from __future__ import annotations

import json
import shlex

import pytest
from typer.testing import CliRunner

from devtools.__main__ import app
from devtools.simulate import Cut, Simulations, run
from devtools.simulation.gate import first_words, scenario_for
from devtools.simulation.log import DatabaseKind
from devtools.simulation.mutants import FENCE_ALONE, MUTANTS, Mutant
from tideline.contract.errors import Misconfigured

CAUGHT = "taken-is-foreign"


def invoke(*words: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["simulate", *words])
    return done.exit_code, done.output


def test_a_run_that_keeps_every_promise_exits_with_0() -> None:
    code, output = invoke("--seed", "3", "--json")
    assert (code, json.loads(output)["violations"]) == (0, [])


def test_a_failing_seed_is_replayed_by_the_command_it_prints() -> None:
    code, output = invoke("--seed", "1", "--mutant", CAUGHT, "--json")
    found = json.loads(output)
    assert code == 1
    assert found["violations"]
    words = shlex.split(found["replay"])
    assert words[:4] == ["python", "-m", "devtools", "simulate"]
    code, output = invoke(*words[4:], "--json")
    assert code == 1
    assert json.loads(output)["violations"]


def test_several_runs_are_summed_up() -> None:
    code, output = invoke("--seed", "3", "--runs", "2", "--json")
    found = json.loads(output)
    assert (code, found["runs"], found["failed"]) == (0, 2, {})
    assert found["hits"]["KILL"] > 0


def test_the_gate_says_how_a_mutant_was_caught() -> None:
    code, output = invoke("--mutant", CAUGHT, "--json")
    (found,) = json.loads(output)
    assert code == 0
    assert found["passes_without_faults"]
    assert found["seeds"] <= found["seeds_max"]


def test_an_unknown_mutant_is_named() -> None:
    with pytest.raises(Misconfigured, match="no mutant 'none'"):
        run(Simulations(mutant="none"), as_json=True)


def test_a_fault_that_the_seed_does_not_have_is_refused() -> None:
    with pytest.raises(Misconfigured, match="take numbers"):
        run(Simulations(seed=1, cut=Cut(faults="99")), as_json=True)


def test_the_fence_alone_would_do_where_the_fence_of_the_listed_does_not() -> None:
    alone = Mutant("fence-alone", "", FENCE_ALONE, frozenset(), DatabaseKind.POSTGRES)
    assert "fence-of-the-listed" in {mutant.name for mutant in MUTANTS}
    with alone.installed():
        found = [first_words(scenario_for(alone, seed), alone) for seed in range(1, 13)]
    assert not any(found)
