"""Whether a SQLite file takes for free only what is: or else what is stored next would overwrite what was before.

SQLite trusts its list of free pages. A bit that has flipped there, or a page of the list that has gone back to an older
state, gives out pages that are in use. But the file also has maps that say of each page what it is, for giving space
back (`auto_vacuum`). So the list is compared with the maps, each time that the file is opened. That reads one page in
820, and the list. The format is described at sqlite.org/fileformat2.html, sections 1.5 and 1.8.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import unpack, unpack_from

PAGE_BYTES = 4_096
_MAPPED = PAGE_BYTES // 5  # pages of which one page of the map tells
_FREE = 2  # the type in the map
_LISTED_MAX = PAGE_BYTES // 4 - 2  # by one page of the list

ReadAt = Callable[[int, int], bytes]  # bytes, offset


def free_pages_agree(read_at: ReadAt, pages: int) -> bool:
    """Whether the list of free pages and the maps say the same."""
    listed = _listed(read_at, pages)
    return listed is not None and sorted(listed) == _mapped(read_at, pages)


def _listed(read_at: ReadAt, pages: int) -> list[int] | None:
    """The pages that the list calls free, its own among them; None if it is no list."""
    page, count = unpack(">2I", read_at(8, 32))
    found: list[int] = []
    while page:
        if not 1 < page <= pages or len(found) >= count:
            return None
        block = read_at(PAGE_BYTES, (page - 1) * PAGE_BYTES)
        found.append(page)
        page, number = unpack_from(">2I", block)
        if number > _LISTED_MAX:
            return None
        found += unpack_from(f">{number}I", block, 8)
    return found if len(found) == count else None


def _mapped(read_at: ReadAt, pages: int) -> list[int]:
    """The pages that the maps call free, in order."""
    found: list[int] = []
    for page in range(2, pages + 1, _MAPPED + 1):
        types = read_at(PAGE_BYTES, (page - 1) * PAGE_BYTES)[: 5 * _MAPPED : 5]
        at = types.find(_FREE)
        while at >= 0 and page + 1 + at <= pages:
            found.append(page + 1 + at)
            at = types.find(_FREE, at + 1)
    return found
