"""How the cost of each command grows with a model that grows in one direction."""

from __future__ import annotations

import gc
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from click.testing import CliRunner
from onnx import helper, numpy_helper

from benchmarks.decoders import decoder, scatter_bank
from benchmarks.growing_decoders import Size, growing_decoder
from benchmarks.results import Cell, Line, Section, Table, ratio_cell
from onnx_kvtool.core.machine import collect_rarely

__all__ = ["GROWTH", "SHAPES", "WORK"]

_F, _BOOL = onnx.TensorProto.FLOAT, onnx.TensorProto.BOOL


def _value(name: str, *dims: int | str) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, _F, dims)


def _model(
    nodes: list[onnx.NodeProto],
    inputs: list[onnx.ValueInfoProto],
    outputs: list[onnx.ValueInfoProto],
    *,
    weights: list[onnx.TensorProto] | None = None,
    functions: list[onnx.FunctionProto] | None = None,
    domains: tuple[str, ...] = (),
) -> onnx.ModelProto:
    graph = helper.make_graph(nodes, "grown", inputs, outputs, initializer=weights)
    imports = [helper.make_opsetid("", 23), *(helper.make_opsetid(d, 1) for d in domains)]
    return helper.make_model(graph, opset_imports=imports, ir_version=11, functions=functions or [])


def _relus(count: int, source: str = "x") -> list[onnx.NodeProto]:
    """Return a chain from `source` to `y`."""
    names = [source, *(f"c{i}" for i in range(count - 1)), "y"]
    return [
        helper.make_node("Relu", [names[i]], [names[i + 1]], name=f"relu{i}") for i in range(count)
    ]


def _chain(count: int) -> onnx.ModelProto:
    return _model(_relus(count), [_value("x", 2, 3)], [_value("y", 2, 3)])


def _unsorted(count: int) -> onnx.ModelProto:
    return _model(_relus(count)[::-1], [_value("x", 2, 3)], [_value("y", 2, 3)])


def _unknown_first(count: int) -> onnx.ModelProto:
    """The operator stops onnx's inference, so that kvtool's own finds all shapes behind it."""
    odd = helper.make_node("Odd", ["x"], ["odd"], name="odd", domain="my")
    model = _model([odd, *_relus(count, "odd")], [_value("x", 2, 3)], [_value("y", 2, 3)])
    model.graph.value_info.append(_value("odd", 2, 3))
    model.opset_import.add(domain="my", version=1)
    return model


def _fan_out(count: int) -> onnx.ModelProto:
    nodes = [helper.make_node("Relu", ["x"], [f"b{i}"], name=f"relu{i}") for i in range(count)]
    nodes.append(helper.make_node("Sum", [f"b{i}" for i in range(count)], ["y"], name="sum"))
    return _model(nodes, [_value("x", 2, 3)], [_value("y", 2, 3)])


def _inputs(count: int) -> onnx.ModelProto:
    inputs = [_value(f"x{i}", 2, 3) for i in range(count)]
    nodes = [helper.make_node("Sum", [v.name for v in inputs], ["y"], name="sum")]
    return _model(nodes, inputs, [_value("y", 2, 3)])


def _symbols(count: int) -> onnx.ModelProto:
    inputs = [_value(f"x{i}", f"n{i}", 3) for i in range(count)]
    nodes = [
        helper.make_node("Concat", [v.name for v in inputs], ["all"], name="concat", axis=0),
        helper.make_node("ReduceMax", ["all"], ["y"], name="max", keepdims=0),
    ]
    return _model(nodes, inputs, [_value("y")])


def _outputs(count: int) -> onnx.ModelProto:
    nodes = [helper.make_node("Relu", ["x"], [f"y{i}"], name=f"relu{i}") for i in range(count)]
    return _model(nodes, [_value("x", 2, 3)], [_value(f"y{i}", 2, 3) for i in range(count)])


def _initializers(count: int) -> onnx.ModelProto:
    names = ["x", *(f"c{i}" for i in range(count - 1)), "y"]
    weights = [
        numpy_helper.from_array(np.full((2, 3), i, np.float32), f"w{i}") for i in range(count)
    ]
    nodes = [
        helper.make_node("Add", [names[i], f"w{i}"], [names[i + 1]], name=f"add{i}")
        for i in range(count)
    ]
    return _model(nodes, [_value("x", 2, 3)], [_value("y", 2, 3)], weights=weights)


def _caches(count: int) -> onnx.ModelProto:
    return scatter_bank(count, (2, 3, 5, 7), 2, symbolic=True, mode="linear")


