"""Commands on models behind a server: the requests and the bytes that they make."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from benchmarks.processes.environments import repository_programs
from benchmarks.processes.run import run
from benchmarks.repositories.models import with_weights_beside, with_weights_in_it, workplace
from benchmarks.results import Cell, Line, Table, Target
from tests.model_io.web_server import Server, serving

__all__ = ["ABOUT", "REMOTE"]

_BESIDE, _INSIDE, _COUNT = 3 << 30, 15 << 27, 90
_TIME_LIMIT = 1200
_MEGABYTES, _REQUESTS = 10, 120
"""What may be fetched of a model whose weights are not asked for."""


@dataclass(frozen=True, slots=True)
class _Command:
    """A command, with the number of models that it takes, and whether it wants the weights."""

    arguments: tuple[str, ...]
    models: int = 1
    wants: bool = False
    exit_codes: tuple[int, ...] = (0,)


_COMMANDS = {
    "`inspect`": _Command(("inspect",)),
    "`check`": _Command(("check", "--isolated", "--exit-zero")),
    "`infer`": _Command(("infer",)),
    "`print --weights none`": _Command(("print", "--weights", "none")),
    "`diff --weights none`, two models": _Command(("diff", "--weights", "none"), 2),
    "`print`": _Command(("print",), wants=True),
    "`diff`, two models": _Command(("diff",), 2, wants=True),
}


def _served(server: Server, quick: bool) -> dict[str, list[str]]:
    """Write two models of each kind, and return their URLs by the name of the kind."""
    part = 64 if quick else 1
    root = workplace() / "served"
    urls: dict[str, list[str]] = {"beside": [], "inside": []}
    for number in ("old", "new"):
        made = {
            "beside": with_weights_beside(root / f"beside-{number}", _BESIDE // part),
            "inside": with_weights_in_it(root / f"inside-{number}", _INSIDE // part, _COUNT),
        }
        for kind, paths in made.items():
            for path in paths:
                server.files[f"/{path.relative_to(root).as_posix()}"] = path
            urls[kind].append(server.url(f"/{kind}-{number}/{paths[0].name}"))
    return urls


def _lines(quick: bool) -> Iterator[Line]:
    with serving() as server:
        urls = _served(server, quick)
        for case, command in _COMMANDS.items():
            yield Line(case, tuple(_cell(server, case, command, kind) for kind in urls.values()))


def _cell(server: Server, case: str, command: _Command, urls: list[str]) -> Cell:
    before = server.requests, server.sent
    line: list[str | Path] = [repository_programs() / "kvtool", *command.arguments]
    done = run([*line, *urls[: command.models]], workplace(), _TIME_LIMIT)
    if done.failure is not None:
        raise RuntimeError(f"{case} failed: {done.failure}")
    requests, sent = server.requests - before[0], server.sent - before[1]
    print(f"  {urls[0]}, {case}: {requests}, {sent}", file=sys.stderr, flush=True)
    text = f"{requests} requests, {sent:,} bytes, {done.megabytes:.0f} MB"
    if command.wants:
        return Cell(text)
    limits = (
        Target("MB that are fetched of a model", _MEGABYTES, sent / command.models / 1e6),
        Target("requests for a model", _REQUESTS, requests / command.models),
    )
    return Cell(text, limits)


ABOUT = (
    "What a local server with ranges is asked for and sends, bodies and their bytes; and the peak "
    f"memory. The models are decoders of 16 layers: one with {_BESIDE >> 30} GB of external data, "
    f"and one with {_COUNT} weights of {_INSIDE / (1 << 30):.1f} GB in the file, which has 2 GB at "
    "most. Of two models all weights are equal."
)
"""What the section says above the table."""

REMOTE = Table(
    "",
    "",
    ("command", "weights in a file beside it", "weights in the model file"),
    tuple(_COMMANDS),
    _lines,
)
"""The table of requests and bytes."""
