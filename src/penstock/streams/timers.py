"""The timers of streams, in brokers and in clients, all of them."""

from __future__ import annotations

from enum import IntEnum


class StreamTimer(IntEnum):
    """A timer that exists more than once has a key; it stands behind the name here."""

    # Of a pubend, at its broker.
    PUBEND_LEASE = 0  # (pubend): promise more ticks to disk
    PUBEND_SILENCE = 1  # (pubend): it is idle, and says so
    PUBEND_RETENTION = 2  # (pubend): look for what need not be kept any more
    PUBEND_SESSIONS = 3  # (pubend): look for readers that are gone
    PUBEND_NAMES = 4  # (pubend): write the positions of durable names
    PUBEND_QUERY = 6  # (pubend): ask whether all can keep up
    PUBEND_SHAPE = 7  # (pubend): the rate allows the next publication
    PUBEND_WAITING = 8  # (pubend): tell publishers that their messages wait for the rate
    PUBEND_SHARES = 9  # (pubend): look for members that are gone, and messages that are overdue
    PUBEND_OPEN = 5  # (pubend): the disk has failed; try again
    # Of a broker on the way, or at the edge.
    JOIN = 10  # (pubend): tell upstream what is wanted now
    REFRESH = 11  # tell Joins, sessions and adverts again
    NACK = 12  # (pubend): ask for what is unknown
    EXPIRE = 13  # look for downstream neighbours that are gone
    PROGRESS = 14  # (pubend): tell the pubend what readers are done with
    COMMAND = 15  # (request): an answer from another broker is overdue
    ADVERT = 16  # tell what is hosted here, or has changed
    REGISTER = 17  # (pubend, durable name): the pubend has not answered
    PUBLISH = 18  # (request): the pubend has not answered
    EDGE_LAG = 19  # (pubend): have the data come that a query spoke of?
    CONFIRM = 26  # tell edges which acknowledgements are on disk
    # Of a client.
    CLIENT_RETRY = 20  # a publication may not have been answered in time
    CLIENT_SUBSCRIBE = 21  # (subscription): DurableSubscribe has not been answered, or is to be tried again
    CLIENT_ACKNOWLEDGE = 22  # (subscription): send what the application has acknowledged
    CLIENT_RESUME = 23  # (subscription, pubend): a hole has not closed
    CLIENT_COMMAND = 24  # (request): a command has not been answered
    CLIENT_READ = 25  # (request): a slice of the log has not come
