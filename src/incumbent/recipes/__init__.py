"""Recipes, most on a queue of contenders: who is first, how long to believe it, what is owed.

`dialects` says how contenders are named and ordered, `queue` how one enters, `place` how one
waits, `hold` what being first is worth; `lock`, `lead` and `election` are made of these.
`ledger` keeps what must be done whatever happens to the caller, `readback` tells what became of a
write whose answer was lost; `items`, `barrier`, `double_barrier`, `counter` and `value` need it.

For recipes of one's own, inside asyncio:

    queue = Queue(client, "/app/queue", rng=rng, ledger=ledger)   # or zk.contenders("/app/queue")
    async with queue.place(b"who we are") as place:               # our znode
        await place.first(on_change)                              # place.watching, place.ahead()
        async with place.hold(grace=2.0) as hold:                 # cancelled when lost
            await client.multi([place.check_own(), …])            # guarded writes
"""
