"""A plain script without `async`: watch a price, and act when it falls.

`connect_blocking` has the same verbs as `connect`. Messages are taken in by a thread of the library while the script
does something else, and wait in the subscription until it comes back for them.
"""

import os

import penstock
from penstock.testing import embedded_network_blocking

PRICES = [124.0, 121.5, 119.8, 122.0, 118.2, 117.9]


def main(url: str) -> None:
    with (
        penstock.connect_blocking(url, name="trader") as trader,
        trader.subscribe("symbol = 'IBM' AND price < 120") as bargains,
        penstock.connect_blocking(url, name="exchange") as exchange,
    ):
        for price in PRICES:
            exchange.publish({"symbol": "IBM", "price": price}, b"from the script")
            exchange.publish({"symbol": "AMD", "price": price})  # nobody asked for it: it goes nowhere

        for message in bargains:
            print(f"buy {message.attributes['symbol']} at {message.attributes['price']}")
            if message.attributes["price"] == PRICES[-1]:
                break

        # Or take what is there, and do not wait for ever.
        more = bargains.take(timeout=0.1)
        print(f"then {len(more)} more within a tenth of a second; received {bargains.report().received} in all")


if __name__ == "__main__":
    if url := os.environ.get("PENSTOCK_URL"):
        main(url)
    else:
        with embedded_network_blocking() as brokers:
            main(brokers.url)
