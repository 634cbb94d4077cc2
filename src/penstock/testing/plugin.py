"""Fixtures for pytest. Ask for them in your conftest.py; nothing is loaded in a run that does not:

    pytest_plugins = ["penstock.testing.plugin"]

    def test_an_alert_comes(penstock_network):
        with penstock.connect_blocking(penstock_network.url) as network: ...

The brokers run in a thread with an event loop of their own, so tests without `async` and tests with any plugin for
`async` can use them alike.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from penstock.testing.background import BlockingEmbeddedNetwork, embedded_network_blocking


@pytest.fixture
def penstock_network() -> Iterator[BlockingEmbeddedNetwork]:
    """One broker, for this test alone."""
    with embedded_network_blocking() as network:
        yield network


@pytest.fixture(scope="session")
def penstock_session_network() -> Iterator[BlockingEmbeddedNetwork]:
    """One broker for all tests that ask for it; they see each other's messages, so use names and values of your own."""
    with embedded_network_blocking() as network:
        yield network


@pytest.fixture
def make_penstock_network() -> Iterator[Callable[..., BlockingEmbeddedNetwork]]:
    """A function that makes networks for this test; its arguments are those of `embedded_network`."""
    with ExitStack() as stack:

        def make(*arguments: Any, **settings: Any) -> BlockingEmbeddedNetwork:
            return stack.enter_context(embedded_network_blocking(*arguments, **settings))

        yield make
