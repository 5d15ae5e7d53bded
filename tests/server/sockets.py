"""A client on the level of sockets, which reads when it is told to, if at all."""

import json
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tests.server.conftest import DEADLINE_S, Client


@contextmanager
def asked(client: Client, body: dict[str, Any], *, receive_buffer_bytes: int | None = None) -> Iterator[socket.socket]:
    """A connection on which a completion has been asked for and nothing read."""
    content = json.dumps(body).encode()
    head = "POST /v1/completions HTTP/1.1\r\nHost: here\r\nContent-Type: application/json\r\n"
    with socket.socket() as connection:
        if receive_buffer_bytes is not None:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        connection.settimeout(DEADLINE_S)
        connection.connect((client.base_url.host, client.base_url.port))
        connection.sendall(f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content)
        yield connection


def read_all(connection: socket.socket) -> bytes:
    """What comes until the server closes."""
    received = b""
    try:
        while data := connection.recv(1 << 16):
            received += data
    except ConnectionResetError:
        pass
    return received
