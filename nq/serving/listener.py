"""The socket of a server."""

from __future__ import annotations

import errno
import socket

from nq.config import ServeConfig
from nq.errors import Error

BACKLOG = 2048
"""Connections that the system keeps until the server accepts them."""


def listen(config: ServeConfig) -> socket.socket:
    """Returns a socket that listens on the address of a server.

    Raises:
        Error: the address cannot be used; the text says why.
    """
    where = f"port {config.port} of {config.host}"
    advice = {
        errno.EADDRINUSE: f"{where} is in use: choose another one with --port",
        errno.EACCES: f"{where} is reserved for root: choose one from 1024 on with --port",
        errno.EADDRNOTAVAIL: f"{config.host} is not an address of this machine: choose another "
        "one with --host",
    }
    try:
        found = socket.getaddrinfo(config.host, config.port, type=socket.SOCK_STREAM)
        family, _, _, _, name = found[0]
        return socket.create_server(name[:2], family=family, backlog=BACKLOG)
    except OSError as error:
        reason = f"cannot listen on {where}: {error.strerror or error}"
        raise Error(advice.get(error.errno or 0, reason)) from error


def address(listener: socket.socket) -> str:
    """Returns the URL of a listening socket."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
