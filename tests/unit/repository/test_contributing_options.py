"""What CONTRIBUTING says of a new option and a new command is how it is."""

from __future__ import annotations

import inspect
import re
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
import typer
from typer.testing import CliRunner

from tests.support.code import code_tokens
from tests.unit.repository.pages import ROOT, page
from tideline.contract.errors import Misconfigured
from tideline.contract.options import Option, OptionKind, options_of
from tideline.contract.request import DumpRequest
from tideline_console import app as entry
from tideline_console import requests as made
from tideline_console.commands import request_options

FILES_MAX = 4


def steps(title: str) -> list[str]:
    """The numbered steps of a page: each is about product files."""
    return re.findall(r"^\d\. (.*(?:\n   .*)*)", page(title), re.MULTILINE)


@pytest.mark.parametrize("title", ["Adding a dump option", "Adding a CLI command"])
def test_the_files_exist_and_are_few(title: str) -> None:
    listed = steps(title)
    assert 2 <= len(listed) <= FILES_MAX
    for path in re.findall(r"`([\w/]+\.py)`", page(title)):
        assert (ROOT / path).exists(), path
    for path in re.findall(r"\]\(([^)]+)\)", page(title)):
        assert (ROOT / "docs" / path).exists(), path


def test_the_page_of_an_option_names_few_files_of_the_product() -> None:
    """Of every kind of value there is: the tables of kinds are full, and are not touched."""
    named = {path for step in steps("Adding a dump option") for path in product_files(step)}
    assert 2 <= len(named) <= FILES_MAX
    tables = (request_options.PARAMETERS, made.VALUES)
    assert [set(table) for table in tables] == [set(OptionKind)] * len(tables)


def product_files(text: str) -> set[str]:
    """The Python files of the product that a text names."""
    return {path for path in re.findall(r"`([\w/]+\.py)`", text) if not path.startswith("tests/")}


class Mood(StrEnum):
    CALM = "calm"
    HASTY = "hasty"


class WiderRequest(DumpRequest, frozen=True):
    """A request with options of other kinds than there are."""

    rest_ms: Annotated[
        int | None, Option("Rest", "Rests now and then.", least=0, most=50, purposes=("dump",))
    ] = None
    share: Annotated[
        float | None, Option("Share", "Of the source.", least=0.5, most=1.5, purposes=("dump",))
    ] = None
    gently: Annotated[bool, Option("Gently", "Whether it is.", purposes=("dump",))] = False
    note: Annotated[str | None, Option("Note", "Any text.", purposes=("dump",))] = None
    mood: Annotated[Mood, Option("Mood", "How it runs.", purposes=("dump",))] = Mood.CALM
    side: Annotated[Literal["left", "right"], Option("Side", "Where.", purposes=("dump",))] = "left"
    first_key: Annotated[
        tuple[str, ...] | None, Option("First key", "It begins there.", purposes=("dump",))
    ] = None


@pytest.fixture
def _wider(monkeypatch: pytest.MonkeyPatch) -> None:
    """The type of requests is the only thing that changes."""
    monkeypatch.setattr(request_options, "DumpRequest", WiderRequest)
    monkeypatch.setattr(made, "DumpRequest", WiderRequest)


def test_an_option_of_a_type_that_no_kind_has_is_refused() -> None:
    class Unknown(DumpRequest, frozen=True):
        odd: Annotated[dict[str, int] | None, Option("Odd", "Not known.")] = None

    with pytest.raises(TypeError, match=r"Unknown\.odd lacks a kind of option: dict\[str, int\]"):
        options_of(Unknown)

    class Vague(DumpRequest, frozen=True):
        mood: Annotated[Mood | None, Option("Mood", "Of no default.")] = None

    with pytest.raises(TypeError, match=r"Vague\.mood lacks a default"):
        options_of(Vague)


@pytest.mark.usefixtures("_wider")
def test_what_a_request_declares_is_an_option_of_the_command() -> None:
    asked: list[DumpRequest] = []
    app = typer.Typer()

    @app.command()
    @request_options.request_options("dump")
    def dump(tables: list[str], **options: Any) -> None:
        asked.append(made.make_request(tables, **options))

    @app.command()
    @request_options.request_options("verify")
    def verify(tables: list[str], **options: Any) -> None:
        raise AssertionError

    runner = CliRunner()
    assert runner.invoke(app, ["dump", "a.b", "--rest-ms", "7", "--from", "1"]).exit_code == 0
    assert isinstance(asked[0], WiderRequest)
    assert (asked[0].rest_ms, asked[0].key_range is None) == (7, False)
    assert runner.invoke(app, ["dump", "a.b", "--rest-ms", "51"]).exit_code == 2
    assert runner.invoke(app, ["verify", "a.b", "--rest-ms", "7"]).exit_code == 2
    assert "Rests now and then." in runner.invoke(app, ["dump", "--help"]).output


