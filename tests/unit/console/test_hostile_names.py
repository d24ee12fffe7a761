"""Names as data at every border that needs no server: terminal, log, error, page, setting, path."""

from __future__ import annotations

import csv
import io
import json
import pickle
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from urllib.parse import quote

import msgspec
import pytest
import structlog
from markdown_it import MarkdownIt
from prometheus_client import CollectorRegistry, Gauge, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from pydantic import SecretStr

from tests.fixtures.hostile_names import NAMES, Hostile, one_case
from tests.fixtures.parts import History, Row, Shaped, blocked, schema_of
from tests.support.each import each
from tideline.contract import layout
from tideline.contract.errors import Misconfigured
from tideline.contract.patterns import matches
from tideline.contract.plan import CommitMetadata, app_id, build_of, newest_generation, of_build
from tideline.contract.printable import as_code, command, printable, printable_json, toml_text
from tideline.contract.schema import TableId, parse_table
from tideline.programs.logs import keep_to_lines
from tideline.settings import make_settings
from tideline_console.assess import Assessment, SourceCost, TableOutcome, _print, as_csv
from tideline_console.init import setup_sql
from tideline_console.inspect import parts, state
from tideline_console.output import say, write_document, write_text
from tideline_console.plan import run as plan
from tideline_console.tables import print_table

EVERY = [one.name for one in NAMES]
COLUMNS = one_case(EVERY)
EACH = each("hostile", NAMES, ids=lambda one: printable(one.name)[:40])
TABLES = [TableId(schema, name) for name in EVERY for schema in ("public", name)]


def seen(text: str) -> bool:
    """Whether every line of ``text`` is made of characters that are seen."""
    return all(printable(line) == line for line in text.split("\n"))


@EACH
def test_what_is_shown_is_one_line_of_seen_characters(hostile: Hostile) -> None:
    shown = printable(hostile.name)
    assert shown.isprintable() and shown.encode().decode() == shown
    assert printable(shown) == shown
    if re.fullmatch(r"[\w $.\\-]+", hostile.name, re.ASCII):
        assert shown == hostile.name


@EACH
def test_a_command_that_is_shown_can_be_pasted(hostile: Hostile, tmp_path: Path) -> None:
    """The shell gives the program that name, and does nothing else with it."""
    table = str(TableId("public", hostile.name))
    shown = command("rebuild", table, "--mode", "append")
    assert printable(shown) == shown
    reported = f"tideline() {{ printf '%s\\0' \"$@\"; }}\n{shown[1:-1]}"
    done = subprocess.run(
        ["bash", "-c", reported], cwd=tmp_path, env={"LC_ALL": "C.UTF-8"}, capture_output=True
    )
    assert done.stderr == b""
    assert done.stdout.decode().split("\0") == ["rebuild", table, "--mode", "append", ""]
    assert list(tmp_path.iterdir()) == []


def test_a_command_about_a_plain_name_has_no_quotes() -> None:
    assert command("dump", "public.orders") == "`tideline dump public.orders`"


@EACH
def test_a_section_of_the_settings_that_is_shown_can_be_pasted(hostile: Hostile) -> None:
    table = str(TableId("public", hostile.name))
    shown = f"[tables.{toml_text(table)}]"
    assert printable(shown) == shown
    assert tomllib.loads(shown) == {"tables": {table: {}}}


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\nb\r\tc", "a\\nb\\r\\tc"),
        ("\x1b[2J\x9b2J\x7f", "\\x1b[2J\\x9b2J\\x7f"),
        ("a\u202eb\u2066\u200b\ufeff", "a\\u202eb\\u2066\\u200b\\ufeff"),
        ("\u2028\u00a0\ufe0f\u3164", "\\u2028\\xa0\\ufe0f\\u3164"),
        ("\U000e0041", "\\U000e0041"),
        ("größe 漢字 😀 שלום", "größe 漢字 😀 שלום"),
        ("C:\\new", "C:\\new"),
    ],
)
def test_printable(text: str, shown: str) -> None:
    assert printable(text) == shown


def test_json_says_the_same_in_seen_characters() -> None:
    for indent in (0, 2):
        text = msgspec.json.encode(EVERY)
        text = msgspec.json.format(text, indent=indent) if indent else text
        shown = printable_json(text.decode())
        assert seen(shown)
        assert json.loads(shown) == EVERY


@EACH
def test_a_code_span_holds_the_name_and_nothing_else(hostile: Hostile) -> None:
    inline = next(
        one for one in MarkdownIt().parse(f"* {as_code(hostile.name)}, b") if one.children
    )
    assert inline.children is not None
    code, rest = inline.children
    assert (code.type, rest.type, rest.content) == ("code_inline", "text", ", b")
    assert code.content == printable(hostile.name)


