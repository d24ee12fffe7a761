"""What CONTRIBUTING says of a new option and a new command is how it is."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Annotated, Any

import pytest
import typer
from typer.testing import CliRunner

from tests.unit.repository.pages import ROOT, page
from tideline.contract.errors import Misconfigured
from tideline.contract.options import Option, options_of
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


class WiderRequest(DumpRequest, frozen=True):
    """A request with one option more than there is."""

    rest_ms: Annotated[
        int | None, Option("Rest", "Rests now and then.", least=0, most=50, purposes=("dump",))
    ] = None


@pytest.fixture
def _wider(monkeypatch: pytest.MonkeyPatch) -> None:
    """The type of requests is the only thing that changes."""
    monkeypatch.setattr(request_options, "DumpRequest", WiderRequest)
    monkeypatch.setattr(made, "DumpRequest", WiderRequest)


@pytest.mark.usefixtures("_wider")
def test_a_number_that_a_request_declares_is_an_option_of_the_command() -> None:
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


def test_the_limits_of_a_number_are_a_rule_of_requests() -> None:
    for option in options_of(DumpRequest):
        if option.kind is int:
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