@pytest.mark.usefixtures("_wider")
def test_so_is_a_value_of_any_other_kind() -> None:
    asked: list[tuple[object, ...]] = []
    app = typer.Typer()

    @app.command()
    @request_options.request_options("dump")
    def dump(tables: list[str], **options: Any) -> None:
        kept: Any = made.make_request(tables, **options)
        asked.append((kept.gently, kept.note, kept.mood, kept.side, kept.share, kept.first_key))

    runner = CliRunner()
    texts = "--gently --note 1e5 --mood hasty --side right --share 0.5 --first-key 1,2"
    for words in ("", texts):
        done = runner.invoke(app, ["a.b", *words.split()])
        assert done.exit_code == 0, done.output
    assert asked == [
        (False, None, Mood.CALM, "left", None, None),
        (True, "1e5", Mood.HASTY, "right", 0.5, ("1", "2")),
    ]
    refused = runner.invoke(app, ["a.b", "--mood", "wild"])
    assert isinstance(refused.exception, Misconfigured)
    assert str(refused.exception) == "mood must be one of: calm, hasty"


def test_the_limits_of_a_number_are_a_rule_of_requests() -> None:
    for option in options_of(DumpRequest):
        if option.kind is OptionKind.NUMBER:
            assert option.least is not None and option.most is not None
            purpose = option.purposes[0]
            for wrong in (option.least - 1, option.most + 1):
                given: dict[str, Any] = {option.name: wrong}
                words = f"{option.name} must be {option.least} to {option.most}"
                with pytest.raises(Misconfigured, match=words):
                    made.make_request(["a.b"], purpose=purpose, **given)


def test_no_command_names_an_option_of_requests_by_hand() -> None:
    """Nor does any other product file of the two ends, but for the words of `tune`."""
    names = {option.name for option in options_of(DumpRequest)} - {"keys", "time", "key_range"}
    ends = [
        *(ROOT / "console/tideline_console/commands").glob("*.py"),
        ROOT / "console/tideline_console/requests.py",
    ]
    ends += (ROOT / "plugins/tideline_airflow").glob("*.py")
    named = {
        (path.name, name)
        for path in ends
        for name in names
        if re.search(rf"\b{name}\b", path.read_text())
    }
    rates = {"chunk_rows", "delay_ms"}
    assert {name for _, name in named} - rates <= {"sample_percent"}
    assert {path for path, name in named if name in rates} == {
        "requests.py",
        "forms.py",
        "control.py",
    }


def test_each_command_is_a_function_of_the_commands_folder() -> None:
    folder = ROOT / "console" / "tideline_console" / "commands"
    for command in entry._COMMANDS:
        file = Path(inspect.getsourcefile(inspect.unwrap(command)) or "")
        assert file.parent == folder
        assert inspect.getdoc(command)


def test_few_files_know_a_command_by_its_name() -> None:
    """The three that the page's steps name, in the command line; what the command is about may
    be named in others too, and all together are few."""
    [command] = re.findall(r"as they do `(\w+)`", page("Adding a CLI command"))
    assert command in {one.__name__ for one in entry._COMMANDS}
    named = re.findall(r"^\d\. [^`]*`([^`]+\.py)`", page("Adding a CLI command"), re.MULTILINE)
    expected = {ROOT / path.replace("<command>", command) for path in named}
    console = ROOT / "console" / "tideline_console"
    assert {path for path in console.rglob("*.py") if names(path, command)} == expected
    folders = ("tideline", "capture", "publish", "spark_jobs", "console", "plugins", "dags")
    product = [path for folder in folders for path in (ROOT / folder).rglob("*.py")]
    assert len([path for path in product if names(path, command)]) <= FILES_MAX


def names(path: Path, word: str) -> bool:
    return any(
        word in token and re.search(rf"\b{word}\b", token)
        for token in code_tokens(path.read_text())
    )
