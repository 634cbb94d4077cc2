"""A PostgreSQL server for tests: its own folder, a free port of 127.0.0.1, and an ordinary user; killed as one likes.

`why_not` says why there can be none on this machine, for a skip.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

import pytest

START_WITHIN = 60.0
MEMORY = Path("/dev/shm")  # a crashed server syncs a thousand files, and a killed process loses nothing of a file
USERS = ("postgres", "nobody")  # if we are root, whom PostgreSQL refuses

CONFIG = """
listen_addresses = '127.0.0.1'
dynamic_shared_memory_type = mmap
unix_socket_directories = ''
shared_buffers = '16MB'
max_connections = 20
autovacuum = off
max_wal_size = '128MB'
"""


def programs() -> Path | None:
    """The folder of the server's programs."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parts[-3]))
    on_path = shutil.which("initdb")
    if found or on_path:
        return found[-1].parent if found else Path(str(on_path)).resolve().parent
    return None


def ordinary_user() -> str | None:
    """Whom to run the server as; empty if as ourselves."""
    if os.geteuid() != 0:
        return ""
    known = {entry.pw_name for entry in pwd.getpwall()}
    return next((name for name in USERS if name in known), None)


def why_not() -> str:
    """Empty if there can be a server."""
    if find_spec("psycopg") is None:
        return "psycopg is not installed (the extra 'postgres')"
    if programs() is None:
        return "no PostgreSQL server is installed (Debian: apt install postgresql)"
    return "" if ordinary_user() is not None else "PostgreSQL does not run as root, and there is no other user"


class PostgresServer:
    """Made anew, and started; `stop` deletes it."""

    def __init__(self) -> None:
        found, self._user = programs(), ordinary_user()
        assert found is not None
        self._programs = found
        self._folder = Path(
            tempfile.mkdtemp(prefix="penstock-postgres-", dir=MEMORY if os.access(MEMORY, os.W_OK) else None)
        )
        self._data = self._folder / "data"
        self._process: subprocess.Popen[bytes] | None = None
        if self._user:
            shutil.chown(self._folder, self._user)
        options = (
            "--no-sync",
            "--no-locale",
            "--encoding=UTF8",
            "--auth=trust",
            "--wal-segsize=1",
            "--username=tester",
        )
        made = subprocess.run([*self._run("initdb"), *options, "-D", self._data], capture_output=True, **self._as())
        assert made.returncode == 0, made.stderr.decode()
        with (self._data / "postgresql.conf").open("a") as file:
            file.write(CONFIG)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.start()

    def url(self, port: int = 0, **parameters: str) -> str:
        """Where it is; or the same through another port."""
        query = "&".join(f"{name}={value}" for name, value in parameters.items())
        return f"postgresql://tester@127.0.0.1:{port or self.port}/postgres?{query}"

    def start(self, *options: str) -> None:
        """Begin to start it; a crashed one recovers."""
        command = [*self._run("postgres"), "-D", str(self._data), "-p", str(self.port), *options]
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, **self._as())

    def ready(self) -> None:
        """Wait until it answers; whoever killed it may have left processes that are in the way."""
        import psycopg

        end = time.monotonic() + START_WITHIN
        while True:
            assert self._process is not None
            if self._process.poll() is not None:
                self.start()
            try:
                psycopg.connect(self.url(connect_timeout="5")).close()
                return
            except psycopg.OperationalError:
                assert time.monotonic() < end, (self._folder / "log").read_text()[-2_000:]
                time.sleep(0.01)

    def kill(self) -> None:
        """All its processes, at once."""
        assert self._process is not None
        for pid in [self._process.pid, *children(self._process.pid)]:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait()

    def limit_files(self, pid: int, size_bytes: int | None) -> None:
        """One of its processes may write no file beyond this size; root may be forbidden to say so, its user is not."""
        limit = "unlimited" if size_bytes is None else str(size_bytes)
        program = shutil.which("prlimit")  # found as ourselves: its user may not look into every folder of our path
        if program is None:
            pytest.skip("there is no prlimit here")
        subprocess.run([os.path.realpath(program), f"--pid={pid}", f"--fsize={limit}:"], check=True, **self._as())

    def execute(self, text: str, *values: object) -> list[tuple[object, ...]]:
        """As somebody else at the server would."""
        import psycopg

        with psycopg.connect(self.url(), autocommit=True) as connection:
            cursor = connection.execute(text.encode(), values)
            return cursor.fetchall() if cursor.description is not None else []

    def stop(self) -> None:
        self.kill()
        shutil.rmtree(self._folder)

    def _run(self, program: str) -> list[str]:
        return [str(self._programs / program)]

    def _as(self) -> dict[str, str]:
        return {"user": self._user, "group": "nogroup" if self._user == "nobody" else self._user} if self._user else {}


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def a_server() -> Iterator[PostgresServer]:
    """For a fixture."""
    server = PostgresServer()
    try:
        server.ready()
        yield server
    finally:
        server.stop()
