"""`python -m rota` is `rota`."""

from __future__ import annotations

import sys

from rota.cli import main

sys.exit(main())
