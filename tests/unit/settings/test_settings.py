"""Settings: every mistake at once, the environment wins, and no secret is ever shown."""

from __future__ import annotations

import copy
import re
import traceback
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from tideline.contract.errors import Misconfigured
from tideline.settings import (
    Settings,
    Store,
    load_settings,
    make_settings,
)

GOOD: dict[str, Any] = {
    "pipeline": "shop",
    "source": {"url": "postgresql://tide@db.example:5433/shop"},
    "store": {"url": "s3://lake/segments"},
    "warehouse": {"url": "s3://lake/warehouse"},
}
SECRET = "hunter2-öß%@"


def values(**sections: Any) -> dict[str, Any]:
    merged = copy.deepcopy(GOOD)
    for name, section in sections.items():
        merged[name] = {**merged.get(name, {}), **section} if isinstance(section, dict) else section
    return merged


def test_the_least_that_must_be_given() -> None:
    settings = make_settings(GOOD)
    assert settings.store.url == "s3://lake/segments"
    assert (settings.capture.heartbeat_s, settings.capture.takeover_after_s) == (5.0, 15.0)
    assert settings.control.url.get_secret_value() == "redis://127.0.0.1:6379/0"


def test_nothing_is_removed_early_by_mistake() -> None:
    """An hour is the least: uploads go on for a while, and clocks differ."""
    assert make_settings(GOOD).retention.parts_days == 7.0
    wrong = {"parts_days": 0, "orphans_days": 0.01, "plans_days": -1, "interval_s": 0}
    with pytest.raises(Misconfigured, match="has 4 mistakes"):
        make_settings(values(retention=wrong))


def test_every_mistake_at_once() -> None:
    wrong = values(
        pipeline="no spaces",
        source={"url": "oracle://x/y", "tabels": ["a.b"]},
        store={"url": "ftp://x", "endpoint": "localhost:9000"},
        capture={"heartbeat_s": 0, "chunk_rows": "many", "metrics_port": 70_000},
    )
    del wrong["warehouse"]
    with pytest.raises(Misconfigured) as caught:
        make_settings(wrong, origin="tideline.toml")
    lines = str(caught.value).splitlines()
    assert lines[0] == "tideline.toml has 9 mistakes:"
    keys = sorted(line.strip().split(":")[0] for line in lines[1:])
    assert keys == [
        "capture.chunk_rows",
        "capture.heartbeat_s",
        "capture.metrics_port",
        "pipeline",
        "source.tabels",
        "source.url",
        "store.endpoint",
        "store.url",
        "warehouse",
    ]
    assert "  source.tabels: no such key; did you mean source.tables?" in lines
    assert "  warehouse: must be given" in lines


@pytest.mark.parametrize(
    ("wrong", "meant"),
    [
        ({"pipline": "x"}, "pipeline"),
        ({"sorce": {}}, "source"),
        ({"capture": {"flush_intervall_s": 1}}, "capture.flush_interval_s"),
        ({"source": {"flush_interval_s": 1}}, "capture.flush_interval_s"),
        ({"tables": {"public.*": {"mod": "append"}}}, "tables.public.*.mode"),
        ({"tables": {"public.*": {"on_change": {"ad": "park"}}}}, "tables.public.*.on_change.add"),
    ],
)
def test_a_key_that_there_is_not_names_the_one_that_is_meant(
    wrong: dict[str, Any], meant: str
) -> None:
    with pytest.raises(Misconfigured, match=rf"no such key; did you mean {re.escape(meant)}\?"):
        make_settings({**GOOD, **wrong})


def test_a_key_that_is_like_none_names_none() -> None:
    with pytest.raises(Misconfigured, match=r"source\.zzz: no such key$"):
        make_settings(values(source={"zzz": 1}))


MYSQL_KEYS: dict[str, Any] = {
    "read_only": True,
    "watermark_database": "own",
    "xa": "refuse",
    "cascades": "redump",
    "on_gap": "dump",
}


