"""The socket that the server listens on."""

import socket

import pytest

from mtplx.server.running import ListenError, listen


def test_connections_send_without_delay() -> None:
    with listen("127.0.0.1", 0) as listener, socket.create_connection(listener.getsockname()):
        connection, _ = listener.accept()
        with connection:
            assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this machine has no IPv6 that takes IPv4 too")
def test_all_addresses_of_ipv6_take_ipv4_too() -> None:
    with listen("::", 0) as listener:
        socket.create_connection(("127.0.0.1", listener.getsockname()[1])).close()


def test_a_port_in_use_is_told_once() -> None:
    with listen("127.0.0.1", 0) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(ListenError) as caught:
            listen("127.0.0.1", port)
    assert str(caught.value) == f"cannot listen on 127.0.0.1, port {port}: Address already in use"


def test_an_address_that_is_no_address_is_told() -> None:
    with pytest.raises(ListenError, match=r"cannot listen on 999.0.0.1, port 0: \w+"):
        listen("999.0.0.1", 0)
