"""A model whose caches grow beside its form with caches of fixed capacity."""

from __future__ import annotations