@pytest.mark.parametrize(
    "url",
    [
        f"s3a://AKIA:{SECRET}@bucket/x",
        f"s3a://AKIA:with/{SECRET}@bucket/x",
        "s3://AKIA@bucket",
        f"s3a://bucket/x?sig={SECRET}",
    ],
)
def test_a_warehouse_without_credentials(url: str) -> None:
    with pytest.raises(Misconfigured, match=r"warehouse\.url: must not hold credentials") as caught:
        make_settings(values(warehouse={"url": url}))
    assert SECRET not in "".join(traceback.format_exception(caught.value))
    make_settings(values(warehouse={"url": "abfss://container@account.dfs.core.windows.net/x"}))


def test_keys_of_the_other_kind_of_source_are_named() -> None:
    with pytest.raises(Misconfigured) as caught:
        make_settings(values(source=MYSQL_KEYS))
    for key in MYSQL_KEYS:
        assert f"source.{key}: belongs to MySQL and MariaDB only" in str(caught.value)
    for kind in ("mysql", "mariadb"):
        wrong = {"url": f"{kind}://tide@db/", "slot": "s", "publication": "p"}
        with pytest.raises(Misconfigured) as caught:
            make_settings(values(source=wrong))
        assert "2 mistakes" in str(caught.value)
        for key in ("slot", "publication"):
            assert f"source.{key}: belongs to PostgreSQL only" in str(caught.value)


def test_a_wrong_url_does_not_hide_other_mistakes() -> None:
    with pytest.raises(Misconfigured, match="2 mistakes"):
        make_settings(values(source={"url": "oracle://x", "xa": "sometimes", "slot": "s"}))


@pytest.mark.parametrize(
    ("store", "reason"),
    [
        ({"url": "file://relative/path"}, "file:///absolute/path"),
        ({"url": "file:relative"}, "file:///absolute/path"),
        ({"url": "file:///"}, "file:///absolute/path"),
        ({"url": "s3:///prefix"}, "s3://bucket/prefix"),
        ({"url": f"s3://key:{SECRET}@bucket"}, "must not hold credentials"),
        ({"url": f"s3://key:with/{SECRET}@bucket"}, "must not hold credentials"),
        ({"url": "s3://b", "endpoint": f"http://key:{SECRET}@host"}, "store.endpoint: must be"),
        ({"url": "s3://b", "endpoint": "host:9000"}, "store.endpoint: must be"),
        ({"url": "s3://b", "access_key_id": "AKIA"}, "belong together"),
        ({"url": "s3://b", "secret_access_key": SECRET}, "belong together"),
        ({"url": "s3://b", "retry_s": 0}, "store.retry_s"),
    ],
)
def test_what_a_store_refuses(store: dict[str, Any], reason: str) -> None:
    with pytest.raises(Misconfigured, match=reason) as caught:
        make_settings(values(store=store))
    assert SECRET not in "".join(traceback.format_exception(caught.value))


def test_the_environment_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDELINE_PIPELINE", "other")
    monkeypatch.setenv("TIDELINE_SOURCE__URL", "postgresql://env@host/db")
    monkeypatch.setenv("TIDELINE_CAPTURE__HEARTBEAT_S", "2.5")
    settings = make_settings(values(capture={"heartbeat_s": 9, "chunk_rows": 77}))
    assert settings.pipeline == "other"
    assert settings.source.dsn() == "postgresql://env@host/db"
    assert (settings.capture.heartbeat_s, settings.capture.chunk_rows) == (2.5, 77)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("TIDELINE_SORCE__PASSWORD", r"; did you mean TIDELINE_SOURCE__PASSWORD\?"),
        ("tideline_captur__chunk_rows", r"; did you mean TIDELINE_CAPTURE__CHUNK_ROWS\?"),
        ("TIDELINE_REDIS__PASSWORD_FILE", ""),
    ],
)
def test_a_section_that_there_is_not_is_named(
    name: str, hint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, "canary-1f")
    with pytest.raises(Misconfigured, match=f"{name}: no such key{hint}$") as caught:
        make_settings(values())
    assert "canary" not in str(caught.value)


