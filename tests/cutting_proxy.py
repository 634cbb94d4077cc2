"""A proxy before a server that cuts a connection at a chosen moment, once, and then lets everything through again."""

from __future__ import annotations

import socket
from contextlib import suppress
from threading import Lock, Thread
from typing import Literal

Direction = Literal["request", "reply"]


class CuttingProxy:
    """Counts what goes through in each direction; the piece at which it cuts does not."""

    def __init__(self, to_port: int) -> None:
        self._to_port = to_port
        self._lock = Lock()
        self._armed: tuple[Direction, int] | None = None
        self._half = False
        self._sockets: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        Thread(target=self._accept, daemon=True).start()

    def cut(self, direction: Direction, after: int, *, half: bool = False) -> None:
        """When so many more pieces have gone this way. Half: the server does not notice."""
        with self._lock:
            self._armed, self._half = (direction, after), half

    def was_cut(self) -> bool:
        """Whether it came to it; it will not any more."""
        with self._lock:
            armed, self._armed = self._armed, None
        return armed is None

    def close(self) -> None:
        for sock in [self._listener, *self._sockets]:
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            sock.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self._to_port))
                self._sockets += [client, server]
                Thread(target=self._pump, args=(client, server, "request"), daemon=True).start()
                Thread(target=self._pump, args=(server, client, "reply"), daemon=True).start()

    def _pump(self, source: socket.socket, target: socket.socket, direction: Direction) -> None:
        client, server = (source, target) if direction == "request" else (target, source)
        with suppress(OSError):
            while piece := source.recv(1 << 20):
                if self._cuts(direction):
                    if self._half:
                        client.shutdown(socket.SHUT_RDWR)
                        return
                    break
                target.sendall(piece)
        with suppress(OSError):
            client.shutdown(socket.SHUT_RDWR)
        if not self._half:
            with suppress(OSError):
                server.shutdown(socket.SHUT_RDWR)

    def _cuts(self, direction: Direction) -> bool:
        with self._lock:
            if self._armed is None or self._armed[0] != direction:
                return False
            left = self._armed[1]
            self._armed = (direction, left - 1) if left else None
            return not left
