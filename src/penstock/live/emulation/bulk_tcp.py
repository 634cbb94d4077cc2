"""A bulk TCP connection of the kernel: as fast as it goes, in packets of a given size.

Started as a process, so that it can run in a network namespace: `python -m penstock.live.emulation.bulk_tcp` with
`receive HOST PORT`, then with `send HOST PORT SEGMENT_BYTES`. The receiver prints a line for each time it looks
(monotonic time, bytes so far); both end when their stdin does. NewReno where the kernel has it, because that is what
the response function describes.
"""

from __future__ import annotations

import select
import socket
import sys
import time

LOOK_EVERY = 0.1  # seconds
CONGESTION = b"reno"


def receive(host: str, port: int) -> None:
    """Take one connection, and count."""
    with socket.create_server((host, port)) as server:
        print("listening", flush=True)
        if not _readable(server):
            return
        taken, _ = server.accept()
    taken.setblocking(False)
    count, look_at = 0, time.monotonic() + LOOK_EVERY
    with taken:
        while True:
            ready, _, _ = select.select([taken, sys.stdin], [], [], max(0.0, look_at - time.monotonic()))
            if sys.stdin in ready:
                return
            if taken in ready:
                data = taken.recv(1 << 16)
                if not data:
                    return
                count += len(data)
            if time.monotonic() >= look_at:
                look_at += LOOK_EVERY
                print(f"{time.monotonic():.6f} {count}", flush=True)


def send(host: str, port: int, segment_bytes: int) -> None:
    """Send until stdin ends."""
    sock = socket.socket()
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, segment_bytes)
    try:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, CONGESTION)
    except OSError:
        print("this kernel has no reno; its own default is used", file=sys.stderr)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 17)
    sock.connect((host, port))
    sock.setblocking(False)
    data = bytes(1 << 14)
    with sock:
        while True:
            ready, writable, _ = select.select([sys.stdin], [sock], [])
            if ready:
                return
            if writable:
                sock.send(data)


def _readable(server: socket.socket) -> bool:
    ready, _, _ = select.select([server, sys.stdin], [], [])
    return server in ready


if __name__ == "__main__":
    if sys.argv[1] == "receive":
        receive(sys.argv[2], int(sys.argv[3]))
    else:
        send(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
