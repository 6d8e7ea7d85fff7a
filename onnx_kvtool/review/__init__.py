"""Reviews of models: as text, and how one differs from another."""

from __future__ import annotations
