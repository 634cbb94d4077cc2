"""Penstock: publish/subscribe by content, in a network that shares its links fairly.

    async with penstock.connect("penstock://127.0.0.1:7420") as network:
        async with network.subscribe("symbol = 'IBM' AND price < 120") as messages:
            await network.publish({"symbol": "IBM", "price": 119.5}, b"...")
            async for message in messages:
                print(message.attributes)

`connect_blocking` is the same without `await`. With `connect(..., transport=True)` at the publisher a subscription can
ask for order and recovery (`subscribe(..., ordered=True, recover=True)`). `network.stream("orders")` stores what is
published and delivers it exactly once, whatever crashes. Every type that these take or return is named
here. Errors that Penstock raises on purpose are in `penstock.errors`; those that a client meets are named here too.
`penstock.testing` has brokers for your own tests.
Nothing is imported before it is used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.content.message import Attributes, Identity, Message, Value
    from penstock.errors import (
        InvalidMessage,
        InvalidOption,
        InvalidPredicate,
        NotConnected,
        OutcomeUnknown,
        PenstockError,
        PredicateSyntaxError,
        PredicateTooLarge,
        ReaderEnded,
        StreamError,
        StreamGap,
        StreamRefused,
        UnknownStream,
        Unreachable,
    )
    from penstock.kernel.trace import Record, Trace
    from penstock.live.client.blocking import BlockingNetwork, BlockingSubscription, connect_blocking
    from penstock.live.client.blocking_stream import (
        BlockingSharedSubscription,
        BlockingStream,
        BlockingStreamSubscription,
    )
    from penstock.live.client.network import Network, connect
    from penstock.live.client.shared_subscription import SharedSubscription
    from penstock.live.client.stream import Receipt, Stream
    from penstock.live.client.stream_subscription import ReaderReport, StreamSubscription
    from penstock.live.client.subscription import Report, Subscription
    from penstock.live.wire.addresses import Address
    from penstock.live.wire.connection import ConnectionConfig
    from penstock.overlay.config import ClientConfig
    from penstock.pricing.config import PricingClientConfig
    from penstock.pricing.status import PriceReport
    from penstock.rates.config import RatesClientConfig
    from penstock.rates.told import WithheldFlow
    from penstock.retrieval.config import RetrievalClientConfig
    from penstock.streams.client_publishing import PublisherReport
    from penstock.streams.client_slowdowns import StreamSlowdown
    from penstock.streams.config import StreamsClientConfig
    from penstock.streams.message import StreamMessage, StreamSlice
    from penstock.transport.config import TransportConfig
    from penstock.transport.flow_query import Slowdown
    from penstock.transport.sender.rate_limiter import FlowReport

    __version__: str

__all__ = [
    "Address",
    "Attributes",
    "BlockingNetwork",
    "BlockingSharedSubscription",
    "BlockingStream",
    "BlockingStreamSubscription",
    "BlockingSubscription",
    "ClientConfig",
    "ConnectionConfig",
    "FlowReport",
    "Identity",
    "InvalidMessage",
    "InvalidOption",
    "InvalidPredicate",
    "Message",
    "Network",
    "NotConnected",
    "OutcomeUnknown",
    "PenstockError",
    "PredicateSyntaxError",
    "PredicateTooLarge",
    "PriceReport",
    "PricingClientConfig",
    "PublisherReport",
    "RatesClientConfig",
    "ReaderEnded",
    "ReaderReport",
    "Receipt",
    "Record",
    "Report",
    "RetrievalClientConfig",
    "SharedSubscription",
    "Slowdown",
    "Stream",
    "StreamError",
    "StreamGap",
    "StreamMessage",
    "StreamRefused",
    "StreamSlice",
    "StreamSlowdown",
    "StreamSubscription",
    "StreamsClientConfig",
    "Subscription",
    "Trace",
    "TransportConfig",
    "UnknownStream",
    "Unreachable",
    "Value",
    "WithheldFlow",
    "connect",
    "connect_blocking",
]

_PLACES = {
    "Address": "live.wire.addresses",
    "Attributes": "content.message",
    "BlockingNetwork": "live.client.blocking",
    "BlockingStream": "live.client.blocking_stream",
    "BlockingSharedSubscription": "live.client.blocking_stream",
    "BlockingStreamSubscription": "live.client.blocking_stream",
    "BlockingSubscription": "live.client.blocking",
    "ClientConfig": "overlay.config",
    "ConnectionConfig": "live.wire.connection",
    "FlowReport": "transport.sender.rate_limiter",
    "Identity": "content.message",
    "InvalidMessage": "errors",
    "InvalidOption": "errors",
    "InvalidPredicate": "errors",
    "Message": "content.message",
    "Network": "live.client.network",
    "NotConnected": "errors",
    "OutcomeUnknown": "errors",
    "PenstockError": "errors",
    "PredicateSyntaxError": "errors",
    "PredicateTooLarge": "errors",
    "PublisherReport": "streams.client_publishing",
    "ReaderEnded": "errors",
    "ReaderReport": "live.client.stream_subscription",
    "Receipt": "live.client.stream",
    "Record": "kernel.trace",
    "Report": "live.client.subscription",
    "Slowdown": "transport.flow_query",
    "Stream": "live.client.stream",
    "StreamError": "errors",
    "StreamGap": "errors",
    "StreamMessage": "streams.message",
    "StreamRefused": "errors",
    "StreamSlice": "streams.message",
    "SharedSubscription": "live.client.shared_subscription",
    "StreamSlowdown": "streams.client_slowdowns",
    "StreamSubscription": "live.client.stream_subscription",
    "StreamsClientConfig": "streams.config",
    "Subscription": "live.client.subscription",
    "Trace": "kernel.trace",
    "PriceReport": "pricing.status",
    "PricingClientConfig": "pricing.config",
    "RatesClientConfig": "rates.config",
    "RetrievalClientConfig": "retrieval.config",
    "TransportConfig": "transport.config",
    "UnknownStream": "errors",
    "Unreachable": "errors",
    "Value": "content.message",
    "WithheldFlow": "rates.told",
    "connect": "live.client.network",
    "connect_blocking": "live.client.blocking",
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return _version()
    if name in ("errors", "testing"):
        return import_module(f"penstock.{name}")
    place = _PLACES.get(name)
    if place is None:
        raise AttributeError(f"penstock has no '{name}'; the names for users are {', '.join(__all__)}")
    return getattr(import_module(f"penstock.{place}"), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__", *globals()]


def _version() -> str:
    """As the package says that is installed; sources that nobody installed have none."""
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("penstock")
    except PackageNotFoundError:
        return "0+unknown"
