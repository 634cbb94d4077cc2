"""Where brokers are: addresses, URLs with several of them, and free ports.

penstock://127.0.0.1:7420                one broker
penstock://10.0.0.1:7420,10.0.0.2:7420   several: tried in turn; each may have the scheme
penstock://[::1]                         the usual port, 7420
127.0.0.1:7420                           the scheme may be left out
"""

from __future__ import annotations

import os
import socket
from errno import EADDRINUSE
from random import SystemRandom
from typing import NamedTuple

from penstock.errors import PenstockError

DEFAULT_PORT = 7420
DEFAULT_URL = f"penstock://127.0.0.1:{DEFAULT_PORT}"
URL_VARIABLE = "PENSTOCK_URL"
LOOPBACK = "127.0.0.1"
FREE_PORTS = (20_000, 32_000)  # below 32,768
_SCHEME = "penstock://"


class Address(NamedTuple):
    """A host, by name or number, and a port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_address(text: str) -> Address:
    """An address as people write it: `host:port`, `host`, `[v6]:port`, or `:port` on this machine."""
    host, colon, port = text.rpartition(":")
    if not colon or text.endswith("]"):
        host, port = text, str(DEFAULT_PORT)
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise PenstockError(f"'{text}' is no address; write an IPv6 address in brackets, such as [::1]:{DEFAULT_PORT}")
    if not (port.isascii() and port.isdigit() and int(port[:6]) <= 65_535) or any(sign in host for sign in " /@"):
        raise PenstockError(f"'{text}' is no address; write host:port, such as {LOOPBACK}:{DEFAULT_PORT}")
    return Address(host or LOOPBACK, int(port))


def parse_url(url: str) -> list[Address]:
    """The addresses in a URL, or in one without its scheme, in the order in which they are to be tried."""
    if not isinstance(url, str):
        raise PenstockError(f"{url!r} is no URL; {_as_text(url)}")
    parts = [part.strip().removeprefix(_SCHEME).rstrip("/") for part in url.split(",")]
    if any("://" in part for part in parts):
        raise PenstockError(f"'{url}' is no URL of Penstock; write {DEFAULT_URL}, or {LOOPBACK}:{DEFAULT_PORT}")
    addresses = [parse_address(part) for part in parts if part]
    if not addresses:
        raise PenstockError(f"'{url}' names no broker; write {DEFAULT_URL}")
    return addresses


def _as_text(given: object) -> str:
    """How to write what somebody gave in place of a URL."""
    if isinstance(given, int):
        return f"write the text '{LOOPBACK}:{given}' for a port of this machine"
    if isinstance(given, tuple) and len(given) == 2:
        return f"write the text '{given[0]}:{given[1]}'"
    return f"write a text, such as '{DEFAULT_URL}'"


def default_url() -> str:
    """What PENSTOCK_URL says, or a broker on this machine."""
    return os.environ.get(URL_VARIABLE) or DEFAULT_URL


def free_ports(count: int, host: str = LOOPBACK) -> list[int]:
    """Ports at which nobody listens now, neither for TCP nor for UDP; all held at once, so that they differ.

    They lie below those that systems give to connections that go out: one of these would be in the way of a broker that
    comes back to its port.
    """
    held: list[socket.socket] = []
    ports: list[int] = []
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        while len(ports) < count:
            stream = socket.socket(family, socket.SOCK_STREAM)
            datagram = socket.socket(family, socket.SOCK_DGRAM)
            held += [stream, datagram]
            port = SystemRandom().randrange(*FREE_PORTS)
            try:
                stream.bind((host, port))
                datagram.bind((host, port))
            except OSError as error:
                if error.errno != EADDRINUSE:
                    raise
                continue  # somebody has it; another one, then
            ports.append(port)
    finally:
        for sock in held:
            sock.close()
    return ports
