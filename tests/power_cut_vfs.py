"""A disk in memory below SQLite that forgets what was not synced when the power is cut, and fails when it is told to.

`kill -9` cannot find a sync that is missing, because what the process wrote stays in the system's cache. Here every
step that changes the disk (create, write, truncate, sync, delete) is kept in `steps`; `images` cuts the power before
each of them, and gives what the disk may hold then: all that was synced, and of the rest nothing, everything, or a part
drawn at random: each block of `BLOCK_BYTES` of a write survives or not, whatever became of earlier ones. A page of
SQLite is several blocks, so pages are torn.

A new file is in its folder when it has been synced for the first time, as SQLite's own layer sees to; a file that was
deleted may be back, unless the folder was synced too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from typing import NamedTuple

import apsw

BLOCK_BYTES = 512

Image = dict[str, bytes]  # what a disk holds


class Step(NamedTuple):
    """One change of the disk."""

    kind: str  # create, write, truncate, sync, delete
    name: str
    offset: int = 0  # or the new size
    data: bytes = b""
    synced: bool = False  # a deletion that is


class Disk:
    """Files, and every step that changed them. `fault` may raise before a step, or return how much of it is done."""

    def __init__(self, image: Image | None = None, fault: Callable[[Step], None] = lambda step: None) -> None:
        self.files = {name: bytearray(data) for name, data in (image or {}).items()}
        self.steps: list[Step] = []
        self.fault = fault
        self.random = Random(1)  # SQLite's salts: the same in every run

    def image(self) -> Image:
        """Everything, as a process sees it."""
        return {name: bytes(data) for name, data in self.files.items()}

    def step(self, step: Step) -> None:
        self.fault(step)
        self.steps.append(step)
        _apply(self.files, step)


class PowerCutVfs(apsw.VFS):
    """SQLite's way to the disk that is in use at the moment."""

    NAME = "power-cut"

    def __init__(self) -> None:
        self.disk = Disk()
        super().__init__(self.NAME, "")

    def xOpen(self, name: apsw.URIFilename | str | None, flags: list[int]) -> PowerCutFile:  # type: ignore[override] # noqa: N802
        path = name.filename() if isinstance(name, apsw.URIFilename) else str(name)
        if path not in self.disk.files:
            if not flags[0] & apsw.SQLITE_OPEN_CREATE:
                raise apsw.CantOpenError(path)
            self.disk.step(Step("create", path))
        flags[1] = flags[0]
        return PowerCutFile(self.disk, path)

    def xDelete(self, filename: str, syncdir: bool) -> None:  # noqa: N802
        self.disk.step(Step("delete", filename, synced=syncdir))

    def xAccess(self, pathname: str, flags: int) -> bool:  # noqa: N802
        return pathname in self.disk.files

    def xFullPathname(self, name: str) -> str:  # noqa: N802
        return name

    def xRandomness(self, numbytes: int) -> bytes:  # noqa: N802
        return self.disk.random.randbytes(numbytes)


class PowerCutFile:
    """An open file. Locks are not simulated: there is one process."""

    def __init__(self, disk: Disk, name: str) -> None:
        self._disk = disk
        self._name = name

    def xRead(self, amount: int, offset: int) -> bytes:  # noqa: N802
        return bytes(self._disk.files[self._name][offset : offset + amount])

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802
        self._disk.step(Step("write", self._name, offset, bytes(data)))

    def xTruncate(self, newsize: int) -> None:  # noqa: N802
        self._disk.step(Step("truncate", self._name, newsize))

    def xSync(self, flags: int) -> None:  # noqa: N802
        self._disk.step(Step("sync", self._name))

    def xFileSize(self) -> int:  # noqa: N802
        return len(self._disk.files[self._name])

    def xClose(self) -> None:  # noqa: N802
        pass

    def xLock(self, level: int) -> None:  # noqa: N802
        pass

    def xUnlock(self, level: int) -> None:  # noqa: N802
        pass

    def xCheckReservedLock(self) -> bool:  # noqa: N802
        return False

    def xSectorSize(self) -> int:  # noqa: N802
        return 4_096

    def xDeviceCharacteristics(self) -> int:  # noqa: N802
        return apsw.SQLITE_IOCAP_POWERSAFE_OVERWRITE  # as SQLite's own layer says

    def xFileControl(self, op: int, pointer: int) -> bool:  # noqa: N802
        return False


def images(
    steps: list[Step], start: Image, random: Random, parts: int = 2, first: int = 0
) -> Iterator[tuple[int, Image]]:
    """(number of steps done, what the disk may hold if the power is cut then), for every number from `first` on."""
    safe = {name: bytearray(data) for name, data in start.items()}
    unsafe: list[Step] = []
    for done in range(len(steps) + 1):
        if done >= first:
            yield from ((done, image) for image in _possible(safe, unsafe, random, parts))
        if done < len(steps):
            unsafe = _settled(safe, [*unsafe, steps[done]])


def _possible(safe: dict[str, bytearray], unsafe: list[Step], random: Random, parts: int) -> list[Image]:
    found: list[Image] = []
    for share in (0.0, 1.0, *(0.5 for _ in range(parts))) if unsafe else (0.0,):
        image = _survived(safe, unsafe, share, random)
        if image not in found:
            found.append(image)
    return found


def _settled(safe: dict[str, bytearray], unsafe: list[Step]) -> list[Step]:
    """Apply what the last step made safe; what is left is not."""
    last = unsafe[-1]
    if last.kind == "sync":
        for step in unsafe:
            if step.name == last.name:
                _apply(safe, step)
    elif last.kind == "delete" and last.synced:
        safe.pop(last.name, None)
    else:
        return unsafe
    return [step for step in unsafe if step.name != last.name]


def _survived(safe: dict[str, bytearray], unsafe: list[Step], share: float, random: Random) -> Image:
    files = {name: bytearray(data) for name, data in safe.items()}
    for step in unsafe:
        if step.kind == "write":
            for at in range(0, len(step.data), BLOCK_BYTES):
                if step.name in files and random.random() < share:
                    block = step.data[at : at + BLOCK_BYTES]
                    _apply(files, Step("write", step.name, step.offset + at, block))
        elif random.random() < share:
            _apply(files, step)
    return {name: bytes(data) for name, data in files.items()}


def _apply(files: dict[str, bytearray], step: Step) -> None:
    match step.kind:
        case "create":
            files.setdefault(step.name, bytearray())
        case "write":
            file = files.setdefault(step.name, bytearray())
            file.extend(bytes(max(0, step.offset - len(file))))
            file[step.offset : step.offset + len(step.data)] = step.data
        case "truncate":
            file = files.get(step.name, bytearray())
            del file[step.offset :]
            file.extend(bytes(step.offset - len(file)))
        case "delete":
            files.pop(step.name, None)
