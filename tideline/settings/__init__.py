"""``tideline.toml`` plus the environment, parsed once, into frozen settings.

Every key can come from the environment (``TIDELINE_SOURCE__URL``), which wins over the file. A
bad file raises one Misconfigured that names every mistake, each with its key and what is allowed.
Secrets are hidden from ``repr`` and from errors.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping, Sequence
from functools import cache, cached_property
from pathlib import Path
from typing import Annotated, Any

from pydantic import ValidationError, ValidationInfo, create_model, field_validator
from pydantic_settings import (
    BaseSettings,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
)

from tideline.contract.errors import Misconfigured
from tideline.contract.layout import table_path
from tideline.contract.patterns import check_patterns
from tideline.contract.schema import TableId
from tideline.settings.aggregates import AggregateSettings
from tideline.settings.base import Effect, Name, Section
from tideline.settings.maintenance import Maintain, Openlineage, Slo
from tideline.settings.nearest import nearest_key
from tideline.settings.publish import PublishSettings
from tideline.settings.sections import Capture, Control, Merge, Retention, Store, Warehouse
from tideline.settings.source import SourceSettings, source_model
from tideline.settings.source_kinds import own_sections
from tideline.settings.tables import TableSettings, check_layouts, settings_of

__all__ = [
    "CONFIG_VARIABLE",
    "Capture",
    "Control",
    "Maintain",
    "Merge",
    "Openlineage",
    "PublishSettings",
    "Retention",
    "Settings",
    "Slo",
    "SourceSettings",
    "Store",
    "TableSettings",
    "Warehouse",
    "load_settings",
    "make_settings",
    "settings_model",
    "settings_path",
]

CONFIG_VARIABLE = "TIDELINE_CONFIG"
DEFAULT_CONFIG = "tideline.toml"


class Settings(BaseSettings):
    """All settings of one pipeline.

    It is made as `settings_model`, whose ``source`` has the keys of each kind of source, too.
    """

    model_config = SettingsConfigDict(
        env_prefix="TIDELINE_",
        env_nested_delimiter="__",
        frozen=True,
        extra="forbid",
        hide_input_in_errors=True,
        use_attribute_docstrings=True,
    )

    pipeline: Annotated[Name, Effect.RESTART]
    """The name of the pipeline: of its folder in the store, and of what it makes at the source."""
    source: SourceSettings
    store: Store
    control: Control = Control()
    warehouse: Warehouse
    capture: Capture = Capture()
    merge: Merge = Merge()
    retention: Retention = Retention()
    slo: Slo = Slo()
    openlineage: Openlineage = Openlineage()
    maintain: Maintain = Maintain()
    tables: Mapping[str, TableSettings] = {}
    """Entries by shell pattern over ``schema.table``. Later entries win over earlier ones."""
    aggregates: Mapping[Name, AggregateSettings] = {}
    """Documents of several tables, by name: [AGGREGATES](AGGREGATES.md)."""
    publish: Mapping[Name, PublishSettings] = {}
    """Publishers by name."""

    @field_validator("tables")
    @classmethod
    def _sound_patterns(cls, tables: Mapping[str, TableSettings]) -> Mapping[str, TableSettings]:
        try:
            check_patterns(tuple(tables))
        except Misconfigured as error:
            raise ValueError(error.message) from None
        return tables

    @field_validator("tables")
    @classmethod
    def _possible_layouts(
        cls, tables: Mapping[str, TableSettings], info: ValidationInfo
    ) -> Mapping[str, TableSettings]:
        warehouse = info.data.get("warehouse")
        if warehouse is not None:  # None: it has its own mistakes.
            check_layouts(tables, warehouse.format)
        return tables

    @field_validator("tables")
    @classmethod
    def _places_of_tables(
        cls, tables: Mapping[str, TableSettings], info: ValidationInfo
    ) -> Mapping[str, TableSettings]:
        warehouse = info.data.get("warehouse")
        if warehouse is None:  # It has its own mistakes.
            return tables
        for pattern, entry in tables.items():
            problem = None if entry.format is None else warehouse.no_place(entry.format)
            if problem is not None:
                raise ValueError(f"{pattern}: {problem}")
        return tables

    @field_validator("publish")
    @classmethod
    def _known_aggregates(
        cls, publish: Mapping[str, PublishSettings], info: ValidationInfo
    ) -> Mapping[str, PublishSettings]:
        known = info.data.get("aggregates")
        for name, one in publish.items():
            for missing in () if known is None else sorted({*one.aggregates} - known.keys()):
                raise ValueError(f"{name} names {missing}: write a section [aggregates.{missing}]")
        return publish

    @field_validator("warehouse")
    @classmethod
    def _place_of_new_tables(cls, warehouse: Warehouse) -> Warehouse:
        if (problem := warehouse.no_place(warehouse.format)) is not None:
            raise ValueError(problem)
        return warehouse

    @field_validator("warehouse")
    @classmethod
    def _one_access_per_bucket(cls, warehouse: Warehouse, info: ValidationInfo) -> Warehouse:
        store = info.data.get("store")
        if store is None or not (store.in_s3 and warehouse.in_s3):  # None: it has its own mistakes.
            return warehouse
        # Spark's client takes its settings by bucket.
        shared = warehouse.bucket == store.bucket
        if shared and warehouse.has_access and warehouse.access() != store.access():
            raise ValueError(
                "is in the store's bucket and is reached differently: leave out its keys but url,"
                " or give it a bucket of its own"
            )
        return warehouse

    @field_validator("publish")
    @classmethod
    def _captured_messages(
        cls, publishers: Mapping[str, PublishSettings], info: ValidationInfo
    ) -> Mapping[str, PublishSettings]:
        captured = getattr(info.data.get("source"), "messages", ())
        for name, publisher in publishers.items():
            missing = sorted(set(publisher.outbox.messages) - set(captured))
            if missing and "source" in info.data:
                raise ValueError(
                    f"{name}: outbox.messages has {missing[0]}, which is not captured: add it to"
                    " source.messages"
                )
        return publishers

    @cached_property
    def warehouse_storage(self) -> Warehouse:
        """The warehouse with the access that counts: its own, else the store's where both are in
        S3."""
        if not (self.warehouse.in_s3 and self.store.in_s3) or self.warehouse.has_access:
            return self.warehouse
        return self.warehouse.model_copy(update=dict(self.store.access()))

    def warehouse_store(self) -> Store:
        """Return the warehouse as a store of objects, with the limits of the store."""
        place = self.warehouse_storage
        return self.store.model_copy(update={"url": place.url, **place.access()})

    def of_table(self, table: TableId) -> TableSettings:
        """Return the settings of ``table``: the entries whose patterns match it, over the
        defaults."""
        return settings_of(table, self.tables)

    def format_of(self, table: TableId) -> str:
        """Return the name of the format that a new target of ``table`` has."""
        return self.of_table(table).format or self.warehouse.format

    def target_url(self, table: TableId, table_format: str | None = None) -> str:
        """Return the url of the target of ``table`` (`tideline.contract.target_url`) in
        ``table_format``; None: in the one that a new target has."""
        return table_path(self.warehouse.root(table_format or self.format_of(table)), table)

    def target_urls(self, table: TableId) -> tuple[str, ...]:
        """Return the urls at which the target of ``table`` may be, in one format or another; that
        of a new one first."""
        wanted = self.format_of(table)
        others = sorted(self.formats_held - {wanted})
        return tuple(self.target_url(table, one) for one in (wanted, *others))

    def publisher(self, name: str) -> PublishSettings:
        """Return the settings of a publisher. Raises Misconfigured for a name without any."""
        found = self.publish.get(name)
        if found is None:
            listed = ", ".join(sorted(self.publish)) or "none"
            raise Misconfigured(
                f"there is no publisher {name!r} in the settings; there are: {listed}",
                hint=f"""write a section [publish.{name}], with output = "files" or "kafka\"""",
            )
        return found

    def of_rebuild(self, build: int) -> Settings:
        """Return the settings of the warehouse of a rebuild's shadow table."""
        return self.model_copy(update={"warehouse": self.warehouse.shadow(build)})

    @cached_property
    def formats(self) -> frozenset[str]:
        """The table formats that new targets may have."""
        given = {entry.format for entry in self.tables.values() if entry.format is not None}
        return frozenset({self.warehouse.format, *given})

    @cached_property
    def formats_held(self) -> frozenset[str]:
        """The table formats that targets may have: those of new ones, and those that tables may
        have from before."""
        return self.formats | {*self.warehouse.formats}

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Order the sources: the environment wins over the file (whose values arrive as init
        arguments)."""
        return env_settings, init_settings


def settings_model() -> type[Settings]:
    """Return `Settings` with all keys that the settings may hold: those too that only one kind of
    source has, of every kind that is in the registry now."""
    return _settings_with(own_sections())


@cache
def _settings_with(own: tuple[type[Section], ...]) -> type[Settings]:
    return create_model("Settings", __base__=Settings, source=(source_model(own), ...))


def settings_path(config: str | Path | None = None) -> Path:
    """Return ``config``, else ``$TIDELINE_CONFIG``, else ``./tideline.toml``."""
    return Path(config or os.environ.get(CONFIG_VARIABLE) or DEFAULT_CONFIG)


_TOML = "it is TOML: texts stand in quotes, and a key stands once in its section"


def load_settings(config: str | Path | None = None) -> Settings:
    """Load the settings from the file at `settings_path`.

    Raises Misconfigured with one line per mistake.
    """
    path = settings_path(config)
    try:
        values = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise Misconfigured(
            f"no settings file at {path}", hint=f"name one with --config or {CONFIG_VARIABLE}"
        ) from None
    except (OSError, ValueError, RecursionError) as error:
        # Not only TOMLDecodeError: a number of thousands of digits is a ValueError of Python's own.
        raise Misconfigured(f"{path} cannot be read: {error}", hint=_TOML) from None
    return make_settings(values, origin=str(path))


def make_settings(values: Mapping[str, Any], *, origin: str = "settings") -> Settings:
    """Make settings from parsed values and the environment; Misconfigured names every mistake."""
    lines = _strangers()
    if lines:
        raise Misconfigured(f"the environment has {_count(lines)}:", lines=tuple(lines))
    try:
        return settings_model()(**values)
    except (SettingsError, RecursionError) as error:
        # The libraries name the field, if anything, and do not show the value.
        raise Misconfigured(
            f"a setting from the environment cannot be read: {error}",
            hint="""lists are JSON there, as in TIDELINE_SOURCE__TABLES='["public.*"]';"""
            " a section has no value of its own, its keys follow after two underscores",
        ) from None
    except ValidationError as error:
        lines = [f"{_key(item['loc'])}: {_reason(item)}" for item in error.errors()]
        raise Misconfigured(f"{origin} has {_count(lines)}:", lines=tuple(lines)) from None


def _count(mistakes: Sequence[str]) -> str:
    return "a mistake" if len(mistakes) == 1 else f"{len(mistakes)} mistakes"


def _strangers() -> list[str]:
    """Return a line for each variable that looks like a key of an unknown section: nothing else
    would show that it has no effect."""
    lines = []
    for name in sorted(os.environ):
        prefix, _, key = name.upper().partition("_")
        path = key.lower().split("__")
        if prefix != "TIDELINE" or len(path) < 2 or path[0] in Settings.model_fields:
            continue
        near = nearest_key(Settings, path[:1])
        meant = "__".join(["TIDELINE_" + str(near), *path[1:]]).upper()
        known = near in Settings.model_fields
        lines.append(f"{name}: no such key" + (f"; did you mean {meant}?" if known else ""))
    return lines


def _key(location: tuple[int | str, ...]) -> str:
    return ".".join(str(part) for part in location)


def _reason(item: Any) -> str:
    if item["type"] == "extra_forbidden":
        near = nearest_key(settings_model(), item["loc"])
        return "no such key" if near is None else f"no such key; did you mean {near}?"
    if item["type"] == "missing":
        return "must be given"
    if item["type"] == "tuple_type":
        return "must be a list: [...]"
    return str(item["msg"]).removeprefix("Value error, ")