def test_other_variables_of_ours_are_none_of_the_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDELINE_CACHE", "/tmp")
    monkeypatch.setenv("TIDELINE_SPARK_CONN_ID", "ours")
    assert make_settings(values()).pipeline == values()["pipeline"]


def test_a_mistake_in_the_environment_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDELINE_STORE__TIMEOUT_S", "soon")
    with pytest.raises(Misconfigured, match=r"store\.timeout_s"):
        make_settings(GOOD)


@pytest.mark.parametrize("name", ["TIDELINE_SOURCE__TABLES", "TIDELINE_SOURCE"])
def test_the_environment_says_lists_as_json(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "canary.*")
    with pytest.raises(Misconfigured, match="source") as caught:
        make_settings(GOOD)
    assert "JSON" in str(caught.value.hint)
    assert "canary" not in f"{caught.value}{caught.value.hint}"


def test_a_takeover_waits_for_more_than_a_heartbeat() -> None:
    with pytest.raises(Misconfigured, match="at least twice heartbeat_s"):
        make_settings(values(capture={"heartbeat_s": 5.0, "takeover_after_s": 9.0}))


def test_secrets_are_hidden() -> None:
    settings = make_settings(
        values(
            source={"url": f"postgresql://tide:{SECRET}@db/shop", "password": SECRET},
            store={"access_key_id": "AKIA", "secret_access_key": SECRET},
            control={"url": f"redis://:{SECRET}@127.0.0.1/0"},
        )
    )
    for shown in (repr(settings), str(settings), settings.model_dump_json()):
        assert SECRET not in shown


@pytest.mark.parametrize(
    "section",
    [
        {"source": {"url": f"oracle://tide:{SECRET}@db/shop"}},
        {"source": {"url": f"mysql://tide:{SECRET}@db:port/"}},
        {"source": {"url": f"mysql://tide:{SECRET}@db/?ssl-mode={SECRET}"}},
        {"source": {"url": f"mysql://tide@db/?password={SECRET}"}},
        {"source": {"watermark_database": SECRET}},
        {"source": {"url": [SECRET]}},
        {"source": {"password": {"nested": SECRET}}},
        {"store": {"secret_access_key": [SECRET]}},
        {"control": {"url": {"a": SECRET}}},
        {"capture": {"heartbeat_s": SECRET}},
    ],
)
def test_errors_never_show_a_value(section: dict[str, Any]) -> None:
    with pytest.raises(Misconfigured) as caught:
        make_settings(values(**section))
    assert SECRET not in "".join(traceback.format_exception(caught.value))


def test_the_password_is_put_into_the_dsn(tmp_path: Path) -> None:
    quoted = "hunter2-%C3%B6%C3%9F%25%40"
    expected = f"postgresql://tide:{quoted}@db.example:5433/shop"
    assert make_settings(values(source={"password": SECRET})).source.dsn() == expected
    file = tmp_path / "password"
    file.write_text(f"{SECRET}\n", encoding="utf-8")
    assert make_settings(values(source={"password_file": str(file)})).source.dsn() == expected
    assert make_settings(GOOD).source.dsn() == GOOD["source"]["url"]


