"""Hostile files: a finding or a clean error, never a traceback, a hang, or a read elsewhere."""

from __future__ import annotations

import random
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnx_kvtool.commands.check import run
from onnx_kvtool.commands.requests import CheckRequest
from onnx_kvtool.core.errors import UnreadableModel
from onnx_kvtool.lint.report import CheckReport
from onnx_kvtool.targets.releases import releases
from tests.grids import each, rest
from tests.lint.models import CLEAN

MODELS = Path(__file__).resolve().parents[2] / "fixtures" / "models"
SEED = 20
MUTANTS = 60
"""Files of a whole search; the default run takes a third."""
"""Of each kind; all together take some seconds."""
_SECONDS = 20

OPENED: list[str] = []
WATCHING: list[bool] = []


def _hook(event: str, arguments: tuple[object, ...]) -> None:
    if WATCHING and event == "open" and isinstance(arguments[0], str):
        OPENED.append(arguments[0])


sys.addaudithook(_hook)


@contextmanager
def watched() -> Iterator[list[str]]:
    """Yield the names of the files that are opened in the block, which has to end in time."""

    def expire(number: int, frame: FrameType | None) -> None:
        raise TimeoutError(f"no answer within {_SECONDS} s")

    OPENED.clear()
    before = signal.signal(signal.SIGALRM, expire)
    signal.alarm(_SECONDS)
    WATCHING.append(True)
    try:
        yield OPENED
    finally:
        WATCHING.clear()
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def check(path: Path) -> CheckReport | UnreadableModel:
    """Check one file for two runtimes; an error that is not exit code 3 fails the test."""
    targets = ("onnxruntime", "tensorrt")
    try:
        with watched():
            return run(CheckRequest(paths=(str(path),), isolated=True, targets=targets))
    except UnreadableModel as error:
        return error


def assert_told(path: Path) -> None:
    """Assert that a file which is certainly broken is called so."""
    result = check(path)
    if not isinstance(result, UnreadableModel):
        assert result.exit_code == 1, path


def truncated(data: bytes, chance: random.Random) -> bytes:
    return data[: chance.randrange(len(data))]


def flipped(data: bytes, chance: random.Random) -> bytes:
    changed = bytearray(data)
    for _ in range(chance.randint(1, 8)):
        changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(8)
    return bytes(changed)


def spliced(data: bytes, chance: random.Random) -> bytes:
    begin, end = sorted(chance.randrange(len(data)) for _ in range(2))
    return data[:begin] + data[end:] + data[begin:end][: chance.randrange(64)]


def sources() -> list[bytes]:
    """Return a small model of one node, and the graph of a real decoder without its weights."""
    texts = [onnx.parser.parse_model(CLEAN).SerializeToString()]
    for name in ("native/llama_static.onnx", "concat/gpt2_dynamic__ts_op17.onnx"):
        message = onnx.load(MODELS / name)
        for tensor in message.graph.initializer:
            if len(tensor.raw_data) > 64:
                tensor.raw_data = bytes(len(tensor.raw_data))
        texts.append(message.SerializeToString())
    return texts


