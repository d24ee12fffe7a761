"""Runs many scenarios: over seeds, with a bug or without, and shrinks those that fail."""

from __future__ import annotations

import gc
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import pyarrow as pa

from devtools.simulation.faults import Fault, KillPoint
from devtools.simulation.mutants import Mutant, named
from devtools.simulation.run import SimulationResult, simulate
from devtools.simulation.scenario import Scenario, draw, without_faults

SEEDS_MAX = 100
"""The number of seeds within which a mutant must be caught."""
_SHRINK_RUNS_MAX = 40


@dataclass(slots=True)
class Summary:
    """The results of many runs. ``failed`` are the seeds with violations, in words."""

    runs: int = 0
    failed: dict[int, list[str]] = field(default_factory=dict)
    hits: Counter[str] = field(default_factory=Counter)
    counts: Counter[str] = field(default_factory=Counter)

    def add(
        self, seed: int, violations: list[str], hits: Counter[str], counts: Counter[str]
    ) -> None:
        self.runs += 1
        if violations:
            self.failed[seed] = violations
        self.hits += hits
        self.counts += counts

    def unhit(self) -> list[str]:
        """Return kinds of faults and kill points that no run has met."""
        wanted = [fault.name for fault in Fault] + [f"kill {point.value}" for point in KillPoint]
        return [name for name in wanted if not self.hits[name]]


@dataclass(frozen=True, slots=True)
class GateVerdict:
    """A mutant's result: caught by the ``seeds``-th scenario (None: it survived)."""

    mutant: str
    clean: bool
    seeds: int | None
    seed: int | None = None
    words: str = ""


def begin_process() -> None:
    """Prepare a process of many runs.

    Garbage collection skips imported modules, which took a quarter of a run's time.
    """
    gc.collect()
    gc.freeze()


def run_seed(seed: int) -> tuple[int, list[str], Counter[str], Counter[str]]:
    """Run one seed; return the result in a form that any process can pass on."""
    sparing_threads()
    result = simulate(draw(seed))
    return seed, words_of(result), result.hits, Counter(result.counts)


def words_of(result: SimulationResult) -> list[str]:
    return [str(violation) for violation in result.violations]


def sparing_threads() -> None:
    """Use one thread, enough for tables this small; more of them only wait for each other."""
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)


def catch(name: str, seeds_max: int = SEEDS_MAX) -> GateVerdict:
    """Put a mutant through the gate: a run without faults first, then seeds until one fails."""
    sparing_threads()
    mutant = named(name)
    with mutant.installed():
        clean = simulate(without_faults(1, mutant.kind), mutant.flaws)
        if clean.violations:
            return GateVerdict(name, False, None, 1, words_of(clean)[0])
        for count, seed in enumerate(range(mutant.seed, mutant.seed + seeds_max), 1):
            words = first_words(scenario_for(mutant, seed), mutant)
            if words:
                return GateVerdict(name, True, count, seed, words[0])
    return GateVerdict(name, True, None)


def scenario_for(mutant: Mutant, seed: int) -> Scenario:
    return draw(seed, kind=mutant.kind, focus=mutant.focus)


def first_words(scenario: Scenario, mutant: Mutant | None = None) -> list[str]:
    """Return the violations of a run; one that cannot even continue is a failure too."""
    try:
        result = simulate(scenario, frozenset() if mutant is None else mutant.flaws)
    except Exception as error:
        if mutant is None:
            raise
        return [f"the run broke: {type(error).__name__}: {error}"]
    return words_of(result)


def shrink(
    scenario: Scenario, mutant: Mutant | None = None
) -> tuple[tuple[int, ...], tuple[int, ...], int]:
    """Return faults and dumps (by number) and a count of transactions that still fail."""
    faults = tuple(range(len(scenario.faults)))
    dumps = tuple(range(len(scenario.dumps)))
    count = scenario.transactions
    budget = _SHRINK_RUNS_MAX

    def fails(faults: tuple[int, ...], dumps: tuple[int, ...], count: int) -> bool:
        nonlocal budget
        budget -= 1
        smaller = scenario.only(faults=faults, dumps=dumps, transactions=count)
        return budget >= 0 and bool(first_words(smaller, mutant))

    for at in range(len(scenario.faults)):
        fewer = tuple(one for one in faults if one != at)
        if fails(fewer, dumps, count):
            faults = fewer
    for at in range(len(scenario.dumps)):
        fewer = tuple(one for one in dumps if one != at)
        if fails(faults, fewer, count):
            dumps = fewer
    for smaller in _smaller(count):
        if not fails(faults, dumps, smaller):
            break
        count = smaller
    return faults, dumps, count


def _smaller(count: int) -> Iterator[int]:
    while count > 20:
        count = count * 2 // 3
        yield count


def replay_command(
    scenario: Scenario,
    kept: tuple[tuple[int, ...], tuple[int, ...], int],
    mutant: str | None = None,
) -> str:
    """Return the command that repeats the shrunk run."""
    faults, dumps, count = kept
    words = ["python -m devtools simulate", f"--seed {scenario.seed}"]
    if mutant is not None:
        words.append(f"--mutant {mutant}")
    words += [f"--faults {_joined(faults)}", f"--dumps {_joined(dumps)}", f"--transactions {count}"]
    return " ".join(words)


def _joined(numbers: Iterable[int]) -> str:
    return ",".join(map(str, numbers)) or "none"
