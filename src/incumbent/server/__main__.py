"""`python -m incumbent.server`."""

import sys

from incumbent.server.main import main

sys.exit(main(sys.argv[1:]))