@pytest.mark.parametrize("count", [MUTANTS // 6, *rest(MUTANTS)])
@pytest.mark.parametrize("change", [truncated, flipped, spliced], ids=lambda f: f.__name__)
def test_damaged_files(
    change: Callable[[bytes, random.Random], bytes], count: int, tmp_path: Path
) -> None:
    chance = random.Random(SEED)
    data = sources()
    path = tmp_path / "damaged.onnx"
    for number in range(count):
        path.write_bytes(change(data[number % len(data)], chance))
        try:
            check(path)
        except Exception as error:
            kept = tmp_path / f"kept-{number}.onnx"
            path.rename(kept)
            raise AssertionError(f"{kept}: {type(error).__name__}") from error


def field(number: int, payload: bytes) -> bytes:
    """Return a field of a protobuf message, which onnx's classes would not write this deep."""
    size, length = len(payload), b""
    while size > 127:
        length, size = length + bytes([size & 127 | 128]), size >> 7
    return bytes([number << 3 | 2]) + length + bytes([size]) + payload


def nested(depth: int) -> bytes:
    """Return a model with an If in an If, and so on."""
    graph = field(2, b"inner")
    for _ in range(depth):
        body = field(1, b"then_branch") + field(6, graph) + b"\xa0\x01\x05"  # type: GRAPH
        node = field(1, b"c") + field(2, b"y") + field(4, b"If") + field(5, body)
        graph = field(1, node) + field(2, b"g")
    return b"\x08\x0c" + field(7, graph) + field(8, b"\x10\x18")  # IR version 12, opset 24


@pytest.mark.long
@pytest.mark.parametrize("depth", [2, 12, 24, 33, 2000])
def test_deep_nesting(depth: int, tmp_path: Path) -> None:
    path = tmp_path / "deep.onnx"
    path.write_bytes(nested(depth))
    assert_told(path)


def test_functions_that_call_each_other(tmp_path: Path) -> None:
    opsets = [helper.make_opsetid("", 24), helper.make_opsetid("own", 1)]
    functions = [
        helper.make_function(
            "own", name, ["x"], ["y"], [helper.make_node(other, ["x"], ["y"], domain="own")], opsets
        )
        for name, other in (("A", "B"), ("B", "A"))
    ]
    value = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])
    out = helper.make_tensor_value_info("y", TensorProto.FLOAT, [2])
    graph = helper.make_graph(
        [helper.make_node("A", ["x"], ["y"], domain="own")], "g", [value], [out]
    )
    model = helper.make_model(graph, opset_imports=opsets, functions=functions)
    (tmp_path / "cycle.onnx").write_bytes(model.SerializeToString())
    assert_told(tmp_path / "cycle.onnx")


def test_functions_that_double_at_each_level(tmp_path: Path) -> None:
    levels = 40
    opsets = [helper.make_opsetid("", 24), helper.make_opsetid("own", 1)]
    functions = []
    for level in range(levels):
        inner = "Relu" if level == 0 else f"F{level - 1}"
        domain = "" if level == 0 else "own"
        nodes = [
            helper.make_node(inner, ["x"], ["m"], domain=domain),
            helper.make_node(inner, ["m"], ["y"], domain=domain),
        ]
        functions.append(helper.make_function("own", f"F{level}", ["x"], ["y"], nodes, opsets))
    value = helper.make_tensor_value_info("x", TensorProto.FLOAT, [2])
    out = helper.make_tensor_value_info("y", TensorProto.FLOAT, [2])
    call = helper.make_node(f"F{levels - 1}", ["x"], ["y"], domain="own")
    graph = helper.make_graph([call], "g", [value], [out])
    model = helper.make_model(graph, opset_imports=opsets, functions=functions)
    (tmp_path / "double.onnx").write_bytes(model.SerializeToString())
    check(tmp_path / "double.onnx")


def test_a_copy_of_nothing(tmp_path: Path) -> None:
    text = """
    <ir_version: 12, opset_import: ["": 24]>
    g (float[1, 4, 8] past, float[1, 1, 8] update) => (float[1, 4, 8] present)
    { start = Identity () copy = Identity (start) present = TensorScatter (copy, update, start) }
    """
    path = tmp_path / "copy.onnx"
    path.write_bytes(onnx.parser.parse_model(text).SerializeToString())
    assert_told(path)


@pytest.mark.parametrize("dims", [[1 << 62, 1 << 62], [-3, 2], [1 << 40], [0, 1 << 62]])
def test_huge_and_negative_dims(dims: list[int], tmp_path: Path) -> None:
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=dims)
    value = helper.make_tensor_value_info("x", TensorProto.FLOAT, dims)
    shape = helper.make_tensor("shape", TensorProto.INT64, [2], [1 << 40, 1 << 40])
    nodes = [
        helper.make_node("Expand", ["x", "shape"], ["z"]),
        helper.make_node("TensorScatter", ["z", "w"], ["y"]),
        helper.make_node("Range", ["zero", "many", "one"], ["r"]),
    ]
    numbers = [
        helper.make_tensor(name, TensorProto.INT64, [], [number])
        for name, number in (("zero", 0), ("many", 1 << 60), ("one", 1))
    ]
    out = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    graph = helper.make_graph(nodes, "g", [value], [out], [tensor, shape, *numbers])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 24)])
    (tmp_path / "huge.onnx").write_bytes(model.SerializeToString())
    check(tmp_path / "huge.onnx")


