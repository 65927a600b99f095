"""Drives zk-shell through one session and prints what it said after each command.

    python zk_shell_session.py ZK-SHELL HOST:PORT

Children are printed as they come, so the lines of one answer are sorted; zxids, times and session
ids are masked. A question about a znode that cannot be marks where an answer ends.
"""

import re
import subprocess
import sys

COMMANDS = """\
ls /
create /z 'root'
create /z 'root'
create /z/e 'x' true
create /z/s- 'x' false true
create /z/a/b/c 'deep' false false true
create /none/x 'x'
get /z
get /none
set /z 'new'
set /z 'newer' 0
set /none 'x'
get /z
exists /z
exists /none
ls /z
tree /z
child_count /z
du /z
find /z b
grep /z deep
cp /z/a /z/copied true
tree /z
diff /z/a /z/copied
get_acls /z
create /z/ro 'x'
set_acls /z/ro world:anyone:r
get_acls /z/ro
set /z/ro 'y'
add_auth digest me:secret
create /z/mine 'x'
set_acls /z/mine digest:me:016djjlksVQS5RgX3M7biBGyYwY=:cdrwa
get_acls /z/mine
get /z/mine
txn 'create /z/t "1"' 'set /z/t "2"' 'check /z/t 1'
txn 'create /z/u "1"' 'rm /z/none'
get /z/t
exists /z/u
sync /z
summary /z
rm /z/e
rm /z
rmr /z
exists /z
"""

_MASKED = re.compile(
    r"0x(?!0\b)[0-9a-f]+ *|[cm]time=\d+|\w{3} \w{3} +\d+ [\d:]{8} \d{4}|took [\d.]+ secs"
)


def main(program: str, hosts: str) -> int:
    commands = COMMANDS.splitlines()
    told = "".join(f"{command}\nexists /mark{i}\n" for i, command in enumerate(commands))
    done = subprocess.run(
        [program, "--sync-connect", "--run-from-stdin", hosts],
        input=told,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60,
    )
    rest = done.stdout
    for i, command in enumerate(commands):
        answer, mark, rest = rest.partition(f"Path /mark{i} doesn't exist\n")
        assert mark, f"it ended before the answer to {command!r}:\n{done.stdout}"
        print(f"> {command}")
        for line in sorted(_MASKED.sub("…", answer).splitlines()):
            print(f"  {line}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2]))
