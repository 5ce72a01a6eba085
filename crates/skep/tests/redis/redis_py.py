"""Runs redis-py, unmodified, against a server: `redis_py.py PORT PROTOCOL TEST`.

The protocol is 2, 3, or `default` for the choice of the library. A test that fails raises.
"""

import os
import random
import secrets
import sys
import threading
import time
from contextlib import contextmanager

import redis

PORT, PROTOCOL, TEST = sys.argv[1:]
WAIT_MAX = 30


def connect():
    """Returns a client with the default settings of the library, except for the protocol."""
    return redis.Redis(port=int(PORT), **({} if PROTOCOL == "default" else {"protocol": int(PROTOCOL)}))


def run_threads(count, work):
    """Runs `work(number)` in threads. Raises the first error of a thread."""
    errors = []

    def run(number):
        try:
            work(number)
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if errors:
        raise errors[0]


def wait_until(condition):
    end = time.monotonic() + WAIT_MAX
    while not condition():
        assert time.monotonic() < end, "the condition does not become true"
        time.sleep(0.001)


def error_of(call):
    try:
        call()
    except redis.ResponseError as error:
        return str(error)
    raise AssertionError("the command was not refused")


def values():
    client = connect()
    value = bytes(range(256)) * 4000
    assert client.set("k", value) is True and client.get("k") == value
    assert client.get("missing") is None
    assert client.set("k", "new", nx=True) is None
    assert client.set("k", "new", xx=True, get=True) == value
    assert client.append("k", "er") == 5 and client.strlen("k") == 5
    assert client.getrange("k", 1, -2) == b"ewe" and client.setrange("k", 0, "N") == 5
    assert client.getdel("k") == b"Newer" and client.exists("k", "k") == 0
    assert client.incr("n", 5) == 5 and client.decr("n") == 4 and client.incrbyfloat("n", 0.5) == 4.5
    assert client.mset({"a": 1, "b": 2}) is True and client.msetnx({"b": 3, "c": 4}) is False
    assert client.mget("a", "missing", "b") == [b"1", None, b"2"]
    assert client.setbit("bits", 7, 1) == 0 and client.bitcount("bits") == 1
    assert client.bitfield("bits").set("u8", 8, 255).get("u4", 6).execute() == [0, 7]
    assert client.delete("a", "b", "missing") == 2
    assert client.rename("n", "m") is True and client.type("m") == b"string"
    assert client.restore("copy", 0, client.dump("m")) == b"OK" and client.get("copy") == b"4.5"
    assert client.copy("m", "copy") is False and client.copy("m", "other") is True
    assert "not an integer" in error_of(lambda: client.incr("m"))
    assert "unknown command" in error_of(lambda: client.lpush("list", 1))


def administration():
    client = connect()
    client.set("k", "v")
    assert client.ping() is True and client.echo("text") == b"text"
    assert client.info()["db0"]["keys"] == 1 and client.info("clients")["connected_clients"] >= 1
    assert list(client.config_get("timeout").values()) in (["0"], [b"0"])
    assert client.config_set("timeout", 100) is True
    assert client.client_setname("name") is True and client.client_getname() in ("name", b"name")
    assert [other for other in client.client_list() if other["name"] == "name"]
    assert client.client_info()["lib-name"] == "redis-py"
    assert client.dbsize() == 1 and client.randomkey() == b"k" and client.keys("*") == [b"k"]
    assert client.command_count() > 50 and "get" in client.command()
    assert client.slowlog_len() == len(client.slowlog_get(-1)) and client.acl_whoami() in ("default", b"default")
    assert client.memory_usage("k") > 0 and client.object("encoding", "k") is not None
    assert client.time()[0] > 0 and client.wait(0, 0) == 0
    assert client.flushdb() is True and client.dbsize() == 0


def pipelines():
    client = connect()
    with client.pipeline(transaction=False) as pipe:
        for number in range(5000):
            pipe.set(f"k{number}", number).incr(f"k{number}").get(f"k{number}")
        replies = pipe.execute()
    expected = [reply for number in range(5000) for reply in (True, number + 1, b"%d" % (number + 1))]
    assert replies == expected
    pipe = client.pipeline(transaction=False).set("text", "x").incr("text").get("text")
    set_reply, error, value = pipe.execute(raise_on_error=False)
    assert set_reply is True and isinstance(error, redis.ResponseError) and value == b"x"


