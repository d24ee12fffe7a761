"""The store, the queue, the warehouse, and the limits of the programs between them."""

from __future__ import annotations

from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Self

from pydantic import Field, SecretStr, field_validator, model_validator

from tideline.contract.layout import shadow_url
from tideline.contract.request import CHUNK_ROWS_MAX, DELAY_MS_MAX
from tideline.contract.target_properties import DEFAULT_FORMAT
from tideline.contract.target_url import BIGQUERY, CATALOG, ICEBERG, TableFormatName
from tideline.settings.base import Bytes, Count, Days, Effect, MiB, Seconds, Section
from tideline.settings.bigquery import BigQuerySettings
from tideline.settings.catalog import CatalogSettings
from tideline.settings.iceberg import IcebergSettings
from tideline.settings.object_storage import ObjectStorage, place_url
from tideline.settings.redis_server import RedisServer
from tideline.settings.secrets import known, secret_of
from tideline.settings.spark import Files, Heap, Host, Master

RollUpBytes = Annotated[int, Field(ge=1, le=1024 * MiB)]


class Store(ObjectStorage):
    """The object store of the segments.

    In S3, and without a key of its own, access comes from the environment: the usual AWS variables,
    a web identity (`AWS_WEB_IDENTITY_TOKEN_FILE`), or the instance's role.
    """

    section = "store"
    effect = Effect.RESTART

    url: str
    """The url of the segments: `file:///absolute/path` or `s3://bucket/prefix`. Not run:
    [others](DEPLOYMENT.md#google-and-azure)."""
    timeout_s: Seconds = 30.0
    """The time limit of one request; a contended create-only PUT can take 5 s on some stores. Also
    of Spark's client, for store and warehouse, which takes no less than 15 s."""
    retry_s: Seconds = 60.0
    """The time for which an unanswered request is repeated before it counts as Unavailable."""

    @field_validator("url")
    @classmethod
    def _known_place(cls, url: str) -> str:
        return place_url(url)


class Control(RedisServer):
    """The Redis (or Valkey) that requests come through."""

    section = "control"
    effect = Effect.RESTART

    message_bytes_max: Annotated[int, Field(ge=1, le=2 * MiB)] = 1 * MiB
    """Larger requests are refused. At most 2 MiB: to read one takes time from reading the log."""
    answer_ttl_s: Seconds = 86_400.0
    """The time for which an answer stays readable in the queue; the chain keeps the newest ones."""


