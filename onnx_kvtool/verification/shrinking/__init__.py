"""Copies of two models with smaller weights, small enough to be run."""

from __future__ import annotations
