"""What Spark meets when S3 refuses: each refusal is named for what it is, with how to mend it, and
by names alone. The answers are Amazon's, status and code, and those of the real server."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]

from devtools.services.s3 import S3Server
from tests.faults.every_mode import NOW, EveryMode
from tests.faults.jobs import Jobs, unique
from tests.faults.s3_faults import ALWAYS, Kind, S3Faults, Trouble
from tests.fixtures.object_storage import place_in, reach
from tideline.contract.errors import Misconfigured, TidelineError, Unavailable
from tideline.contract.receipt import Outcome
from tideline_spark.failures import SparkFailure, explain, is_mendable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BUCKET = "refused"
SECRET = "SECRET"
"""The value of a partition column: it stands in names of objects, and so in S3A's messages."""
KINDS: tuple[Kind, ...] = ("create", "put", "get", "head", "list")
Expected = tuple[type[TidelineError], str, str]
"""The class of the error, and words of its message and of its hint."""
DENIED: Expected = (Misconfigured, "refuses access", "access_key_id")
EXPIRED = (Unavailable, "have expired", "session_token")
ELSEWHERE = (Misconfigured, "another region", "set region")
NO_BUCKET = (Misconfigured, "no such bucket", "warehouse.url")
KMS = (Misconfigured, "key of KMS", "kms_key")
WITHOUT_A_REASON = (Unavailable, "without a reason", "expired")
CODES: Mapping[str, tuple[int, Expected]] = {
    "AccessDenied": (403, DENIED),
    "InvalidAccessKeyId": (403, DENIED),
    "SignatureDoesNotMatch": (403, DENIED),
    "Unauthorized": (401, DENIED),
    "InvalidToken": (400, DENIED),
    "RequestTimeTooSkewed": (403, (Misconfigured, "time is wrong", "clock")),
    "ExpiredToken": (400, EXPIRED),
    "TokenRefreshRequired": (400, EXPIRED),
    "NoSuchBucket": (404, NO_BUCKET),
    "PermanentRedirect": (301, ELSEWHERE),
    "AuthorizationHeaderMalformed": (400, ELSEWHERE),
    "KMS.DisabledException": (400, KMS),
}
WITHOUT_BODY = {400: WITHOUT_A_REASON, 401: DENIED, 403: DENIED, 301: ELSEWHERE}
"""A HEAD has its status alone; with 404 nothing is there, and the list that follows says why."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A file in the bucket, and a request of each kind for it or for its folder."""

    spark: SparkSession
    url: str
    files: Any
    """Hadoop's file system."""

    @property
    def folder(self) -> str:
        return f"{self.url}/p={SECRET}"

    def fill(self) -> None:
        self.spark.range(3).coalesce(1).write.parquet(self.folder)
        self._put()

    def path(self, name: str) -> Any:
        return self.spark._jvm.org.apache.hadoop.fs.Path(f"{self.folder}/{name}")  # type: ignore[union-attr]

    def request(self, kind: Kind) -> None:
        getattr(self, f"_{kind}")()

    def _create(self) -> None:
        """As an entry of a table's log is created."""
        jvm: Any = self.spark._jvm
        configuration: Any = self.spark._jsc.hadoopConfiguration()
        log_store = jvm.tideline.ConditionalLogStore(configuration)
        lines = jvm.java.util.ArrayList()
        log_store.write(self.path("entry"), lines.iterator(), False, configuration)

    def _put(self) -> None:
        stream = self.files.create(self.path("_any"), True)
        stream.write(bytearray(b"any"))
        stream.close()

    def _get(self) -> None:
        self.files.open(self.path("_any")).read()

    def _head(self) -> None:
        self.files.getFileStatus(self.path("_any"))

    def _list(self) -> None:
        self.files.listStatus(self.path("."))

    def read(self) -> None:
        """Read the file in a task."""
        self.spark.read.schema("id long").parquet(self.folder).collect()


@pytest.fixture(scope="module")
def faults(s3: S3Server) -> Iterator[S3Faults]:
    with S3Faults(s3) as faults:
        yield faults


@pytest.fixture(scope="module")
def asked(faults: S3Faults, s3: S3Server, spark: SparkSession) -> Asked:
    place = place_in(s3, BUCKET, endpoint=faults.endpoint)
    reach(spark, place)
    made = Asked(spark.newSession(), place.url, file_system(spark, BUCKET))
    made.fill()
    return made


def file_system(spark: SparkSession, bucket: str, **settings: str) -> Any:
    """Hadoop's client of the bucket, made now, with the settings of `BUCKET` but for ``settings``;
    an empty one is none."""
    jvm: Any = spark._jvm
    given: Any = spark._jsc.hadoopConfiguration()
    configuration = jvm.org.apache.hadoop.conf.Configuration(given)
    ours, theirs = (f"fs.s3a.bucket.{name}." for name in (BUCKET, bucket))
    for name, value in given.getPropsWithPrefix(ours).items():
        configuration.set(theirs + name, value)
    for name, value in settings.items():
        key = theirs + name.replace("_", ".")
        configuration.set(key, value) if value else configuration.unset(key)
    uri = jvm.java.net.URI(f"s3://{bucket}/")
    return jvm.org.apache.hadoop.fs.FileSystem.newInstance(uri, configuration)