class Warehouse(ObjectStorage):
    """The place of the tables, at ``{url}/{source schema}/{table}``.

    In S3, and without a key of its own but `url`, it is reached as the store is, where that is in
    S3, too.
    """

    section = "warehouse"
    effect = Effect.COMMAND

    url: str
    """The folder of the tables: `file:///absolute/path` or `s3://bucket/prefix`. Not run:
    [others](DEPLOYMENT.md#google-and-azure)."""
    format: TableFormatName = "delta"
    """The table format of new tables: `delta`, `iceberg` ([ICEBERG](ICEBERG.md)) or `bigquery`
    ([BIGQUERY](BIGQUERY.md)). A table keeps its own until ``tideline rebuild --to``
    [moves](MODES.md#moving-a-table) it."""
    catalog: CatalogSettings = CatalogSettings()
    """The catalog in which Delta tables are registered."""
    iceberg: IcebergSettings = IcebergSettings()
    """The catalog that Iceberg tables are in."""
    bigquery: BigQuerySettings = BigQuerySettings()
    """The project that BigQuery tables are in."""

    @field_validator("url")
    @classmethod
    def _known_place(cls, url: str) -> str:
        return place_url(url)

    def secrets(self) -> list[str]:
        """See `ObjectStorage`; those of the catalogs among them."""
        return [*super().secrets(), *self.catalog.secrets(), *self.iceberg.secrets()]

    @property
    def formats(self) -> tuple[str, ...]:
        """The table formats that tables may have here, whatever new ones have: there is a place for
        them. A REST catalog of all tables has the key to their files, and no one else may."""
        closed = (self.format, self.iceberg.catalog) == (ICEBERG, "rest")
        places = {
            DEFAULT_FORMAT: not closed,
            ICEBERG: self.iceberg.catalog is not None,
            BIGQUERY: self.bigquery.project is not None,
        }
        return tuple(name for name, there in places.items() if there)

    def no_place(self, table_format: str) -> str | None:
        """Return what tables of a format lack here, and what to set; None where they have a
        place."""
        if table_format in self.formats:
            return None
        return {
            ICEBERG: "Iceberg tables are wanted, and no catalog is named for them: set"
            ' warehouse.iceberg.catalog = "jdbc" and warehouse.iceberg.url (docs/ICEBERG.md)',
            BIGQUERY: "tables in BigQuery are wanted, and no project is named for them: set"
            " warehouse.bigquery.project and warehouse.bigquery.location (docs/BIGQUERY.md)",
        }.get(table_format)

    def root(self, table_format: str) -> str:
        """Return the url that tables of a format are below."""
        places = {
            ICEBERG: (CATALOG, self.iceberg.namespace),
            BIGQUERY: (self.bigquery.project, self.bigquery.dataset_prefix),
        }
        if table_format not in places:
            return self.url
        host, folder = places[table_format]
        return f"{table_format}://{host}/{folder}" if folder else f"{table_format}://{host}"

    def shadow(self, build: int) -> Self:
        """Return the warehouse of a rebuild's shadow table."""

        def apart(prefix: str) -> str:
            return f"{prefix}__rebuild_{build:06d}".strip("_")

        iceberg, bigquery = self.iceberg, self.bigquery
        iceberg = iceberg.model_copy(update={"namespace": apart(iceberg.namespace)})
        name = apart(bigquery.dataset_prefix)
        bigquery = bigquery.model_copy(update={"dataset_prefix": name})
        places = {"url": shadow_url(self.url, build), "iceberg": iceberg, "bigquery": bigquery}
        return self.model_copy(update=places)


