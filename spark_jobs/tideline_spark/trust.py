"""Has Java trust authorities besides its own: S3's client takes them from a file that a property of
the process names, and has no setting for them.

Executors of a cluster get the file from the driver, as all files of an application, into the folder
that they run in.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark import SparkContext

from tideline.contract.errors import Misconfigured

_PROPERTY = "javax.net.ssl.trustStore"
_KIND = "PKCS12"
_WORD = "changeit"
"""Java's own word for its files of certificates, which hold no secret."""


def trust(files: str) -> None:
    """Have this process's Java, which runs already, trust the certificates (PEM) in ``files``, as
    `tideline.warehouse.hadoop.AUTHORITIES` has them, and those that it trusts now. It counts for
    connections that are not set up yet.

    Raises Misconfigured for a file that Java cannot read certificates from.
    """
    gateway: Any = SparkContext._gateway
    jvm = gateway.jvm
    trusted = jvm.java.util.LinkedHashSet(_trusted(gateway))
    known = trusted.size()
    for file in files.split(os.pathsep):
        trusted.addAll(_certificates(jvm, Path(file)))
    if trusted.size() > known:
        properties = _properties(_written(jvm, trusted))
        for name, value in properties.items():
            jvm.java.lang.System.setProperty(name, value)


def trusted_by_executors(given: Mapping[str, str]) -> dict[str, str]:
    """Return the settings with which executors trust what this process's Java trusts now; ``given``
    are Spark's settings so far.

    A relative name: Spark puts an application's files into the folder that an executor runs in,
    before its first task, and Java reads this one at the first connection.
    """
    gateway: Any = SparkContext._gateway
    jvm = gateway.jvm
    path = _written(jvm, _trusted(gateway))
    options = [f"-D{name}={value}" for name, value in _properties(Path(path.name)).items()]
    added = {"spark.files": (",", [str(path)]), "spark.executor.defaultJavaOptions": (" ", options)}
    return {
        name: separator.join([*([given[name]] if given.get(name) else []), *words])
        for name, (separator, words) in added.items()
    }


def _trusted(gateway: Any) -> Any:
    """Return the certificates that Java trusts now, as a Java list."""
    jvm = gateway.jvm
    net = jvm.javax.net.ssl
    factory = net.TrustManagerFactory.getInstance(net.TrustManagerFactory.getDefaultAlgorithm())
    kinds = gateway.new_array(jvm.java.lang.Class, 1)
    kinds[0] = jvm.java.lang.Class.forName("java.security.KeyStore")
    nothing = gateway.new_array(jvm.java.lang.Object, 1)
    # There are two methods of that name, and Py4J cannot say which of them is given a null.
    factory.getClass().getMethod("init", kinds).invoke(factory, nothing)
    found = jvm.java.util.ArrayList()
    for manager in factory.getTrustManagers():
        for certificate in manager.getAcceptedIssuers():
            found.add(certificate)
    return found


def _certificates(jvm: Any, file: Path) -> Any:
    try:
        stream = jvm.java.io.ByteArrayInputStream(file.read_bytes())
        found = jvm.java.security.cert.CertificateFactory.getInstance("X.509")
        certificates = found.generateCertificates(stream)
    except (OSError, Py4JJavaError) as error:
        raise _unusable(file, type(error).__name__) from None
    if certificates.isEmpty():
        raise _unusable(file, "it holds none")
    return certificates


def _unusable(file: Path, why: str) -> Misconfigured:
    return Misconfigured(
        f"the certificates of ca_file cannot be read for Spark: {why}, {file}",
        hint="it holds certificates as PEM, and Spark's driver may read it",
    )


def _written(jvm: Any, trusted: Any) -> Path:
    """Write a file of Java's with the certificates, which goes when Java ends."""
    # Py4J makes a text of each of Java's own.
    word = jvm.java.nio.CharBuffer.allocate(len(_WORD)).put(_WORD).array()
    store = jvm.java.security.KeyStore.getInstance(_KIND)
    store.load(None, word)
    for number, certificate in enumerate(_each(trusted)):
        store.setCertificateEntry(str(number), certificate)
    file = jvm.java.io.File.createTempFile("tideline-authorities-", ".p12")
    file.deleteOnExit()
    stream = jvm.java.io.FileOutputStream(file)
    try:
        store.store(stream, word)
    finally:
        stream.close()
    return Path(file.getPath())


def _properties(file: Path) -> dict[str, str]:
    """Return the properties by which Java takes the certificates of ``file`` alone."""
    return {_PROPERTY: str(file), f"{_PROPERTY}Type": _KIND, f"{_PROPERTY}Password": _WORD}


def _each(trusted: Any) -> Iterator[Any]:
    several = trusted.iterator()
    while several.hasNext():
        yield several.next()
