"""The section of the page about whole processes."""

from __future__ import annotations

from functools import partial

from benchmarks.processes.commands import FLOOR, GROUPS
from benchmarks.processes.many import MANY
from benchmarks.processes.measure import group_lines
from benchmarks.processes.models import MODELS
from benchmarks.processes.run import MEMORY_LIMIT, TIME_LIMIT
from benchmarks.processes.start import START
from benchmarks.results import Section, Table

__all__ = ["PROCESSES"]

_ABOUT = f"""\
Each command runs as a process of its own, kvtool as its wheel installs it, on files that are in the
system's cache. A number such as `1.72, 185 MB` is the time over that of the floor, and the peak
memory. The floor is a process that imports onnx_ir, loads the model and saves it beside the
original; what refers to a file of weights goes on doing so. The commands of a table take turns with
the floor, and a ratio is the median of those of five rounds; what takes five seconds runs once. A
command that needs more than {MEMORY_LIMIT >> 30} GB of address space or {TIME_LIMIT} seconds is
stopped. Where one fails, the cell says why, in the words that it printed last.

The models are at opset 24: one TensorScatter; decoders of 16 and 64 layers with enough elementwise
nodes between them to have 2,000 and 20,000 nodes; and a decoder of 16 layers and 256 nodes with
3 GB of weights in a sparse file, which a command that does not compute with them need not read. The
caches of these models have 64 rows, and the 3 GB take part in no product: what a verified `lower`
takes on models of the kind that people deploy stands under
[models of real size](#models-of-real-size)."""

PROCESSES = Section(
    "processes",
    "Whole processes",
    _ABOUT,
    (
        *(
            Table(
                group.title,
                group.about,
                ("command", *MODELS),
                (FLOOR.case, *(command.case for command in group.commands)),
                partial(group_lines, group),
            )
            for group in GROUPS
        ),
        START,
        MANY,
    ),
)
"""Commands on models of four sizes, starting, many models."""
