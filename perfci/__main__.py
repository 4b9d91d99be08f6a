"""``python -m perfci``."""

import sys

from perfci.cli import main

sys.exit(main())
