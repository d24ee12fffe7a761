"""``python -m devtools s3``: an S3 server on loopback, for trying Tideline on S3 without a bucket.

It stays up until Ctrl-C or SIGTERM. Its data and its secret key are in a folder, by default
``.run/s3`` of the clone, and are there again at the next start.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from devtools.services.private_file import write_private
from devtools.services.s3 import S3Server
from devtools.standing import keep_up, toml_lines

FOLDER = Path(__file__).resolve().parents[1] / ".run" / "s3"


def run(bucket: str, port: int, folder: Path = FOLDER) -> None:
    """Run the server, and print the settings with which commands use it; see `keep_up`.

    Raises Misconfigured where ``port`` is taken.
    """

    secret = folder.absolute() / "secret-access-key"

    def make() -> S3Server:
        server = S3Server(folder, port=port, buckets=(bucket,))
        if secret.exists():
            server.secret_access_key = secret.read_text()
        else:
            write_private(secret, server.secret_access_key)
        return server

    def lines(server: S3Server) -> Iterator[str]:
        access = {**server.access, "secret_access_key_file": str(secret)}
        del access["secret_access_key"]
        yield f"s3: {server.endpoint}, with the bucket {bucket}, data in {folder}"
        yield "s3: in tideline.toml, in the place of the two sections that init has made:\n"
        yield "[store]"
        yield from toml_lines({"url": f"s3://{bucket}/changes", **access})
        yield "\n[warehouse]    # reached as the store is"
        yield from toml_lines({"url": f"s3://{bucket}/tables"})

    keep_up("s3", folder, make, lines)