def test_a_password_setting_wins_over_the_file_and_the_url(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("from-file")
    given = {"url": "postgresql://tide:from-url@db/shop", "password_file": str(file)}
    assert make_settings(values(source=given)).source.dsn() == "postgresql://tide:from-file@db/shop"
    both = {**given, "password": "from-setting"}
    dsn = make_settings(values(source=both)).source.dsn()
    assert dsn == "postgresql://tide:from-setting@db/shop"


def test_a_user_with_odd_characters_stays_that_user() -> None:
    url = "postgresql://a%40b@db/shop?sslmode=require"
    dsn = make_settings(values(source={"url": url, "password": "p"})).source.dsn()
    assert dsn == "postgresql://a%40b:p@db/shop?sslmode=require"


def test_a_password_file_that_is_not_there(tmp_path: Path) -> None:
    settings = make_settings(values(source={"password_file": str(tmp_path / "none")}))
    with pytest.raises(Misconfigured, match=r"source\.password_file cannot be read"):
        settings.source.dsn()


def test_settings_are_frozen() -> None:
    settings = make_settings(GOOD)
    with pytest.raises(ValidationError, match="frozen"):
        settings.pipeline = "other"
    with pytest.raises(ValidationError, match="frozen"):
        settings.store.url = "memory://x"


TOML = """
pipeline = "shop"
[source]
url = "postgresql://tide@db/shop"
[store]
url = "file:///var/lib/tideline/"
[warehouse]
url = "file:///var/lib/warehouse/"
"""


def test_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "some.toml"
    path.write_text(TOML)
    settings = load_settings(path)
    assert settings.store.url == "file:///var/lib/tideline"
    assert settings.warehouse.url == "file:///var/lib/warehouse"
    monkeypatch.setenv("TIDELINE_CONFIG", str(path))
    assert load_settings() == settings
    monkeypatch.delenv("TIDELINE_CONFIG")
    monkeypatch.chdir(tmp_path)
    path.rename(tmp_path / "tideline.toml")
    assert load_settings() == settings


@pytest.mark.parametrize(
    "text",
    [
        *(b"pipeline = ", b"\xff\xfe", b"a = 1\na = 2", b"\x00"),
        pytest.param(b"a = " + b"[" * 5_000, id="brackets"),
        pytest.param(b"a = " + b"{b=" * 5_000, id="braces"),
        pytest.param(b"a = " + b"1" * 5_000, id="digits"),
        b"a = 2026-13-41",
    ],
)
def test_a_file_that_is_no_toml(tmp_path: Path, text: bytes) -> None:
    path = tmp_path / "some.toml"
    path.write_bytes(text)
    with pytest.raises(Misconfigured, match=r"some\.toml cannot be read"):
        load_settings(path)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("TIDELINE_SOURCE__TABLES", "[" * 100_000),
        ("TIDELINE_SOURCE__TABLES", "1" * 5_000),
        ("TIDELINE_CAPTURE", "[" * 100_000),
        ("TIDELINE_CAPTURE__CHUNK_ROWS", "1" * 5_000),
        ("TIDELINE_CAPTURE__CHUNK_ROWS", "1e999"),
        ("TIDELINE_SOURCE__URL", "postgresql://tide@db/\udcff"),
    ],
)
def test_odd_values_of_the_environment(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(Misconfigured):
        make_settings(GOOD)


def test_a_password_that_is_not_utf8(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDELINE_SOURCE__PASSWORD", "\udcff\udcfe")
    settings = make_settings(GOOD)
    with pytest.raises(Misconfigured, match=r"source\.password is not UTF-8"):
        settings.source.dsn()
    assert settings.source.secrets()


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(Misconfigured, match=r"no settings file at .*none\.toml; name one with"):
        load_settings(tmp_path / "none.toml")


def test_every_number_has_a_unit_or_counts() -> None:
    """A limit without its unit in its name is a limit nobody sets right."""
    units = ("_s", "_ms", "_max", "_rows", "_bytes", "_port")
    for section in ("store", "control", "capture", "merge"):
        fields = Settings.model_fields[section].annotation
        assert fields is not None
        for name, field in fields.model_fields.items():
            if field.annotation in (int, float):
                assert name.endswith(units), f"{section}.{name}"


def test_sizes_of_logs_and_sessions_are_gigabytes() -> None:
    """What a source keeps, and what the merger's session takes by default."""
    sizes = {"follow_memory_bytes_max": 4 << 30, "bytes_max": 64 << 30}
    made = make_settings(values(capture={"log_backlog_max_bytes": 64 << 30}, merge=sizes))
    assert made.capture.log_backlog_max_bytes == made.merge.bytes_max == 64 << 30
    assert made.merge.follow_memory_bytes_max == 4 << 30


def test_a_store_by_itself_is_checked_too() -> None:
    with pytest.raises(ValidationError):
        Store(url="nonsense")


def given_as_a_file(tmp_path: Path) -> str:
    file = tmp_path / "secret"
    file.write_text(f"{SECRET}\n", encoding="utf-8")
    return str(file)


def test_every_password_can_be_a_file(tmp_path: Path) -> None:
    file = given_as_a_file(tmp_path)
    store = {"access_key_id": "id", "secret_access_key_file": file}
    control = {"url": "redis://tide@db:6379/0", "password_file": file}
    settings = make_settings(values(store=store, control=control))
    assert settings.store.secret() == SECRET
    assert settings.control.address() == "redis://tide:hunter2-%C3%B6%C3%9F%25%40@db:6379/0"
    assert SECRET in settings.store.secrets()
    assert SECRET in settings.control.secrets()
    nobody = make_settings(values(control={"password": SECRET}))
    assert nobody.control.address() == "redis://:hunter2-%C3%B6%C3%9F%25%40@127.0.0.1:6379/0"
    assert make_settings(GOOD).control.address() == "redis://127.0.0.1:6379/0"


@pytest.mark.parametrize(
    ("section", "key", "ask"),
    [
        ("source", "password", lambda settings: settings.source.dsn()),
        ("control", "password", lambda settings: settings.control.address()),
        ("store", "secret_access_key", lambda settings: settings.store.secret()),
    ],
)
def test_a_secret_that_cannot_be_read(section: str, key: str, ask: Any, tmp_path: Path) -> None:
    """It is a mistake of who needs it, and none of who only must not show it."""
    file = tmp_path / "secret"
    given = {f"{key}_file": str(file)}
    if section == "store":
        given["access_key_id"] = "id"
    settings = make_settings(values(**{section: given}))
    with pytest.raises(Misconfigured, match=rf"{section}\.{key}_file cannot be read") as missing:
        ask(settings)
    assert missing.value.hint is not None
    assert f"TIDELINE_{section.upper()}__{key.upper()}" in missing.value.hint
    hidden = getattr(settings, section).secrets()
    assert not any(SECRET in one for one in hidden)
    file.write_text("\n")
    with pytest.raises(Misconfigured, match=rf"{section}\.{key}_file is empty"):
        ask(settings)
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(Misconfigured, match="it is no text"):
        ask(settings)
    file.write_text(SECRET, encoding="utf-8")
    assert ask(settings)
    assert SECRET in getattr(settings, section).secrets()


def test_a_secret_key_needs_its_id_and_the_other_way_round(tmp_path: Path) -> None:
    file = given_as_a_file(tmp_path)
    for store in ({"access_key_id": "id"}, {"secret_access_key_file": file}):
        with pytest.raises(Misconfigured, match="belong together"):
            make_settings(values(store=store))


@pytest.mark.parametrize(
    ("publisher", "message"),
    [
        ({"output": "files"}, "names no folder"),
        ({"output": "files", "files": {"folder": "out"}}, "files.folder is 'out': set an absolute"),
        ({"output": "kafka", "kafka": {"servers": "b:9092"}}, "servers: must be a list"),
    ],
)
def test_a_publishers_mistakes_are_told_in_words_of_the_file(
    publisher: dict[str, Any], message: str
) -> None:
    with pytest.raises(Misconfigured, match=message):
        make_settings(values(publish={"events": publisher}))
