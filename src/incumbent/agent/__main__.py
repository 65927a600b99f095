"""`python -m incumbent.agent`: started by a guardian."""

import sys

from incumbent.agent.main import main

sys.exit(main())
