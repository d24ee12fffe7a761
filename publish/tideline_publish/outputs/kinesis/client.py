"""Kinesis's API, by botocore, with its errors as ours."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from botocore.config import Config
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    NoCredentialsError,
    NoRegionError,
    ProfileNotFound,
    SSLError,
)

from tideline.aws_session import aws_session
from tideline.contract.errors import Misconfigured, TidelineError, Unavailable
from tideline.settings.outputs.kinesis import KinesisSettings
from tideline_publish.outputs.kinesis.lanes import OutgoingRecord

_ACCESS = (NoCredentialsError, NoRegionError, ProfileNotFound, SSLError)
_REFUSED = frozenset(
    {
        "AccessDeniedException",
        "ExpiredTokenException",
        "IncompleteSignature",
        "InvalidArgumentException",
        "InvalidClientTokenId",
        "InvalidSignatureException",
        "KMSAccessDeniedException",
        "KMSDisabledException",
        "KMSInvalidStateException",
        "KMSNotFoundException",
        "KMSOptInRequired",
        "MissingAuthenticationTokenException",
        "ResourceNotFoundException",
        "UnrecognizedClientException",
        "ValidationException",
    }
)


class KinesisClient:
    """The requests that an output makes of one stream. They repeat nothing. Each raises
    Misconfigured where Kinesis refuses it, Unavailable where it fails or is not answered."""

    def __init__(self, settings: KinesisSettings) -> None:
        self._stream = settings.stream or ""
        secret = settings.secret()
        token = settings.session_token
        access = {} if secret is None else {
            "aws_access_key_id": settings.access_key_id,
            "aws_secret_access_key": secret,
            "aws_session_token": None if token is None else token.get_secret_value(),
        }  # fmt: skip
        with self._asking():
            self._client: Any = aws_session(settings.profile, settings.region).create_client(
                "kinesis",
                region_name=settings.region,
                endpoint_url=settings.endpoint,
                verify=None if settings.ca_file is None else str(settings.ca_file),
                config=Config(
                    connect_timeout=settings.timeout_s,
                    read_timeout=settings.timeout_s,
                    retries={"total_max_attempts": 1, "mode": "standard"},
                ),
                **access,
            )

    def put(self, records: Sequence[OutgoingRecord]) -> list[str]:
        """Put ``records``. Return for each the code of the error by which it failed, ``""`` for one
        that is in the stream now."""
        entries = [
            {"Data": one.data, "PartitionKey": one.partition_key}
            | ({} if one.hash_key is None else {"ExplicitHashKey": one.hash_key})
            for one in records
        ]
        with self._asking():
            answer = self._client.put_records(StreamName=self._stream, Records=entries)
        return [str(one.get("ErrorCode") or "") for one in answer["Records"]]

    def shards(self) -> dict[str, str]:
        """Return where the open shards begin in the range of hashes, by their ids."""
        found: dict[str, str] = {}
        request: dict[str, str] = {"StreamName": self._stream}
        while True:
            with self._asking():
                answer = self._client.list_shards(**request)
            found |= {
                one["ShardId"]: one["HashKeyRange"]["StartingHashKey"]
                for one in answer["Shards"]
                if "EndingSequenceNumber" not in one["SequenceNumberRange"]
            }
            if not answer.get("NextToken"):
                return found
            request = {"NextToken": answer["NextToken"]}

    def close(self) -> None:
        """End the connections."""
        self._client.close()

    @contextmanager
    def _asking(self) -> Iterator[None]:
        try:
            yield
        except ClientError as error:
            raise self._explained(str(error.response["Error"]["Code"])) from None
        except _ACCESS as error:
            raise Misconfigured(
                f"Kinesis cannot be reached as it is set: {type(error).__name__}",
                hint="set region, and credentials in the environment or in kinesis.…",
            ) from None
        except BotoCoreError as error:
            raise Unavailable(
                f"Kinesis does not answer: {type(error).__name__}",
                hint="check the network, and kinesis.region and kinesis.endpoint",
            ) from None

    def _explained(self, code: str) -> TidelineError:
        """Return the error of a code. The service's own text may quote what it was sent."""
        if code == "ResourceNotFoundException":
            return Misconfigured(
                f"there is no Kinesis stream {self._stream}",
                hint="create it, or correct kinesis.stream and kinesis.region",
            )
        if code in _REFUSED:
            return Misconfigured(
                f"Kinesis refuses requests to {self._stream}: {code}",
                hint="docs/PUBLISHING.md#kinesis has the permissions and limits",
            )
        return Unavailable(f"Kinesis fails requests to {self._stream}: {code}")
