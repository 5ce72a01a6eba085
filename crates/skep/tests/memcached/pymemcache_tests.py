"""Runs pymemcache, unmodified, against a server: `pymemcache_tests.py PORT TEST`. A test that fails raises."""

import sys
import threading
import time

from pymemcache.client.base import Client, PooledClient
from pymemcache.client.hash import HashClient
from pymemcache.client.retrying import RetryingClient
from pymemcache.exceptions import MemcacheClientError, MemcacheIllegalInputError, MemcacheServerError
from pymemcache.serde import pickle_serde

PORT, TEST = sys.argv[1:]
ADDRESS = ("127.0.0.1", int(PORT))
WAIT_MAX = 30


def connect(**options):
    return Client(ADDRESS, **options)


def error_of(kind, call):
    try:
        call()
    except kind as error:
        return str(error)
    raise AssertionError("the command was not refused")


def values():
    client = connect()
    assert client.get("a") is None and client.get("a", default=1) == 1
    for value in [b"", b"1", bytes(range(256)), b"\r\nEND\r\n", b"x" * (1 << 20)]:
        assert client.set("a", value, noreply=False)
        assert client.get("a") == value
    client.set("a", b"b", noreply=False)
    assert client.append("a", b"c", noreply=False) and client.prepend("a", b"a", noreply=False)
    assert client.get("a") == b"abc"
    assert client.delete("a", noreply=False) and not client.delete("a", noreply=False)
    too_large = error_of(MemcacheServerError, lambda: client.set("a", b"x" * ((1 << 20) + 1), noreply=False))
    assert "object too large for cache" in too_large, too_large
    error_of(MemcacheIllegalInputError, lambda: client.get("k" * 251))
    with_objects = connect(serde=pickle_serde)
    for value in [{"a": [1, 2.5, None]}, "text", 7]:
        assert with_objects.set("object", value, noreply=False)
        assert with_objects.get("object") == value


def numbers():
    client = connect()
    assert client.incr("n", 1) is None
    client.set("n", "10", noreply=False)
    assert client.incr("n", 5) == 15 and client.decr("n", 6) == 9 and client.decr("n", 100) == 0
    assert client.incr("n", (1 << 64) - 1) == (1 << 64) - 1 and client.incr("n", 2) == 1
    client.set("n", "x", noreply=False)
    assert "non-numeric" in error_of(MemcacheClientError, lambda: client.incr("n", 1))


def conditions():
    client = connect()
    assert not client.replace("a", "1", noreply=False)
    assert client.add("a", "1", noreply=False) and not client.add("a", "2", noreply=False)
    assert client.replace("a", "2", noreply=False)
    value, number = client.gets("a")
    assert value == b"2"
    assert client.cas("a", "3", number) is True
    assert client.cas("a", "4", number) is False
    client.delete("a", noreply=False)
    assert client.cas("a", "5", number) is None
    assert client.gets("a") == (None, None)


def several_keys():
    for client in [connect(), PooledClient(ADDRESS), HashClient([ADDRESS]), RetryingClient(connect(), attempts=2)]:
        pairs = {f"k{number}": str(number).encode() for number in range(500)}
        assert client.set_many(pairs, noreply=False) == []
        assert client.get_many(list(pairs) + ["missing"]) == pairs
        assert client.delete_many(list(pairs), noreply=False)
        assert client.get_many(list(pairs)) == {}


def expiry():
    client = connect()
    client.set("a", "1", expire=-1, noreply=False)
    assert client.get("a") is None
    client.set("a", "1", expire=2, noreply=False)
    client.set("b", "1", expire=2, noreply=False)
    client.set("c", "1", noreply=False)
    assert client.get("a") == b"1"
    assert client.touch("b", 1000, noreply=False) and not client.touch("missing", 1, noreply=False)
    end = time.monotonic() + WAIT_MAX
    while client.get("a") is not None:
        assert time.monotonic() < end, "the key does not expire"
        time.sleep(0.05)
    assert client.get("b") == b"1" and client.get("c") == b"1"
    assert client.flush_all(noreply=False)
    assert client.get("b") is None


def meta():
    client = connect()
    assert client.raw_command("ms a 2 T100 F7\r\nhi") == b"HD"
    assert client.raw_command("mg a s f") == b"HD s2 f7"
    assert client.raw_command("mn") == b"MN"
    assert client.get("a") == b"hi"


def statistics():
    client = connect()
    client.set("a", "1", noreply=False)
    client.get("a")
    found = client.stats()
    for name in [b"pid", b"uptime", b"version", b"curr_items", b"cmd_get", b"get_hits", b"limit_maxbytes", b"evictions"]:
        assert name in found, name
    assert found[b"cmd_set"] == 1 and found[b"get_hits"] == 1 and found[b"curr_items"] == 1
    assert client.version() == b"1.6.18"
    assert client.stats("settings")[b"item_size_max"] == 1 << 20
    client.quit()


def many_clients():
    count, additions = 256, 50
    connect().set("sum", "0", noreply=False)
    clients = [connect() for _ in range(count)]
    errors = []

    def work(number):
        try:
            client = clients[number]
            for step in range(additions):
                client.set(f"own:{number}", str(step))
                assert client.get(f"own:{number}") == str(step).encode()
                client.incr("sum", 1, noreply=step % 2 == 0)
            assert client.get(f"own:{number}") == str(additions - 1).encode()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]
    assert connect().get("sum") == str(count * additions).encode()


globals()[TEST]()
