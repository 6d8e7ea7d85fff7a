"""Small files that ask for time and memory without end, and every command that reads a model.

`python -m tests.faults.hostile [WORD ...]` runs those whose name has a word, and prints each.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import onnx
from onnx import TensorProto as T
from onnx import helper, parser

from tests.core.small import plain
from tests.faults.kvtool_process import Fault, Runner, running

__all__ = ["COMMANDS", "HOSTILE", "complaints", "stage"]

_SECONDS = 30.0
_PATIENCE = 3.0
_BYTES = 1_000_000_000
_LIMITS = ("--time-limit", "2", "--memory-limit", "512MiB")
_BUDGET = ("--verify-budget", "0.2s")

COMMANDS: tuple[tuple[str, ...], ...] = (
    ("check", "in.onnx", "--isolated"),
    ("check", "in.onnx", "--isolated", "--target", "onnxruntime"),
    ("diff", "in.onnx", "sound.onnx"),
    ("diff", "in.onnx", "in.onnx", "--weights", "values"),
    ("eval", "in.onnx", "--random", *_LIMITS),
    ("eval", "in.onnx", "--random", "--runtime", "onnxruntime", *_LIMITS),
    ("infer", "in.onnx", "-o", "out.onnx"),
    ("inspect", "in.onnx", "--nodes"),
    ("inspect", "in.onnx", "--format", "html"),
    ("lower", "in.onnx", "-o", "out.onnx", "--opset", "15", *_BUDGET),
    ("lower", "in.onnx", "-o", "out.onnx", "--opset", "9", "--no-verify"),
    ("lower", "in.onnx", "-o", "out.onnx", "--static", "--no-verify"),
    ("print", "in.onnx"),
    ("raise", "in.onnx", "-o", "out.onnx", "--no-verify"),
    ("verify", "in.onnx", "in.onnx", *_BUDGET),
)


def _text(graph: str, opset: int = 18) -> onnx.ModelProto:
    return parser.parse_model(f'<ir_version: 8, opset_import: ["": {opset}]> {graph}')


def _model(*nodes: onnx.NodeProto, weights: tuple[onnx.TensorProto, ...] = ()) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", T.FLOAT, [2])],
        [helper.make_tensor_value_info("y", T.FLOAT, None)],
        weights,
    )
    imports = [helper.make_opsetid("", 18), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=8)


def _versioned(opset: int = 18, ir: int = 8) -> onnx.ModelProto:
    model = plain()
    model.opset_import[0].version = opset
    model.ir_version = ir
    return model


def _einsum(equation: str, operands: int = 1) -> onnx.ModelProto:
    return _model(helper.make_node("Einsum", ["x"] * operands, ["y"], equation=equation))


def _constant(**attributes: object) -> onnx.ModelProto:
    node = helper.make_node("Constant", [], ["c"], **attributes)
    return _model(node, helper.make_node("Add", ["x", "c"], ["y"]))


def _filled(*sizes: int) -> onnx.ModelProto:
    return _model(
        helper.make_node("ConstantOfShape", ["s"], ["z"]),
        helper.make_node("Add", ["x", "z"], ["y"]),
        weights=(helper.make_tensor("s", T.INT64, [len(sizes)], sizes),),
    )


def _loop(trips: str, body: str = "e = Add (a, a)") -> onnx.ModelProto:
    return _text(
        f"""g (float[2] x) => (float[2] y) <int64 n = {{{trips or 0}}}, bool c = {{1}}> {{
        y = Loop ({"n" if trips else '""'}, c, x) <body = b (int64 i, bool d, float[2] a)
            => (bool o, float[2] e) {{ o = Identity (d) {body} }}> }}"""
    )


_INNER = """m = Constant <value = int64 {1000000}> ()
    e = Loop (m, d, a) <body = f (int64 j, bool p, float[2] q) => (bool r, float[2] s) {
        r = Identity (p) s = Add (q, q) }>"""

_SCANNED = """g (float[2] x) => (float[M, N] y)
    <int64 n = {100000}, bool c = {1}, int64[1] s = {100000}> {
    r = ReduceSum <keepdims = 1> (x)
    z = Expand (r, s)
    z0, y = Loop (n, c, z) <body = b (int64 i, bool d, float[K] a)
        => (bool o, float[K] e, float[K] t) { o = Identity (d) e = Identity (a) t = Neg (a) }> }"""


def _doubling(operator: str, axis: str = "<axis = 0>") -> onnx.ModelProto:
    steps = " ".join(f"v{n + 1} = {operator} {axis} (v{n}, v{n})" for n in range(64))
    return _text(f"g (float[2] v0) => (float[M] y) {{ {steps} y = Neg (v64) }}")


def _functions(depth: int) -> onnx.ModelProto:
    functions = []
    for level in range(depth):
        last = level == depth - 1
        domain, called = ("", "Relu") if last else ("d", f"f{level + 1}")
        body = [
            helper.make_node(called, ["a"], ["b"], domain=domain),
            helper.make_node(called, ["b"], ["c"], domain=domain),
        ]
        imports = [helper.make_opsetid("", 18), helper.make_opsetid("d", 1)]
        functions.append(helper.make_function("d", f"f{level}", ["a"], ["c"], body, imports))
    model = _model(helper.make_node("f0", ["x"], ["y"], domain="d"))
    model.opset_import.append(helper.make_opsetid("d", 1))
    model.functions.extend(functions)
    return model


def _external(location: str, kind: int, length: int) -> onnx.ModelProto:
    tensor = onnx.TensorProto(name="w", data_type=kind, dims=[2], data_location=T.EXTERNAL)
    for key, value in (("location", location), ("offset", "0"), ("length", str(length))):
        tensor.external_data.add(key=key, value=value)
    return _model(helper.make_node("Identity", ["w"], ["y"]), weights=(tensor,))


def _pool(kernel: int) -> onnx.ModelProto:
    return _text(
        f"""g (float[1, 1, {kernel}, {kernel}] x) => (float[N, C, H, W] y) {{
        y = AveragePool <kernel_shape = [{kernel - 2}, {kernel}], auto_pad = "SAME_UPPER"> (x) }}"""
    )


HOSTILE: dict[str, Callable[[], onnx.ModelProto]] = {
    "an opset of -2^31": lambda: _versioned(opset=-(2**31)),
    "an opset of -2^63": lambda: _versioned(opset=-(2**63)),
    "an opset of 2^63 - 1": lambda: _versioned(opset=2**63 - 1),
    "an IR version of -2^31": lambda: _versioned(ir=-(2**31)),
    "an Einsum of 100,000 dots": lambda: _einsum("." * 100_000),
    "an Einsum of 33,000 ellipses": lambda: _einsum("..." * 33_000 + "->"),
    "an Einsum of 100,000 letters": lambda: _einsum("i" * 100_000 + "->i"),
    "an Einsum of 500 operands": lambda: _einsum(",".join("i" * 500) + "->i", 500),
    "an Einsum of 52 axes": lambda: _einsum(",".join(map(chr, range(97, 123))) + "->", 26),
    "a Constant with another attribute": lambda: _constant(value_float=1.0, other=3),
    "a Constant with an unknown attribute": lambda: _constant(other=3.0),
    "a Constant without attributes": _constant,
    "a ConstantOfShape of 2^124 elements": lambda: _filled(2**62, 2**62),
    "a ConstantOfShape of 2^189 elements": lambda: _filled(2**63 - 1, 2**63 - 1, 2**63 - 1),
    "a ConstantOfShape of 2^40 elements": lambda: _filled(2**40),
    "a ConstantOfShape of 2^30 elements": lambda: _filled(2**30),
    "a ConstantOfShape of -1 elements": lambda: _filled(-1),
    "64 Concats that double": lambda: _doubling("Concat"),
    "64 Concats of two matrices": lambda: _text(
        "g (float[1, 2] v0) => (float[M, N] y) {"
        + " ".join(f"v{n + 1} = Concat <axis = {n % 2}> (v{n}, v{n})" for n in range(64))
        + " y = Neg (v64) }"
    ),
    "a Loop of 2^62 trips": lambda: _loop(str(2**62)),
    "a Loop without end": lambda: _loop(""),
    "nested Loops": lambda: _loop("1000000", _INNER),
    "a scan output of gigabytes": lambda: _text(_SCANNED),
    "functions that expand to 2^16 calls": lambda: _functions(16),
    "functions that expand to 2^40 calls": lambda: _functions(40),
    "strings in another file": lambda: _external("data.bin", T.STRING, 8),
    "a location with NUL": lambda: _external("da\0ta.bin", T.FLOAT, 8),
    "a location that is a pipe": lambda: _external("pipe", T.FLOAT, 8),
    "a pattern that never ends": lambda: _text(
        'g (string[1] x) => (bool[1] y) { y = RegexFullMatch <pattern = "(x+x+)+y"> (x) }', 20
    ),
    "a pool over a large picture": lambda: _pool(512),
    "a ScatterND over an axis of depth 0": lambda: _text(
        """g (float[0, 2] x, int64[1, 1] i, float[1, 2] u) => (float[0, 2] y) {
        y = ScatterND <reduction = "add"> (x, i, u) }"""
    ),
    "a value that two nodes make": lambda: _model(
        helper.make_node("Relu", ["x"], ["y"]), helper.make_node("Neg", ["x"], ["y"])
    ),
    "an attribute of 8 MB": lambda: _constant(value_floats=[1.0] * 2_000_000),
    "a vector that Add repeats": lambda: _text(
        """g (float[N, 1] x) => (float[M, O] y) <int64[1] s = {-1}, int64[2] t = {1, -1}> {
        """
        + " ".join(
            f"r{n} = Reshape ({f'p{n - 1}' if n else 'x'}, t) c{n} = Transpose (r{n})"
            f" m{n} = Add (r{n}, c{n}) p{n} = Reshape (m{n}, s)"
            for n in range(12)
        )
        + " y = Reshape (p11, t) }"
    ),
}


def stage(name: str, directory: Path) -> None:
    """Write a hostile model, and what stands beside it."""
    (directory / "in.onnx").write_bytes(HOSTILE[name]().SerializeToString())
    (directory / "sound.onnx").write_bytes(plain().SerializeToString())
    (directory / "data.bin").write_bytes(bytes(8))
    if not (directory / "pipe").exists():
        os.mkfifo(directory / "pipe")


def complaints(runner: Runner, arguments: tuple[str, ...], directory: Path) -> Iterator[str]:
    """Yield what is wrong with how a command ends; a good end may be a refusal."""
    before = {entry.name: entry.stat().st_mtime_ns for entry in directory.iterdir()}
    outcome = runner.run(arguments, directory, Fault(seconds=_SECONDS, patience=_PATIENCE))
    if outcome.is_late:
        yield f"it takes more than {_SECONDS:g} s"
    elif outcome.code not in (0, 1, 2, 3):
        yield f"exit code {outcome.code}: {outcome.stderr[:300]}"
    if outcome.peak > _BYTES:
        yield f"it takes {outcome.peak >> 20} MiB"
    after = {entry.name: entry.stat().st_mtime_ns for entry in directory.iterdir()}
    changed = [entry for entry, time in after.items() if before.get(entry) != time]
    yield from (f"`{entry}` is written" for entry in changed if entry != "out.onnx")
    (directory / "out.onnx").unlink(missing_ok=True)


def main(words: list[str]) -> None:
    """Run every command on the hostile models that were named."""
    with running() as runner, tempfile.TemporaryDirectory() as folder:
        for name in HOSTILE:
            if words and not any(word in name for word in words):
                continue
            print(name, flush=True)  # noqa: T201
            stage(name, Path(folder))
            for arguments in COMMANDS:
                for problem in complaints(runner, arguments, Path(folder)):
                    print("   ", " ".join(arguments), ":", problem.strip(), flush=True)  # noqa: T201


if __name__ == "__main__":
    main(sys.argv[1:])
