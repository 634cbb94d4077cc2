"""LIKE in linear time, without regular expressions.

A pattern is cut at its `%` into segments; a segment is a run of literal characters and `_` holes. The first segment
must stand at the beginning of the text and the last at its end. Each segment in between is taken at its leftmost
place after the one before: if any placement exists, the leftmost does, so nothing is ever tried twice.

A segment without holes is found by `str.find`, which CPython keeps linear for long needles. One with holes is found
by shift-and: bit i of the state says that the last i+1 characters of the text fit the first i+1 of the segment, so a
step is one shift and one mask whatever the text is. Neither of them backtracks, and a hostile pattern such as
`%a_a_a%a_a_a%...` costs what a friendly one does.

The escape character (a backslash unless the text says otherwise) must be followed by `%`, `_` or itself, as in Spark
SQL: `'C:\\temp'` is refused and not guessed at.
"""

from __future__ import annotations

from functools import lru_cache

from penstock.errors import PredicateSyntaxError

DEFAULT_ESCAPE = "\\"
_HOLE = None  # an `_` of the pattern, where a literal character would stand in a segment
_Segment = tuple[str | None, ...]


class LikePattern:
    """A compiled pattern. `canonical` writes it with the default escape and without doubled `%`."""

    __slots__ = ("_finders", "_first", "_last", "_length_min", "canonical", "literal_prefix", "segments")

    def __init__(self, segments: tuple[_Segment, ...]) -> None:
        self.segments = segments
        self.canonical = "%".join(_written(segment) for segment in segments)
        holes = segments[0].index(_HOLE) if _HOLE in segments[0] else len(segments[0])
        self.literal_prefix = "".join(filter(None, segments[0][:holes]))
        self._first = _Anchored(segments[0])
        self._last = _Anchored(segments[-1])
        self._finders = tuple(_finder(segment) for segment in segments[1:-1])
        self._length_min = sum(map(len, segments))

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

    def fits(self, text: str, position: int) -> bool:
        return all(text.startswith(run, position + offset) for offset, run in self._runs)


class _LiteralFinder:
    __slots__ = ("_needle",)

    def __init__(self, needle: str) -> None:
        self._needle = needle

    def end_of_leftmost(self, text: str, start: int, end: int) -> int:
        """Where the leftmost occurrence inside text[start:end] ends; -1 if there is none."""
        position = text.find(self._needle, start, end)
        return position + len(self._needle) if position >= 0 else -1


class _HoleFinder:
    """Shift-and: `_masks[c]` has bit i set where the segment takes character c at place i, holes take any."""

    __slots__ = ("_any", "_done", "_masks")

    def __init__(self, segment: _Segment) -> None:
        self._any = sum(1 << place for place, character in enumerate(segment) if character is _HOLE)
        self._done = 1 << (len(segment) - 1)
        self._masks: dict[str, int] = {}
        for place, character in enumerate(segment):
            if character is not _HOLE:
                self._masks[character] = self._masks.get(character, self._any) | 1 << place

    def end_of_leftmost(self, text: str, start: int, end: int) -> int:
        """Where the leftmost occurrence inside text[start:end] ends; -1 if there is none."""
        state, done, masks, anything = 0, self._done, self._masks, self._any
        for position in range(start, end):
            state = (state << 1 | 1) & masks.get(text[position], anything)
            if state & done:
                return position + 1
        return -1


@lru_cache(maxsize=256)
def compile_like(pattern: str, escape: str = DEFAULT_ESCAPE) -> LikePattern:
    """The pattern, ready to match. Raises PredicateSyntaxError, whose caret points into the pattern."""
    if len(escape) != 1:
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


def _written(segment: _Segment) -> str:
    return "".join("_" if c is _HOLE else DEFAULT_ESCAPE + c if c in "%_\\" else c for c in segment)


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
