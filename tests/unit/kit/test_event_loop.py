"""The event loop: what gRPC announces is taken at once, and how late the loop is can be read."""

import asyncio
import socket

import grpc
import pytest

from turnwright_kit.event_loop import KEPT_S, LOOK_S, EventLoop, LoopLag


@pytest.mark.parametrize("announced", [1, 2, 100])
def test_a_reader_of_grpc_finds_the_last_byte_only(announced):
    # Else a busy process answers one call after the other, each after a whole round.
    reader, writer = socket.socketpair()
    found = []
    with reader, writer:
        writer.send(b"1" * announced)
        EventLoop.read_last(reader, lambda what: found.append((what, reader.recv(1))), "called")
        reader.setblocking(False)
        with pytest.raises(BlockingIOError):
            reader.recv(1)
    assert found == [("called", b"1")]


def test_the_reader_of_grpc_is_known_as_such():
    called = []

    class Watched(EventLoop):
        @staticmethod
        def read_last(sock, callback):
            called.append(sock)
            EventLoop.read_last(sock, callback)

    async def call():
        async with grpc.aio.insecure_channel("127.0.0.1:1") as channel:
            with pytest.raises(grpc.aio.AioRpcError):
                await channel.unary_unary("/a/b")(b"", timeout=30)

    with asyncio.Runner(loop_factory=Watched) as runner:
        runner.run(call())
    assert called


class Clock:
    """A loop whose time only passes when it is told to."""

    def __init__(self):
        self.now_s = 100.0
        self.later = None

    def call_later(self, _delay_s, callback):
        self.later = callback

    def after(self, seconds):
        self.now_s += seconds
        self.later()


def test_the_lag_of_a_loop_is_kept_until_somebody_has_read_it():
    clock = Clock()
    lag = LoopLag(clock, lambda: clock.now_s)
    clock.after(LOOK_S)
    assert lag.worst_s() == 0
    clock.now_s += LOOK_S + 7
    assert lag.worst_s() == 7, "while it is stuck"
    clock.later()
    for _ in range(int(KEPT_S / LOOK_S)):
        clock.after(LOOK_S)
        assert lag.worst_s() == 7
    for _ in range(int(KEPT_S / LOOK_S) + 1):
        clock.after(LOOK_S)
    assert lag.worst_s() == 0
