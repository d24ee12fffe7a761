"""The pages for contributors name what is there, and the examples touch nothing else."""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import pytest

from tests.support.code import code_tokens, nodes
from tests.support.toy_source.conforming import TOY, ToyDatabase, toy_database
from tests.support.toy_source.section import ToySection
from tests.unit.repository.pages import PAGES, ROOT, page
from tideline.contract.errors import Misconfigured
from tideline.contract.plan import Plan, TablePlan
from tideline.contract.schema import TableSchema
from tideline.openlineage.events import datasets
from tideline.settings import Settings, make_settings
from tideline.settings.base import Effect
from tideline.settings.effects import effects, waiting
from tideline.settings.reference import reference
from tideline.settings.source_kinds import SOURCE_KINDS
from tideline.settings.template import settings_text
from tideline_capture.sources import registry
from tideline_capture.sources.registry import administration_of, source_of
from tideline_console import assess, doctor, init

PRODUCT = ("capture", "console", "dags", "plugins", "publish", "spark_jobs", "tideline")
TOY_FOLDER = ROOT / "tests" / "support" / "toy_source"


def paths_in(text: str) -> set[str]:
    """Files and folders of the repository that a page names."""
    return set(re.findall(r"`((?:[\w.]+/)+[\w.]+|\w+\.toml)`", text))


def imports(path: Path) -> Iterator[str]:
    """The modules of ours that a file imports from, as paths."""
    for node in nodes(path.read_text()):
        if isinstance(node, ast.ImportFrom) and node.module:
            for folder in ("", "capture/", "console/", "spark_jobs/", "plugins/"):
                found = f"{folder}{node.module.replace('.', '/')}.py"
                if (ROOT / found).exists():
                    yield found


@pytest.mark.parametrize("text", PAGES, ids=lambda text: text.partition("\n")[0])
def test_what_a_page_names_exists(text: str) -> None:
    named = paths_in(text)
    assert named
    assert sorted(path for path in named if not (ROOT / path).exists()) == []


@pytest.mark.parametrize("text", PAGES, ids=lambda text: text.partition("\n")[0])
def test_a_file_has_the_names_that_its_line_gives(text: str) -> None:
    for path, cell in re.findall(r"^\| `([\w/]+\.py)` \| (.+) \|$", text, re.M):
        source = (ROOT / path).read_text()
        for name in re.findall(r"`(\w+)`", cell):
            assert re.search(rf"\b{name}\b", source), (path, name)


def test_the_toy_is_built_of_what_the_page_names() -> None:
    """Of capture it imports nothing that the page is silent about, and the page lists its files."""
    named = paths_in(page("Adding a source"))
    files = {str(path.relative_to(ROOT)) for path in TOY_FOLDER.glob("*.py")}
    assert files == {path for path in named if path.startswith("tests/support/toy_source/")}
    used = {one for path in TOY_FOLDER.glob("*.py") for one in imports(path)}
    assert {one for one in used if one.startswith("capture/")} <= named


def test_nothing_else_knows_the_toy() -> None:
    """It joins by its folder and a line that a fixture puts into the registry."""
    every = {
        str(path.relative_to(ROOT))
        for folder in (*PRODUCT, "devtools", "tests")
        for path in (ROOT / folder).rglob("*.py")
        if TOY_FOLDER not in path.parents and "toy_source" in path.read_text()
    }
    assert every == {
        "tests/fixtures/sources.py",
        "tests/unit/repository/test_contributing_source.py",
    }


NAMES_A_DATABASE = re.compile(
    r"postgres|mysql|maria|innodb|gtid|binlog|replica identity|\blsn|\bpg_|\bwal\b", re.IGNORECASE
)
OTHERS_NAMING = {
    "tideline/settings/source_kinds.py": "the registry",
    "tideline/contract/position.py": "types of positions, which are documents",
    "tideline/contract/patterns.py": "schemas that a pattern leaves out",
    "tideline/settings/iceberg.py": "databases that hold a catalog",
    "tideline/warehouse/iceberg/jars.py": "drivers of databases that hold a catalog",
    "tideline/cost.py": "the example that is measured",
    "console/tideline_console/arguments.py": "examples in a help text",
    "console/tideline_console/errors.py": "the names of extras",
    "tideline/consumer/dedup.py": "databases of consumers",
    "tideline/consumer/own_transactions.py": "the database of an application",
    **{
        f"publish/tideline_publish/formats/debezium/{name}.py": "another product's types"
        for name in ("mysql", "postgres", "source", "types")
    },
}
"""Modules outside the databases' folders whose code may name one, and why."""


def names_database(text: str) -> bool:
    """Whether code, without comments and docstrings, names a concrete database or its terms."""
    return NAMES_A_DATABASE.search("\n".join(code_tokens(text))) is not None


def test_nothing_outside_a_sources_folder_names_its_database() -> None:
    packages = {kind.package.removeprefix(".") for kind in SOURCE_KINDS.values()}
    concrete = (
        *(f"capture/tideline_capture/sources/{one}/" for one in packages),
        *(f"tideline/settings/sources/{one}.py" for one in packages),
    )
    found = {
        name
        for folder in PRODUCT
        for path in (ROOT / folder).rglob("*.py")
        if not (name := str(path.relative_to(ROOT))).startswith(concrete)
        and names_database(path.read_text())
    }
    assert found == set(OTHERS_NAMING)