@EACH
def test_errors_are_lines_of_ours(hostile: Hostile) -> None:
    error = Misconfigured(f"no table {hostile.name}", hint=f"drop {hostile.name}")
    for again in (error, pickle.loads(pickle.dumps(error))):
        assert printable(str(again)) == str(again)
    listed = Misconfigured("2 mistakes:", lines=(hostile.name, "b"))
    assert str(listed) == f"2 mistakes:\n  {printable(hostile.name)}\n  b"
    assert str(pickle.loads(pickle.dumps(listed))) == str(listed)


def test_lines_and_tables_on_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    for name in EVERY:
        say(f"{name} is delayed: {name}")
        say(f"  hint: {name}", error=True)
    out, err = capsys.readouterr()
    assert out.splitlines() == [f"{printable(n)} is delayed: {printable(n)}" for n in EVERY]
    assert err.splitlines() == [f"  hint: {printable(n)}" for n in EVERY]
    print_table(("table", "n"), [(name, at) for at, name in enumerate(EVERY)])
    lines = capsys.readouterr().out.splitlines()[3:]
    assert [line.split()[-1] for line in lines if line.strip()] == [
        str(n) for n in range(len(EVERY))
    ]
    assert all(printable(name).strip() in line for name, line in zip(EVERY, lines, strict=False))
    assert seen("\n".join(lines))


