"""The TCP probe under real packet loss, in a network namespace of our own."""

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import pytest

from ebpf.probes.tcp import HOOKS, Tcp
from ebpf.session import Session, State
from tests.support.kernel_workloads import Cgroup, Gated, cgroups
from tests.support.lossy_namespace import IPV4, IPV6, LossyNamespace, enter, why_no_namespace
from tests.support.probe_session import attached, bpf_files, histogram, needs_probes, number
from tests.support.slots import forget

pytestmark = [
    pytest.mark.privileged,
    needs_probes,
    pytest.mark.skipif(bool(why_no_namespace()), reason=why_no_namespace()),
]

PORT = 7411
CONNECTIONS = 13
LOSS_PERCENT = 3

LISTEN = """
import socket
family = socket.AF_INET6 if ":" in sys.argv[1] else socket.AF_INET
listener = socket.create_server((sys.argv[1], int(sys.argv[2])), family=family, backlog=64)
"""
ACCEPT = "connection, _ = listener.accept()"
SINK = """
left = int(sys.argv[3])
while left: left -= len(connection.recv(1 << 16))
"""
CONNECT = "import socket\nconnection = socket.create_connection((sys.argv[1], int(sys.argv[2])))"
SEND = "connection.sendall(bytes(int(sys.argv[3])))"
CLOSE = "connection.close()"
ACCEPT_MANY = """
for _ in range(int(sys.argv[3])):
    connection, _ = listener.accept()
    while connection.recv(4096): pass
    connection.close()
"""
CONNECT_MANY = """
import socket
for _ in range(int(sys.argv[3])):
    connection = socket.create_connection((sys.argv[1], int(sys.argv[2])))
    connection.sendall(b"x" * 2000)
    connection.close()
"""
AMOUNT = 24 << 20


@dataclass
class Pair:
    """Two processes in a namespace, each in a cgroup of its own."""

    network: LossyNamespace
    server: Gated
    client: Gated
    server_cgroup: Cgroup
    client_cgroup: Cgroup


def seen(truth: float) -> object:
    """Equal, but for the odd event: Linux 6.18 now and then runs nobody's programs on a CPU for some milliseconds."""
    return pytest.approx(truth, abs=max(1.0, truth * 0.005))


@pytest.fixture
def session() -> Iterator[Session]:
    """Attach the TCP probe."""
    with attached(Tcp()) as started:
        yield started


@contextmanager
def pair(
    server: tuple[str, ...], client: tuple[str, ...], address: str, amount: int
) -> Iterator[Pair]:
    """Start a server and a client, both of which wait in the namespace for their first stage."""
    arguments = (address, str(PORT), str(amount))
    with ExitStack() as stack:
        serving, asking = stack.enter_context(cgroups("server", "client"))
        network = stack.enter_context(LossyNamespace())
        inside = enter(network.name)
        serve, ask = (
            stack.enter_context(Gated((inside, *stages), *arguments)).put(cgroup)
            for stages, cgroup in ((server, serving), (client, asking))
        )
        for process in (serve, ask):
            process.go().wait_until_done()
        yield Pair(network, serve, ask, serving, asking)


def transfer(two: Pair) -> None:
    """Send everything under loss; afterwards all has arrived, and nothing is lost any more."""
    two.network.lose(LOSS_PERCENT)
    two.server.go()
    two.client.go().wait_until_done()
    two.server.wait_until_done()
    two.network.lose_nothing()


def connect(two: Pair) -> None:
    """Listen, connect and accept, without loss."""
    two.server.go().wait_until_done()
    two.client.go().wait_until_done()
    two.server.go().wait_until_done()


@pytest.mark.parametrize("address", [IPV4, IPV6])
def test_retransmits_are_those_of_the_namespace_and_the_senders(
    session: Session, address: str
) -> None:
    """Under 3 % loss the sender's cgroup has every segment that the namespace sent again; the receiver's has none."""
    with pair((LISTEN, ACCEPT, SINK), (CONNECT, SEND), address, AMOUNT) as two:
        connect(two)
        before = two.network.retransmitted()
        transfer(two)
        truth = two.network.retransmitted() - before
        readings = session.read()["tcp"]

        assert truth > 0
        assert number(readings, "tcp.retransmits", cgroup=two.client_cgroup.path) == seen(truth)
        assert number(readings, "tcp.retransmits", cgroup=two.server_cgroup.path) == 0
        peer = {"cgroup": two.client_cgroup.path, "peer": address}
        assert number(readings, "tcp.peer.retransmits", **peer) == seen(truth)


