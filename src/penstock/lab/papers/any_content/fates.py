"""What became of every message that was due to a subscription: the truth, whatever the transport says of itself.

Due is what was published while the subscription was in force. A message is *lost* for a subscription if a link lost a
copy on its way there, repaired or not, or if it never came. It is *declared* if the client's transport has named its
number as lost, and *suspected* if it has named it in doubt, because no ledger came that tells whether it is wanted: its
report counts that as pending, then as unrevealed. What is neither is silent. `pipeline/metrics/fates.py` finds all this
in the traces.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from penstock.lab.engine.view import Floats, View
from penstock.lab.engine.ways import first_hops
from penstock.pipeline import metrics


@dataclass(frozen=True)
class MessageFates:
    """One place for each message and subscription. Times are NaN for what did not happen."""

    published_at: Floats
    lost_at: Floats  # when the first copy was lost on the way; of what never came without that: when it was published
    delivered_at: Floats
    declared_at: Floats
    suspected_at: Floats
    last: NDArray[np.bool_]  # whether it is the last message of its publisher's life
    end: float  # of the run

    @property
    def lost(self) -> NDArray[np.bool_]:
        """Did not come by itself, by the first copy."""
        return ~np.isnan(self.lost_at)

    @property
    def recovered(self) -> NDArray[np.bool_]:
        """Was lost, and came."""
        return self.lost & ~np.isnan(self.delivered_at)

    @property
    def silent(self) -> NDArray[np.bool_]:
        """Was lost, did not come, and nobody was told."""
        return self.undeclared & np.isnan(self.suspected_at)

    @property
    def undeclared(self) -> NDArray[np.bool_]:
        """Was lost, did not come, and at most a doubt is in the report."""
        return self.lost & np.isnan(self.delivered_at) & np.isnan(self.declared_at)

    def recovery_times(self) -> Floats:
        """From the loss until the message came, of those that did."""
        times: Floats = (self.delivered_at - self.lost_at)[self.recovered]
        return times

    def notice_times(self) -> Floats:
        """From the loss of a publisher's last message until it was declared or had come; to the end if neither."""
        chosen = self.lost & self.last
        noticed = np.fmin(self.declared_at, self.delivered_at)[chosen]
        times: Floats = np.where(np.isnan(noticed), self.end, noticed) - self.lost_at[chosen]
        return times


def fates(view: View) -> MessageFates:
    """Of one run."""
    tables = view.tables
    ways = first_hops(view.scenario)
    lost = (tables.dropped, tables.loss_detected, tables.loss_suspected, tables.lost_on_link)
    found = metrics.fates(view.truth, tables.published, tables.delivered, *lost, ways).toArrow()
    times = ("published_at", "ended_at", "delivered_at", "declared_at", "suspected_at")
    published, ended, delivered, declared, suspected = (found[name].to_numpy().astype(float) for name in times)
    missed = np.isnan(ended) & np.isnan(delivered)
    return MessageFates(
        published_at=published,
        lost_at=np.where(missed, published, ended),
        delivered_at=delivered,
        declared_at=declared,
        suspected_at=suspected,
        last=found["last"].to_numpy(zero_copy_only=False),
        end=view.scenario.duration + view.scenario.drain,
    )