def test_texts_for_programs_are_escaped_for_a_terminal_only(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "".join(f"{name}\n" for name in EVERY)
    write_text(text)
    assert capsys.readouterr().out == text
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    write_text(text)
    assert seen(capsys.readouterr().out)


@pytest.fixture
def history(tmp_path: Path) -> History:
    """Every name as a table's, which nothing can take, and of one other as its columns'."""
    made = History(tmp_path)
    wide = schema_of("public.wide", {"id": "int32", **dict.fromkeys(COLUMNS, "string")}, ["id"])
    tables = [str(TableId("public", name)) for name in EVERY]
    made.commit(Shaped(wide), *(Shaped(schema_of(t, {"id": "int32"}, ["id"])) for t in tables))
    made.commit(*(Row(t, "c", {"id": 1}) for t in ("public.wide", *tables)))
    reasons = zip(tables, EVERY, strict=True)
    made.commit(states={t: blocked(1, f"another type: {name}") for t, name in reasons})
    return made


@pytest.mark.parametrize("show", ["plan", "parts", "state", "status"])
def test_commands_print_lines_of_ours(
    history: History, show: str, capsys: pytest.CaptureFixture[str]
) -> None:
    if show == "plan":
        plan(history.settings, [], as_json=False)
    elif show == "parts":
        parts(history.settings, table=None, last=5)
    elif show == "state":
        state(history.settings)
    else:
        from tideline_console.status import run  # asks the queue, which is not there

        run(history.settings, as_json=False)
    out = capsys.readouterr().out
    assert seen(out)
    assert all(printable(str(TableId("public", name)))[:8] in out for name in EVERY)
    assert not [
        line for line in out.splitlines() if line.startswith(("INFO", "ERROR", "tideline:"))
    ]
    assert len(out.splitlines()) >= len(EVERY)


def test_documents_are_seen_and_the_same(
    history: History, capsys: pytest.CaptureFixture[str]
) -> None:
    plan(history.settings, [], as_json=True)
    out = capsys.readouterr().out
    assert seen(out) and out.count("\n") == 1
    held = json.loads(out)["held"]
    assert {parse_table(name).name for name in held} == set(EVERY)
    write_document({"a": "\u202e"}, indent=2)
    assert capsys.readouterr().out == '{\n  "a": "\\u202e"\n}\n'


def test_an_assessment_as_csv_is_data(capsys: pytest.CaptureFixture[str]) -> None:
    cost = SourceCost(1, 1, 1, 1, 1, (), 1, 1)
    tables = tuple(
        TableOutcome(n, "quarantined", "current", f"file:///w/{n}", n, n, (), (n,), 1, 1, 1)
        for n in EVERY
    )
    found = Assessment("p", "postgres", tables, cost)
    rows = list(csv.reader(io.StringIO(as_csv(found), newline="")))
    assert {row[0].removeprefix("'") for row in rows[1:]} == {n.removeprefix("'") for n in EVERY}
    assert not [cell for row in rows for cell in row if cell.startswith(("=", "+", "-", "@"))]
    _print(found)
    assert seen(capsys.readouterr().out)


def test_the_log_has_a_line_for_each_event(capsys: pytest.CaptureFixture[str]) -> None:
    before = structlog.get_config()
    try:
        structlog.configure(processors=list(before["processors"]))
        keep_to_lines()
        added = len(structlog.get_config()["processors"])
        keep_to_lines()
        assert len(structlog.get_config()["processors"]) == added
        log = structlog.get_logger("tideline.test")
        for name in EVERY:
            log.warning(f"captures {name}", table=name, tables=[name], both=(name, 1), number=1)
    finally:
        structlog.configure(**before)
    lines = capsys.readouterr().out.split("\n")
    assert len(lines) == len(EVERY) + 1
    for name, line in zip(EVERY, lines, strict=False):
        plain = re.sub(r"\x1b\[[0-9;]*m", "", line) if sys.stdout.isatty() else line
        assert printable(plain) == plain
        assert f"captures {printable(name)}" in plain


def test_a_setting_of_sparks_session_holds_no_reference() -> None:
    from tideline_spark.formats.session_settings import verbatim

    for table in TABLES:
        app = app_id("shop", "i1", str(table), 3)
        assert verbatim(app) == app
        commit_metadata = CommitMetadata(
            app, "shop", "i1", str(table), 1, 2, 3, unhealed=(str(table), "$")
        )
        text = commit_metadata.text()
        assert verbatim(text) == text and "$" not in text
        assert CommitMetadata.parse(text) == commit_metadata


def test_app_ids_are_told_apart_and_ordinary_ones_stay() -> None:
    alike = {"public.a~24{b", "public.a${b", "public.a~24{${b", "public.a${${b", '".a~24{b"."c"'}
    texts = {str(table) for table in TABLES} | alike
    apps = {app_id("shop", "i1", text, 3) for text in texts}
    assert len(apps) == len(texts)
    for text in texts:
        app = app_id("shop", "i1", text, 3)
        if "${" not in text:
            assert app == f"shop/i1/{text}/3"
        rebuilt = of_build(app, 2)
        assert (build_of(app), build_of(rebuilt)) == (0, 2)
        later = app_id("shop", "i1", text, 4, 1)
        assert newest_generation([app, later, f"{later}/columns"], rebuilt) == 4
        assert newest_generation(apps - {app}, app) == -1


def test_a_table_is_its_text_and_a_pattern_of_itself_alone() -> None:
    for table in TABLES:
        assert parse_table(str(table)) == table
        assert [other for other in TABLES if matches(other, [str(table)])] == [table]


def test_paths_are_plain_and_told_apart() -> None:
    encoded = [layout.encode_name(name) for name in EVERY]
    assert len(set(encoded)) == len(EVERY)
    for one in encoded:
        assert re.fullmatch(r"[A-Za-z0-9~-][A-Za-z0-9_~-]{0,99}", one)
    for table in TABLES:
        key = layout.part_key("shop", 7, table, "0" * 16, "n" * 16)
        assert key.count("/") == 3 and all(len(step) <= 255 for step in key.split("/"))
        assert layout.parse_part_key(key) == 7
        path = layout.table_path("file:///w", table)
        assert path.startswith("file:///w/") and path.count("/") == 5 and "$" not in path
    assert len({layout.table_path("file:///w", table) for table in TABLES}) == len(TABLES)


@pytest.mark.parametrize("kind", ["postgresql", "mysql"])
def test_the_sql_of_an_owner_has_no_line_of_a_name(kind: str) -> None:
    for name in EVERY:
        user, database = quote(f"u{name}", safe=""), quote(name.replace("/", ""), safe="")
        values = {
            "pipeline": "shop",
            "source": {"url": f"{kind}://{user}@127.0.0.1/{database}", "tables": ["public.*"]},
            "store": {"url": "file:///s"},
            "warehouse": {"url": "file:///w"},
        }
        try:
            settings = make_settings(values)
        except Misconfigured:
            continue
        sql = setup_sql(settings)
        plain = setup_sql(
            settings.model_copy(
                update={
                    "source": settings.source.model_copy(
                        update={"url": SecretStr(f"{kind}://u@127.0.0.1/d")}
                    )
                }
            )
        )
        comments = [line for line in sql.split("\n") if line.startswith("--")]
        assert len(comments) == plain.count("\n--") + plain.startswith("--")
        assert all(printable(line) == line for line in comments)


def test_a_metrics_label_is_read_back() -> None:
    registry = CollectorRegistry()
    gauge = Gauge("tideline_x", "x", ["table"], registry=registry)
    for at, name in enumerate(EVERY):
        gauge.labels(name).set(at)
    text = generate_latest(registry).decode()
    assert text.count("\n") == len(EVERY) + 2, "a line for each sample"
    samples = [
        sample
        for line in text.split("\n")
        for family in text_string_to_metric_families(line.replace("\r", "\\r"))
        for sample in family.samples
    ]
    assert len(samples) == len(EVERY)


def test_no_two_names_are_listed_twice() -> None:
    assert len(set(EVERY)) == len(EVERY) > 100
    assert all(one.why for one in NAMES)
