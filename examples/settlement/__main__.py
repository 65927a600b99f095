"""The whole case on one machine: a shop, a gateway, ZooKeeper, settlement servers, and faults.

    python -m examples.settlement                       on SQLite and the embedded server
    python -m examples.settlement --postgres --ensemble on PostgreSQL and three Apache servers
    python -m examples.settlement --naive               as it is often published: bills twice

While orders arrive, settlement servers are killed and frozen, ZooKeeper and the database are
restarted, and the gateway fails after it has charged. Once every order is closed, or nothing more
happens, the accountant compares. Exit code: the accountant's.

Rule of this file: everything started here is ended by its pid, whatever happens.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import random
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

from examples.settlement.schema import ORDERS
from sqlalchemy import create_engine, func, select
from sqlalchemy.exc import DBAPIError
from tests.apache import ApacheEnsemble, free_port
from tests.children import ends_with_us
from tests.postgres import PostgresServer
from tests.waiting import wait_until

import incumbent
from incumbent.errors import Taken

HERE = Path(__file__).parent
FAULTS = {"slow": 0.01, "fail": 0.03, "cut": 0.03}


class Program:
    """One of the processes, started again whenever it was killed."""

    def __init__(self, name: str, command: list[str], folder: Path) -> None:
        self.name = name
        self._command = [sys.executable, *command]
        self._log = folder / f"{name}.log"
        self.process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        with self._log.open("ab") as log:
            return subprocess.Popen(
                self._command,
                cwd=HERE,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                preexec_fn=ends_with_us(),
            )

    def restart(self) -> None:
        """As after a crash: SIGKILL, and again."""
        self.process.kill()
        self.process.wait()
        self.process = self._start()

    def freeze(self, seconds: float) -> None:
        self.process.send_signal(signal.SIGSTOP)
        time.sleep(seconds)
        self.process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        """In order; by force if that takes more than 20 s."""
        self.process.send_signal(signal.SIGCONT)
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def complaint(self) -> str:
        """The end of what it printed."""
        return "".join(f"    {line}\n" for line in self._log.read_text().splitlines()[-5:])


class Town:
    """Everything together, in a folder of its own."""

    def __init__(self, options: argparse.Namespace, folder: Path) -> None:
        self.options = options
        self.rng = random.Random(options.seed)
        self._folder = folder
        self._ends = contextlib.ExitStack()
        self.postgres: PostgresServer | None = None
        self.ensemble: ApacheEnsemble | None = None
        self.server: Program | None = None
        self.settlements: list[Program] = []

    def __enter__(self) -> Town:
        try:
            self._build()
        except BaseException:
            self._ends.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.close()

    def _build(self) -> None:
        options = self.options
        if options.postgres:
            self.postgres = self._ends.enter_context(PostgresServer())
            self.database = self.postgres.url
        else:
            self.database = f"sqlite:///{self._folder}/shop.db"
        if options.ensemble:
            self.ensemble = self._ends.enter_context(ApacheEnsemble(self._folder, tick_time=500))
            self.zookeeper = self.ensemble.hosts
        else:
            self.zookeeper = f"127.0.0.1:{free_port()}"
            data = str(self._folder / "zookeeper")
            listen = ["--listen", self.zookeeper, "--tick", "0.5"]
            self.server = self._run(
                "zookeeper", ["-m", "incumbent.server", "--data", data, *listen]
            )
        port = free_port()
        self.gateway = f"127.0.0.1:{port}"
        ledger = str(self._folder / "ledger.jsonl")
        self._run("gateway", ["gateway.py", "--port", str(port), "--ledger", ledger])
        wait_until(lambda: self.charged() == 0, 20, "the gateway to answer")
        self.order({} if options.calm else FAULTS)
        wish = ["--orders", str(options.orders), "--rate", str(options.rate)]
        self._run("shop", ["shop.py", "--database", self.database, *wish])
        wait_until(lambda: self.count("PENDING") > 0, 30, "the first orders")
        program = "naive.py" if options.naive else "settle.py"
        where = ["--database", self.database, "--gateway", self.gateway]
        where += ["--zookeeper", self.zookeeper, "--threads", str(options.threads)]
        where += ["--session", str(options.session)]
        for number in range(1, options.servers + 1):
            name = f"settlement-{number}"
            self.settlements.append(self._run(name, [program, *where, "--name", name]))

    def _run(self, name: str, command: list[str]) -> Program:
        program = Program(name, command, self._folder)
        self._ends.callback(program.stop)
        return program

    # ── what one can look at

    def count(self, state: str) -> int:
        """Orders in that state; -1 while the database cannot be asked."""
        engine = create_engine(self.database)
        try:
            with engine.begin() as db:
                query = select(func.count()).select_from(ORDERS).where(ORDERS.c.state == state)
                return db.scalar(query) or 0
        except DBAPIError:  # not there yet, or being restarted
            return -1
        finally:
            engine.dispose()

    def left(self) -> Iterator[str]:
        """How it stands with some of the orders that are not closed."""
        engine = create_engine(self.database)
        with engine.begin() as db:
            query = select(ORDERS.c.id).where(ORDERS.c.state != "CLOSED").limit(5)
            items = [str(each) for each in db.scalars(query)]
        engine.dispose()
        with (
            incumbent.connect(self.zookeeper, timeout=10, insecure=True) as zk,
            zk.work("/settlement") as work,
        ):
            for item in items:
                try:
                    with work.claim(item) as claim:
                        yield f"order {item} was free: {claim.record}"
                        claim.give_back()
                except Taken as taken:
                    yield f"order {item} is {taken.standing}: {work.look(item)}"

    def charged(self) -> int:
        try:
            with urllib.request.urlopen(f"http://{self.gateway}/ledger", timeout=10) as answer:
                return len(json.load(answer))
        except OSError:
            return -1

    def order(self, faults: dict[str, float]) -> None:
        """Faults of the gateway, from now on."""
        wish = urllib.request.Request(f"http://{self.gateway}/faults", json.dumps(faults).encode())
        urllib.request.urlopen(wish, timeout=10).close()

    # ── what may happen

    def strike(self) -> str:
        """One fault, and what it was."""
        choices: list[Callable[[], str]] = [self._kill, self._freeze]
        if self.server is not None or self.ensemble is not None:
            choices.append(self._restart_zookeeper)
        if self.postgres is not None:
            choices.append(self._restart_database)
        return self.rng.choice(choices)()

    def _kill(self) -> str:
        victim = self.rng.choice(self.settlements)
        victim.restart()
        return f"{victim.name} killed"

    def _freeze(self) -> str:
        """Longer than its session lives: others take its orders, and then it wakes up."""
        victim = self.rng.choice(self.settlements)
        seconds = self.options.session + 1.0
        victim.freeze(seconds)
        return f"{victim.name} frozen for {seconds:g} s"

    def _restart_zookeeper(self) -> str:
        if self.server is not None:
            self.server.restart()
            return "ZooKeeper killed"
        assert self.ensemble is not None
        server = self.rng.choice(self.ensemble.servers)
        server.kill()
        server.start(wait=False)
        return f"ZooKeeper's server {server.hosts} killed"

    def _restart_database(self) -> str:
        assert self.postgres is not None
        self.postgres.restart()
        return "the database restarted"


def run(options: argparse.Namespace) -> int:
    with tempfile.TemporaryDirectory(prefix="settlement-") as folder:
        Path(folder).chmod(0o755)
        with Town(options, Path(folder)) as town:
            started = time.monotonic()
            for line in _until_all_is_closed(town):
                print(f"{time.monotonic() - started:6.1f} s  {line}", flush=True)
            took = time.monotonic() - started
            print(f"{options.orders} orders in {took:.1f} s: {options.orders / took:.0f}/s")
            for program in town.settlements:
                program.process.terminate()
            for program in town.settlements:
                program.stop()
            command = [sys.executable, "accountant.py", "--database", town.database]
            command += ["--gateway", town.gateway, "--orders", str(options.orders)]
            verdict = subprocess.run(command, cwd=HERE, check=False).returncode
            if verdict != 0:
                for program in town.settlements:
                    if said := program.complaint():
                        print(f"{program.name} said at last:\n{said}", end="")
            return verdict


def _until_all_is_closed(town: Town) -> Iterator[str]:
    """Strikes while there is work; a line for each, and for the progress."""
    options = town.options
    deadline = time.monotonic() + options.timeout
    next_strike = time.monotonic() + options.every
    closed, told = 0, 0.0
    while closed < options.orders:
        ended = [each.name for each in town.settlements if each.process.poll() is not None]
        if ended or time.monotonic() > deadline:
            yield f"{ended[0]} ended by itself" if ended else f"gave up after {options.timeout:g} s"
            yield from () if options.naive else town.left()
            return
        if not options.calm and time.monotonic() >= next_strike and closed < 0.9 * options.orders:
            yield town.strike()
            next_strike = time.monotonic() + options.every
        closed = max(closed, town.count("CLOSED"))
        if time.monotonic() - told > 2:
            told = time.monotonic()
            yield f"{closed} of {options.orders} closed"
        time.sleep(0.1)
    yield f"{closed} of {options.orders} closed"


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m examples.settlement", description="Orders, each charged once."
    )
    parser.add_argument("--orders", type=int, default=5000)
    parser.add_argument("--rate", type=float, default=1000.0, help="orders per second")
    parser.add_argument("--servers", type=int, default=4)
    parser.add_argument("--threads", type=int, default=4)
    parser.add_argument(
        "--session", type=float, default=2.0, help="seconds for which a dead server's claims stand"
    )
    parser.add_argument("--postgres", action="store_true", help="Debian's, instead of SQLite")
    parser.add_argument("--ensemble", action="store_true", help="three Apache ZooKeeper servers")
    parser.add_argument("--naive", action="store_true", help="the published way: bills twice")
    parser.add_argument("--calm", action="store_true", help="no faults")
    parser.add_argument("--every", type=float, default=2.0, help="seconds between two faults")
    parser.add_argument("--timeout", type=float, default=600.0, help="seconds, then it gives up")
    parser.add_argument("--seed", type=int, default=1, help="of the faults' choice")
    return run(parser.parse_args())


if __name__ == "__main__":
    sys.exit(main())
