"""aiozk: one session's calls, results and events, a line each. Runs in the peers' environment.

python aiozk_session.py HOST:PORT
"""

import asyncio
import datetime
import logging
import sys
import warnings

import aiozk
from aiozk.protocol import AuthRequest

logging.disable(logging.CRITICAL)
warnings.simplefilter("ignore")  # of its own coroutines, never awaited


def stat(client, value):
    owner = value.ephemeral_owner
    whose = "nobody" if not owner else "me" if owner == client.session.session_id else "other"
    return (
        f"v{value.version} cv{value.child_version} av{value.acl_version} len{value.data_length} "
        f"n{value.num_children} {whose}"
    )


def shown(client, value):
    if hasattr(value, "version"):
        return stat(client, value)
    if isinstance(value, list) and all(isinstance(one, str) for one in value):
        return repr(sorted(value))
    if isinstance(value, tuple):
        return " ".join(shown(client, one) for one in value)
    if isinstance(value, list):
        return " ".join(f"{acl.id.scheme}:{acl.id.id}:{acl.perms}" for acl in value)
    return repr(value)


async def call(client, name, *args, **options):
    words = [shown(client, arg) for arg in (*args, *options.values())]
    what = " ".join([name, *words, *options])
    try:
        result = await getattr(client, name)(*args, **options)
    except Exception as error:
        code = getattr(error, "error_code", "")
        print(f"{what}: {type(error).__name__} {code}".rstrip())
    else:
        print(f"{what}: {shown(client, result)}")
        return result


async def verbs(client, other):
    await call(client, "create", "/a", b"root")
    await call(client, "create", "/a", b"root")
    await call(client, "create", "/a/e", b"x", ephemeral=True)
    await call(client, "create", "/a/e/x")
    await call(client, "create", "/a/s-", b"x", sequential=True)
    await call(client, "create", "/a/s-", ephemeral=True, sequential=True)
    await call(client, "create", "/a/box", container=True)
    await call(client, "create", "/none/x")
    await call(client, "create", "/a/€", "€".encode())
    await call(client, "ensure_path", "/a/b/c/d")
    await call(client, "get", "/a")
    await call(client, "get_data", "/a/€")
    await call(client, "get_data", "/none")
    await call(client, "set_data", "/a", b"new")
    await call(client, "set_data", "/none", b"new")
    await call(client, "exists", "/a")
    await call(client, "exists", "/none")
    await call(client, "get_children", "/a")
    await call(client, "get_children", "/none")
    await call(client, "delete", "/a")
    await call(client, "delete", "/a/e", force=False)
    await call(client, "get_acl", "/a")
    everyone = aiozk.ACL.make("world", "anyone", read=True)
    await call(client, "create", "/a/read-only", acl=[everyone])
    await call(other, "set_data", "/a/read-only", b"x")
    await call(other, "get_data", "/a/read-only")
    await call(client, "get_acl", "/a/read-only")
    mine = aiozk.ACL.make("auth", "", read=True, write=True, delete=True, admin=True)
    await client.send(AuthRequest(type=0, scheme="digest", auth="me:secret"))
    await call(client, "create", "/a/mine", b"secret", acl=[mine])
    await call(client, "get_acl", "/a/mine")
    await call(client, "get_data", "/a/mine")
    await call(other, "get_data", "/a/mine")
    await call(other, "set_acl", "/a/mine", [everyone])
    await call(client, "set_acl", "/a/mine", [everyone])
    await call(other, "get_data", "/a/mine")


async def transactions(client):
    for name, steps in (
        ("good", [("create", "/a/t"), ("set_data", "/a/t", b"1"), ("check_version", "/a/t", 1)]),
        ("bad", [("create", "/a/u"), ("delete", "/a/none"), ("create", "/a/v")]),
        ("sequential", [("create", "/a/q-"), ("delete", "/a/t")]),
    ):
        transaction = client.begin_transaction()
        for step in steps:
            options = {"sequential": True} if step[1].endswith("-") else {}
            getattr(transaction, step[0])(*step[1:], **options)
        result = await transaction.commit()
        kinds = ("created", "updated", "deleted", "checked")
        print(f"transaction {name}:", bool(result), *(sorted(getattr(result, k)) for k in kinds))


async def watches(client, other):
    seen = asyncio.Queue()
    for kind in ("CREATED", "DELETED", "DATA_CHANGED", "CHILDREN_CHANGED"):
        client.session.add_watch_callback(
            getattr(aiozk.WatchEvent, kind),
            "/a/watched",
            lambda path, kind=kind: seen.put_nowait((kind, path)),
        )

    async def event():
        print("  event:", *(await asyncio.wait_for(seen.get(), 15)))

    await call(client, "exists", "/a/watched", watch=True)
    await call(other, "create", "/a/watched")
    await event()
    await call(client, "get_data", "/a/watched", watch=True)
    await call(client, "get_children", "/a/watched", watch=True)
    await call(other, "set_data", "/a/watched", b"x")
    await event()
    await call(other, "create", "/a/watched/x")
    await event()


async def recipes(client, other):
    first, second = client.recipes.Lock("/a/lock"), other.recipes.Lock("/a/lock")
    await first.acquire()
    print("locked", len(await client.get_children("/a/lock")))
    waiting = asyncio.ensure_future(second.acquire())
    while len(await client.get_children("/a/lock")) < 2:  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    print("waiting", waiting.done())
    await first.release()
    await asyncio.wait_for(waiting, 15)
    print("locked by other")
    await second.release()
    await client.create("/a/lease")
    lease = client.recipes.Lease("/a/lease", limit=1)
    print("lease", bool(await lease.obtain(datetime.timedelta(seconds=30))))
    again = other.recipes.Lease("/a/lease", limit=1)
    print("lease by other", bool(await again.obtain(datetime.timedelta(seconds=30))))
    barrier = client.recipes.Barrier("/a/barrier")
    await barrier.create()
    lifting = asyncio.ensure_future(other.recipes.Barrier("/a/barrier").wait(timeout=15))
    await asyncio.sleep(0)
    await barrier.lift()
    await lifting
    print("barrier lifted")


async def main(hosts):
    client, other = aiozk.ZKClient(hosts), aiozk.ZKClient(hosts)
    await client.start()
    await other.start()
    await verbs(client, other)
    await transactions(client)
    await watches(client, other)
    await recipes(client, other)
    await other.close()
    await call(client, "get_children", "/a")
    await call(client, "deleteall", "/a")
    await call(client, "exists", "/a")
    await client.close()
    print("done")


asyncio.run(main(sys.argv[1]))
