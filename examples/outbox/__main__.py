"""Runs the example: ``python -m examples.outbox``, from a checkout."""

from __future__ import annotations

import os
import sqlite3
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from string import Template

from devtools.services.postgres import NOT_DURABLE, PostgresServer
from devtools.services.private_file import write_private
from devtools.services.process import Child
from devtools.services.valkey import ValkeyServer
from examples.outbox.orders import OrderService

HERE = Path(__file__).parent
ORDERS = 60
PATIENCE_S = 120.0


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="tideline-outbox-") as folder, ExitStack() as stack:
        place = Path(folder)
        place.chmod(0o755)  # Where root runs it, the server is another user's.
        postgres = stack.enter_context(PostgresServer(place, settings=NOT_DURABLE))
        valkey = stack.enter_context(ValkeyServer(place))
        service = stack.enter_context(closing(OrderService(postgres.dsn())))
        service.make_tables()
        config = _settings(place, postgres.dsn(), valkey.url())
        with _running("worker", place, "capture", "--config", config) as worker:
            # What is committed before it reads the log, and deleted, is not there.
            _wait(worker, lambda: "captures a table" in worker.log.read_text())
            _run(place, config, service, valkey.url())


def _run(place: Path, config: str, service: OrderService, redis_url: str) -> None:
    database = place / "shipping.db"
    publish = ("publish", "orders", "--config", config)
    shipping = (str(database), "--dies-after", "7")
    paid = set()
    with _running("publisher", place, *publish) as publisher:
        with _shipping("shipping", place, redis_url, *shipping) as dying:
            for number in range(ORDERS):
                service.place(number)
                if service.pay(number, card_is_good=number % 5 > 0):
                    paid.add(number)
            dying.wait(PATIENCE_S)
        publisher.kill()
    print("publisher and shipping service were killed; they go on")
    with (
        _running("publisher-2", place, *publish),
        _shipping("shipping-2", place, redis_url, str(database)) as shipping_again,
    ):
        _wait(shipping_again, lambda: len(_shipped(database)) >= len(paid))
        steps = _steps(database)
    wanted = {
        str(number): ["OrderPlaced", *(["OrderPaid", "shipped"] if number in paid else [])]
        for number in range(ORDERS)
    }
    if steps != wanted:
        sys.exit("an order was not shipped once and in order")
    print(f"{len(paid)} of {ORDERS} orders were paid, and each of them was shipped once")


def _settings(place: Path, source: str, redis_url: str) -> str:
    """Write the settings; return where."""
    text = Template((HERE / "pipeline.toml").read_text())
    path = place / "tideline.toml"
    write_private(path, text.substitute(source=source, redis=redis_url, folder=place.as_uri()))
    return str(path)


@contextmanager
def _running(name: str, place: Path, *command: str) -> Iterator[Child]:
    program = str(Path(sys.executable).parent / "tideline")
    with _started(Child(name, (program, *command), run_folder=place)) as child:
        yield child


@contextmanager
def _shipping(name: str, place: Path, redis_url: str, *arguments: str) -> Iterator[Child]:
    command = (sys.executable, "-m", "examples.outbox.shipping", *arguments)
    environment: Mapping[str, str] = {**os.environ, "REDIS_URL": redis_url}
    made = Child(name, command, run_folder=place, environment=environment, cwd=HERE.parents[1])
    with _started(made) as child:
        yield child


@contextmanager
def _started(child: Child) -> Iterator[Child]:
    child.start()
    try:
        yield child
    finally:
        if child.running:
            child.kill()


def _steps(database: Path) -> dict[str, list[str]]:
    """Return what the shipping service did, by order."""
    found: dict[str, list[str]] = {}
    with closing(sqlite3.connect(database)) as connection:
        for parcel, what in connection.execute("SELECT parcel, what FROM steps ORDER BY number"):
            found.setdefault(parcel, []).append(what)
    return found


def _shipped(database: Path) -> list[str]:
    try:
        return [parcel for parcel, steps in _steps(database).items() if "shipped" in steps]
    except sqlite3.OperationalError:  # The table is not there yet.
        return []


def _wait(child: Child, until: Callable[[], bool]) -> None:
    child.wait_until(until, timeout_s=PATIENCE_S)


if __name__ == "__main__":
    main()
