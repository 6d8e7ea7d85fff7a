"""Outputs of two models held against each other: which bits count, and how much rounding may do."""

from __future__ import annotations
