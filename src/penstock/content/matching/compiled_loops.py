"""The compiled loops of both indexes. Importing this module imports numba, which takes seconds: import it late.

`match_messages` works on the records of `exact_table`, `cover_messages` on the columns of `encoded_table`; the layout
stands there. Both append to output buffers of the caller and stop before a message for which there may be no room:
they return how far they came, and the caller enlarges the buffers and calls again.

All checks run without a branch: the candidate is written in any case and the write place moves on by 0 or 1. For the
second stage, on records, a variant with branches was measured and was neither faster nor slower.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
import numpy as np

SORT_BY_INSERTION_MAX = 32  # 20 and 50 measured the same within noise
RADIX_BITS = 6
RADIX = 1 << RADIX_BITS


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compile on first use; keep the result on disk if some directory for it can be written."""
    try:
        return numba.njit(cache=True, nogil=True, boundscheck=False)(function)
    except RuntimeError:  # numba's word for "no directory to cache in"
        return numba.njit(nogil=True, boundscheck=False)(function)


@compiled
def sort_by_insertion(values, start, end):  # type: ignore[no-untyped-def]  # numba infers the types
    for i in range(start + 1, end):
        value = values[i]
        j = i
        while j > start and values[j - 1] > value:
            values[j] = values[j - 1]
            j -= 1
        values[j] = value


@compiled
def sort_by_digits(values, start, end):  # type: ignore[no-untyped-def]  # numba infers the types
    """Radix sort, from the lowest digit up to the highest in which the values, as offsets from the least, differ.

    At 115 keys of 17 bits it took 1.7 us where numba's own quicksort took 3.1 us.
    """
    size = end - start
    lowest = values[start:end].min()
    offsets = np.empty(size, np.uint64)
    others = np.empty(size, np.uint64)
    counts = np.empty(RADIX, np.int64)
    top = np.uint64(0)
    for i in range(size):
        offsets[i] = np.uint64(values[start + i]) - np.uint64(lowest)  # wraps around to the true difference
        top |= offsets[i]
    shift = np.uint64(0)
    while shift < np.uint64(64) and top >> shift:
        counts[:] = 0
        for i in range(size):
            counts[(offsets[i] >> shift) & np.uint64(RADIX - 1)] += 1
        before = 0
        for digit in range(RADIX):
            count = counts[digit]
            counts[digit] = before
            before += count
        for i in range(size):
            digit_of = (offsets[i] >> shift) & np.uint64(RADIX - 1)
            others[counts[digit_of]] = offsets[i]
            counts[digit_of] += 1
        offsets, others = others, offsets
        shift += np.uint64(RADIX_BITS)
    for i in range(size):
        values[start + i] = np.int64(offsets[i] + np.uint64(lowest))


@compiled
def sort_distinct(values, start, end):  # type: ignore[no-untyped-def]  # numba infers the types
    """Sort values[start:end] in place, drop repetitions and return the new end."""
    if end - start < 2:
        return end
    if end - start <= SORT_BY_INSERTION_MAX:
        sort_by_insertion(values, start, end)
    else:
        sort_by_digits(values, start, end)
    last = start
    for i in range(start + 1, end):
        last += values[i] != values[last]
        values[last] = values[i]
    return last + 1


@compiled
def match_messages(  # type: ignore[no-untyped-def]  # numba infers the types
    first, atoms, atom_ends, number_columns, number_bounds, number_ends, inexact,
    lows, highs, buckets, entries, records, candidates, sure, sure_ends, unsure, unsure_ends,
):  # fmt: skip
    """Match messages from place `first` on. Returns the place reached and the room that the next message needs."""
    messages = len(atom_ends) - 1
    sure_end = sure_ends[first]
    unsure_end = unsure_ends[first]
    for place in range(first, messages):
        for a in range(atom_ends[place], atom_ends[place + 1]):
            column = buckets[atoms[a]].column
            lows[column] = atoms[a]
            highs[column] = atoms[a]
        for n in range(number_ends[place], number_ends[place + 1]):
            lows[number_columns[n]] = number_bounds[0, n]
            highs[number_columns[n]] = number_bounds[1, n]
        found = 0
        for a in range(atom_ends[place], atom_ends[place + 1]):
            bucket = buckets[atoms[a]]
            for e in range(bucket.start, bucket.start + bucket.count):
                column = entries[e].column
                candidates[found] = entries[e].record
                found += (entries[e].low <= highs[column]) & (lows[column] <= entries[e].high)
        room = sure_end + found < len(sure) and unsure_end + found < len(unsure)
        if room:
            exact = not inexact[place]
            for c in range(found):
                record = records[candidates[c]]
                passed = (
                    (record.low_1 <= highs[record.column_1])
                    & (lows[record.column_1] <= record.high_1)
                    & (record.low_2 <= highs[record.column_2])
                    & (lows[record.column_2] <= record.high_2)
                    & (record.low_3 <= highs[record.column_3])
                    & (lows[record.column_3] <= record.high_3)
                )
                certain = exact & (record.exact != 0)
                sure[sure_end] = record.key
                sure_end += passed & certain
                unsure[unsure_end] = record.key
                unsure_end += passed & (not certain)
            sure_end = sort_distinct(sure, sure_ends[place], sure_end)
            unsure_end = sort_distinct(unsure, unsure_ends[place], unsure_end)
            sure_ends[place + 1] = sure_end
            unsure_ends[place + 1] = unsure_end
        for a in range(atom_ends[place], atom_ends[place + 1]):
            lows[buckets[atoms[a]].column] = np.nan
            highs[buckets[atoms[a]].column] = np.nan
        for n in range(number_ends[place], number_ends[place + 1]):
            lows[number_columns[n]] = np.nan
            highs[number_columns[n]] = np.nan
        if not room:
            return place, found + 1
    return messages, 0


@compiled
def cover_messages(  # type: ignore[no-untyped-def]  # numba infers the types
    messages, buckets, words, owner_numbers, owners, missing, seen, found, ends
):
    """For each row of words in `messages`, the sorted owners of an encoding that is a subset of it.

    Buckets are the outer loop and messages the inner one, so a bucket stays in the nearest cache for the whole batch.
    The innermost loops run over neighbouring entries of one word: they become vector instructions.
    """
    block = len(missing)
    last = len(buckets) - 1  # the bucket of the empty encoding, which is a subset of everything
    for bit in range(len(buckets)):
        end = buckets[bit, 0] + buckets[bit, 1]
        for start in range(buckets[bit, 0], end, block):
            size = min(block, end - start)
            for m in range(len(messages)):
                if bit != last and not (messages[m, bit >> 6] >> np.uint64(bit & 63)) & np.uint64(1):
                    continue
                outside = ~messages[m, 0]
                for e in range(size):
                    missing[e] = words[0, start + e] & outside
                for w in range(1, len(words)):
                    outside = ~messages[m, w]
                    for e in range(size):
                        missing[e] |= words[w, start + e] & outside
                for e in range(size):
                    if missing[e] == 0:
                        seen[m, owner_numbers[start + e]] = True
    count = 0
    for m in range(len(messages)):
        first = count
        for number in range(len(owners)):
            if seen[m, number]:
                found[count] = owners[number]
                seen[m, number] = False
                count += 1
        count = sort_distinct(found, first, count)
        ends[m + 1] = count