@pytest.mark.parametrize(
    "code",
    [
        "f'{text}: capture goes on by GTID'",
        "hint = 'ALTER TABLE … REPLICA IDENTITY FULL'",
        "if source.kind == 'postgres': pass",
        "port = mysql_port",
        "query = 'SELECT pg_current_wal_lsn()'",
    ],
)
def test_each_name_of_a_database_is_found(code: str) -> None:
    assert names_database(code)
    assert not names_database(f'"""{code}"""  # MySQL\nx = 1')


def test_lineage_has_each_kinds_own_names(toy: ToyDatabase, tmp_path: Path) -> None:
    """By scheme, port and form: no other kind's names stand in for those of a third one."""
    every = {
        name: kind.datasets.name(f"{kind.schemes[0]}://u:hush@db.example/shop", "s", "t")
        for name, kind in SOURCE_KINDS.items()
    }
    assert every == {
        "postgres": ("postgres://db.example:5432", "shop.s.t"),
        "mysql": ("mysql://db.example:3306", "s.t"),
        "mariadb": ("mysql://db.example:3306", "s.t"),
        "toy": ("toy://db.example", "s.t"),
    }
    table = TablePlan("toy.items", "", TableSchema("toy.items", (), ()), {}, (), 1, 1, 2, 2, "app")
    plan = Plan("run/1", "toy", "i", "file:///store", 2, (table,))
    [origin], _ = datasets(settings(toy, tmp_path).source, plan, None)
    assert (origin.namespace.partition(":")[0], origin.name) == ("toy", "toy.items")


def test_nothing_imports_a_concrete_source() -> None:
    """Modules of the product that name a package of `SOURCE_KINDS`: those in it alone."""
    packages = {kind.package.removeprefix(".") for kind in SOURCE_KINDS.values()}
    concrete = tuple(f"capture/tideline_capture/sources/{one}/" for one in packages)
    strangers = {
        (str(path.relative_to(ROOT)), one)
        for folder in PRODUCT
        for path in (ROOT / folder).rglob("*.py")
        for one in imports(path)
        if one.startswith(concrete) and not str(path.relative_to(ROOT)).startswith(concrete)
    }
    assert strangers == set()


@pytest.fixture
def toy() -> Iterator[ToyDatabase]:
    with patch.dict(SOURCE_KINDS, {TOY.name: TOY}), toy_database() as made:
        yield made


def settings(database: ToyDatabase, folder: Path, **source: str) -> Settings:
    return make_settings(
        {
            "pipeline": "toy",
            "source": {**database.source, **source},
            "store": {"url": folder.as_uri()},
            "warehouse": {"url": folder.as_uri()},
        }
    )


def test_commands_ask_the_toy_like_any_source(toy: ToyDatabase, tmp_path: Path) -> None:
    """`doctor`, `assess`, `init` and `delete-pipeline` know it by the registry alone."""
    toy.make("items")
    asked = settings(toy, tmp_path)
    assert asked.source.kind == "toy"
    found = {one.name: one for one in doctor.check_source(asked)}
    assert found["tables"].message == "1 tables can be captured"
    assert found["identity"].message == "the chain is empty: it begins with this source"
    (table,) = assess.assess(asked).tables
    assert (table.table, table.outcome) == ("toy.items", "captured")
    assert init.setup_sql(asked) == "-- nothing\n"
    assert list(administration_of(asked).removals(None)) == []


def test_settings_that_belong_to_other_sources(toy: ToyDatabase, tmp_path: Path) -> None:
    for key, value, owners in (("slot", "s", "PostgreSQL"), ("xa", "hold", "MySQL and MariaDB")):
        with pytest.raises(Misconfigured) as refused:
            settings(toy, tmp_path, **{key: value})
        assert f"belongs to {owners} only" in str(refused.value)


def test_the_toys_own_key_is_a_key_of_source(toy: ToyDatabase, tmp_path: Path) -> None:
    """Wherever keys are: in the file, the environment, hints, the reference and the template."""
    assert settings(toy, tmp_path).source.section(ToySection).turn_s == 60.0
    asked = settings(toy, tmp_path, turn_s="1.5")
    assert asked.source.section(ToySection).turn_s == 1.5
    with patch.dict(os.environ, {"TIDELINE_SOURCE__TURN_S": "2.5"}):
        assert settings(toy, tmp_path).source.section(ToySection).turn_s == 2.5
    with pytest.raises(Misconfigured, match=r"source\.turn: .* did you mean source\.turn_s\?"):
        settings(toy, tmp_path, turn="1")
    assert effects()["source.turn_s"] is Effect.RESTART
    assert waiting(settings(toy, tmp_path), asked) == ("source.turn_s",)
    assert "| `turn_s` | `60.0` | restart | Toy: the time" in reference()
    for kind in SOURCE_KINDS:
        text = settings_text({"pipeline": "p", "source": {}}, kind=kind)
        assert ("# turn_s = 60.0\n" in text) == (kind == "toy")


def test_the_toys_own_key_is_no_key_of_others(toy: ToyDatabase, tmp_path: Path) -> None:
    other = {"url": "postgres://u@h/d", "turn_s": "1"}
    with pytest.raises(Misconfigured, match=r"source\.turn_s: belongs to Toy only"):
        settings(toy, tmp_path, **other)
    del SOURCE_KINDS["toy"]
    with pytest.raises(Misconfigured, match=r"source\.turn_s: no such key"):
        settings(toy, tmp_path, **other)


def test_the_toy_is_loaded_by_its_line(toy: ToyDatabase, tmp_path: Path) -> None:
    assert type(source_of(settings(toy, tmp_path))).__module__ == f"{TOY.package}.source"
    assert "toy" not in Path(registry.__file__).read_text()
