"""What is reported to a publisher of those who slow it down: in the log, by a count, and by a callback.

Congestion control writes records when a flow is limited, when its quota changes and when a message was withheld. This
part turns them into words for people and keeps the count. Each slow subscriber is a warning once; how its quota changes
is logged as information. A stream that takes messages slowly is a warning too, when it begins. So is a full link or a
slow reader for which messages of ours are withheld; it is logged again if nothing was for QUIET seconds.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from math import inf
from time import monotonic

from penstock.kernel.rate_estimator import rate_text
from penstock.kernel.trace import Record
from penstock.rates.records import WithheldTold
from penstock.streams.publish_limit import PublishLimit
from penstock.streams.records import PublisherSlowed
from penstock.transport.records import FlowLimited, MessageWithheld

log = logging.getLogger("penstock.client")

SLOW_MAX = 1000  # names that are remembered
QUIET = 60.0  # seconds
NAME_LENGTH_MAX = 60


class FlowWatch:
    """Looks at the records of one client."""

    def __init__(self, name: str) -> None:
        self.withheld = 0  # messages that did not leave
        self.on_withheld: Callable[[int, str], None] | None = None
        self._name = name
        self._slow: dict[str, None] = {}  # who limits us, as the log knows
        self._full: dict[str, float] = {}  # links over which something was withheld, and when the last time

    def saw(self, record: Record) -> bool:
        """Take note; says whether the record was one of ours."""
        if type(record) is MessageWithheld:
            self.withheld += 1
            if self.on_withheld is not None:
                self.on_withheld(record.count, record.limiting_receiver)
        elif type(record) is FlowLimited:
            self._log(record)
        elif type(record) is PublisherSlowed:
            self._log_stream(record)
        elif type(record) is WithheldTold:
            self._log_withheld(record)
        else:
            return False
        return True

    def _log_withheld(self, record: WithheldTold) -> None:
        link, now = f"{record.origin} - {record.neighbour}", monotonic()
        before = self._full.pop(link, -inf)
        if len(self._full) >= SLOW_MAX:
            self._full.clear()
        self._full[link] = now
        if record.role != "publisher" or now - before < QUIET:
            return
        if record.slow_reader:
            text = "%s: messages of ours are withheld from %s, over %s"
        else:
            text = "%s: messages of ours are withheld from %s; the link %s is full"
        log.warning(text, self._name, record.to, link)

    def _log_stream(self, record: PublisherSlowed) -> None:
        limit = PublishLimit(record.rate, 0.0, record.edge, record.recovering, record.pace, 0.0)
        text = "%s: %s has taken no more than %s messages/s for %.0f s, and publish() waits: %s"
        log.warning(text, self._name, record.pubend, rate_text(record.rate), record.limited_for, limit.reason)

    def _log(self, record: FlowLimited) -> None:
        flow = record.flow if len(record.flow) <= NAME_LENGTH_MAX else record.flow[:NAME_LENGTH_MAX] + "..."
        if not record.quota:
            self._slow.pop(record.limiting_receiver, None)
            log.info("%s: %s no longer limits %s", self._name, record.limiting_receiver, flow)
            return
        known = record.limiting_receiver in self._slow
        if len(self._slow) >= SLOW_MAX:
            self._slow.clear()
        self._slow[record.limiting_receiver] = None
        level, first = (logging.INFO, "") if known else (logging.WARNING, "at first ")
        text = "%s: %s takes %sno more than %s messages/s of %s"
        log.log(level, text, self._name, record.limiting_receiver, first, rate_text(record.quota), flow)