def expiry():
    client = connect()
    assert client.set("k", "v", px=50) is True and 0 <= client.pttl("k") <= 50
    wait_until(lambda: client.get("k") is None)
    assert client.ttl("k") == -2 and client.exists("k") == 0
    assert client.set("k", "v", ex=100) is True and 90 < client.ttl("k") <= 100
    assert client.set("k", "w", keepttl=True) is True and client.ttl("k") > 90
    assert client.expire("k", 50, gt=True) is False and client.expire("k", 200, gt=True) is True
    end = int(time.time()) + 1000
    assert client.expireat("k", end) is True and client.expiretime("k") == end
    assert client.getex("k", persist=True) == b"w" and client.ttl("k") == -1
    assert client.pexpire("k", 1) is True
    wait_until(lambda: client.dbsize() == 0)


def scan_while_others_write():
    client = connect()
    stable = {b"stable:%d" % number for number in range(2000)}
    client.mset({key: "v" for key in stable})
    stop = threading.Event()

    def work(number):
        other = connect()
        if number > 0:
            # The store grows and shrinks while it is scanned.
            while not stop.is_set():
                with other.pipeline(transaction=False) as pipe:
                    keys = [f"writer:{number}:{secrets.token_hex(4)}" for _ in range(500)]
                    for key in keys:
                        pipe.set(key, "v" * secrets.randbelow(300))
                    pipe.delete(*keys)
                    pipe.execute()
            return
        try:
            for _ in range(5):
                assert stable <= set(other.scan_iter(count=100))
                assert stable == set(other.scan_iter(match="stable:*", count=1000, _type="STRING"))
        finally:
            stop.set()

    run_threads(3, work)


@contextmanager
def locked(client, name):
    """Holds a lock. Only the holder knows the token, so no other client can release the lock."""
    token = secrets.token_hex(16)
    wait_until(lambda: client.set(name, token, nx=True, px=WAIT_MAX * 1000))
    try:
        yield
    finally:
        assert client.delex(name, ifeq=token) == 1


def lock():
    client = connect()
    client.set("count", 0)

    def work(_):
        other = connect()
        for _ in range(50):
            with locked(other, "lock"):
                other.set("count", int(other.get("count")) + 1)

    run_threads(8, work)
    assert client.get("count") == b"400" and client.exists("lock") == 0
    # A lock whose holder is gone expires. A holder that is late does not release the lock of the next one.
    assert client.set("lock", "first", nx=True, px=20) is True
    wait_until(lambda: client.set("lock", "second", nx=True, px=WAIT_MAX * 1000))
    assert client.delex("lock", ifeq="first") == 0 and client.get("lock") == b"second"
    assert client.delex("lock", ifeq="second") == 1


def transactions():
    client = connect()
    with client.pipeline() as pipe:
        for number in range(1000):
            pipe.set(f"k{number}", number).incr(f"k{number}")
        replies = pipe.execute()
    assert replies == [reply for number in range(1000) for reply in (True, number + 1)]
    # A transaction with a refused command changes nothing.
    pipe = client.pipeline().set("k0", "changed")
    pipe.execute_command("GET")
    assert "wrong number of arguments" in error_of(pipe.execute) and client.get("k0") == b"1"
    # A command that fails does not take back the others, as in Redis.
    assert "not an integer" in error_of(client.pipeline().set("text", "x").incr("text").execute)
    assert client.get("text") == b"x"
    with client.pipeline() as pipe:
        pipe.watch("k0")
        client.set("k0", "other")
        pipe.multi()
        try:
            pipe.set("k0", "mine").execute()
            raise AssertionError("a watched key has changed")
        except redis.WatchError:
            pass
    assert client.get("k0") == b"other"


def transfers():
    """Moves money between accounts, watched by many clients. Nothing is lost or made."""
    clients, accounts, balance = 100, 50, 100
    count = 20 * int(os.environ.get("SKEP_LONG", "1"))
    client = connect()
    names = [f"account:{number}" for number in range(accounts)]
    client.mset({name: balance for name in names})

    def total(values):
        return sum(int(value) for value in values)

    def work(number):
        choice = random.Random(number)
        other = connect()
        for _ in range(count):
            source, target = choice.sample(names, 2)
            amount = choice.randint(1, 10)

            def move(pipe):
                before, after = (int(value) for value in pipe.mget(source, target))
                pipe.multi()
                pipe.set(source, before - amount).set(target, after + amount)

            assert other.transaction(move, source, target) == [True, True]
            # A transaction that reads all accounts sees no part of another one.
            with other.pipeline() as pipe:
                for name in names:
                    pipe.get(name)
                assert total(pipe.execute()) == accounts * balance

    run_threads(clients, work)
    assert total(client.mget(names)) == accounts * balance


globals()[TEST]()
