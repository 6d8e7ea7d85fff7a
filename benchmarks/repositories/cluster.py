"""Check models on a local Dask cluster, one of whose two worker processes is killed on the way.

A program of its own, run where kvtool, Dask and nothing else of this repository are installed:
`python cluster.py MODELS REPORT COUNT`. Prints what happened as a line of JSON.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import distributed
from distributed.diagnostics.plugin import SchedulerPlugin


class _Killer(SchedulerPlugin):  # type: ignore[misc]
    """Kills a worker when half of the models are checked."""

    def __init__(self, cluster: Any, at: int) -> None:
        self._cluster = cluster
        self._at = at
        self.done = 0
        self.killed = 0

    def transition(self, key: str, start: str, finish: str, **_: Any) -> None:
        """Count a model that was checked."""
        if (start, finish) != ("processing", "memory") or not str(key).startswith("_there"):
            return
        self.done += 1
        if self.done == self._at:
            nanny = next(iter(self._cluster.workers.values()))
            os.kill(nanny.pid, signal.SIGKILL)
            self.killed += 1


def main() -> None:
    """Run the check beside the cluster."""
    models, report, count = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
    ) as cluster:
        killer = _Killer(cluster, count // 2)
        cluster.scheduler.add_plugin(killer, name="killer")
        begin = time.perf_counter()
        kvtool = Path(sys.executable).with_name("kvtool")
        fixed = ["--isolated", "--exit-zero", "-q", "--format", "json", "-o", report]
        command = [kvtool, "check", *fixed, "--dask", cluster.scheduler_address, "."]
        subprocess.run(command, cwd=models, check=True)
        seconds = time.perf_counter() - begin
    print(json.dumps({"seconds": seconds, "killed": killer.killed, "checked": killer.done}))


if __name__ == "__main__":
    main()
