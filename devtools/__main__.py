"""``python -m devtools``: the demo, a Spark cluster, an S3 server, BigQuery's emulator and the
simulator, which installations lack."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tideline_console.app import main

app = typer.Typer(no_args_is_help=True, pretty_exceptions_enable=False)


@app.command()
def simulate(  # noqa: PLR0913 - a command's options
    seed: Annotated[
        int | None, typer.Option(help="The first seed.", metavar="N", show_default=False)
    ] = None,
    runs: Annotated[int, typer.Option(min=1, help="Runs, of successive seeds.")] = 1,
    mutant: Annotated[
        str | None, typer.Option(help="A seeded bug to be caught.", show_default=False)
    ] = None,
    all_mutants: Annotated[bool, typer.Option("--all-mutants", help="Each of them.")] = False,
    faults: Annotated[
        str | None, typer.Option(help="Only these of the run's faults.", show_default=False)
    ] = None,
    dumps: Annotated[
        str | None, typer.Option(help="Only these of its dumps.", show_default=False)
    ] = None,
    transactions: Annotated[int | None, typer.Option(min=1, show_default=False)] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON document.")] = False,
) -> None:
    """Run the worker against seeded faults on virtual time, and judge what it wrote.

    Exits with 1 when a promise was broken, or a seeded bug was not caught.
    """
    from devtools.simulate import Cut, Simulations, run

    cut = Cut(faults, dumps, transactions)
    wanted = Simulations(seed=seed, runs=runs, mutant=mutant, all_mutants=all_mutants, cut=cut)
    raise typer.Exit(run(wanted, as_json=as_json))


@app.command()
def demo(
    source: Annotated[str, typer.Option(help="What the shop runs on: postgres, mariadb")] = (
        "postgres"
    ),
    storage: Annotated[
        str, typer.Option(help="Where store and warehouse lie: s3 (a server of its own), files")
    ] = "s3",
    target: Annotated[
        str, typer.Option(help="The tables' format: delta, iceberg, bigquery")
    ] = "delta",
    stay: Annotated[
        bool, typer.Option("--stay", help="Stay up afterwards, without a terminal, too.")
    ] = False,
) -> None:
    """Show the main job on its own servers; needs no settings."""
    from devtools.demo.app import run

    raise typer.Exit(run(source, storage, target, stay=stay))


@app.command()
def cluster(
    workers: Annotated[int, typer.Option(min=1, help="Workers.")] = 2,
    cores: Annotated[int, typer.Option(min=1, help="Cores of each worker.")] = 1,
    memory: Annotated[str, typer.Option(help="Memory of each worker for executors.")] = "2g",
    port: Annotated[
        int | None, typer.Option(help="The master's port; a free one.", show_default=False)
    ] = None,
    folder: Annotated[
        Path | None, typer.Option(help="For its files; .run/cluster here.", show_default=False)
    ] = None,
) -> None:
    """Run a standalone Spark cluster on loopback, until Ctrl-C; prints the settings for it."""
    from devtools.cluster import FOLDER, run

    run(workers, cores, memory, port, folder or FOLDER)


@app.command()
def s3(
    bucket: Annotated[str, typer.Option(help="Its bucket.")] = "lake",
    port: Annotated[int, typer.Option(help="Its port.")] = 8333,
    folder: Annotated[
        Path | None, typer.Option(help="For its data; .run/s3 here.", show_default=False)
    ] = None,
) -> None:
    """Run an S3 server on loopback, until Ctrl-C; prints the settings for it."""
    from devtools.s3 import FOLDER, run

    run(bucket, port, folder or FOLDER)


@app.command()
def bigquery(
    port: Annotated[int, typer.Option(help="Its port.")] = 9050,
    folder: Annotated[
        Path | None, typer.Option(help="For its files; .run/bigquery here.", show_default=False)
    ] = None,
) -> None:
    """Run an emulator of BigQuery on loopback, until Ctrl-C; prints the settings for it."""
    from devtools.bigquery.standing import FOLDER, run

    run(port, folder or FOLDER)


if __name__ == "__main__":
    main(app)
