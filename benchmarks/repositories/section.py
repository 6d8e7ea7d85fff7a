"""The section of the page about models that are elsewhere."""

from __future__ import annotations

from benchmarks.repositories import remote
from benchmarks.results import Section

__all__ = ["ELSEWHERE"]

ELSEWHERE = Section("remote", "Models behind a server", remote.ABOUT, (remote.REMOTE,))
"""Requests and bytes of each command."""
