"""Inputs for a model: what they mean, values for them, and those of the next decode step."""

from __future__ import annotations