def _growing_caches(count: int) -> onnx.ModelProto:
    inputs, outputs, nodes = [], [], []
    for i in range(count):
        past, new, present = f"past.{i}", f"new.{i}", f"present.{i}"
        inputs += [_value(past, "batch", 3, "past", 7), _value(new, "batch", 3, "length", 7)]
        outputs.append(_value(present, "batch", 3, "total", 7))
        nodes.append(helper.make_node("Concat", [past, new], [present], name=f"grow{i}", axis=2))
    return _model(nodes, inputs, outputs)


def _contrib_caches(count: int) -> onnx.ModelProto:
    return growing_decoder(Size(count, 32, 4, 2, 64), "contrib")


def _layers(count: int) -> onnx.ModelProto:
    return decoder(count, hidden=16, heads=2, kv_heads=1)


def _functions(count: int) -> onnx.ModelProto:
    names = ["x", *(f"c{i}" for i in range(count - 1)), "y"]
    opset = [helper.make_opsetid("", 23)]
    functions = [
        helper.make_function(
            "my", f"F{i}", ["a"], ["b"], [helper.make_node("Relu", ["a"], ["b"])], opset
        )
        for i in range(count)
    ]
    nodes = [
        helper.make_node(f"F{i}", [names[i]], [names[i + 1]], name=f"call{i}", domain="my")
        for i in range(count)
    ]
    values = [_value("x", 2, 3)], [_value("y", 2, 3)]
    return _model(nodes, *values, functions=functions, domains=("my",))


def _branches(name: str, inner: str, deeper: list[onnx.NodeProto]) -> dict[str, Any]:
    """Return the attributes of an If whose branches give `inner`, or its Relu, as `name`."""
    then = [*deeper, helper.make_node("Identity", [inner], [f"{name}.then"])]
    other = helper.make_node("Relu", ["x"], [f"{name}.else"])
    return {
        "then_branch": helper.make_graph(then, f"{name}.t", [], [_value(f"{name}.then", 2, 3)]),
        "else_branch": helper.make_graph([other], f"{name}.e", [], [_value(f"{name}.else", 2, 3)]),
    }


_CONDITION = helper.make_tensor_value_info("condition", _BOOL, [])


def _ifs(count: int) -> onnx.ModelProto:
    given = [f"i{i}" for i in range(count)]
    nodes = [
        helper.make_node(
            "If", ["condition"], [f"i{i}"], name=f"if{i}", **_branches(f"i{i}", "x", [])
        )
        for i in range(count)
    ]
    nodes.append(helper.make_node("Sum", given, ["y"], name="sum"))
    return _model(nodes, [_CONDITION, _value("x", 2, 3)], [_value("y", 2, 3)])


def _nested_ifs(count: int) -> onnx.ModelProto:
    inner, nodes = "x", []
    for i in range(count):
        attributes = _branches(f"i{i}", inner, nodes)
        inner = f"i{i}" if i < count - 1 else "y"
        nodes = [helper.make_node("If", ["condition"], [inner], name=f"if{i}", **attributes)]
    return _model(nodes, [_CONDITION, _value("x", 2, 3)], [_value("y", 2, 3)])


def _imports(count: int) -> onnx.ModelProto:
    domains = tuple(f"domain{i}" for i in range(count))
    return _model(_relus(count), [_value("x", 2, 3)], [_value("y", 2, 3)], domains=domains)


def _findings(count: int) -> onnx.ModelProto:
    """Every node gives a value that nobody reads."""
    nodes = [helper.make_node("Relu", ["x"], [f"dead{i}"], name=f"dead{i}") for i in range(count)]
    return _model([*nodes, *_relus(1)], [_value("x", 2, 3)], [_value("y", 2, 3)])


SHAPES: dict[str, Callable[[int], onnx.ModelProto]] = {
    "a chain of nodes": _chain,
    "a chain of nodes, not sorted": _unsorted,
    "a chain behind an unknown operator": _unknown_first,
    "readers of one value": _fan_out,
    "inputs": _inputs,
    "inputs, each with a symbolic dimension": _symbols,
    "outputs": _outputs,
    "initializers": _initializers,
    "fixed caches": _caches,
    "growing caches": _growing_caches,
    "contrib caches": _contrib_caches,
    "layers of a decoder": _layers,
    "functions": _functions,
    "Ifs side by side": _ifs,
    "Ifs within each other": _nested_ifs,
    "imports": _imports,
    "findings": _findings,
}
"""Builders of models that grow in one direction, by what there is more of."""

_UNITS = {"contrib caches": 32, "layers of a decoder": 16, "Ifs within each other": 0}
"""Nodes that one unit stands for, where that is not 1; 0 for what cannot be large."""


