"""One Spark session per process: quiet, small by default, on this machine or on any cluster.

`local[*]` uses every core here; `--master spark://...` (or yarn, k8s) uses a cluster whose workers see the same run
folders and have the same Python environment. Under `spark-submit` the master and the Java are already chosen, and what
was chosen there stays.

Jobs over one run are small, so there are few shuffle partitions and no web page; adaptive execution joins and splits
them where a job turns out larger. `fast=True` compiles less (C1 only) and collects garbage serially: Spark is then
ready in half the time, but long jobs take half as long again. It is for tests and small jobs. Either way Java starts
from an archive of classes, once there is one (see `java`).

Spark's own chatter is switched off at the source, by a log4j file of ours: nothing below an error reaches stderr.
"""

from __future__ import annotations

import atexit
import logging
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING
from zlib import crc32

from penstock.errors import SparkUnavailable
from penstock.pipeline.java import archive_options, cache_folder, drop_unusable_archive, find_java, shim_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCAL = "local[*]"
SHUFFLE_PARTITIONS = 4  # two tasks for each of two cores; see facts in docs/benchmarks.md
DRIVER_MEMORY = "2g"  # locally the driver does all the work; ten million deliveries fit
FAST_BYTES_MAX = 32 << 20  # of trace: three million deliveries; below this the fast start wins
FAST_START = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"

# Both ways to write a checkpoint write a file and rename it. The default gives each file its permissions, and starts a
# `chmod` for that where Hadoop's native library is missing, as it does from pip: 0.1 s of every batch.
CHECKPOINTS = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"

LOG4J = """# Made by Penstock: errors only, on stderr.
rootLogger.level = error
rootLogger.appenderRef.stderr.ref = stderr
# Spark would raise the level of a shell to WARN, and say so, if its logger had no level of its own.
logger.shell.name = org.apache.spark.api.python.PythonGatewayServer
logger.shell.level = error
# A task that fails is raised where the job was asked for, and said there in a line; here it would fill a screen.
logger.task.name = org.apache.spark.executor.Executor
logger.task.level = off
logger.tasks.name = org.apache.spark.scheduler.TaskSetManager
logger.tasks.level = off
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = spark: %m%n%ex{short}
"""

_session: SparkSession | None = None


def spark_session(
    master: str | None = None, *, fast: bool = False, settings: dict[str, str] | None = None
) -> SparkSession:
    """The session of this process, started if there is none; raises SparkUnavailable.

    Without a master, `spark-submit` decides or, failing that, this machine does all the work. A session that runs
    already is returned as it is: a second one in one process would share its context and ignore its settings.
    """
    global _session
    if _session is None:
        _session = _start(master, fast, settings or {})
        atexit.register(stop_session)
    return _session


def stop_session() -> None:
    """End the session, if there is one. A later `spark_session` starts anew, with the same Java process."""
    global _session
    if _session is not None:
        with suppress(Exception):  # Java may have ended before; then there is nothing to stop
            _session.stop()
        _session = None


def java_in_use() -> str:
    """Which Java this process runs Spark with, or would run it with."""
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        return "the Java of spark-submit"
    chosen = os.environ.get("PENSTOCK_JAVA")
    return chosen or str(find_java())


def _start(master: str | None, fast: bool, settings: dict[str, str]) -> SparkSession:
    try:
        import pyspark
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise SparkUnavailable(
            f"PySpark is not installed ({error})", "install the extra: pip install 'penstock[spark]'"
        ) from None
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    if not submitted:
        prepare_environment(local=(master or LOCAL).startswith("local"))
    logging.getLogger("SQLQueryContextLogger").disabled = True  # it writes every error as JSON before it is raised
    logging.getLogger().addFilter(_not_of_a_dead_java)
    builder = SparkSession.builder.appName("penstock")
    if master or not submitted:
        builder = builder.master(master or LOCAL)
    chosen = _settings(fast)
    archive = None
    if not submitted and (master or LOCAL).startswith("local"):
        spark = Path(pyspark.__file__).parent
        archive = f"{java_in_use()}, Spark {pyspark.__version__} in {spark}", spark / "jars"
        chosen["spark.driver.extraJavaOptions"] += f" {archive_options(*archive)}"
        chosen["spark.sql.streaming.checkpointFileManagerClass"] = CHECKPOINTS
    for name, value in {**chosen, **settings}.items():
        builder = builder.config(name, value)
    try:
        session = builder.getOrCreate()
        session.sparkContext.setLogLevel("ERROR")
        if archive:
            drop_unusable_archive(*archive, started=True)
    except Exception as error:
        if archive:
            drop_unusable_archive(*archive, started=False)
        where = master or LOCAL
        raise SparkUnavailable(
            f"Spark does not start on {where} with {java_in_use()}: {_first_line(error)}",
            "see above for what it says itself; for a cluster, check that the master's address is right and it is up",
        ) from error
    return session


def prepare_environment(*, local: bool) -> None:
    """Set what Spark reads from the environment: Java, the workers' Python, and this machine's address."""
    # A process that we started has our shim as its JAVA_HOME already, unless somebody set another one.
    if "PENSTOCK_JAVA" not in os.environ or Path(os.environ.get("JAVA_HOME", "")).parent != cache_folder():
        java = find_java()
        os.environ["JAVA_HOME"] = str(shim_home(java))
        os.environ["PENSTOCK_JAVA"] = str(java)
    # The small Java program that puts Spark's command together is done before a compiler would pay.
    os.environ.setdefault("SPARK_LAUNCHER_OPTS", FAST_START)
    # Without these, workers take whatever `python3` comes first on the path.
    os.environ["PYSPARK_PYTHON"] = os.environ["PYSPARK_DRIVER_PYTHON"] = sys.executable
    if local:
        os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"  # a host name that resolves to nothing reachable stops Spark


def log_settings() -> Path:
    """The log4j file for every Java process that we start; each version of it has a name of its own."""
    path = cache_folder() / f"log4j2-{crc32(LOG4J.encode()):08x}.properties"
    if not path.exists() or path.read_text() != LOG4J:
        draft = path.with_name(f".{path.name}.{os.getpid()}")
        draft.write_text(LOG4J)
        draft.replace(path)
    return path


def _settings(fast: bool) -> dict[str, str]:
    options = f"-Dlog4j2.configurationFile={log_settings().as_uri()}"
    if fast:
        options = f"{options} {FAST_START}"
    return {
        "spark.driver.extraJavaOptions": options,
        "spark.executor.extraJavaOptions": FAST_START if fast else "",
        "spark.driver.memory": DRIVER_MEMORY,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.adaptive.enabled": "true",
        "spark.sql.shuffle.partitions": str(SHUFFLE_PARTITIONS),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.execution.arrow.pyspark.enabled": "true",
        "spark.sql.parquet.compression.codec": "zstd",
        "spark.hadoop.parquet.page.verify-checksum.enabled": "true",
    }


def _not_of_a_dead_java(record: logging.LogRecord) -> bool:
    """Whoever calls a Java that has ended gets an error; the library between them fills a screen as well."""
    return record.msg != "Exception while sending command."


def _first_line(error: Exception) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