def test_sockets_older_than_the_probe_have_an_owner_too() -> None:
    """A connection that was there before the probe is charged to the cgroup of the process that holds it."""
    with pair((LISTEN, ACCEPT, SINK), (CONNECT, SEND), IPV4, AMOUNT) as two:
        connect(two)
        with attached(Tcp()) as session:
            before = two.network.retransmitted()
            transfer(two)
            truth = two.network.retransmitted() - before
            readings = session.read()["tcp"]

            assert truth > 0
            assert number(readings, "tcp.retransmits", cgroup=two.client_cgroup.path) == seen(truth)


def test_an_unanswered_handshake_is_charged_to_both_ends(session: Session) -> None:
    """A request that is sent again counts, and an answer too, though a request has no socket of its own yet."""
    with pair((LISTEN, ACCEPT), (CONNECT,), IPV4, 0) as two:
        two.server.go().wait_until_done()
        two.network.lose_answers()
        two.server.go()
        two.client.go()
        while two.network.retransmitted() < 2:
            time.sleep(0.1)
        two.network.lose_nothing()
        two.client.wait_until_done()
        two.server.wait_until_done()
        readings = session.read()["tcp"]
        asked, answered = (
            number(readings, "tcp.retransmits", cgroup=cgroup.path)
            for cgroup in (two.client_cgroup, two.server_cgroup)
        )

        assert asked > 0
        assert answered > 0
        assert asked + answered == seen(two.network.retransmitted())


def test_every_connection_shows_its_round_trip_when_it_ends(session: Session) -> None:
    """A client that never receives has one sample for each of a prime number of connections."""
    with pair((LISTEN, ACCEPT_MANY), (CONNECT_MANY,), IPV6, CONNECTIONS) as two:
        two.server.go().wait_until_done()
        two.server.go()
        two.client.go().wait_until_done()
        two.server.wait_until_done()
        rtt = histogram(session.read()["tcp"], "tcp.rtt", two.client_cgroup.path)

        assert rtt.count == CONNECTIONS
        assert 0 < rtt.sum_s / rtt.count < 0.25


def test_a_socket_goes_with_the_process_that_receives_on_it(session: Session) -> None:
    """Whoever opened it, the cgroup that reads from a connection owns it: as with a listening socket that is inherited."""
    answer = "connection.recv(1)\nconnection.sendall(bytes(int(sys.argv[3])))"
    ask = f"connection.send(b'x')\n{SINK}"
    with ExitStack() as stack:
        (heir,) = stack.enter_context(cgroups("heir"))
        two = stack.enter_context(pair((LISTEN, ACCEPT, answer), (CONNECT, ask), IPV4, AMOUNT))
        connect(two)
        two.server.put(heir)
        before = two.network.retransmitted()
        transfer(two)
        truth = two.network.retransmitted() - before
        readings = session.read()["tcp"]
        asked_again = number(readings, "tcp.retransmits", cgroup=two.client_cgroup.path)

        assert truth > 0
        assert number(readings, "tcp.retransmits", cgroup=heir.path) == seen(truth - asked_again)
        assert number(readings, "tcp.retransmits", cgroup=two.server_cgroup.path) == 0


def test_a_slot_that_changes_hands_begins_at_nothing(session: Session) -> None:
    """When a cgroup's slot is given to another, neither its sums nor its peers are inherited."""
    with pair((LISTEN, ACCEPT_MANY), (CONNECT_MANY,), IPV4, 3) as two:
        two.server.go().wait_until_done()
        two.server.go()
        two.client.go().wait_until_done()
        two.server.wait_until_done()
        before = histogram(session.read()["tcp"], "tcp.rtt", two.client_cgroup.path).count
        forget(session, "tcp", two.client_cgroup.path)
        left = [
            reading
            for reading in session.read()["tcp"].series
            if reading.labels["cgroup"] == two.client_cgroup.path
        ]

        assert (before, left) == (3, [])


def test_a_missing_hook_is_a_named_state() -> None:
    """A kernel without one of the tracepoints: not supported, with its name, and nothing stays loaded."""
    before = bpf_files()
    session = Session([Tcp(hooks={**HOOKS, "tcp_received": "tcp_of_the_future"})])
    session.start()
    try:
        slot = session.slots["tcp"]
        assert slot.state is State.NOT_SUPPORTED
        assert "tcp_of_the_future" in slot.reason
    finally:
        session.stop()

    assert bpf_files() == before
