"""The sections of the page about repositories of any size."""

from __future__ import annotations

from benchmarks.repositories import jobs, lost_worker, remote
from benchmarks.results import Section

__all__ = ["CLUSTER", "ELSEWHERE", "REPOSITORIES"]

_MODELS = """\
Each command runs as a process of its own, kvtool as its wheel installs it. The small models are
decoders of one layer, every fifth of two, no two of them alike; the large ones have the dimensions
of Llama-3.2-1B in fp16, and their external data, 2.5 GB each, is in sparse files."""

REPOSITORIES = Section(
    "repositories", "Repositories of any size", f"{_MODELS}\n\n{jobs.ABOUT}", (jobs.JOBS,)
)
"""Numbers of files and jobs, memory, and results that are kept."""

CLUSTER = Section(
    "cluster", "A cluster that loses a worker", lost_worker.ABOUT, (lost_worker.DASK,)
)
"""Ten thousand models on a cluster."""

ELSEWHERE = Section("remote", "Models behind a server", remote.ABOUT, (remote.REMOTE,))
"""Requests and bytes of each command."""
