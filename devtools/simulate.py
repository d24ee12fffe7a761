"""``python -m devtools simulate``: the simulator's runs, mutants, and replays."""

from __future__ import annotations

import json
import multiprocessing
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from devtools.simulation.faults import NOT_APPLICABLE as FAULTS_NOT_APPLICABLE
from devtools.simulation.faults import Fault, KillPoint
from devtools.simulation.gate import (
    SEEDS_MAX,
    GateVerdict,
    Summary,
    begin_process,
    catch,
    first_words,
    replay_command,
    run_seed,
    scenario_for,
    shrink,
)
from devtools.simulation.mutants import MUTANTS, NOT_APPLICABLE, Mutant, named
from devtools.simulation.scenario import Scenario, draw
from tideline.contract.errors import Misconfigured

_PROCESSES = 2
_WORDS_MAX = 5


@dataclass(frozen=True, slots=True)
class Cut:
    """The kept part of a scenario, as texts: numbers of faults and dumps, ``none`` for none."""

    faults: str | None = None
    dumps: str | None = None
    transactions: int | None = None

    @property
    def whole(self) -> bool:
        return self.faults is None and self.dumps is None and self.transactions is None

    def of(self, scenario: Scenario) -> Scenario:
        """Cut ``scenario`` down; Misconfigured for numbers that it does not have."""
        try:
            return scenario.only(
                faults=_numbers(self.faults),
                dumps=_numbers(self.dumps),
                transactions=self.transactions,
            )
        except (IndexError, ValueError):
            raise Misconfigured(
                "--faults and --dumps take numbers of what the seed draws, from 0 on",
                hint="a failing run prints the command that replays it",
            ) from None


@dataclass(frozen=True, slots=True)
class Simulations:
    """The requested work: ``runs`` from ``seed`` on, or mutants to be caught."""

    seed: int | None = None
    runs: int = 1
    mutant: str | None = None
    all_mutants: bool = False
    cut: Cut = Cut()


def run(wanted: Simulations, *, as_json: bool) -> int:
    """Run and return the exit code: 1 when a check failed or a mutant survived."""
    out = Console(quiet=as_json)
    if wanted.all_mutants or (wanted.mutant is not None and wanted.seed is None):
        names = [one.name for one in MUTANTS] if wanted.all_mutants else [_known(wanted).name]
        return _gate(names, out, as_json=as_json)
    mutant = None if wanted.mutant is None else _known(wanted)
    if mutant is not None or not wanted.cut.whole or wanted.runs == 1:
        return _one(wanted, mutant, out, as_json=as_json)
    return _many(wanted, out, as_json=as_json)


def _known(wanted: Simulations) -> Mutant:
    try:
        return named(wanted.mutant or "")
    except KeyError:
        names = ", ".join(one.name for one in MUTANTS)
        raise Misconfigured(f"no mutant {wanted.mutant!r}", hint=f"one of {names}") from None


def _one(wanted: Simulations, mutant: Mutant | None, out: Console, *, as_json: bool) -> int:
    """Run one seed, show it, and cut it down when it fails."""
    seed = 1 if wanted.seed is None else wanted.seed
    whole = draw(seed) if mutant is None else scenario_for(mutant, seed)
    scenario = wanted.cut.of(whole)
    out.print(f"seed {seed}, {scenario.kind.value}, {scenario.transactions} transactions")
    for at, planned in enumerate(scenario.faults):
        out.print(f"  fault {at}: {planned}")
    for at, dump in enumerate(scenario.dumps):
        out.print(f"  dump {at}: {dump.at_s:.1f} s {dump.scope}")
    words = _words(scenario, mutant)
    for line in words[:_WORDS_MAX]:
        out.print(f"[red]{line}[/red]", highlight=False)
    command = None
    if words and wanted.cut.whole:
        command = _shrunk(whole, mutant)
        out.print(f"replay: {command}", soft_wrap=True)
    if not words:
        out.print("every promise was kept")
    if as_json:
        print(json.dumps({"seed": seed, "violations": words, "replay": command}))
    return 1 if words else 0


def _words(scenario: Scenario, mutant: Mutant | None) -> list[str]:
    if mutant is None:
        return first_words(scenario)
    with mutant.installed():
        return first_words(scenario, mutant)


def _shrunk(scenario: Scenario, mutant: Mutant | None) -> str:
    if mutant is None:
        return replay_command(scenario, shrink(scenario))
    with mutant.installed():
        return replay_command(scenario, shrink(scenario, mutant), mutant.name)


def _many(wanted: Simulations, out: Console, *, as_json: bool) -> int:
    first = 1 if wanted.seed is None else wanted.seed
    summary = Summary()
    with _pool() as pool:
        for result in pool.map(run_seed, range(first, first + wanted.runs), chunksize=8):
            summary.add(*result)
    _show_hits(summary, out)
    for seed, words in sorted(summary.failed.items()):
        out.print(f"[red]seed {seed}: {words[0]}[/red]", highlight=False)
    if summary.failed:
        seed = min(summary.failed)
        out.print(f"replay: {_shrunk(draw(seed), None)}", soft_wrap=True)
    out.print(f"{summary.runs} runs, {len(summary.failed)} failed; {dict(summary.counts)}")
    if as_json:
        document = {
            "runs": summary.runs,
            "failed": {str(seed): words for seed, words in summary.failed.items()},
            "hits": dict(sorted(summary.hits.items())),
            "counts": dict(summary.counts),
        }
        print(json.dumps(document))
    return 1 if summary.failed else 0


def _show_hits(summary: Summary, out: Console) -> None:
    table = Table("fault", "hits", box=None)
    for fault in Fault:
        table.add_row(fault.value, str(summary.hits[fault.name]))
    for point in KillPoint:
        table.add_row(f"killed {point.value}", str(summary.hits[f"kill {point.value}"]))
    for words, why in FAULTS_NOT_APPLICABLE.items():
        table.add_row(words, f"not applicable: {why}")
    out.print(table)


def _gate(names: Sequence[str], out: Console, *, as_json: bool) -> int:
    with _pool() as pool:
        verdicts = list(pool.map(catch, names))
    table = Table("mutant", "fine day", "caught by seed", "by", box=None)
    for one in verdicts:
        caught = "survived" if one.seeds is None else str(one.seeds)
        table.add_row(one.mutant, "passes" if one.clean else "fails", caught, one.words)
    out.print(table)
    for words, why in NOT_APPLICABLE.items():
        out.print(f"not applicable: {words}: {why}", highlight=False)
    if as_json:
        print(json.dumps([_as_document(one) for one in verdicts]))
    return 0 if all(one.clean and one.seeds is not None for one in verdicts) else 1


def _as_document(verdict: GateVerdict) -> dict[str, object]:
    return {
        "mutant": verdict.mutant,
        "passes_without_faults": verdict.clean,
        "seeds": verdict.seeds,
        "seeds_max": SEEDS_MAX,
        "violation": verdict.words,
    }


def _numbers(text: str | None) -> tuple[int, ...] | None:
    if text is None:
        return None
    return () if text == "none" else tuple(int(one) for one in text.split(","))


def _pool() -> ProcessPoolExecutor:
    """Make a pool of fresh processes: a run depends on no earlier one."""
    context = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(_PROCESSES, mp_context=context, initializer=begin_process)
