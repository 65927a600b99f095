"""A guardian for tests: `guard.py OPTIONS_JSON AGENT_ARGV…`."""

from __future__ import annotations

import json
import sys

from incumbent.guardian.main import run
from incumbent.guardian.table import Policy

options = json.loads(sys.argv[1])
options["policy"] = Policy(options.get("policy", "keep"))
sys.exit(run(sys.argv[2:], {"made_by": "test"}, **options))