class Capture(Section):
    """The worker's limits, each with its unit in its name."""

    effect = Effect.LIVE

    flush_interval_s: Seconds = 5.0
    """A segment is closed after this at the latest."""
    segment_bytes_max: Count = 32 * MiB
    """A segment is closed at this size, at the next end of a transaction."""
    batch_rows_max: Count = 20_000
    """Maximum changes that are decoded together."""
    batch_bytes_max: Count = 8 * MiB
    """The same in bytes of the log."""
    event_bytes_max: Annotated[int, Field(ge=MiB, le=1024 * MiB)] = 1024 * MiB
    """The size limit of one event of the source's log: a row, a statement. A larger one stops the
    worker by name: it takes six times as much memory ([DEPLOYMENT](DEPLOYMENT.md#memory))."""
    upload_bytes_max: Count = 256 * MiB
    """Sealed but not yet durable bytes; above it, reading stops and the source keeps its log."""
    stop_timeout_s: Seconds = 30.0
    """The time for which a stop waits for the store; changes that are not durable by then are read
    again."""
    heartbeat_s: Annotated[Seconds, Effect.RESTART] = 5.0
    """The chain grows at least so often."""
    takeover_after_s: Annotated[Seconds, Effect.RESTART] = 15.0
    """A passive worker takes over a chain that has not grown for so long."""
    chunk_rows: Annotated[int, Field(ge=1, le=CHUNK_ROWS_MAX)] = 10_000
    """Rows that one query of a dump reads, at most."""
    chunk_bytes_max: Count = 64 * MiB
    """… and bytes."""
    delay_ms: Annotated[int, Field(ge=0, le=DELAY_MS_MAX)] = 0
    """A pause between the chunks of a dump."""
    chunk_redo_max: Count = 5
    """Times that one chunk is read again because its snapshot lacks a transaction of the log,
    before it waits for older transactions instead: a fence."""
    fence_timeout_s: Seconds = 600.0
    """The time for which a chunk waits for older transactions; then the blocking sessions are
    named."""
    lock_timeout_s: Seconds = 5.0
    """The time for which a chunk waits for the weakest lock there is, when DDL holds a stronger
    one."""
    mark_timeout_s: Seconds = 60.0
    """Without an event from the log for so long, though watermarks are written to it all the time,
    the connection counts as dead; so does one that does not answer the queries before reading."""
    catalog_interval_s: Seconds = 3.0
    """The interval between two reads of the source's catalog."""
    snapshot_interval_s: Seconds = 1.0
    """PostgreSQL: the interval between two checks which transactions have become visible."""
    load_interval_s: Seconds = 5.0
    """The interval between two checks of the source's load."""
    chunk_target_ms: Annotated[int, Field(ge=0, le=60_000)] = 2_000
    """Chunks get smaller while they take longer, and grow again up to ``chunk_rows``; 0: never."""
    replica_lag_max_s: Seconds | None = None
    """Dumps wait while a replica (or the source, where it is one) is further behind."""
    running_queries_max: Count | None = None
    """Dumps wait while more sessions are at work in the source."""
    log_backlog_max_bytes: Bytes | None = None
    """Dumps wait while the source keeps more of its log for us."""
    unseen_transactions_max: Count = 100_000
    """PostgreSQL: above so many that are not visible yet, chunks use the fence."""
    open_requests_max: Annotated[int, Field(ge=1, le=64)] = 64
    """More are refused until one ends; so are requests above 4 MiB together, and dumps of more
    than 10,000 tables and as many as are captured."""
    parallel_dumps_max: Annotated[int, Field(ge=1, le=16)] = 2
    """Tables that are dumped concurrently, each over two connections."""
    chunks_ahead_max: Annotated[int, Field(ge=0, le=16)] = 2
    """Chunks of a table that are read while the one before them waits for its high watermark."""
    request_claim_s: Annotated[Seconds, Effect.RESTART] = 30.0
    """A request that a worker took and did not answer for so long is taken up by another."""
    rollup_part_bytes_max: Annotated[RollUpBytes, Effect.RESTART] = 32 * MiB
    """Smaller parts of a table are rolled up together, a thousand manifests' at a time."""
    rollup_file_bytes_max: Annotated[RollUpBytes, Effect.RESTART] = 64 * MiB
    """Parts that together are larger become several roll-ups."""
    metrics_address: Annotated[str, Effect.RESTART] = "127.0.0.1"
    """The IP address that `metrics_port` is open at: this machine alone; or `0.0.0.0` for every
    client that reaches it, in a container. There is no login."""
    metrics_port: Annotated[int, Field(ge=0, le=65_535), Effect.RESTART] = 0
    """The port of `/metrics` (Prometheus), `/healthz` and `/readyz`; 0: none."""

    @field_validator("metrics_address")
    @classmethod
    def _is_an_address(cls, address: str) -> str:
        try:
            return str(ip_address(address))
        except ValueError:
            raise ValueError("must be an IP address: 127.0.0.1, or 0.0.0.0 for all") from None

    @model_validator(mode="after")
    def _takes_over_after_heartbeats(self) -> Self:
        if self.takeover_after_s < 2 * self.heartbeat_s:
            raise ValueError("takeover_after_s must be at least twice heartbeat_s")
        return self


class Retention(Section):
    """The removal of parts that no reader needs any more from the store, by the active worker.

    Nothing is removed that a known warehouse has not applied, or that a rebuild of a table from its
    latest finished full dump would need. Manifests, blocks and schemas are kept for ever, and plans
    and receipts, but those that a merger makes by itself.
    """

    effect = Effect.LIVE

    remove: bool = True
    """False: nothing is ever removed, unless ``tideline garbage`` is run."""
    parts_days: Days = 7.0
    """Younger parts are kept in any case."""
    orphans_days: Days = 1.0
    """The age below which parts that no manifest names are kept: an upload may still be under
    way."""
    plans_days: Days = 7.0
    """The time for which the parts of a plan are kept that was made and never ended well, of a
    verification that was read and not compared, and of a rebuild that takes no step any more. A
    merger's own plans and their receipts are kept as long, and that of a table's last merge."""
    runs_days: Days = 90.0
    """The time for which runs of merges and maintenance stay on record; those in ``slo.window_s``
    in any case."""
    interval_s: Seconds = 21_600.0
    """The interval between two searches for garbage; the first comes soon after the worker became
    active."""


