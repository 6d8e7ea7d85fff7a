"""What every layer needs: places, diagnostics, errors, records, walks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

load_shown: Callable[[], Any] | None = None
"""Loads what shows reports. The package sets it, since nothing here imports from above."""
