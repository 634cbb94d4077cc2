"""Between the table of a shared name and its record on disk."""

from __future__ import annotations

from msgspec.structs import replace

from penstock.streams.log_codec import VERSION, NameRecord, SharedState
from penstock.streams.packets import Share, Tick
from penstock.streams.share_window import ShareWindow

ACK_WITHIN = 30.0  # seconds, for a new name that does not say
ATTEMPTS = 5


def new_record(where: str, position: Tick, horizon: Tick, share: Share) -> NameRecord:
    """The record of a name that is new."""
    limits = (share.ack_within or ACK_WITHIN, share.attempts_max or ATTEMPTS, share.failed)
    return NameRecord(VERSION, where, position, horizon, horizon, SharedState(*limits, position))


def record_of(window: ShareWindow, newest: NameRecord, failed_stream: str, seen: Tick) -> NameRecord:
    """What is to be written. An attempt that was never sent does not count."""
    places: dict[str, int] = {}
    position = before = window.floor()
    given = []
    for tick in sorted(window.open):
        message = window.open[tick]
        place = -1 if message.holder is None else places.setdefault(message.holder.reader, len(places))
        given.append((tick - before, message.tried, place))
        before = tick
    before = position
    failed = []
    for tick in sorted(window.failed):
        failed.append((tick - before, window.failed[tick].attempts))
        before = tick
    limits = (window.ack_within, window.attempts_max, failed_stream)
    forgiven = tuple((tick - position, one.forgiven) for tick, one in sorted(window.open.items()) if one.forgiven)
    share = SharedState(*limits, window.upto, tuple(places), tuple(given), tuple(failed), forgiven)
    return replace(newest, position=position, seen=seen, share=share)


def restored(record: NameRecord, lease: float, at: float) -> ShareWindow:
    """The table as an earlier life has left it."""
    share = record.share
    assert share is not None
    window = ShareWindow(share.upto, ack_within=share.ack_within, attempts_max=share.attempts_max, lease=lease)
    tick, forgiven = record.position, dict(share.forgiven)
    for step, attempts, place in share.given:
        tick += step
        holder = share.members[place] if place >= 0 else ""
        window.restore(tick, attempts, holder, at, forgiven=forgiven.get(tick - record.position, 0))
    tick = record.position
    for step, attempts in share.failed:
        tick += step
        window.restore_failed(tick, attempts)
    return window
