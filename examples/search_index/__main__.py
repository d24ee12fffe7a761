"""Runs the example: ``python -m examples.search_index``, from a checkout."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from string import Template

from devtools.services.postgres import NOT_DURABLE, PostgresServer
from devtools.services.private_file import write_private
from devtools.services.process import Child
from devtools.services.search_stand_in import SearchServer
from devtools.services.valkey import ValkeyServer
from examples.search_index.shop import Shop

HERE = Path(__file__).parent
KILLS, TRANSACTIONS = 2, 200
PATIENCE_S = 120.0


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="tideline-search-") as folder, ExitStack() as stack:
        place = Path(folder)
        place.chmod(0o755)  # Where root runs it, the server is another user's.
        postgres = stack.enter_context(PostgresServer(place, settings=NOT_DURABLE))
        valkey = stack.enter_context(ValkeyServer(place))
        search = stack.enter_context(SearchServer())
        shop = stack.enter_context(closing(Shop(postgres.dsn())))
        config = _settings(place, postgres.dsn(), valkey.url(), search.url)
        stack.enter_context(_running("worker", place, "capture", "--config", config))
        command = ("publish", "search", "--config", config)
        for at in range(KILLS):
            with _running(f"publisher-{at}", place, *command) as publisher:
                _wait(publisher, lambda: bool(search.sources("customers")))
                shop.do_business(TRANSACTIONS)
                publisher.kill()
                print("the publisher was killed; another one goes on")
        shop.do_business(TRANSACTIONS)
        wanted = shop.documents()
        with _running("publisher", place, *command) as publisher:
            _wait(publisher, lambda: _found(search) == wanted)
        print(f"{len(wanted)} documents are what a join of the three tables gives")


def _found(search: SearchServer) -> dict[str, object]:
    """Return the documents of the index, without their sequences."""
    return {
        name: {key: value for key, value in source.items() if key != "tl_seq"}
        for name, source in search.sources("customers").items()
    }


def _settings(place: Path, source: str, redis_url: str, search_url: str) -> str:
    """Write the settings; return where."""
    text = Template((HERE / "pipeline.toml").read_text())
    path = place / "tideline.toml"
    filled = text.substitute(
        source=source, redis=redis_url, search=search_url, folder=place.as_uri()
    )
    write_private(path, filled)
    return str(path)


@contextmanager
def _running(name: str, place: Path, *command: str) -> Iterator[Child]:
    program = str(Path(sys.executable).parent / "tideline")
    child = Child(name, (program, *command), run_folder=place)
    child.start()
    try:
        yield child
    finally:
        if child.running:
            child.kill()


def _wait(child: Child, until: Callable[[], bool]) -> None:
    child.wait_until(until, timeout_s=PATIENCE_S)


if __name__ == "__main__":
    main()
