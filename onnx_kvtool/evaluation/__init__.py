"""One model, or one operator, run on inputs that the user names."""

from __future__ import annotations
