"""`kvtool check --dask` on a local cluster that loses a worker."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from benchmarks.processes.environments import repository_programs
from benchmarks.processes.run import run
from benchmarks.repositories.jobs import MANY, checked_alone
from benchmarks.repositories.models import small_models, workplace
from benchmarks.results import Cell, Line, Table, Target

__all__ = ["ABOUT", "DASK"]

_PROGRAM = Path(__file__).with_name("cluster.py")
_TIME_LIMIT = 3600
_CASE = "10,000 small models, a worker killed after 5,000"


def _lines(quick: bool) -> Iterator[Line]:
    count = MANY // 50 if quick else MANY
    models, report = small_models(count), workplace() / "dask.json"
    alone = json.loads(checked_alone(models).read_bytes())
    done = run(
        [repository_programs() / "python", _PROGRAM, models, report, str(count)],
        workplace(),
        _TIME_LIMIT,
    )
    if done.failure is not None:
        raise RuntimeError(f"the check on a cluster failed: {done.failure}")
    said = json.loads(done.printed.splitlines()[-1])
    if said["killed"] != 1:
        raise RuntimeError("no worker was killed")
    there = json.loads(report.read_bytes())
    known = {file["path"]: file for file in alone["files"]}
    found = {file["path"]: file for file in there["files"]}
    lost = len(known.keys() - found.keys())
    other = sum(found[path] != known[path] for path in known.keys() & found.keys())
    is_same = float(there == alone)
    yield Line(
        _CASE,
        (
            Cell(f"{said['seconds']:.0f} s"),
            Cell(f"{len(found):,}"),
            Cell(str(lost), (Target("models that were lost", 0, lost),)),
            Cell(str(other), (Target("models that were reported otherwise", 0, other),)),
            Cell("yes" if is_same else "no", (Target("same report", 1, is_same, at_least=True),)),
        ),
    )


ABOUT = (
    "`kvtool check --dask` with a local cluster of two worker processes, one of which gets SIGKILL "
    "when half of the models are checked; it comes back, as `dask worker` lets it. The report is "
    "compared with that of one job without a cluster."
)
"""What the section says above the table."""

DASK = Table(
    "",
    "",
    ("run", "time", "models in the report", "lost", "reported otherwise", "same report"),
    (_CASE,),
    _lines,
)
"""The table of the cluster."""
