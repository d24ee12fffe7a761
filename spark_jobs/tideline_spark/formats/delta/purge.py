"""Rewrites files of a Delta table without the rows that their deletion vectors mark.

``REORG TABLE … APPLY (PURGE)`` does not run on a cluster: Delta 4.4 has tasks look for a session,
which only a local master's have (delta-io/delta, pull request 5697), to find files with dropped
columns. This has Delta rewrite files as that statement does, and names them itself, from the log.
"""

from __future__ import annotations

from typing import Any

from tideline_spark.formats.delta.access import DeltaAccess

_COMMANDS = "org.apache.spark.sql.delta.commands"
_ARGUMENTS = (
    "org.apache.spark.sql.SparkSession",
    "org.apache.spark.sql.delta.SnapshotDescriptor",
    "scala.collection.immutable.Seq",
)
"""Those of the method of Delta's ``DeltaReorgOperation``: of the files of a snapshot, it returns
those to rewrite."""


def purge(access: DeltaAccess) -> None:
    """Rewrite each file that has a deletion vector, in one commit that changes no data. Raises what
    Delta raises, for a lost race as well."""
    jvm, snapshot = access.jvm, access.look_up()._2()
    found = snapshot.allFiles().where("deletionVector IS NOT NULL").collectAsList()
    operation = _always(jvm, snapshot, access.sequence(found))
    options = jvm.scala.jdk.javaapi.OptionConverters
    delta = jvm.org.apache.spark.sql.delta.commands
    # What the statement gives: files of any size, with any number of rows that are deleted.
    context = delta.DeltaOptimizeContext(
        jvm.scala.Option.apply(operation),
        options.toScala(jvm.java.util.OptionalLong.of(0)),
        jvm.scala.Option.empty(),
        options.toScala(jvm.java.util.OptionalDouble.of(0.0)),
        False,
    )
    nothing = access.sequence()
    session = access.session._jsparkSession
    delta.OptimizeExecutor(
        session, snapshot, jvm.scala.Option.empty(), nothing, nothing, False, context
    ).optimize()


def _always(jvm: Any, snapshot: Any, files: Any) -> Any:
    """Return a ``DeltaReorgOperation`` that returns ``files`` for any arguments."""
    loader = snapshot.getClass().getClassLoader()
    arguments = jvm.java.util.ArrayList()
    for name in _ARGUMENTS:
        arguments.add(loader.loadClass(name))
    handles = jvm.java.lang.invoke.MethodHandles
    same = handles.constant(loader.loadClass(_ARGUMENTS[-1]), files)
    return jvm.java.lang.invoke.MethodHandleProxies.asInterfaceInstance(
        loader.loadClass(f"{_COMMANDS}.DeltaReorgOperation"),
        handles.dropArguments(same, 0, arguments),
    )
