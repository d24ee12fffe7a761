"""``tideline init``: asks for a pipeline's few facts, writes a commented settings file, prints SQL.

The file goes where the settings are looked for, the SQL to standard output, everything else to
standard error. No server is contacted, and no password is accepted: it would be in the file, or in
the process list.
"""

from __future__ import annotations

import os
import sys
import tomllib
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import typer

from tideline.contract.errors import Misconfigured
from tideline.settings import Settings, SourceSettings, make_settings, settings_path
from tideline.settings.source_kinds import SOURCE_KINDS, url_forms
from tideline.settings.template import settings_text
from tideline_console.arguments import InitOptions
from tideline_console.init_warehouse import WAREHOUSE, Ask, warehouse_steps, warehouse_values
from tideline_console.output import write_text

STORE = "file:///var/lib/tideline/store"
CONTROL = "redis://127.0.0.1:6379/0"
_FORMS = ", ".join(url_forms())
_PASSWORD = (
    "leave it out: set TIDELINE_SOURCE__PASSWORD, or name a file that holds it with --password-file"
)


def run(wanted: InitOptions, path: Path, *, force: bool) -> None:
    """Write the file at ``path`` and print the SQL. Raises Misconfigured, with nothing written, for
    an existing file (unless ``force``), and for invalid settings."""
    if path.exists() and not force:
        raise _is_there(path)
    asks = wanted.url is None
    if asks and not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise Misconfigured("no one is there to be asked for the source", hint=f"--url {_FORMS}")
    values = _values(wanted, _ask if asks else _take)
    text = settings_text(values, kind=_kind(values["source"]["url"]))
    settings = make_settings(tomllib.loads(text), origin="what was given")
    sql = setup_sql(settings)
    _write(path, text, force=force)
    _print_steps(f"wrote {path}\n")
    _print_steps("Run this at the source (`tideline init --sql` prints it again):\n")
    write_text(sql)
    _print_steps(_next_steps(settings, path))


def setup_sql(settings: Settings) -> str:
    """Return the SQL that an owner of the source runs."""
    from tideline_capture.sources.registry import administration_of  # heavy

    return administration_of(settings).setup_sql()


def _values(wanted: InitOptions, ask: Ask) -> dict[str, Any]:
    url = ask(f"The source ({_FORMS})", wanted.url)
    _check_url(url)
    parts = urlsplit(url)
    database = unquote(parts.path.strip("/"))
    scope: str | None = SOURCE_KINDS[_kind(url)].tables
    if scope is not None and "{database}" in scope:
        scope = scope.format(database=database) if database else None
    named = "name them with --tables shop.*"
    patterns = wanted.tables or _split(ask("Tables, as shell patterns", None, scope, option=named))
    tables = tuple(patterns)
    name = ask("A name for the pipeline", wanted.pipeline, database or _schema_of(tables) or "main")
    source: dict[str, Any] = {"url": url, "tables": list(tables)}
    if wanted.exclude:
        source["exclude"] = list(wanted.exclude)
    if wanted.password_file is not None:
        source["password_file"] = str(wanted.password_file.absolute())
    control = ask("The Redis or Valkey of requests", wanted.control, CONTROL)
    try:
        secret = urlsplit(control).password is not None
    except ValueError:
        raise Misconfigured("the queue's url is none", hint=f"write {CONTROL}") from None
    if secret:
        raise Misconfigured(
            "the url of the queue holds a password", hint="set TIDELINE_CONTROL__URL instead"
        )
    return {
        "pipeline": name,
        "source": source,
        "store": {"url": ask("The store of segments (file:///… or s3://…)", wanted.store, STORE)},
        "control": {"url": control},
        "warehouse": warehouse_values(wanted, ask),
    }


def _ask(question: str, given: str | None, usual: str | None = None, *, option: str = "") -> str:
    if given is not None:
        return given
    answer: str = typer.prompt(question, default=usual, err=True)
    return answer


def _take(question: str, given: str | None, usual: str | None = None, *, option: str = "") -> str:
    value = given if given is not None else usual
    if value is None:
        raise Misconfigured(f"not given: {question}", hint=option)
    return value


def _check_url(url: str) -> None:
    """Check for no password and a known kind of source; its own checks come with the settings."""
    try:
        parts = urlsplit(url)
        secret = parts.password is not None or "password" in dict(parse_qsl(parts.query))
    except ValueError:
        raise Misconfigured("the source's url is none", hint=f"write {_FORMS}") from None
    if secret:
        raise Misconfigured("the source's url holds a password", hint=_PASSWORD)
    if not parts.username:
        raise Misconfigured("the source's url names no user", hint=f"write {_FORMS}")


def _kind(url: str) -> str:
    """Return the kind of the source; Misconfigured for an invalid url."""
    values = {"source": {"url": url}, "pipeline": "p", "store": {"url": STORE}}
    values["warehouse"] = {"url": WAREHOUSE}
    found: SourceSettings = make_settings(values, origin="what was given").source
    return found.kind


def _split(text: str) -> tuple[str, ...]:
    return tuple(text.replace(",", " ").split())


def _schema_of(tables: tuple[str, ...]) -> str | None:
    schema = tables[0].partition(".")[0] if tables else ""
    return schema if schema.isidentifier() else None


def _write(path: Path, text: str, *, force: bool) -> None:
    """Write atomically; without ``force`` only where no file exists, even in a race."""
    part = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        part.write_text(text)
        if force:
            part.replace(path)
        else:
            os.link(part, path)
    except FileExistsError:
        raise _is_there(path) from None
    except OSError as error:
        raise Misconfigured(
            f"{path} cannot be written: {error.strerror}", hint="name another with --config"
        ) from None
    finally:
        with suppress(OSError):
            part.unlink(missing_ok=True)


def _is_there(path: Path) -> Misconfigured:
    return Misconfigured(
        f"{path} is there already",
        hint="name another with --config, overwrite it with --force, or print its SQL with --sql",
    )


def _next_steps(settings: Settings, path: Path) -> str:
    config = "" if path == settings_path() else f" --config {path}"
    lines = ["", "Then:"]
    if settings.source.password_file is None:
        lines.append("  export TIDELINE_SOURCE__PASSWORD=…")
    lines += warehouse_steps(settings)
    lines += [
        f"  tideline doctor{config}     # what is still missing, and what fixes it",
        f"  tideline assess{config}     # what each table becomes, and what that costs",
        f"  tideline capture{config}    # begin",
    ]
    return "\n".join(lines) + "\n"


def _print_steps(text: str) -> None:
    sys.stderr.write(text)
