"""A Kerberos realm on loopback for one test: a KDC, a service's keytab, a user's.

Rule of this file: nothing outside of its directory is read or written, and the KDC is ended by
its pid.

Needs Debian's `krb5-kdc` and `krb5-admin-server`; and the Python package `gssapi` in some Python:
Debian's `python3-gssapi` will do, since the client needs nothing else.
"""

from __future__ import annotations

import functools
import os
import socket
import subprocess
import sys
from pathlib import Path

from tests.apache import free_port
from tests.waiting import wait_until

__all__ = ["Realm", "kerberos_missing", "python_with_gssapi"]

_KDB5, _KADMIN, _KDC = map(
    Path, ("/usr/sbin/kdb5_util", "/usr/sbin/kadmin.local", "/usr/sbin/krb5kdc")
)
_NAME = "INCUMBENT.TEST"

_KRB5_CONF = """\
[libdefaults]
  default_realm = {realm}
  dns_lookup_realm = false
  dns_lookup_kdc = false
  dns_canonicalize_hostname = false
  rdns = false
  udp_preference_limit = 1
  default_ccache_name = FILE:{folder}/tickets
[realms]
  {realm} = {{
    kdc = 127.0.0.1:{port}
  }}
[domain_realm]
  localhost = {realm}
"""
_KDC_CONF = """\
[kdcdefaults]
  kdc_listen = 127.0.0.1:{port}
  kdc_tcp_listen = 127.0.0.1:{port}
[realms]
  {realm} = {{
    database_name = {folder}/principals
    key_stash_file = {folder}/stash
    acl_file = {folder}/acl
    supported_enctypes = aes256-cts-hmac-sha1-96:normal
  }}
[logging]
  kdc = FILE:{folder}/kdc.log
"""


@functools.cache
def python_with_gssapi() -> str:
    """A Python that has the package, "" if there is none."""
    for python in (sys.executable, "/usr/bin/python3"):
        known = [python, "-c", "import gssapi, sys; sys.exit(sys.version_info < (3, 11))"]
        if Path(python).exists() and subprocess.run(known, capture_output=True).returncode == 0:
            return python
    return ""


def kerberos_missing() -> str | None:
    """Why there can be no realm here, or None if there can."""
    absent = [str(each) for each in (_KDB5, _KADMIN, _KDC) if not each.exists()]
    if absent:
        return f"no {absent[0]} (apt-get install krb5-kdc krb5-admin-server)"
    return None if python_with_gssapi() else "no Python has gssapi (apt-get install python3-gssapi)"


class Realm:
    """A context manager: `with Realm(folder) as realm` has a KDC running.

    environ  what a process needs to be in this realm
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.folder = folder
        self.port = free_port()
        self.krb5_conf = folder / "krb5.conf"
        known = {"realm": _NAME, "folder": folder, "port": self.port}
        self.krb5_conf.write_text(_KRB5_CONF.format(**known))
        (folder / "kdc.conf").write_text(_KDC_CONF.format(**known))
        self.environ = {
            **os.environ,
            "KRB5_CONFIG": str(self.krb5_conf),
            "KRB5_KDC_PROFILE": str(folder / "kdc.conf"),
        }
        self._kdc: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Realm:
        self._call(str(_KDB5), "create", "-s", "-r", _NAME, "-P", "of this test")
        self._kdc = subprocess.Popen([str(_KDC), "-n", "-r", _NAME], env=self.environ)
        try:
            wait_until(self._answers, 20.0, "the KDC to listen")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if self._kdc is not None:
            self._kdc.kill()
            self._kdc.wait()

    def keytab(self, principal: str) -> Path:
        """Make this principal; the file with its key."""
        path = self.folder / f"{principal.replace('/', '-')}.keytab"
        self._call(str(_KADMIN), "-r", _NAME, "-q", f"addprinc -randkey {principal}")
        self._call(str(_KADMIN), "-r", _NAME, "-q", f"ktadd -k {path} {principal}")
        assert path.exists(), f"no key of {principal}"
        return path

    def _answers(self) -> bool:
        assert self._kdc is not None
        assert self._kdc.poll() is None, (self.folder / "kdc.log").read_text()
        with socket.socket() as line:
            return line.connect_ex(("127.0.0.1", self.port)) == 0

    def _call(self, *command: str) -> None:
        done = subprocess.run(command, env=self.environ, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
