"""What `verify` still gets wrong: expected failures, by the name of the pair, and why."""

from __future__ import annotations

__all__ = ["FALSE_ALARMS", "NOT_YET"]

NOT_YET: dict[str, str] = {}
"""Pairs that differ and are called equal without a word."""

FALSE_ALARMS: dict[str, str] = {}
"""Pairs that are equal and called different."""
