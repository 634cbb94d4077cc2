"""Waiting in tests without sleeping: for messages that must come, and for the proof that none comes.

    messages = await received(subscription, 3)                # the next three, or an error that says what is missing
    messages = await all_received(subscription, publisher)    # all that came of what the publisher has sent so far
    await nothing_received(subscription, publisher)           # the same, and it must be nothing
    await ready(subscription)                                 # all brokers know of it, after a reconnection too

That nothing comes cannot be seen by waiting: however long a test sleeps, the message may come a moment later. So
`all_received` sends something of its own after the messages in question, and waits for that: a *marker*, which the
publisher publishes and a second subscription of the same client receives.

What this proves: every message for which the publisher's `publish` had returned before, and which this subscription is
to get, has come. The marker takes the same way, connection by connection and queue by queue, and on connections and
links that are reliable nothing overtakes anything. Only the publisher's own rate limiter would let it pass, because it
belongs to no limited flow: with `when_full="drop"`, `publish` returns while the message waits there. So the marker is
not sent before the last of these has left, or was withheld; if that takes too long, this fails.

What it does not prove: anything about other publishers; about a `publish` that another task still waits for; about
datagram links, on which a message may be overtaken, or lost and repaired later (the marker may be lost too, and then
this fails); or about a network whose links change meanwhile. What can be seen to prove nothing is refused: a
subscription that is closed, a call that names no publisher, and embedded networks whose links are like that. A marker
is a message with the one attribute `penstock_marker`: a subscription to `TRUE` somewhere else in the test gets it.

Deadlines are there to end a test that fails. Those that hold return at once.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from itertools import count as count_from
from typing import Any, overload

from penstock.content.message import Identity, Message
from penstock.live.client.blocking import BlockingNetwork, BlockingSubscription
from penstock.live.client.blocking_stream import BlockingStreamSubscription
from penstock.live.client.network import QUEUE_MAX, Network
from penstock.live.client.stream_subscription import ReaderReport, StreamSubscription
from penstock.live.client.subscription import Subscription
from penstock.live.client.subscription_holder import SubscriptionHolder
from penstock.live.wire.addresses import Address
from penstock.overlay.packets import READY_WITHIN_MAX
from penstock.scenario.spec import LinkSpec
from penstock.streams.message import StreamMessage
from penstock.transport.client_service import TransportClient

WITHIN = 10.0  # seconds; no healthy machine comes near
LOOK_EVERY = 0.003
SHOWN_MAX = 10
MARKER = "penstock_marker"

links_at: dict[Address, Sequence[LinkSpec]] = {}  # of the embedded networks that are open, by their brokers
_numbers = count_from(1)


async def until(
    holds: Callable[[], bool | Awaitable[bool]], *, within: float = WITHIN, what: str | Callable[[], str] = ""
) -> None:
    """Return as soon as the condition holds; it is looked at every few milliseconds. Raises AssertionError.

    For what no message tells of, such as a count in a report; `what` is said if it does not hold in time.
    """
    deadline = time.monotonic() + within
    while True:
        found = holds()
        if await found if isinstance(found, Awaitable) else found:
            return
        if time.monotonic() > deadline:
            words = what if isinstance(what, str) else what()
            raise AssertionError(f"still not so after {within:g} s: {words or 'the condition does not hold'}")
        await asyncio.sleep(LOOK_EVERY)


@overload
async def received(subscription: Subscription, count: int, *, within: float = WITHIN) -> list[Message]: ...


@overload
async def received(subscription: StreamSubscription, count: int, *, within: float = WITHIN) -> list[StreamMessage]: ...


async def received(subscription: Subscription | StreamSubscription, count: int, *, within: float = WITHIN) -> list[Any]:
    """The next so many messages; those that come after them stay for the next who reads. Raises AssertionError."""
    was_open, got = subscription._opened, list[Any]()
    with suppress(TimeoutError):
        async with asyncio.timeout(within):
            while len(got) < count and (more := await subscription.take(count - len(got))):
                got += more
    if len(got) < count:
        raise _too_few(subscription, got, count, within, was_open)
    return got


@overload
def received_blocking(subscription: BlockingSubscription, count: int, *, within: float = WITHIN) -> list[Message]: ...


@overload
def received_blocking(
    subscription: BlockingStreamSubscription, count: int, *, within: float = WITHIN
) -> list[StreamMessage]: ...


def received_blocking(
    subscription: BlockingSubscription | BlockingStreamSubscription, count: int, *, within: float = WITHIN
) -> list[Any]:
    """The same without `await`."""
    was_open, got, deadline = subscription._subscription._opened, list[Any](), time.monotonic() + within
    while len(got) < count:
        more = subscription.take(count - len(got), timeout=max(0.0, deadline - time.monotonic()))
        if not more:
            raise _too_few(subscription._subscription, got, count, within, was_open)
        got += more
    return got


async def all_received(subscription: Subscription, *publishers: Network, within: float = WITHIN) -> list[Message]:
    """All messages that wait to be read, once everything that these publishers have sent so far has come.

    The head of the file says what that proves. Raises AssertionError if the marker does not come in time.
    """
    _check_proof(subscription, publishers)
    (number, markers), deadline = _marker_beside(subscription), time.monotonic() + within
    async with markers:
        sent = [await _send_marker(publisher, number, within, deadline) for publisher in publishers]
        await _marked(markers, sent, within, deadline)
    _check_open(subscription)
    return _without_markers(await subscription.take(QUEUE_MAX) if subscription.report().queue else [])


def all_received_blocking(
    subscription: BlockingSubscription, *publishers: BlockingNetwork, within: float = WITHIN
) -> list[Message]:
    """The same without `await`."""
    _check_proof(subscription._subscription, [publisher._network for publisher in publishers])
    (number, markers), deadline = _marker_beside(subscription._subscription), time.monotonic() + within
    do = subscription._network._do
    do(markers.open())
    try:
        sent = [one._do(_send_marker(one._network, number, within, deadline)) for one in publishers]
        do(_marked(markers, sent, within, deadline))
    finally:
        do(markers.close())
    _check_open(subscription._subscription)
    got: list[Message] = []
    while subscription._taken or subscription.report().queue:
        got += subscription.take()
    return _without_markers(got)


async def nothing_received(subscription: Subscription, *publishers: Network, within: float = WITHIN) -> None:
    """Nothing that these publishers have sent so far has come to this subscription, and nothing of it will."""
    _check_nothing(subscription.where, await all_received(subscription, *publishers, within=within))


def nothing_received_blocking(
    subscription: BlockingSubscription, *publishers: BlockingNetwork, within: float = WITHIN
) -> None:
    """The same without `await`."""
    _check_nothing(subscription.where, all_received_blocking(subscription, *publishers, within=within))


async def ready(subscription: Subscription, *, within: float = WITHIN) -> None:
    """Return when all brokers that can be reached know of it, so that what is published from now on finds it.

    Opening a subscription waits for that; this is for later, when its client has lost a broker and found another.
    Raises AssertionError. (A second subscription of the same client tells: a client asks for its old ones first.)
    """
    _, beside = _marker_beside(subscription, within)
    try:
        async with asyncio.timeout(within), beside:
            unknown = ", ".join(beside.unconfirmed)
    except TimeoutError:
        unknown = "any broker: there is no connection"
    if unknown:
        raise AssertionError(f"{subscription.where!r} is not known everywhere after {within:g} s; not to {unknown}")


def ready_blocking(subscription: BlockingSubscription, *, within: float = WITHIN) -> None:
    """The same without `await`."""
    subscription._network._do(ready(subscription._subscription, within=within))


def _check_open(subscription: Subscription) -> None:
    if not subscription._opened:
        raise AssertionError(f"the subscription {subscription.where!r} is not open; open it before you publish")
    if subscription._closed:
        raise AssertionError(
            f"the subscription {subscription.where!r} is closed, so nothing can come; ask before you close it"
        )


def _check_proof(subscription: Subscription, publishers: Sequence[Network]) -> None:
    """Refuse what a marker cannot prove."""
    if not publishers:
        raise AssertionError(
            f"no publisher is named, so nothing is proved for {subscription.where!r}; name everybody whose messages"
            " count: nothing_received(subscription, publisher)"
        )
    for publisher in publishers:
        links = links_at.get(publisher.address, ()) if publisher.address is not None else ()
        late = "have jitter: messages overtake each other" if any(link.jitter for link in links) else ""
        if subscription.options.recover and any(link.loss for link in links):
            late = late or "lose messages: with recover=True they come later, as repairs"
        if late:
            raise AssertionError(
                f"links of this embedded network {late}, so a marker proves nothing; wait with received() for what"
                " must come, or with until() for a count"
            )


def _marker_beside(subscription: Subscription, within: float = WITHIN) -> tuple[int, Subscription]:
    """A subscription of the same client, with the same options, to markers of a number of their own."""
    _check_open(subscription)
    holder, number = subscription._holder, next(_numbers)
    assert isinstance(holder, SubscriptionHolder)
    where, options = f"{MARKER} = {number}", subscription.options
    return number, Subscription(
        holder, holder.next_number(), where, QUEUE_MAX, None, options, min(within, READY_WITHIN_MAX)
    )


async def _send_marker(publisher: Network, number: int, within: float, deadline: float) -> Identity:
    """Publish a marker, once nothing that was published before it can leave after it."""
    last = publisher._count
    while waiting := _left_behind(publisher, last):
        if time.monotonic() > deadline:
            raise _held_up(publisher, f"{waiting} messages that {publisher.name} published wait to leave", within)
        await asyncio.sleep(LOOK_EVERY)
    try:
        async with asyncio.timeout(deadline - time.monotonic()):
            return await publisher.publish({MARKER: number})
    except TimeoutError:
        raise _held_up(publisher, f"the marker of {publisher.name} waits to leave", within) from None


def _left_behind(publisher: Network, last: int) -> int:
    """How many of its messages up to this one wait in its rate limiter, though `publish` has returned.

    What waits behind that, for the socket, stands in one queue with the marker.
    """
    link = publisher._link
    if link is None:
        return 0
    link.post()  # what was published in this very turn has not come to the rate limiter yet
    return sum(message.identity.count <= last for message in link.node.machine(TransportClient).transport.left_behind())


def _held_up(publisher: Network, what: str, within: float) -> AssertionError:
    slow = [flow.reason for flow in publisher.flows()]
    reason = f" ({'; '.join(slow)})" if slow else ""
    advice = "read what slows it down, publish less, or give it more time with within="
    return AssertionError(f"{what} after {within:g} s{reason}, so nothing is proved; {advice}")


async def _marked(markers: Subscription, sent: list[Identity], within: float, deadline: float) -> None:
    missing = dict.fromkeys(sent)
    with suppress(TimeoutError):
        async with asyncio.timeout(deadline - time.monotonic()):
            while missing and (marker := await anext(markers, None)) is not None:
                missing.pop(marker.identity, None)
    if missing:
        names = ", ".join(identity.publisher for identity in missing)
        raise AssertionError(
            f"the marker of {names} did not come within {within:g} s, so nothing is proved: a broker or a link on the"
            f" way is down, or loses messages{_advice(markers)}"
        )


def _without_markers(messages: list[Message]) -> list[Message]:
    return [message for message in messages if MARKER not in message.attributes]


def _check_nothing(where: str, got: list[Message]) -> None:
    if got:
        raise AssertionError(f"nothing was to come for {where!r}, and this came:\n{_listed(got)}")


def _too_few(
    subscription: Subscription | StreamSubscription, got: list[Message], count: int, within: float, was_open: bool
) -> AssertionError:
    found = f"{len(got)} of {count} messages came within {within:g} s for {subscription.where!r}"
    came = f"; these came:\n{_listed(got)}" if got else ""
    late = "" if was_open else "\nit was not open before: open it with 'async with' before you publish"
    return AssertionError(f"{found}{_advice(subscription)}{late}{came}")


def _advice(subscription: Subscription | StreamSubscription) -> str:
    """What the subscription's report knows that may be the reason."""
    report = subscription.report()
    clues = [] if report.connected else ["there is no connection to a broker"]
    clues += [f"the connection was lost {report.reconnects} times"] if report.reconnects else []
    if isinstance(report, ReaderReport):
        clues += [f"{report.received} have come so far, under the name '{report.durable}'"]
        return f" ({'; '.join(clues)})"
    clues += [f"{report.dropped} were dropped because they were not read in time"] if report.dropped else []
    clues += [f"{report.lost_at_broker} were dropped at the broker"] if report.lost_at_broker else []
    clues += [f"{report.known_lost} are known to be lost"] if report.known_lost else []
    clues += [f"{', '.join(report.unconfirmed)} did not confirm the subscription"] if report.unconfirmed else []
    return f" ({'; '.join(clues)})" if clues else ""


def _listed(messages: list[Message]) -> str:
    lines = [f"  {message.identity} {message.attributes}" for message in messages[:SHOWN_MAX]]
    more = len(messages) - SHOWN_MAX
    return "\n".join([*lines, f"  and {more} more"] if more > 0 else lines)
