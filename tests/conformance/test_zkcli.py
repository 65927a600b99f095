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
create /zkcli/q 12345
setquota -n 10 /zkcli/q
listquota /zkcli/q
create /zkcli/q/a 123
set /zkcli/q 1
listquota /zkcli/q
setquota -b 100 /zkcli/q
setquota -N 20 /zkcli/q
create /zkcli/q/b 1
listquota /zkcli/q
setquota -n 5 /zkcli/q/a
delquota -n /zkcli/q
listquota /zkcli/q
delquota /zkcli/q
listquota /zkcli/q
ls -R /zookeeper
deleteall /zkcli
stat /zkcli
version
quit
"""

SECURITY = """\
create /acl x
getAcl /acl
getAcl -s /acl
create /acl/mine x world:anyone:r
create /acl/open x
whoami
addauth digest user:password
create /acl/auth y auth::cdrwa
getAcl /acl/auth
setAcl /acl/auth digest:user:tpUq/4Pn5A64fVZyQ0gOJ8ZWqkY=:rwa
getAcl /acl/auth
setAcl -v 7 /acl/auth world:anyone:cdrwa
setAcl /acl/auth nonsense:x:r
create /acl/auth/below
get /acl/auth
setAcl /acl/open world:anyone:r
set /acl/open new
delete /acl/open
create /acl/ip x ip:127.0.0.1/8:rd
get /acl/ip
set /acl/ip z
create -e /acl/e1
getEphemerals
getEphemerals /acl/e1
getEphemerals /nothing
getAllChildrenNumber /acl
getAllChildrenNumber /nothing
addWatch -m PERSISTENT /acl/w
create /acl/w
set /acl/w 1
delete /acl/w
removewatches /acl/w
removewatches /nothing
addWatch /acl/r
create /acl/r
create /acl/r/deep
deleteall /acl/r
reconfig -remove 1
config
create -t 1000 /acl/ttl
deleteall /acl
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
    """What it printed, events last: these come when they come, between any two lines.

    The one of its own end is printed if there is time left for it.
    """
    lines = [_timeless(line) for line in output.splitlines() if line.strip(" :") not in _NOISE]
    lines = [line for line in lines if not line.startswith(("Connecting to ", "log4j:", "SLF4J"))]
    lines = [line for line in lines if not line.startswith("WatchedEvent state:Closed ")]
    events = [line for line in lines if line.startswith("WatchedEvent")]
    return [line for line in lines if line not in events] + events


def _timeless(line: str) -> str:
    return re.sub(r"^((?:[cmp]Zxid|[cm]time|ephemeralOwner) = )(?!0x0$).+", r"\1…", line)


@pytest.mark.parametrize("session", [SESSION, SECURITY], ids=["znodes", "security"])
def test_a_session_of_zkcli_prints_the_same(
    session: str, apache: ApacheServer, ours: EmbeddedServer
) -> None:
    expected, got = (spoken(zkcli(server.hosts, session)) for server in (apache, ours))

    differences = list(unified_diff(expected, got, "Apache", "ours", n=1, lineterm=""))
    assert not differences, "\n".join(differences)
    assert any(line.startswith("WatchedEvent") and "/" in line for line in got), "no event printed"