def external(location: str) -> bytes:
    tensor = TensorProto(
        name="w", data_type=TensorProto.INT64, dims=[2], data_location=TensorProto.EXTERNAL
    )
    tensor.external_data.add(key="location", value=location)
    value = helper.make_tensor_value_info("x", TensorProto.INT64, [2])
    out = helper.make_tensor_value_info("y", TensorProto.INT64, [2])
    nodes = [helper.make_node("Add", ["x", "w"], ["y"])]
    graph = helper.make_graph(nodes, "g", [value], [out], [tensor])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 24)])
    data: bytes = model.SerializeToString()
    return data


@pytest.mark.parametrize(
    "location",
    ["../secret", "{outside}", "link", "below/../../secret", "/proc/self/environ", "C:\\secret"],
    ids=["above", "absolute", "a link", "back up", "the kernel's", "of Windows"],
)
@pytest.mark.parametrize("diff", [False, True], ids=["looking", "fixing"])
def test_data_elsewhere_is_not_opened(location: str, diff: bool, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(bytes(16))
    home = tmp_path / "home"
    (home / "below").mkdir(parents=True)
    (home / "link").symlink_to(secret)
    path = home / "model.onnx"
    path.write_bytes(external(location.replace("{outside}", str(secret))))

    with watched() as opened:
        report = run(CheckRequest(paths=(str(path),), isolated=True, diff=diff))
        names = list(opened)

    assert str(path) in names, "the watch works"
    resolved = [Path(name).resolve() for name in names if "secret" in name or "link" in name]
    assert secret not in resolved and not any("environ" in name for name in names)
    assert any(finding.code.startswith("XD5") for finding in report)
    assert report.exit_code == 1


OPERATORS = (
    "Attention",
    "Gather",
    "MatMul",
    "Pad",
    "Range",
    "Resize",
    "ScatterND",
    "Slice",
    "TopK",
)
MALFORMED = {
    "a type that is none": helper.make_node("Cast", ["x"], ["y"], to=-1),
    "no output": helper.make_node("Softmax", ["x"], []),
    **{f"{name} without inputs": helper.make_node(name, [], ["y"]) for name in OPERATORS},
    "a Loop without inputs": helper.make_node("Loop", [], ["y"]),
    "a Loop without a body": helper.make_node("Loop", ["one", ""], ["y"]),
    "a Loop with an empty body": helper.make_node(
        "Loop", ["one", ""], ["y"], body=helper.make_graph([], "b", [], [])
    ),
    "weights that are a vector": helper.make_node("Conv", ["x", "vector"], ["y"]),
    "keys that are a vector": helper.make_node("Attention", ["x", "vector", "vector"], ["y"]),
    "a Slice forward of no axis": helper.make_node("Slice", ["x", "two", "two", "nine"], ["y"]),
    "a Slice backward of no axis": helper.make_node(
        "Slice", ["x", "two", "one", "nine", "back"], ["y"]
    ),
}
NUMBERS = {"one": [1], "two": [2], "nine": [9], "back": [-1]}


@each("node", MALFORMED)
def test_a_malformed_node_is_a_finding_for_every_target(
    node: onnx.NodeProto, tmp_path: Path
) -> None:
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3]),
        helper.make_tensor_value_info("vector", TensorProto.FLOAT, [3]),
    ]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    numbers = [numpy_helper.from_array(np.array(n), name) for name, n in NUMBERS.items()]
    graph = helper.make_graph([node], "g", inputs, outputs, numbers)
    opset = 24 if node.op_type == "Attention" and node.input else 18
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9)
    (tmp_path / "m.onnx").write_bytes(model.SerializeToString())
    names = tuple(dict.fromkeys(release.runtime for release in releases()))
    report = run(CheckRequest(paths=(str(tmp_path / "m.onnx"),), isolated=True, targets=names))
    assert report.files[0].findings