def explained(raised: pytest.ExceptionInfo[Exception], expected: Expected) -> TidelineError:
    """Our error for it, which is as ``expected``, and tells nothing of what the object is named."""
    kind, what, hint = expected
    error = explain(raised.value, "merging public.t")
    assert type(error) is kind, error
    assert what in error.message and hint in str(error.hint), error
    assert SECRET not in str(error) and "AKIA" not in str(error)
    assert not is_mendable(raised.value), "it would be repeated for merge.retry_s"
    return error


@pytest.mark.parametrize("code", CODES)
def test_each_code_is_named_for_each_kind_of_request(
    asked: Asked, faults: S3Faults, code: str
) -> None:
    status, expected = CODES[code]
    for kind in KINDS:
        without_body = kind == "head"
        if without_body and status not in WITHOUT_BODY:
            continue
        refused = faults.add(Trouble(kind=kind, times=ALWAYS, status=status, code=code))
        try:
            with pytest.raises(SparkFailure) as raised:
                asked.request(kind)
        finally:
            faults.heal()
        assert refused.met, kind
        error = explained(raised, WITHOUT_BODY[status] if without_body else expected)
        assert without_body or code in error.message, (kind, error)


@pytest.mark.parametrize("code", ["AccessDenied", "ExpiredToken", "NoSuchBucket"])
def test_what_a_task_meets_is_no_torn_part(asked: Asked, faults: S3Faults, code: str) -> None:
    status, expected = CODES[code]
    faults.add(Trouble(kind="get", times=ALWAYS, status=status, code=code))
    try:
        with pytest.raises(SparkFailure, match="FAILED_READ_FILE") as raised:
            asked.read()
    finally:
        faults.heal()
    assert f"bucket {BUCKET}" in explained(raised, expected).message


def test_a_key_of_kms_that_is_denied_is_told_from_an_object_that_is(
    asked: Asked, faults: S3Faults
) -> None:
    """Amazon's code says AccessDenied alone."""
    denied = "User: arn:aws:iam::1:user/me is not authorized to perform: kms:GenerateDataKey"
    faults.add(Trouble(kind="put", times=ALWAYS, status=403, code="AccessDenied", message=denied))
    try:
        with pytest.raises(SparkFailure) as raised:
            asked.request("put")
    finally:
        faults.heal()
    assert "arn:" not in str(explained(raised, KMS))


KEYS = ("access_key", "secret_key")
_S3A = "org.apache.hadoop.fs.s3a"


@pytest.mark.parametrize(
    ("bucket", "settings", "expected"),
    [
        (BUCKET, {"access_key": "AKIANONE"}, DENIED),
        (BUCKET, {"secret_key": "wrong"}, DENIED),
        ("no-such-bucket", {}, NO_BUCKET),
        (BUCKET, dict.fromkeys(KEYS, ""), (Misconfigured, "no credentials", "access_key_id")),
        (
            BUCKET,
            {
                "aws_credentials_provider": f"{_S3A}.auth.ProfileAWSCredentialsProvider",
                "auth_profile_name": "no-such-profile",
            },
            (Misconfigured, "cannot be made", "profile"),
        ),
    ],
    ids=["key", "secret", "bucket", "no credentials", "profile"],
)
@pytest.mark.parametrize("kind", ["put", "head", "list"])
def test_the_real_servers_refusals_are_named(
    asked: Asked, bucket: str, settings: dict[str, str], expected: Expected, kind: Kind
) -> None:
    url = asked.url.replace(BUCKET, bucket, 1)
    with pytest.raises(SparkFailure) as raised:
        files = file_system(asked.spark, bucket, **settings)
        Asked(asked.spark, url, files).request(kind)
    explained(raised, expected)


def test_a_local_file_that_is_denied_is_no_refusal_of_s3(spark: SparkSession) -> None:
    jvm: Any = spark._jvm
    denied = jvm.java.nio.file.AccessDeniedException("/warehouse/p=SECRET/x")
    error = explain(Py4JJavaError("it failed", denied), "merging public.t")
    assert isinstance(error, Unavailable) and "S3" not in str(error)


REFUSED = (
    (Trouble(kind="put", times=ALWAYS, status=400, code="ExpiredToken"), Unavailable),
    (Trouble(kind="create", times=ALWAYS, status=403, code="AccessDenied"), Misconfigured),
)


def test_a_merge_that_is_refused_ends_at_once_and_the_next_goes_on(
    asked: Asked, faults: S3Faults, s3: S3Server, tmp_path: Path
) -> None:
    """With the patience of the settings' default, two minutes, of which it uses none."""
    tables = EveryMode(tmp_path, seed=5, place=place_in(s3, BUCKET))
    tables.fill()
    jobs = Jobs(asked.spark, tables)
    jobs.merge(unique("before"), NOW)
    for trouble, kind in REFUSED:
        tables.more(8)
        faults.add(trouble)
        (failed,) = jobs.merge(unique("refused"), NOW).tables
        faults.heal()
        assert trouble.met
        assert (failed.outcome, failed.error_kind) == (Outcome.FAILED, kind.__name__), failed
        assert failed.attempts == 1, failed
        assert "S3 refuses" in str(failed.error), failed
    (merged,) = jobs.merge(unique("after"), NOW).tables
    assert merged.outcome is Outcome.APPLIED, merged
    tables.check(NOW)
