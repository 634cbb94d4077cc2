"""Reads a store that nobody has open from end to end, and says of each area whether it is whole.

The file is opened as by a broker: what a crash interrupted is finished or undone. Nothing else is changed.
"""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from penstock.errors import NotPossibleHere
from penstock.kernel.areas import AreaVerdict
from penstock.live.store.sqlite_file import SqliteFile


def verify_file(path: Path, *, vfs: str = "") -> list[AreaVerdict]:
    """Of each area; and without a name, of the file itself if it is not whole. Raises NotPossibleHere if it cannot be
    opened: somebody has it open, or it is damaged as a whole.
    """
    if not vfs and not path.is_file():
        raise NotPossibleHere(f"there is no store {path}", "name the file NAME.sqlite in the folder of --data")
    with closing(SqliteFile(path, vfs=vfs)) as file:
        return file.verify()
