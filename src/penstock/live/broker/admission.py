"""Who may connect to a broker, as what, and which packets each role may send.

A client gets a link of its own, for as long as it stays, and its name belongs to it meanwhile: a second connection
under the name is the same client, which shows the secret of the first, or is refused. A broker must be a neighbour in
the plan; its link has a fixed number. Each check returns the reason for a refusal in words, or an empty text; the
server closes the connection with that reason.

State: an entry for each link. Bound: `connections_max`, for each link has a connection.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hmac import compare_digest

from penstock.content.envelope import CONTROL_MARK
from penstock.kernel.link import Link, LinkInfo, LinkKind
from penstock.kernel.packet import BROKER, CLIENT, Packet
from penstock.live.broker.plan import BrokerPlan
from penstock.live.wire.frames import Handshake
from penstock.services import sent_by


class Admission:
    """The links of one broker: those to neighbours from the plan, those to clients as they come and go."""

    def __init__(self, plan: BrokerPlan, *, connections_max: int, client_queue_packets: int) -> None:
        self.neighbours = dict(enumerate(plan.neighbours))
        self.links: dict[Link, LinkInfo] = {
            link: LinkInfo(
                neighbour.name, neighbour.kind, neighbour.spec.cost, neighbour.spec.queue_packets, neighbour.broker
            )
            for link, neighbour in self.neighbours.items()
        }
        self._plan = plan
        self._connections_max = connections_max
        self._client_queue_packets = client_queue_packets
        self._by_peer: dict[str, Link] = {info.peer: link for link, info in self.links.items()}
        self._secrets: dict[Link, bytes] = {}  # by which a client shows that it is the one of this name
        self._next_link = len(plan.neighbours)
        self._taken: frozenset[type[Packet]] = frozenset()
        self._allowed: dict[str, frozenset[type[Packet]]] = {BROKER: frozenset(), CLIENT: frozenset()}

    def allow(self, taken: Iterable[type[Packet]]) -> None:
        """The broker takes packets of these kinds; each role may send those of them that are for it to send."""
        kinds = self._taken = frozenset(taken)
        self._allowed = {role: kinds & sent_by(role) for role in (BROKER, CLIENT)}

    def link_of(self, peer: str) -> Link | None:
        """The link to the peer of this name."""
        return self._by_peer.get(peer)

    def connection_refusal(self, connections: int) -> str:
        """Why one more connection is too many."""
        limit = self._connections_max
        if connections >= limit:
            return f"this broker has as many connections as it takes: connections_max is {limit}"
        return ""

    def broker_refusal(self, handshake: Handshake, *, dialled: str | None) -> str:
        """Why this broker may not connect; `dialled` is whom we expected, if we dialled."""
        link = self._by_peer.get(handshake.name)
        neighbour = self.neighbours.get(link) if link is not None else None
        if neighbour is None or neighbour.broker != handshake.broker:
            return f"the network file of '{self._plan.name}' has no link to a broker '{handshake.name}'"
        if dialled is None and neighbour.dials is not None:
            return f"'{self._plan.name}' dials '{handshake.name}' and takes no calls from it: use the same file"
        if dialled not in (None, handshake.name):
            return f"dialled '{dialled}' and found '{handshake.name}': mend the addresses"
        if neighbour.kind is LinkKind.DATAGRAM and not handshake.datagram_token:
            return f"the link is a datagram link here and not at '{handshake.name}': use the same file"
        return ""

    def client_refusal(self, handshake: Handshake) -> str:
        """Why this client may not connect; a client that is connected may connect again, if it shows that it is it."""
        name = handshake.name
        if name.startswith(CONTROL_MARK):
            return f"a client's name does not begin with '{CONTROL_MARK}'; choose another name"
        link = self._by_peer.get(name)
        if link in self.neighbours or name == self._plan.name:
            return f"the name '{name}' is a broker's; choose another name"
        secret = self._secrets.get(link, b"") if link is not None else b""
        if link is not None and not (secret and compare_digest(secret, handshake.credentials)):
            return f"the name '{name}' is in use by another client; choose another name"
        return ""

    def packets_refusal(self, link: Link, packets: Sequence[Packet]) -> str:
        """Why these packets may not come in on this link: they are not for this role to send."""
        role = BROKER if link in self.neighbours else CLIENT
        allowed = self._allowed[role]
        if allowed.issuperset(map(type, packets)):
            return ""
        untaken = sorted({type(packet).__name__ for packet in packets if type(packet) not in self._taken})
        if untaken:
            return f"no service here takes {', '.join(untaken)}"
        kinds = sorted({type(packet).__name__ for packet in packets if type(packet) not in allowed})
        return f"a {role} may not send {', '.join(kinds)}"

    def admit_client(self, handshake: Handshake) -> Link:
        """A new link for a client whose name is not in use."""
        link = self._next_link
        self._next_link += 1
        spec = self._plan.clients.get(handshake.name)
        queue = spec.queue_packets if spec is not None else self._client_queue_packets
        self.links[link] = LinkInfo(handshake.name, LinkKind.RELIABLE, 1, queue)
        self._by_peer[handshake.name] = link
        self._secrets[link] = handshake.credentials
        return link

    def client_rate(self, handshake: Handshake) -> float | None:
        """The access rate that the plan has for a client, in bit/s."""
        spec = self._plan.clients.get(handshake.name)
        return spec.access_rate_bits_per_s if spec is not None else None

    def forget_client(self, link: Link) -> str:
        """A client has gone; returns the name it had."""
        peer = self.links.pop(link).peer
        del self._secrets[link]
        self._by_peer.pop(peer, None)
        return peer
