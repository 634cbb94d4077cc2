"""A standalone Spark cluster on loopback, from the pip package: a master and workers of one core each."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from penstock.pipeline.session import FAST_START, log_settings, prepare_environment

PATIENCE = 120.0  # seconds for a process of the cluster to listen; it takes three on an idle machine


@contextmanager
def standalone_cluster(folder: Path, workers: int = 2) -> Iterator[str]:
    """The address of a master that has so many workers; their files go to the folder."""
    master = free_port()
    address = f"spark://127.0.0.1:{master}"
    ui = ["--webui-port", "0"]
    with ExitStack() as stack:
        arguments = ["--host", "127.0.0.1", "--port", str(master), *ui]
        stack.enter_context(daemon("master.Master", *arguments, port=master, work=folder))
        for number in range(workers):
            port = free_port()
            arguments = ["--host", "127.0.0.1", "--port", str(port), "--cores", "1", "--memory", "1g", *ui]
            arguments += ["--work-dir", str(folder / f"worker-{number}"), address]
            stack.enter_context(daemon("worker.Worker", *arguments, port=port, work=folder))
        yield address


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def daemon(kind: str, *arguments: str, port: int, work: Path) -> Iterator[None]:
    """A process of the cluster, ended with the block; ready once it listens."""
    import pyspark

    prepare_environment(local=True)
    home = Path(pyspark.__file__).parent
    options = f"-Dlog4j2.configurationFile={log_settings().as_uri()} {FAST_START}"
    environment = os.environ | {
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": options,
        "SPARK_HOME": str(home),
    }
    command = [home / "bin" / "spark-class", f"org.apache.spark.deploy.{kind}", *arguments]
    with (work / f"{kind}-{port}.log").open("w") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log, cwd=work)
    try:
        deadline = time.monotonic() + PATIENCE
        while not listens(port):
            assert time.monotonic() < deadline, f"{kind} does not listen"
            with suppress(subprocess.TimeoutExpired):  # it should not end: that would be the reason why nobody listens
                process.wait(0.1)
                raise AssertionError((work / f"{kind}-{port}.log").read_text())
        yield
    finally:
        process.terminate()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
