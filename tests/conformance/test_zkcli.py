"""Apache's own command line client prints the same on both servers."""

from __future__ import annotations

import re
import subprocess
from difflib import unified_diff

import pytest
from tests.apache import ApacheServer
from tests.conformance.embedded import EmbeddedServer

_JARS = ("zookeeper", "slf4j-api", "slf4j-nop", "commons-cli")
_CLASSPATH = ":".join(f"/usr/share/java/{jar}.jar" for jar in _JARS)

_NOISE = ("", "WATCHER")

SESSION = """\
create /zkcli hello
create -e /zkcli/e x
create -s /zkcli/s- y
create -s -e /zkcli/se- z
create -c /zkcli/cont
create /zkcli/e/child
create /zkcli again
create /no/parent
create /zkcli/../x
ls /zkcli
ls -s /zkcli
ls -R /zkcli
get /zkcli
get -s /zkcli
set /zkcli new
set -s -v 1 /zkcli newer
set -v 0 /zkcli bad
stat /zkcli
stat /zkcli/nothing
get /zkcli/nothing
ls /zkcli/nothing
ls -w /zkcli
create /zkcli/w
get -w /zkcli
set /zkcli once more
stat -w /zkcli
delete /zkcli/w
delete -v 7 /zkcli/cont
delete /zkcli/cont
delete /zkcli
delete /zkcli/nothing
sync /zkcli
addauth digest user:password
create -t 1000 /zkcli/ttl
listquota /zkcli
deleteall /zkcli
stat /zkcli
version
quit
"""

NOT_KNOWN_YET = """\
create /known x
getAcl /known
setAcl /known world:anyone:r
create /known/mine x world:anyone:r
whoami
getEphemerals
getAllChildrenNumber /known
addWatch /known
removewatches /known
reconfig -remove 1
get /known
deleteall /known
quit
"""


def zkcli(hosts: str, session: str) -> str:
    command = ["java", "-XX:TieredStopAtLevel=1", "-cp", _CLASSPATH]
    command += ["org.apache.zookeeper.ZooKeeperMain", "-server", hosts]
    done = subprocess.run(
        command,
        input=session,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def spoken(output: str) -> list[str]:
    """What it printed, events last: these come when they come, between any two lines."""
    lines = [_timeless(line) for line in output.splitlines() if line.strip(" :") not in _NOISE]
    lines = [line for line in lines if not line.startswith(("Connecting to ", "log4j:", "SLF4J"))]
    events = [line for line in lines if line.startswith("WatchedEvent")]
    return [line for line in lines if line not in events] + events


def _timeless(line: str) -> str:
    return re.sub(r"^((?:[cmp]Zxid|[cm]time|ephemeralOwner) = )(?!0x0$).+", r"\1…", line)


def test_a_session_of_zkcli_prints_the_same(apache: ApacheServer, ours: EmbeddedServer) -> None:
    expected, got = (spoken(zkcli(server.hosts, SESSION)) for server in (apache, ours))

    differences = list(unified_diff(expected, got, "Apache", "ours", n=1, lineterm=""))
    assert not differences, "\n".join(differences)
    assert any("NodeChildrenChanged path:/zkcli" in line for line in got), "no event was printed"


@pytest.mark.apache
def test_what_is_not_known_yet_is_said_to_be_and_the_connection_stays(ours: EmbeddedServer) -> None:
    lines = spoken(zkcli(ours.hosts, NOT_KNOWN_YET))

    assert sum("Unimplemented" in line for line in lines) == 6, "\n".join(lines)
    assert lines.count("x") == 1, "the session did not survive"
    assert sum("Closed" in line for line in lines) == 1
