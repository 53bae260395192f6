"""The network addresses of this machine."""

from __future__ import annotations

import fcntl
import ipaddress
import os
import socket
import struct
from array import array
from pathlib import Path

_SIOCGIFCONF = 0x8912
_ENTRY = struct.Struct("16s24s")  # interface name and socket address, as the kernel's ifreq has them on 64-bit machines
_ROOM = 1024


def local_addresses() -> dict[str, str]:
    """Address -> interface, for every interface that is up."""
    return {**_version_4(), **_version_6()}


def interface_of(address: str) -> str | None:
    """The interface that has an address; None for one of another machine."""
    found = local_addresses()
    if address not in found and ipaddress.ip_address(address.partition("%")[0]).is_loopback:
        address = "127.0.0.1"  # all of 127.0.0.0/8 is this machine, though only one address is listed
    return found.get(address)


def resolve(name: str) -> list[str]:
    """The addresses of a host name or an address; empty when it is not known here."""
    try:
        found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except socket.gaierror:
        return []
    return list(dict.fromkeys(str(entry[4][0]) for entry in found))


def listen(address: str, port: int) -> socket.socket:
    """A socket that listens at an address of this machine only. OSError says why that cannot be, without the
    address."""
    family = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)[0][0]
    try:
        return socket.create_server((address, port), family=family)
    except OSError as error:
        raise OSError(error.errno, os.strerror(error.errno) if error.errno else str(error)) from None


def own_address(other: str) -> str:
    """The address by which this machine reaches another one, or itself. Nothing is sent."""
    family, _, _, _, place = socket.getaddrinfo(other, 9, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, socket.SOCK_DGRAM) as sock:
        sock.connect(place)
        return sock.getsockname()[0]


def bind_collectives(address: str) -> None:
    """Has this process's collectives use the interface of one of its addresses, unless the user has named one."""
    interface = interface_of(address)
    if interface is not None:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", interface)
        os.environ.setdefault("NCCL_SOCKET_IFNAME", interface)


def _version_4() -> dict[str, str]:
    room = array("B", bytes(_ROOM * _ENTRY.size))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        answer = fcntl.ioctl(sock, _SIOCGIFCONF, struct.pack("iL", len(room), room.buffer_info()[0]))
    size = struct.unpack("iL", answer)[0]
    # An alias is listed as "interface:label"; the address is the last part of the IPv4 socket address.
    return {
        socket.inet_ntoa(address[4:8]): name.rstrip(b"\0").decode().partition(":")[0]
        for name, address in _ENTRY.iter_unpack(room.tobytes()[:size])
    }


def _version_6() -> dict[str, str]:
    listing = Path("/proc/net/if_inet6")
    rows = [line.split() for line in listing.read_text().splitlines()] if listing.exists() else []
    return {str(ipaddress.IPv6Address(bytes.fromhex(row[0]))): row[-1] for row in rows}