def _command(*words: str) -> Callable[[Path], None]:
    """Return what runs a command in this process; MODEL stands for the path."""

    def work(path: Path) -> None:
        from onnx_kvtool.cli import app

        said = CliRunner().invoke(app, [word.replace("MODEL", os.fspath(path)) for word in words])
        if said.exit_code not in (0, 1) or (
            said.exception and not isinstance(said.exception, SystemExit)
        ):
            raise RuntimeError(
                f"`kvtool {' '.join(words)}` ended in {said.exit_code}: {said.output}"
            )

    return work


_RAN = ("--cases", "1", "--steps", "0")

WORK: dict[str, Callable[[Path], None]] = {
    "infer": _command("infer", "MODEL", "-o", "MODEL.out"),
    "lower": _command("lower", "MODEL", "--no-verify", "-o", "MODEL.out"),
    "raise": _command("raise", "MODEL", "--no-verify", "--capacity", "64", "-o", "MODEL.out"),
    "check": _command("check", "--isolated", "--exit-zero", "MODEL"),
    "inspect": _command("inspect", "MODEL"),
    "diff": _command("diff", "MODEL", "MODEL"),
    "eval": _command("eval", "MODEL", "--random"),
    "verify": _command("verify", "MODEL", "MODEL", *_RAN),
}
"""The commands, each run in this process on a file."""


_SIZES = (2_000, 4_000, 8_000)
_LONG = (8_000, 64_000, 1_000_000)
_BYTES_PER_NODE = 6_000
"""What a command takes at most for a node of a chain, of one name and no weights."""
_DEEP = (7, 14, 28)
"""Units; protobuf reads messages that are nested 100 deep, which is 33 Ifs within each other."""

_LIMIT, _SHORT = 2.3, 5.0
_LONGEST = "a long chain of nodes"
_UNRUNNABLE = "a chain behind an unknown operator"


def _runs(case: str, command: str) -> bool:
    if case == _LONGEST:
        return command in ("infer", "lower", "check", "inspect")
    return case != _UNRUNNABLE or command not in ("eval", "verify")


def _sizes(case: str, quick: bool) -> tuple[int, ...]:
    nodes = _UNITS.get(case, 1)
    if nodes == 0:
        return _DEEP
    sizes = _LONG if case == _LONGEST else _SIZES
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    most = free // _BYTES_PER_NODE
    return tuple(min(size, most) // nodes // (8 if quick else 1) for size in sizes)


def _lines(quick: bool) -> Iterator[Line]:
    usual = gc.get_threshold()
    collect_rarely()  # as the process of a command does
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "model.onnx"
        for case in _CASES:
            build = _chain if case == _LONGEST else SHAPES[case]
            commands = [command for command in WORK if _runs(case, command)]
            sizes = _sizes(case, quick)
            seconds: dict[str, list[float]] = {command: [] for command in commands}
            for size in (sizes[0], *sizes):  # the first time warms up
                onnx.save(build(size), path)
                for command in commands:
                    seconds[command].append(_seconds(WORK[command], path))
            cells = (_cell(seconds.get(command, []), sizes) for command in WORK)
            yield Line(case, (Cell(f"{sizes[-1]:,}"), *cells))
    gc.set_threshold(*usual)


def _seconds(work: Callable[[Path], None], path: Path) -> float:
    """Return the processor time of a command; of the better of two runs where one is short."""
    found: list[float] = []
    while len(found) < 2 and not (found and found[0] > _SHORT):
        gc.collect()  # what the run before left
        begin = time.process_time()
        work(path)
        found.append(time.process_time() - begin)
    return min(found)


def _cell(seconds: list[float], sizes: tuple[int, ...]) -> Cell:
    """Return the growth per doubling, the larger of both steps."""
    if not seconds:
        return Cell("-")
    doublings = np.log2(np.array(sizes[1:]) / np.array(sizes[:-1]))
    growth = (np.array(seconds[2:]) / np.array(seconds[1:-1])) ** (1 / doublings)
    return ratio_cell(float(growth.max()), _LIMIT, what="processor time per doubling")


_CASES = (*SHAPES, _LONGEST)

GROWTH = Section(
    "growth",
    "Growth",
    f"""\
How much more processor time a command takes on a model that is twice as large: the larger of two
steps, each twice as large, up to the largest number of nodes, inputs, caches, ... A layer of a
decoder and a contrib cache count as the nodes that they are made of. The long chain goes in two
larger steps to {_LONG[-1]:,} nodes, or to as many as there is memory for, and shows the growth per
doubling. The commands run in one process. Cost in line with the work is 2; a square would be 4.
`lower` and `raise` run without verification; `eval` and `verify` make one run.""",
    (Table("", "", ("more of", "up to", *(f"`{name}`" for name in WORK)), _CASES, _lines),),
)
"""How cost grows with the size of a model."""
