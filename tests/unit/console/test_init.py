"""``tideline init`` without any server: the file that it writes, and what it refuses."""

from __future__ import annotations

import re
import stat
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.fixtures.terminal import Terminal
from tideline.contract.errors import Misconfigured
from tideline.settings import load_settings, make_settings, settings_model
from tideline.settings.effects import keys_of, section_of
from tideline.settings.template import settings_text
from tideline_console.app import app

CANARY = "canary-51c0"
URLS = {
    "postgres": "postgresql://tide@db:5432/shop",
    "mysql": "mysql://tide@db:3306/",
    "mariadb": "mariadb://tide@db:3306/",
}
OF_SHOP = ("--url", URLS["postgres"])


def init(path: Path, *words: str) -> tuple[str, str]:
    """What it prints to standard output and error; raises what it raises."""
    done = CliRunner().invoke(app, ["init", "--config", str(path), *words])
    assert CANARY not in done.output
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.stdout, done.stderr


@pytest.mark.parametrize("kind", URLS)
def test_the_file_loads_and_says_what_was_given(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "tideline.toml"
    init(path, "--url", URLS[kind], "--tables", "shop.*", "--exclude", "shop.a*", "--store",
         "s3://lake/x", "--password-file", "/run/secrets/db", "--pipeline", "p1")  # fmt: skip
    settings = load_settings(path)
    assert settings.source.url.get_secret_value() == URLS[kind]
    assert (settings.source.tables, settings.source.exclude) == (("shop.*",), ("shop.a*",))
    assert settings.source.password_file == Path("/run/secrets/db")
    assert (settings.pipeline, settings.store.url) == ("p1", "s3://lake/x")


@pytest.mark.parametrize(
    ("words", "kind", "steps"),
    [
        (("--catalog", "sqlite:////w/catalog.db"), "jdbc", "[iceberg]"),
        (("--catalog", "postgresql://c:5432/i", "--catalog-user", "tide"), "jdbc", "PASSWORD=…"),
        (("--catalog", "https://catalog", "--catalog-user", "id"), "rest", "PASSWORD=…"),
        (("--catalog", "thrift://meta:9083"), "hive", "[iceberg]"),
    ],
)
def test_a_catalog_of_iceberg_tables(
    tmp_path: Path, words: tuple[str, ...], kind: str, steps: str
) -> None:
    path = tmp_path / "tideline.toml"
    _, reported = init(path, *OF_SHOP, "--format", "iceberg", *words)
    place = load_settings(path).warehouse
    assert (place.format, place.iceberg.catalog, place.iceberg.url) == ("iceberg", kind, words[1])
    assert place.iceberg.user == (words[3] if len(words) > 2 else None)
    assert "pip install 'tideline-cdc[iceberg]'" in reported and steps in reported
    assert ("WAREHOUSE__ICEBERG__PASSWORD" in reported) == (len(words) > 2)


def test_tables_in_bigquery(tmp_path: Path) -> None:
    path = tmp_path / "tideline.toml"
    words = ("--format", "bigquery", "--project", "my-project", "--location", "EU")
    _, reported = init(path, *OF_SHOP, *words)
    place = load_settings(path).warehouse
    assert (place.format, place.bigquery.project, place.bigquery.location) == (
        "bigquery",
        "my-project",
        "EU",
    )
    assert "pip install 'tideline-cdc[bigquery]'" in reported


def test_a_catalog_that_holds_a_password_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "tideline.toml"
    with pytest.raises(Misconfigured, match="must not hold credentials"):
        init(path, *OF_SHOP, "--format", "iceberg", "--catalog", f"https://u:{CANARY}@host")
    assert not path.exists()


@pytest.mark.parametrize("kind", URLS)
def test_every_default_that_is_commented_out_is_one(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "tideline.toml"
    init(path, "--url", URLS[kind], "--tables", "shop.*")
    plain = load_settings(path)
    text = re.sub(r"^# ([a-z_]+ = .+)$", r"\1", path.read_text(), flags=re.M)
    text = text.replace('mode = "current"', "")
    assert text.count("\n# ") > 60, "it is commented"
    assert "](" not in text and "docs/DEPLOYMENT.md#tls" in text, "links are of pages, not here"
    assert len(re.findall(r"^[a-z_]+ = ", text, re.M)) > 50
    everything = make_settings(tomllib.loads(text))
    assert everything.model_dump() == plain.model_dump()


def test_every_key_has_its_place_in_it() -> None:
    text = settings_text({"pipeline": "p", "source": {"url": URLS["mysql"]}}, kind="mysql")
    for name, field in settings_model().model_fields.items():
        section = section_of(field)
        for key, one, _ in () if section is None else keys_of(section):
            own = (one.description or "").startswith("PostgreSQL:")
            last = key.rpartition(".")[2]
            secret = last in (
                "password", "secret_access_key", "api_key", "token",
            )  # fmt: skip
            found = re.search(rf"^(# )?{re.escape(key)} =", text, re.M)
            assert (found is None) == (own or secret), f"{name}.{key}"


def test_what_is_there_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "tideline.toml"
    path.write_text("mine")
    with pytest.raises(Misconfigured, match="is there already"):
        init(path, "--url", URLS["postgres"])
    assert path.read_text() == "mine"
    init(path, "--url", URLS["postgres"], "--force")
    assert load_settings(path).pipeline == "shop"
    assert [one.name for one in tmp_path.iterdir()] == ["tideline.toml"]


def test_a_faster_one_is_not_overwritten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between the look and the writing someone else makes the file."""
    path = tmp_path / "tideline.toml"
    monkeypatch.setattr(Path, "exists", lambda self: False)
    path.write_text("mine")
    with pytest.raises(Misconfigured, match="is there already"):
        init(path, "--url", URLS["postgres"])
    assert path.read_text() == "mine"


@pytest.mark.parametrize(
    "words",
    [
        ("--url", f"postgresql://tide:{CANARY}@db/shop"),
        ("--url", f"postgresql://tide@db/shop?password={CANARY}"),
        ("--url", f"mysql://tide:{CANARY}@db/", "--tables", "a.*"),
        ("--url", URLS["postgres"], "--control", f"redis://:{CANARY}@db"),
    ],
)
def test_a_password_is_refused_and_never_shown(tmp_path: Path, words: tuple[str, ...]) -> None:
    path = tmp_path / "tideline.toml"
    with pytest.raises(Misconfigured, match="holds a password") as caught:
        init(path, *words)
    assert CANARY not in str(caught.value)
    assert "TIDELINE_" in str(caught.value)
    assert not path.exists()


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ((), "no one is there to be asked"),
        (("--url", "oracle://u@h/d"), "must be postgresql://"),
        (("--url", "postgresql://h/d"), "names no user"),
        (("--url", "mysql://u@h/"), "not given: Tables"),
        (("--url", URLS["postgres"], "--pipeline", "a b"), "pipeline: "),
        (("--url", URLS["postgres"], "--tables", "orders"), "not a pattern"),
        (("--url", URLS["postgres"], "--store", "/x"), "store.url: "),
        ((*OF_SHOP, "--format", "parquet"), "name one of delta, iceberg, bigquery"),
        ((*OF_SHOP, "--format", "iceberg"), "--catalog, an url: postgresql://host:5432/database"),
        ((*OF_SHOP, "--format", "bigquery"), "--project my-project"),
        ((*OF_SHOP, "--format", "iceberg", "--catalog", "mysql://h/d"), "no such url"),
        ((*OF_SHOP, "--format", "iceberg", "--catalog", "sqlite://x"), "warehouse.iceberg: url"),
        ((*OF_SHOP, "--format", "bigquery", "--project", "P"), "warehouse.bigquery.project: "),
    ],
)
def test_what_makes_no_settings_writes_nothing(
    tmp_path: Path, words: tuple[str, ...], why: str
) -> None:
    path = tmp_path / "tideline.toml"
    with pytest.raises(Misconfigured, match=re.escape(why)):
        init(path, *words)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match="cannot be written"):
        init(tmp_path / "none" / "tideline.toml", "--url", URLS["postgres"])


def test_the_sql_of_settings_that_are_there(tmp_path: Path) -> None:
    path = tmp_path / "tideline.toml"
    printed, _ = init(path, "--url", URLS["mysql"], "--tables", "shop_a.*")
    before = path.stat()
    again, _ = init(path, "--sql")
    assert again == printed
    assert r"GRANT SELECT ON `shop\_a`.* TO 'tide'@'%';" in printed
    assert path.stat().st_mtime_ns == before.st_mtime_ns
    assert stat.S_ISREG(before.st_mode)


@pytest.mark.thorough
def test_it_asks_in_a_terminal(tmp_path: Path) -> None:
    """The whole form, with what is usual taken by Enter."""
    terminal = Terminal(tmp_path, "init")
    try:
        for question, answer in (
            ("The source", "postgresql://tide@db/shop"),
            ("Tables", "public.* sales.*"),
            ("A name for the pipeline [shop]", ""),
            ("The Redis or Valkey of requests", ""),
            ("The store of segments", "s3://lake/x"),
            ("The folder of the tables", ""),
            ("The format of the tables (delta, iceberg, bigquery) [delta]", "iceberg"),
            ("The catalog (", "sqlite:////var/lib/tideline/catalog.db"),
        ):
            terminal.read_until(question, timeout_s=60)
            terminal.type(answer)
        assert terminal.finish(timeout_s=60) == 0, terminal.text
    finally:
        terminal.close()
    settings = load_settings(tmp_path / "tideline.toml")
    assert settings.pipeline == "shop"
    assert settings.source.tables == ("public.*", "sales.*")
    assert settings.store.url == "s3://lake/x"
    assert (settings.warehouse.format, settings.warehouse.iceberg.catalog) == ("iceberg", "jdbc")
