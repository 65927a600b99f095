"""Nodes on a real Apache ensemble, with nothing set but its addresses."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

from tests.apache import ApacheEnsemble
from tests.e2e.nodes import INCUMBENT, run_cli
from tests.e2e.terminals import Terminals
from tests.waiting import wait_until


def test_on_an_ensemble_the_defaults_start_a_component_and_its_failover_costs_no_timeout(
    apache_ensemble: ApacheEnsemble, tmp_path: Path
) -> None:
    root, hosts = "/nodes-on-apache", apache_ensemble.hosts
    where = ("--zookeeper", hosts, "--root", root)
    file = tmp_path / "components.toml"
    file.write_text('[component.web]\ncommand = "sleep 1000"\n')

    def running() -> dict[str, Any] | None:
        rows = json.loads(run_cli("status", *where, "-o", "json").stdout or "[]")
        return rows[0] if rows and rows[0]["state"] == "running" else None

    with Terminals(tmp_path) as terminals:
        nodes = {
            name: terminals.start(
                name,
                [
                    *INCUMBENT,
                    "agent",
                    *where,
                    "--node",
                    name,
                    "--data",
                    tmp_path / name,
                    "--insecure",
                ],
            )
            for name in ("n1", "n2")
        }
        applied = run_cli("apply", file, *where)
        assert applied.returncode == 0, applied.stderr
        assert "up to 9.0 s stops nothing; longer, once `tick`" in applied.stderr
        row = wait_until(running, 20.0, "web to run")
        assert row is not None

        nodes[row["node"]].send(signal.SIGKILL)  # the guardian; S is 30 s here

        wait_until(lambda: (now := running()) and now["node"] != row["node"], 15.0, "the next node")
