"""The rungs of a stop on a real node: asked by HTTP, by signal, killed."""

from __future__ import annotations

import socket
import sys
from pathlib import Path

from tests.e2e.nodes import Nodes
from tests.waiting import wait_until

SERVER = """
import http.server, os, signal, sys
signal.signal(signal.SIGTERM, lambda *_: print("got a signal", flush=True))
class Quit(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        print("asked to quit", flush=True)
        self.send_response(int(sys.argv[2]))
        self.end_headers()
        self.wfile.flush()
        if sys.argv[2] == "200":
            os._exit(3)
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Quit).serve_forever()
"""


def _component(folder: Path, port: int, code: int) -> str:
    program = folder / "program.py"
    program.write_text(SERVER)
    return (
        f'[component.web]\ncommand = ["{sys.executable}", "{program}", "{port}", "{code}"]\n'
        f'stop_http = "http://127.0.0.1:{port}/quit"\nstop_grace = 3\n'
    )


def _free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


def test_a_program_that_quits_when_it_is_asked_gets_no_signal(tmp_path: Path) -> None:
    with Nodes(tmp_path, tick=2.0, session=10.0) as nodes:
        node = nodes.start("n1")
        port = _free_port()
        nodes.apply(_component(tmp_path, port, 200))
        nodes.wait("web", "running")
        wait_until(lambda: _listens(port), 20.0, "the program to listen")

        assert nodes.cli("stop", "web").returncode == 0
        nodes.wait("web", "stopped")

        log = (node.data / "logs" / "web-0.log").read_text()
        assert "asked to quit" in log and "got a signal" not in log
        assert not [line for line in node.guardian.complaints() if "next start" in line]


def test_one_that_refuses_to_quit_gets_its_signal_and_is_killed(tmp_path: Path) -> None:
    with Nodes(tmp_path, tick=2.0, session=10.0) as nodes:
        node = nodes.start("n1")
        port = _free_port()
        nodes.apply(_component(tmp_path, port, 503))
        nodes.wait("web", "running")
        wait_until(lambda: _listens(port), 20.0, "the program to listen")

        assert nodes.cli("stop", "web").returncode == 0
        nodes.wait("web", "stopped")

        log = (node.data / "logs" / "web-0.log").read_text()
        assert "asked to quit" in log and "got a signal" in log
        said = node.guardian.complaints()
        assert any("answered 503; the stop signal follows" in line for line in said)


def _listens(port: int) -> bool:
    with socket.socket() as sock:
        return sock.connect_ex(("127.0.0.1", port)) == 0
