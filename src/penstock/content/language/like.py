"""LIKE in linear time, without regular expressions.

A pattern is cut at its `%` into segments; a segment is a run of literal characters and `_` holes. The first segment
must stand at the beginning of the text and the last at its end. Each segment in between is taken at its leftmost
place after the one before: if any placement exists, the leftmost does, so nothing is ever tried twice.

A segment without holes is found by `str.find`. One with holes is found in all places at once: for each of its literal
characters there is an integer whose bit p says that the text has the character at p; the integers, each shifted by the
character's place in the segment, are ANDed, and the lowest bit left is the leftmost place. That is a handful of
operations on words of 64 characters for each literal of the segment, whatever the text is, and no loop over characters.
The integers of the last texts are remembered, because a broker asks many patterns about one message.
Nothing here backtracks, and a hostile pattern such as `%a_a_a%a_a_a%...` costs what a friendly one does.

`match_steps` says what a pattern costs for a text of MEASURED_CHARACTERS, in tenths of a microsecond; longer texts cost
more in proportion.

There is no escape character unless the text names one (`ESCAPE '!'`), as in standard SQL: a backslash is a character
like any other, as it is in our strings. One that is named must be followed by `%`, `_` or itself; anything else is
refused and not guessed at.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from penstock.errors import PredicateSyntaxError

NO_ESCAPE = ""
_CANONICAL_ESCAPE = "\\"
MEASURED_CHARACTERS = 256
_RECENT_MAX = 64  # texts: as many as a message may have
MASK_STEPS = 10  # to find all places of one character in a text
_HOLE = None  # an `_` of the pattern, where a literal character would stand in a segment
_Segment = tuple[str | None, ...]


class LikePattern:
    """A compiled pattern. `canonical` writes it without doubled `%`, and with an escape only if it needs one."""

    __slots__ = (
        "_finders",
        "_first",
        "_last",
        "_length_min",
        "canonical",
        "literal_prefix",
        "match_steps",
        "searched",
        "segments",
    )

    def __init__(self, segments: tuple[_Segment, ...]) -> None:
        self.segments = segments
        needs_escape = any(c in ("%", "_") for segment in segments for c in segment)
        escape = _CANONICAL_ESCAPE if needs_escape else NO_ESCAPE
        self.canonical = ("%".join(_written(segment, escape) for segment in segments), escape)
        holes = segments[0].index(_HOLE) if _HOLE in segments[0] else len(segments[0])
        self.literal_prefix = "".join(filter(None, segments[0][:holes]))
        self._first = _Anchored(segments[0])
        self._last = _Anchored(segments[-1])
        self._finders = tuple(_finder(segment) for segment in segments[1:-1])
        self._length_min = sum(map(len, segments))
        self.match_steps = 3 + self._first.runs + self._last.runs + sum(finder.steps for finder in self._finders)
        # The characters whose places a match must find, MASK_STEPS each for all patterns that are asked about one text.
        self.searched = frozenset(c for finder in self._finders if isinstance(finder, _HoleFinder) for c in finder)

    @property
    def literal(self) -> str | None:
        """The only text that matches, if the pattern has neither `%` nor `_`."""
        return self.literal_prefix if len(self.segments) == 1 and _HOLE not in self.segments[0] else None

    @property
    def is_prefix(self) -> bool:
        """Whether it is `literal_prefix` and a `%`, nothing else."""
        return len(self.segments) == 2 and not self.segments[1] and _HOLE not in self.segments[0]

    def matches(self, text: str) -> bool:
        """Whether the whole text fits."""
        if len(text) < self._length_min or not self._first.fits(text, 0):
            return False
        if len(self.segments) == 1:
            return len(text) == self._length_min
        end = len(text) - self._last.length
        if not self._last.fits(text, end):
            return False
        position = self._first.length
        for finder in self._finders:
            position = finder.end_of_leftmost(text, position, end)
            if position < 0:
                return False
        return True


class _Anchored:
    """A segment whose place is known: only its literal runs need to be compared."""

    __slots__ = ("_runs", "length")

    def __init__(self, segment: _Segment) -> None:
        self.length = len(segment)
        self._runs = tuple(_literal_runs(segment))

    @property
    def runs(self) -> int:
        """How many comparisons it takes."""
        return len(self._runs)

    def fits(self, text: str, position: int) -> bool:
        for offset, run in self._runs:  # noqa: SIM110  # most segments here are empty, and a generator costs as much
            if not text.startswith(run, position + offset):
                return False
        return True


class _LiteralFinder:
    __slots__ = ("_needle",)

    def __init__(self, needle: str) -> None:
        self._needle = needle

    @property
    def steps(self) -> int:
        """At worst `find` stops at each place of the text, and there compares much of the needle."""
        return 8 + len(self._needle) // 4

    def end_of_leftmost(self, text: str, start: int, end: int) -> int:
        """Where the leftmost occurrence inside text[start:end] ends; -1 if there is none."""
        position = text.find(self._needle, start, end)
        return position + len(self._needle) if position >= 0 else -1


class _HoleFinder:
    """All places at once, see the top; iterating gives its literal characters."""

    __slots__ = ("_length", "_literals")

    def __init__(self, segment: _Segment) -> None:
        self._length = len(segment)
        self._literals = tuple((place, character) for place, character in enumerate(segment) if character is not _HOLE)

    def __iter__(self) -> Iterator[str]:
        return (character for _, character in self._literals)

    @property
    def steps(self) -> int:
        return 6 + 2 * len(self._literals)

    def end_of_leftmost(self, text: str, start: int, end: int) -> int:
        """Where the leftmost occurrence inside text[start:end] ends; -1 if there is none."""
        if end - start < self._length:
            return -1
        masks = _masks(text)
        found = -1 << start
        for place, character in self._literals:
            mask = masks.get(character)
            if mask is None:
                mask = masks[character] = _mask(text, character)
            found &= mask >> place
            if not found:
                return -1
        after = (found & -found).bit_length() - 1 + self._length
        return after if after <= end else -1


_recent: dict[str, dict[str, int]] = {}  # the texts that were searched last, and where their characters are
_IS_MARK = bytes(ord("1") if byte == 1 else ord("0") for byte in range(256))


def _masks(text: str) -> dict[str, int]:
    masks = _recent.get(text)
    if masks is None:
        if len(_recent) >= _RECENT_MAX:
            _recent.clear()
        masks = _recent[text] = {}
    return masks


def _mask(text: str, character: str) -> int:
    """Bit p is set where text[p] is the character. It becomes byte 1, and no other character does."""
    marked = text.replace("\1", "\0").replace(character, "\1") if character != "\1" else text
    return int(marked.encode("latin-1", "replace").translate(_IS_MARK)[::-1] or b"0", 2)


@lru_cache(maxsize=256)
def compile_like(pattern: str, escape: str = NO_ESCAPE) -> LikePattern:
    """The pattern, ready to match. Raises PredicateSyntaxError, whose caret points into the pattern."""
    if len(escape) > 1:
        raise PredicateSyntaxError(escape, 0, f"ESCAPE takes exactly one character, this has {len(escape)}")
    segments: list[_Segment] = []
    segment: list[str | None] = []
    position = 0
    while position < len(pattern):
        character = pattern[position]
        if character == escape:
            segment.append(_escaped(pattern, position, escape))
            position += 1
        elif character == "%":
            if segment or not segments:  # the second % of a pair says nothing new
                segments.append(tuple(segment))
                segment = []
        else:
            segment.append(_HOLE if character == "_" else character)
        position += 1
    segments.append(tuple(segment))
    return LikePattern(tuple(segments))


def _escaped(pattern: str, position: int, escape: str) -> str:
    following = pattern[position + 1 : position + 2]
    if following and following in ("%", "_", escape):
        return following
    raise PredicateSyntaxError(
        pattern,
        position,
        f"in a LIKE pattern the escape character {escape} must be followed by %, _ or itself;"
        f" write it twice to mean the character, or choose another with ESCAPE",
    )


def _written(segment: _Segment, escape: str) -> str:
    return "".join("_" if c is _HOLE else escape + c if c in ("%", "_", escape) else c for c in segment)


def _literal_runs(segment: _Segment) -> list[tuple[int, str]]:
    runs: list[tuple[int, str]] = []
    for place, character in enumerate(segment):
        if character is _HOLE:
            continue
        if runs and runs[-1][0] + len(runs[-1][1]) == place:
            runs[-1] = (runs[-1][0], runs[-1][1] + character)
        else:
            runs.append((place, character))
    return runs


def _finder(segment: _Segment) -> _LiteralFinder | _HoleFinder:
    if _HOLE in segment:
        return _HoleFinder(segment)
    return _LiteralFinder("".join(filter(None, segment)))
