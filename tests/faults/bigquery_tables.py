"""BigQuery's tables of a fault test, in the emulator: read without Spark, as they are and as a
death has left them.

An image is a dataset of its own with copies of the tables, and what the front knew of jobs then: a
run that is taken up from it may use the ids of jobs that came later. Comments and clusters of
tables are not in it.
"""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.faults.places import Files
from tests.fixtures.bigquery_place import PROJECT, use_project, with_endpoint
from tideline.settings import Warehouse
from tideline.warehouse.bigquery.names import TableName, name_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from devtools.bigquery.jobs import StandInState
    from tests.fixtures.bigquery import Dataset

_DATASETS = f"/bigquery/v2/projects/{PROJECT}/datasets"


@dataclass(frozen=True, slots=True)
class BigQueryImage:
    """The tables of a moment: ``dataset`` has the copies; ``modified`` is when each was changed."""

    dataset: str
    known: StandInState
    modified: dict[str, int]


@dataclass
class BigQueryTables:
    """The tables of a schema of the source, in the dataset ``name``."""

    fixture: Dataset
    name: str = field(init=False)
    place: Warehouse = field(init=False)
    images: dict[Path, BigQueryImage] = field(default_factory=dict)
    """By the folder with the files of the moment."""

    def __post_init__(self) -> None:
        self.name = f"{self.fixture.name}__public"

    def reached_by(self, spark: SparkSession, root: Path) -> BigQueryTables:
        """Return it, in the warehouse below ``root``, which ``spark`` reaches."""
        front = self.fixture.front
        place = Warehouse(url=root.as_uri())
        self.place = with_endpoint(place, front.endpoint, self.fixture.name)
        use_project(spark, self.place)
        return self

    def rows(self, url: str, image: Path | None = None) -> list[dict[str, Any]]:
        """All rows of the table at ``url``, of an image's; none where no table is."""
        return self._rows(name_of(url).table, image)

    def versions(self, url: str) -> list[str]:
        """The versions in the log of the table at ``url``, sorted."""
        name: TableName = name_of(url)
        return sorted(str(row["version"]) for row in self._rows(name.log.table, None))

    def copy(self, folder: Path) -> None:
        """Make the image of ``folder``."""
        front = self.fixture.front
        with front.turn:
            made = f"{self.name}_{uuid.uuid4().hex[:8]}"
            self._make(made)
            modified = {name: self._modified(name) for name in self.names()}
            for name in modified:
                self._copy(self.name, made, name)
            self.images[folder] = BigQueryImage(made, front.jobs.known(), modified)

    def restore(self, folder: Path) -> None:
        """Go back to the image of ``folder``."""
        front, image = self.fixture.front, self.images[folder]
        with front.turn:
            self.remove()
            if image.modified:
                self._make(self.name)
            for name in image.modified:
                self._copy(image.dataset, self.name, name)
            modified = {(self.name, name): at for name, at in image.modified.items()}
            front.jobs.go_back(image.known, modified)

    def remove(self) -> None:
        """Remove all tables."""
        self.fixture.front.emulator.send("DELETE", f"{_DATASETS}/{self.name}?deleteContents=true")

    def _make(self, name: str) -> None:
        reference = {"datasetReference": {"projectId": PROJECT, "datasetId": name}}
        body = json.dumps(reference).encode()
        status, text = self.fixture.front.emulator.send("POST", _DATASETS, body)
        assert status == 200, text

    def names(self) -> list[str]:
        """The tables of the dataset, of all kinds."""
        path = f"{_DATASETS}/{self.name}/tables?maxResults=1000"
        status, text = self.fixture.front.emulator.send("GET", path)
        tables = json.loads(text).get("tables", []) if status == 200 else []
        return [one["tableReference"]["tableId"] for one in tables]

    def _modified(self, name: str) -> int:
        path = f"{_DATASETS}/{self.name}/tables/{name}"
        _, text = self.fixture.front.passed_on("GET", path, None)
        return int(json.loads(text)["lastModifiedTime"])

    def _copy(self, source: str, target: str, name: str) -> None:
        sql = f"CREATE OR REPLACE TABLE `{target}`.`{name}` AS SELECT * FROM `{source}`.`{name}`"  # noqa: S608
        self.fixture.front.emulator.query(PROJECT, sql)

    def _rows(self, table: str, image: Path | None) -> list[dict[str, Any]]:
        dataset = self.name
        if image is None:
            there = table in self.names()
        else:
            dataset, there = self.images[image].dataset, table in self.images[image].modified
        if not there:
            return []
        sql = f"SELECT * FROM `{dataset}`.`{table}`"  # noqa: S608
        return [dict(row.items()) for row in self.fixture.direct.query(sql).result()]


@dataclass(frozen=True)
class InBigQuery(Files):
    """What lies below ``root``, and the tables of the emulator."""

    tables: BigQueryTables

    def copy(self, folder: Path) -> None:
        with self.tables.fixture.front.turn:
            super().copy(folder)
            self.tables.copy(folder)

    def restore(self, folder: Path) -> None:
        super().restore(folder)
        self.tables.restore(folder)
