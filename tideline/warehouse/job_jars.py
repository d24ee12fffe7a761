"""The jars that Spark needs for a pipeline: jobs and whoever starts them ask here."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from tideline.contract.errors import Misconfigured
from tideline.contract.target_properties import DEFAULT_FORMAT
from tideline.jars import JarSet, ensure_jars
from tideline.settings import Settings
from tideline.warehouse.delta.jars import CLASSES
from tideline.warehouse.delta.log_store import CLASS, JAR, jars_with_log_store
from tideline.warehouse.iceberg.jars import CLASSES as ICEBERG_CLASSES
from tideline.warehouse.iceberg.jars import iceberg_jars, iceberg_runs
from tideline.warehouse.s3_jars import find_s3_jar_set, s3_classes, s3_jar_set


@dataclass(frozen=True, slots=True)
class FormatJars:
    """The jars of a format.

    ``jars`` returns them, fetched or made when the cache lacks them, ``runs`` whether there are
    some for the Spark that is installed. ``classes`` and ``classes_in_s3`` have a class of each jar
    without which nothing can be written, with the jar's name.
    """

    jars: Callable[[], list[Path]]
    runs: Callable[[], bool] = lambda: True
    classes: Mapping[str, str] = field(default_factory=dict)
    classes_in_s3: Mapping[str, str] = field(default_factory=dict)


JARS: Mapping[str, FormatJars] = {
    "delta": FormatJars(
        jars_with_log_store,
        classes=CLASSES,
        classes_in_s3={CLASS: JAR},
    ),
    "iceberg": FormatJars(iceberg_jars, runs=iceberg_runs, classes=ICEBERG_CLASSES),
}
"""By format: its jars."""
WHERE_JARS_ARE_LISTED = "docs/DEPLOYMENT.md, How jobs get access, has a command that lists them"


def classes_everywhere(formats: Collection[str] = ()) -> dict[str, str]:
    """Return the classes that jobs need of the jars of Delta and ``formats``, each with its
    jar."""
    return {name: jar for one in _of(formats) for name, jar in one.classes.items()}


def classes_in_s3() -> dict[str, str]:
    """Return the classes that jobs in S3 need besides, each with its jar: of the client and of the
    formats."""
    of_formats = {name: jar for one in JARS.values() for name, jar in one.classes_in_s3.items()}
    return {**s3_classes(), **of_formats}


def job_jars(settings: Settings | None = None) -> list[Path]:
    """Return the jars for ``spark.jars`` that fit the installed Spark: Delta's, and with
    ``settings`` those of the other formats that its tables have, and of the client for S3 where
    store or warehouse is there.

    Raises Unavailable when the cache lacks one and it cannot be fetched; Misconfigured without Java
    or a Spark that jobs may run on, with one that cannot use S3, or for Google's and Azure's
    stores; CorruptData when one is another file than it should be.
    """
    places = () if settings is None else (settings.store, settings.warehouse)
    if unknown := [one.section for one in places if one.in_object_store and not one.in_s3]:
        raise Misconfigured(
            f"Spark needs a connector for the url of [{unknown[0]}], which is not fetched",
            hint="name it in merge.jars, with the table format's jars: docs/DEPLOYMENT.md",
        )
    in_s3 = any(place.in_s3 for place in places)
    formats = frozenset[str]() if settings is None else settings.formats_held
    return _jars(formats, s3_jar_set() if in_s3 else None)


def every_jar() -> list[Path]:
    """Return the jars for any pipeline that the installed Spark can run, those for S3 among them
    where it can use that. Raises as `job_jars` does."""
    return _jars({name for name, one in JARS.items() if one.runs()}, find_s3_jar_set())


def _of(formats: Collection[str]) -> Iterator[FormatJars]:
    return (one for name, one in JARS.items() if name in (DEFAULT_FORMAT, *formats))


def _jars(formats: Collection[str], s3: JarSet | None) -> list[Path]:
    found = [jar for one in _of(formats) for jar in one.jars()]
    return found if s3 is None else [*found, *ensure_jars(s3)]
