"""From what an application asks for to a durable subscription that can be asked for; or an error that says why not."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from penstock.content.language.parser import parse_predicate
from penstock.errors import InvalidOption, InvalidPredicate, wrong_choice
from penstock.streams.config import StreamSubscriptionOptions
from penstock.streams.packets import (
    ACK_WITHIN_MAX,
    ATTEMPTS_MAX,
    DURABLE_NAME_BYTES_MAX,
    PUBENDS_MAX,
    STREAM_NAME_BYTES_MAX,
    TICK_MAX,
    WHERE_BYTES_MAX,
    Position,
    Share,
    name_problem,
    stream_of,
)
from penstock.streams.start_times import start_on_wire

ACK_MODES = ("auto", "manual")


class DurableRequest(Struct, frozen=True):
    """A durable subscription that an application has asked for."""

    number: int
    stream: str
    durable: str
    where: str
    start: str  # as it travels
    takeover: bool
    client: str
    incarnation: int
    share: Share | None = None


def durable_request(
    number: int, where: str, options: StreamSubscriptionOptions, client: str, incarnation: int
) -> DurableRequest:
    """What these options ask for; raises InvalidOption or InvalidPredicate."""
    if not options.stream:
        raise InvalidOption(
            "stream", "is missing: durable, start_at, takeover, ack and share are for streams, such as 'orders'"
        )
    _check("stream", name_problem(options.stream, "a stream", STREAM_NAME_BYTES_MAX))
    if not options.durable:
        raise InvalidOption(
            "durable", "is missing: a stream is read under a name that keeps the place, such as 'billing'"
        )
    _check("durable", name_problem(options.durable, "a durable name", DURABLE_NAME_BYTES_MAX))
    if options.ack not in ACK_MODES:
        raise InvalidOption("ack", wrong_choice(options.ack[:40], ACK_MODES))
    start = start_on_wire(options.start_at)
    if len(where) > WHERE_BYTES_MAX:
        raise InvalidPredicate(f"{len(where)} characters; on a stream the limit is {WHERE_BYTES_MAX}")
    parse_predicate(where)
    name = (options.stream, options.durable, where, start)
    return DurableRequest(number, *name, options.takeover, client, incarnation, _share(options))


def _share(options: StreamSubscriptionOptions) -> Share | None:
    """How the name is to be shared; None: it is not."""
    if not options.share:
        for option, value in (("ack_within", options.ack_within), ("attempts_max", options.attempts_max)):
            if value:
                raise InvalidOption(option, "is for names that are shared: share=True")
        if options.failed:
            raise InvalidOption("failed", "is for names that are shared: share=True")
        return None
    if options.takeover:
        raise InvalidOption("takeover", "is for names with one reader; a shared name has several")
    if not 0.0 <= options.ack_within <= ACK_WITHIN_MAX:
        raise InvalidOption("ack_within", f"is {options.ack_within}; say seconds, {ACK_WITHIN_MAX:.0f} at most")
    if not 0 <= options.attempts_max <= ATTEMPTS_MAX:
        raise InvalidOption("attempts_max", f"is {options.attempts_max}; {ATTEMPTS_MAX} is the limit")
    if options.failed:
        _check("failed", name_problem(options.failed, "a stream", STREAM_NAME_BYTES_MAX))
    if options.failed == options.stream:
        raise InvalidOption("failed", f"is '{options.failed}', the stream itself; name another one")
    return Share(float(options.ack_within), options.attempts_max, options.failed)


def check_positions(positions: Sequence[Position], stream: str) -> None:
    """What an application has kept of this stream; raises InvalidOption."""
    pubends = dict.fromkeys(pubend for pubend, _, _ in positions)
    if len(pubends) != len(positions) or len(positions) > PUBENDS_MAX:
        raise InvalidOption("positions", f"are {len(positions)}; there is one for each pubend, {PUBENDS_MAX} at most")
    for pubend, epoch, tick in positions:
        if stream_of(pubend) != stream or not pubend.rpartition("/")[2].isdecimal():
            raise InvalidOption("positions", f"name '{pubend[:100]}', which is no pubend of the stream '{stream}'")
        if not (0 < epoch <= TICK_MAX and 0 <= tick <= TICK_MAX):
            raise InvalidOption("positions", f"of '{pubend}' say epoch {epoch} and tick {tick}; use those that you got")


def _check(option: str, problem: str) -> None:
    if problem:
        raise InvalidOption(option, problem)
