"""Write every generated page that needs no measuring anew: `python -m tests.pages`."""

from __future__ import annotations

import sys

from tests.pages.table import write

if __name__ == "__main__":
    for name in write():
        sys.stdout.write(f"written: docs/{name}\n")
