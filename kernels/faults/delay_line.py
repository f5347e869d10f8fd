"""Holds packets back: `python -m kernels.faults.delay_line --to ADDRESS --device NAME --delay SECONDS`.

Packets to the address are routed into a TUN device (kernel Documentation/networking/tuntap.rst), wait here, and
leave by a raw socket that is bound to the device they would have taken. Runs in the gate's namespace.
"""

import argparse
import fcntl
import os
import selectors
import socket
import struct
import sys
import time
from collections import deque

from kernels.supervisor.namespaces import NetworkError, call

_TUNSETIFF = 0x400454CA
_IFF_TUN, _IFF_NO_PI = 0x0001, 0x1000
_NAME = "late"
_PACKET = 65_535
_MOST_HELD = 10_000
"""What a full queue does to a packet, a real one does, too: it is dropped, and TCP sends it again."""


def main() -> int:
    """Take the route and delay until killed."""
    parser = argparse.ArgumentParser(prog="delay_line")
    parser.add_argument("--to", required=True, help="IPv4 address that the packets go to")
    parser.add_argument("--device", required=True, help="device by which they leave")
    parser.add_argument("--delay", type=float, required=True, help="seconds")
    options = parser.parse_args()
    try:
        tun = _open_tun()
        call("ip", "link", "set", _NAME, "up")
        call("ip", "route", "add", f"{options.to}/32", "dev", _NAME)
    except (OSError, NetworkError) as exc:
        sys.stderr.write(f"delay_line: {exc}\n")
        return 2
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    with socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW) as way_out:
        way_out.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, options.device.encode())
        _run(tun, way_out, options.to, options.delay)
    return 0


def _open_tun() -> int:
    descriptor = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(
        descriptor, _TUNSETIFF, struct.pack("16sH22x", _NAME.encode(), _IFF_TUN | _IFF_NO_PI)
    )
    return descriptor


def _run(tun: int, way_out: socket.socket, to: str, delay_s: float) -> None:
    held: deque[tuple[float, bytes]] = deque()
    selector = selectors.DefaultSelector()
    selector.register(tun, selectors.EVENT_READ)
    while True:
        wait_s = max(0.0, held[0][0] - time.monotonic()) if held else None
        for _ in selector.select(wait_s):
            packet = os.read(tun, _PACKET)
            if packet[0] >> 4 == 4 and len(held) < _MOST_HELD:
                held.append((time.monotonic() + delay_s, packet))
        while held and held[0][0] <= time.monotonic():
            _send(way_out, held.popleft()[1], to)


def _send(way_out: socket.socket, packet: bytes, to: str) -> None:
    try:
        way_out.sendto(packet, (to, 0))
    except OSError as exc:  # the device went away, or its queue is full: the packet is lost
        sys.stderr.write(f"delay_line: event=packet_lost reason={exc.strerror!r}\n")


if __name__ == "__main__":
    sys.exit(main())