class Merge(Section):
    """Limits of one plan, and the Spark application that ``tideline merge`` starts."""

    effect = Effect.COMMAND

    parts_max: Count = 10_000
    """Files that one plan reads; what is left waits for the next."""
    bytes_max: Bytes = 8 * 1024 * MiB
    """… and their bytes."""
    retries_max: Count = 8
    """Immediate retries for a table that another writer of it was faster with."""
    retry_s: Annotated[float, Field(ge=0, le=86_400)] = 120.0
    """The time for which a table's merge is tried again, with growing pauses, after errors that may
    pass: an unreachable store, a full disk. One that would fail again (a torn part) is not."""
    tables_at_once: Count | None = None
    """Tables of one plan that are merged, or compared, concurrently; None: one for each core that
    Spark has, 16 at most."""
    master: Master = "local[2]"
    """Spark's master, for `tideline merge` and its like: `local[2]`, `local[*]`,
    `spark://host:7077`, `yarn`, `k8s://https://host:6443`. Airflow's tasks take that of their
    connection, and this one where there is none."""
    driver_memory: Heap = "2g"
    """The heap of the driver, `2g` or `1500m`, as `spark.driver.memory`: of commands, and of
    Airflow's tasks."""
    jars: Files | None = None
    """Delta's jars, and where store or warehouse are in S3 those for it
    ([DEPLOYMENT](DEPLOYMENT.md#how-jobs-get-access)), comma-separated; None: the ones in the cache.
    """
    follow_interval_s: Seconds = 0.5
    """`tideline merge --follow`: the interval between two looks for a new manifest, a GET each
    ([COST](COST.md#a-merger))."""
    follow_memory_bytes_max: Bytes | None = None
    """`tideline merge --follow`: a Spark session that takes more memory is replaced; None:
    `driver_memory` and 2 GiB more."""
    executor_memory: Heap | None = None
    """The heap of each executor on a cluster, `1g`, as `spark.executor.memory`; None: as Spark or
    the cluster has it. This key and those below count with a master that is not local
    ([CLUSTER](CLUSTER.md))."""
    executor_cores: Count | None = None
    """The cores of each executor, as `spark.executor.cores`."""
    cores_max: Count | None = None
    """The cores of all executors of an application together on a standalone cluster, as
    `spark.cores.max`; None: all that are free."""
    executors_wait_s: Seconds = 240.0
    """The time that a job waits for its first executor on a standalone cluster without a free core,
    before it ends as Unavailable."""
    driver_host: Host | None = None
    """The name or address at which executors reach the driver, as `spark.driver.host`; None: what
    this machine's name resolves to."""
    driver_bind_address: Host | None = None
    """The address that the driver listens on, as `spark.driver.bindAddress`; None: `driver_host`.
    """
    authenticate_secret: SecretStr | None = None
    """The secret of a standalone cluster (`spark.authenticate`), with which connections are
    encrypted, too; better in the file, or in TIDELINE_MERGE__AUTHENTICATE_SECRET."""
    authenticate_secret_file: Path | None = None
    """A file that holds that secret and nothing else."""
    shared_files: bool = False
    """Store and warehouse in files are the same folders on every machine of the cluster. Each job
    tries it before it writes. False: on a cluster both must be in S3."""
    py_files: Files | None = None
    """Wheels and the like for a driver that runs in the cluster (deploy mode cluster),
    comma-separated, as `--py-files`."""

    @field_validator("authenticate_secret")
    @classmethod
    def _not_empty(cls, secret: SecretStr | None) -> SecretStr | None:
        if secret is not None and not secret.get_secret_value().strip():
            raise ValueError("is empty: give the secret of the cluster's master, or leave it out")
        return secret

    def secret(self) -> str | None:
        """Return the cluster's secret, from the setting or the file; None without either.

        Raises Misconfigured for an unreadable file.
        """
        key = "merge.authenticate_secret"
        return secret_of(self.authenticate_secret, self.authenticate_secret_file, key=key)

    def secrets(self) -> list[str]:
        """Return the texts that must not be shown, as far as they are known here. Raises
        nothing."""
        return known(self.secret)
