"""`kv.evaluate` and the report of `kvtool eval`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnx.numpy_helper
import onnx.parser
import onnx_ir as ir
import pytest

import onnx_kvtool as kv
from onnx_kvtool.commands.evaluate import run
from onnx_kvtool.commands.requests import EvalRequest
from onnx_kvtool.evaluation import run as command
from onnx_kvtool.evaluation.runner import open_runner
from onnx_kvtool.report.json import to_json
from onnx_kvtool.runtime.confined import is_confining
from onnx_kvtool.runtime.engine.compiler import Compiler
from onnx_kvtool.runtime.engine.evaluator import Run
from onnx_kvtool.runtime.errors import RunFailed, RuntimeUnavailable
from tests.grids import each, part

NATIVE = Path(__file__).resolve().parents[2] / "fixtures" / "models" / "native"
LLAMA = NATIVE / "llama_static.onnx"

B, S, D = 2, 7, 5

CACHE = f"""
    <ir_version: 12, opset_import: ["": 24]>
    decoder (float[batch, {S}, {D}] past, float[batch, rows, {D}] update, int64[batch] start)
        => (float[batch, {S}, {D}] present, float[batch] sum)
    <int64[2] axes = {{1, 2}}> {{
        [cache] present = TensorScatter <axis = 1> (past, doubled, start)
        [sum] sum = ReduceSum <keepdims = 0> (present, axes)
    }}
""".replace("[cache]", "[double] doubled = Add (update, update)\n[cache]")

CIRCULAR = CACHE.replace("axis = 1", 'axis = 1, mode = "circular"')


def model(text: str = CACHE) -> ir.Model:
    return ir.from_proto(onnx.parser.parse_model(text))


def feeds(rows: int = 1) -> dict[str, np.ndarray[Any, Any]]:
    rng = np.random.default_rng(1)
    return {
        "past": rng.normal(size=(B, S, D)).astype(np.float32),
        "update": rng.normal(size=(B, rows, D)).astype(np.float32),
        "start": np.array([0, 3]),
    }


def expected(fed: dict[str, np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]:
    present = fed["past"].copy()
    for b, start in enumerate(fed["start"]):
        present[b, start : start + fed["update"].shape[1]] = 2 * fed["update"][b]
    return present


@pytest.mark.parametrize("runtime", ["reference", "onnxruntime"])
@pytest.mark.needs_onnxruntime("1.29")
def test_outputs_by_name_in_order(runtime) -> None:
    fed = feeds()
    outputs = kv.evaluate(model(), fed, runtime=runtime)
    assert list(outputs) == ["present", "sum"]
    assert np.array_equal(outputs["present"], expected(fed))


def test_a_path_and_lists_and_numbers_of_python(tmp_path: Path) -> None:
    onnx.save(ir.to_proto(model()), tmp_path / "m.onnx")
    fed: dict[str, Any] = {
        "past": np.zeros((1, S, D), np.float32),
        "update": [[[1, 2, 3, 4, 5.5]]],
        "start": [6],
    }
    outputs = kv.evaluate(tmp_path / "m.onnx", fed)
    assert outputs["present"][0, 6].tolist() == [2, 4, 6, 8, 11]
    assert outputs["sum"].tolist() == [31]


def test_neither_the_model_nor_the_inputs_are_changed() -> None:
    source, fed = model(), feeds()
    bytes_before = ir.to_proto(source).SerializeToString(deterministic=True)
    before = {name: array.copy() for name, array in fed.items()}
    for arguments in ({}, {"steps": 3}, {"fetch": ["doubled"]}, {"node": "cache"}):
        kv.evaluate(source, fed, **arguments)  # type: ignore[arg-type]
    assert ir.to_proto(source).SerializeToString(deterministic=True) == bytes_before
    for name, array in before.items():
        assert np.array_equal(fed[name], array)


def test_what_comes_back_belongs_to_the_caller() -> None:
    text = '<ir_version: 10, opset_import: ["": 21]> g (float[3] x) => (float[3] y, float[3] w)'
    text += " <float[3] c = {1, 2, 3}> { y = Identity (x) w = Identity (c) }"
    source, x = model(text), np.ones(3, np.float32)
    outputs = kv.evaluate(source, {"x": x})
    for array in outputs.values():
        array[:] = 7
    assert x.tolist() == [1, 1, 1]
    assert kv.evaluate(source, {"x": x})["w"].tolist() == [1, 2, 3]


def test_any_value_can_be_fetched_in_the_order_of_the_request() -> None:
    fed = feeds()
    outputs = kv.evaluate(model(), fed, fetch=["sum", "doubled", "past", "axes", "sum"])
    assert list(outputs) == ["sum", "doubled", "past", "axes"]
    assert np.array_equal(outputs["doubled"], 2 * fed["update"])
    assert outputs["axes"].tolist() == [1, 2]


@pytest.mark.parametrize("runtime", ["reference", "onnxruntime"])
@pytest.mark.needs_onnxruntime("1.29")
def test_only_what_is_needed_has_to_be_given(runtime) -> None:
    fed = feeds()
    doubled = kv.evaluate(model(), {"update": fed["update"]}, fetch=["doubled"], runtime=runtime)
    assert np.array_equal(doubled["doubled"], 2 * fed["update"])
    inside = {"past": fed["past"], "doubled": fed["update"], "start": fed["start"]}
    present = kv.evaluate(model(), inside, node="cache", runtime=runtime)
    assert list(present) == ["present"]
    assert np.array_equal(present["present"], expected({**fed, "update": fed["update"] / 2}))
    sums = kv.evaluate(
        model(), {"present": fed["past"], "axes": [2, 1]}, node="#2", runtime=runtime
    )
    assert np.allclose(sums["sum"], fed["past"].sum((1, 2)), atol=1e-5)


def test_a_part_runs_although_the_rest_cannot() -> None:
    text = (
        '<ir_version: 10, opset_import: ["": 21, "com.example": 1]>'
        "g (float[3] x) => (float[3] z) { y = Neg (x) w = com.example.Own (y) z = Neg (w) }"
    )
    x = np.arange(3, dtype=np.float32)
    with pytest.raises(RuntimeUnavailable, match="Own"):
        kv.evaluate(model(text), {"x": x})
    assert kv.evaluate(model(text), {"x": x}, fetch=["y"])["y"].tolist() == [0, -1, -2]
    assert kv.evaluate(model(text), {"w": x})["z"].tolist() == [0, -1, -2]


def test_what_is_drawn_fits_what_is_given_and_the_seed_decides() -> None:
    update = feeds(rows=4)["update"]
    fetch = ["past", "start", "present"]
    first, same, other = (
        kv.evaluate(model(), {"update": update}, random=True, seed=seed, fetch=fetch)
        for seed in (1, 1, 2)
    )
    assert first["past"].shape == (B, S, D)
    assert ((first["start"] >= 0) & (first["start"] <= S - 4)).all()
    assert np.array_equal(first["present"], same["present"])
    assert not np.array_equal(first["past"], other["past"])
    sized = kv.evaluate(model(), random=True, dims={"batch": 3, "rows": 2}, fetch=["doubled"])
    assert sized["doubled"].shape == (3, 2, D)


def test_steps_feed_the_present_back_and_advance_the_start() -> None:
    fed = feeds()
    known: list[np.ndarray[Any, Any]] = []
    for steps in range(3):
        outputs = kv.evaluate(model(), fed, steps=steps, seed=5)
        known.append(outputs["present"])
        for b, start in enumerate(fed["start"]):
            rows = np.flatnonzero((outputs["present"][b] != fed["past"][b]).any(axis=1))
            assert rows.tolist() == list(range(start, start + steps + 1))
    assert np.array_equal(known[2][0, 0], known[0][0, 0]), "what a step wrote stays"


def test_a_circular_cache_goes_on_where_a_linear_one_is_full() -> None:
    fed = {**feeds(), "start": np.array([S - 1, 0])}
    with pytest.raises(RunFailed, match="decode step 1 of 2 finds no room") as caught:
        kv.evaluate(model(), fed, steps=2)
    assert caught.value.help == "leave `steps` out"
    present = kv.evaluate(model(CIRCULAR), fed, steps=2)["present"]
    changed = (present != fed["past"]).any(axis=2)
    assert np.flatnonzero(changed[0]).tolist() == [0, 1, S - 1]


@each(("arguments", "message", "help"), [
        pytest.param({}, r"no value for `past` \(float32 \(batch, 7, 5\)\), `update`",
                     "`random=True`", id="inputs that are missing"),
        pytest.param({"inputs": {"pats": 1}}, "no value `pats`", "mean `past`?", id="input"),
        pytest.param({"fetch": ["presnt"]}, "no value `presnt`", "`present`?", id="fetch"),
        pytest.param({"node": "cach"}, "no node `cach`", "`cache`?", id="node"),
        pytest.param({"node": "#9"}, "no node `#9`", None, id="a node past the end"),
        pytest.param({"node": "sum", "fetch": ["sum"]}, "`node` fetches", None, id="both"),
        pytest.param({"inputs": {"start": [1.5]}}, "`start`: .* 1.5", None, id="a fraction"),
        pytest.param({"inputs": {"start": np.zeros(2, np.int32)}},
                     r"`start` is tensor\(int32\), expected tensor\(int64\)", None, id="a type"),
        pytest.param({"inputs": {"start": [[1]]}}, r"`start` has rank 2", None, id="rank"),
        pytest.param({"inputs": {"past": np.zeros((1, 8, 5), np.float32)}},
                     r"`past` has shape \(1, 8, 5\), expected \(batch, 7, 5\)", None, id="a size"),
        pytest.param({"inputs": {"past": np.zeros(2, "M8[s]")}}, "datetime64", None, id="a dtype"),
        pytest.param({"random": True, "inputs": {"start": [1, 2]}, "dims": {"batch": 3}},
                     "size 2 in dimension 0, `batch`, expected 3 as `dims` says", None,
                     id="a size against --dim"),
        pytest.param({"random": True, "inputs": {"start": [1], "update": np.ones((2, 1, D), "f4")}},
                     "size 1 .* expected 2 as `update` has", None, id="two sizes of one name"),
        pytest.param({"dims": {"bacth": 3}}, "no input has a dimension", "`batch`", id="a dim"),
        pytest.param({"seed": -1}, "`seed` is -1", None, id="a seed"),
        pytest.param({"steps": -1}, "`steps` is -1", None, id="steps"),
        pytest.param({"runtime": "tensorrt"}, "`runtime` is `tensorrt`", None, id="a runtime"),
        pytest.param({"steps": 1, "random": True, "inputs": {"doubled": np.ones((2, 1, D), "f4")}},
                     "`doubled` is no input", None, id="a value that a step would compute"),
    ])  # fmt: skip
def test_wrong_usage(arguments, message, help) -> None:
    with pytest.raises(kv.UsageError, match=message) as caught:
        kv.evaluate(**{"model": model(), **arguments})
    assert help is None or help in (caught.value.help or "")


def test_a_model_without_a_cache_has_no_steps() -> None:
    text = '<ir_version: 10, opset_import: ["": 21]> g (float[3] x) => (float[3] y) { y = Neg (x) }'
    with pytest.raises(kv.UsageError, match="no cache that is fed back"):
        kv.evaluate(model(text), random=True, steps=1)


def test_several_nodes_of_one_name_are_told_apart_by_their_place() -> None:
    text = (
        '<ir_version: 10, opset_import: ["": 21]> g (float[3] x) => (float[3] z)'
        "{ [n] y = Neg (x) [n] z = Neg (y) }"
    )
    with pytest.raises(kv.UsageError, match="2 nodes are called `n`") as caught:
        kv.evaluate(model(text), random=True, node="n")
    assert caught.value.help == "name one by its place: `#0`, `#1`"
    assert list(kv.evaluate(model(text), random=True, node="#1")) == ["z"]


def test_an_input_without_a_rank_can_be_given_though_not_drawn() -> None:
    text = (
        '<ir_version: 10, opset_import: ["": 21]> g (float x, float[3] w) => (float y)'
        "{ y = Add (x, w) }"
    )
    source = model(text)
    source.graph.inputs[0].shape = None
    with pytest.raises(kv.UsageError, match="the rank of input `x` is unknown"):
        kv.evaluate(source, random=True)
    outputs = kv.evaluate(source, {"x": np.ones((2, 3), np.float32)}, random=True)
    assert outputs["y"].shape == (2, 3)


def test_a_run_that_fails_names_the_node_and_the_place() -> None:
    fed = {**feeds(), "start": np.array([0, S])}
    with pytest.raises(RunFailed, match=r"node `cache` \(TensorScatter\): write_indices\[1\] is 7"):
        kv.evaluate(model(), fed)


def test_a_path_that_holds_no_model(tmp_path: Path) -> None:
    with pytest.raises(kv.UnreadableModel):
        kv.evaluate(tmp_path / "none.onnx")


def test_external_data_that_is_missing(tmp_path: Path) -> None:
    tensor = onnx.numpy_helper.from_array(np.ones(3, np.float32), "w")
    proto = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["": 21]> g (float[3] x) => (float[3] y){ y = Add (x, w) }'
    )
    proto.graph.initializer.append(tensor)
    onnx.save(
        proto, tmp_path / "m.onnx", save_as_external_data=True, location="d", size_threshold=0
    )
    assert kv.evaluate(tmp_path / "m.onnx", {"x": np.ones(3, np.float32)})["y"].tolist() == [2] * 3
    (tmp_path / "d").unlink()
    with pytest.raises(kv.UnreadableModel, match=r"m\.onnx"):
        kv.evaluate(tmp_path / "m.onnx", {"x": np.ones(3, np.float32)})


def test_sequences_and_optionals() -> None:
    text = (
        '<ir_version: 10, opset_import: ["": 21]>'
        "g (float[3] x) => (seq(float[3]) s, optional(float[3]) n)"
        "{ s = SequenceConstruct (x, x) n = Optional <type: type_proto = float[3]> () }"
    )
    proto = model(text)
    outputs = kv.evaluate(proto, {"x": [1, 2, 3]}, fetch=["s"])
    assert [array.tolist() for array in outputs["s"]] == [[1, 2, 3], [1, 2, 3]]


# The report


def report(**facts: Any) -> kv.EvalReport:
    return run(EvalRequest(model=str(LLAMA), random=True, **facts))


def test_the_keys_of_the_contract() -> None:
    found = json.loads(to_json("eval", report(trace=True)))
    assert list(found)[:3] == ["schema_version", "tool", "command"]
    assert found["command"] == "eval"
    assert found["comparison"] is None
    logits = found["outputs"][0]
    assert {key: logits[key] for key in ("name", "dtype", "shape", "values")} == {
        "name": "logits",
        "dtype": "float32",
        "shape": [2, 3, 256],
        "values": None,
    }
    assert logits["min"] < logits["max"]
    node = found["trace"][0]
    assert node["op"] == "Gather"
    assert node["outputs"][0]["shape"] == [2, 3, 64]
    assert node["seconds"] >= 0
    assert {entry["graph"] for entry in found["trace"]} > {"main_graph"}, "functions are traced"
    assert [fact["given"] for fact in found["inputs"]] == [False] * 8


def test_small_values_are_in_the_report_and_every_number_is_json() -> None:
    spec = "float32:[1.5, NaN, Infinity, -0.0]"
    found = run(EvalRequest(op="Identity", specs=(("input", spec),)))
    (output,) = json.loads(to_json("eval", found))["outputs"]
    assert output["values"] == [1.5, "nan", "inf", 0.0]
    assert (output["min"], output["max"], output["nan"]) == (0.0, "inf", 1)


@each(
    ("spec", "low", "high", "values"),
    [
        ("[]", None, None, []),
        ("[true, false]", False, True, [True, False]),
        ("uint64:[18446744073709551615]", 2**64 - 1, 2**64 - 1, [2**64 - 1]),
        ("int4:[[-8], [7]]", -8, 7, [[-8], [7]]),
        ("bfloat16:[0.1]", 0.10009765625, 0.10009765625, [0.10009765625]),
        ("[0.1]", 0.1, 0.1, [0.1]),
        ('["a"]', None, None, ["a"]),
        ('complex64:["1+2j"]', None, None, ["1+2j"]),
        ("[NaN]", None, None, ["nan"]),
        ("5", 5, 5, 5),
    ],
)
def test_summary(spec, low, high, values) -> None:
    found = run(EvalRequest(op="Identity", specs=(("input", spec),)))
    (output,) = json.loads(to_json("eval", found))["outputs"]
    assert (output["min"], output["max"], output["values"]) == (low, high, values)


def test_what_was_shown_can_be_fed_again() -> None:
    first = run(EvalRequest(op="Identity", specs=(("input", "float16:[0.1, NaN, -Infinity]"),)))
    values = json.dumps(json.loads(to_json("eval", first))["outputs"][0]["values"])
    again = run(EvalRequest(op="Identity", specs=(("input", f"float16:{values}"),)))
    assert again.values["output"].tobytes() == first.values["output"].tobytes()


def test_a_trace_of_steps_numbers_the_runs() -> None:
    found = run(
        EvalRequest(model=str(NATIVE / "llama_static.onnx"), random=True, trace=True, steps=2)
    )
    counts = [sum(entry.step == step for entry in found.trace) for step in range(4)]
    assert counts[0] == counts[1] == counts[2] > 0 == counts[3]
    assert found.steps == 2
    assert {entry.runtime for entry in found.trace} == {"kvtool"}


@pytest.mark.long
@pytest.mark.needs_onnxruntime("1.29")
def test_comparison_of_two_runtimes_over_all_steps() -> None:
    found = report(compare="onnxruntime", steps=2)
    assert found.comparison is not None
    assert found.comparison.status == "equal"
    assert found.comparison.runtime.startswith("onnxruntime ")
    assert [output.name for output in found.comparison.outputs] == [
        o.type.name for o in found.outputs
    ]
    assert all((output.max_abs_diff or 0) < 1e-4 for output in found.comparison.outputs)


class _Off:
    """A runtime whose second output is off by one half from the first decode step on."""

    runtime = "off 1.0"
    borrowed = ()

    def __init__(self, runner: Any) -> None:
        self._runner = runner
        self._runs = 0

    def run(self, inputs: Any, **options: Any) -> Run:
        found = self._runner.run(inputs, **options)
        self._runs += 1
        if self._runs == 1:
            return Run(found.values, ())
        values = dict(found.values)
        values["sum"] = values["sum"] + np.array([0, 0.5], np.float32)
        return Run(values, ())


def test_a_difference_is_shown_with_its_run_and_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    onnx.save(ir.to_proto(model()), tmp_path / "m.onnx")

    def opened(runtime: str, part: ir.Model, given: Any) -> Any:
        runner = open_runner("reference", part, given)
        return _Off(runner) if runtime == "onnxruntime" else runner

    monkeypatch.setattr(command, "open_runner", opened)
    found = run(
        EvalRequest(
            model=str(tmp_path / "m.onnx"), random=True, steps=2, compare="onnxruntime", seed=4
        )
    )
    assert found.comparison is not None
    assert found.comparison.status == "different"
    present, total = found.comparison.outputs
    assert (present.name, present.bit_equal, present.max_abs_diff) == ("present", True, 0.0)
    assert (total.bit_equal, total.max_abs_diff) == (False, 0.5)
    assert total.first_mismatch is not None
    assert total.first_mismatch.run == "in decode step 1"
    assert total.first_mismatch.mismatch.index == (1,)
    shown = found.to_json()["comparison"]["outputs"][1]["first_mismatch"]
    assert shown["expected"] - shown["actual"] == pytest.approx(0.5, abs=1e-5)


def test_the_cache_before_and_after() -> None:
    found = run(
        EvalRequest(
            op="TensorScatter",
            attributes=(("mode", "circular"), ("axis", "1")),
            specs=(
                ("past_cache", "[[[1], [2], [3]], [[4], [5], [6]]]"),
                ("update", "[[[7], [8]], [[5], [6]]]"),
                ("write_indices", "[2, 1]"),
            ),
        )
    )
    (update,) = found.updates
    assert update.old[:, :, 0].tolist() == [[1, 2, 3], [4, 5, 6]]
    assert update.new[:, :, 0].tolist() == [[8, 2, 7], [4, 5, 6]]
    assert update.to_json() == {
        "before": "past_cache",
        "after": "present_cache",
        "elements": 6,
        "changed": 2,
        "indices": [[0], [0, 2], [0]],
    }
    assert (found.operator, found.opset, found.model) == ("TensorScatter", 24, None)


@pytest.mark.parametrize(
    ("op", "inputs"),
    [
        ("ScatterElements", {"data": "[1, 2]", "indices": "[1]", "updates": "[5]"}),
        ("ScatterND", {"data": "[1, 2]", "indices": "[[1]]", "updates": "[5]"}),
    ],
)
def test_other_operators_that_write_into_a_value(op, inputs) -> None:
    found = run(EvalRequest(op=op, specs=tuple(inputs.items())))
    assert found.updates[0].changed.tolist() == [False, True]


def test_a_node_of_a_model_before_and_after() -> None:
    node = "model/layers.0/self_attn/TensorScatter_node_12"
    (update,) = report(node=node).updates
    assert (update.before, update.after) == ("key_cache.0", "updated_key_cache.0")
    assert 0 < np.count_nonzero(update.changed.any(axis=2)) <= 6


def test_duplicates_are_a_warning_with_the_node() -> None:
    inputs = (("data", "[1, 2]"), ("indices", "[1, 1]"), ("updates", "[5, 6]"))
    found = run(EvalRequest(op="ScatterElements", specs=inputs))
    (warning,) = found.warnings
    assert warning.location.op == "ScatterElements"
    assert found.to_json()["warnings"][0]["code"] == "undefined-result"


def test_what_onnx_reference_runs_is_said() -> None:
    found = run(EvalRequest(op="StringNormalizer", specs=(("X", '["b"]'),)))
    assert [place.op for place in found.borrowed] == ["StringNormalizer"]
    assert found.to_json()["borrowed"][0]["op"] == "StringNormalizer"


def test_saved_values_can_be_given_again(tmp_path: Path) -> None:
    path = str(tmp_path / "out.npz")
    inputs = (("past_cache", "bfloat16:[[0, 0]]"), ("update", "[[1.5]]"))
    first = run(
        EvalRequest(op="TensorScatter", specs=inputs, attributes=(("axis", "1"),), save=path)
    )
    assert first.saved == path
    again = run(
        EvalRequest(
            op="TensorScatter",
            specs=(("past_cache", f"bfloat16:{path}:present_cache"), *inputs[1:]),
            attributes=(("axis", "1"),),
        )
    )
    assert again.updates[0].old.dtype == ml_dtypes.bfloat16
    assert again.updates[0].old.tolist() == [[1.5, 0]]


def test_nothing_is_saved_when_the_run_fails(tmp_path: Path) -> None:
    path = tmp_path / "out.npz"
    inputs = (("past_cache", "[[0]]"), ("update", "[[1]]"), ("write_indices", "[5]"))
    with pytest.raises(RunFailed):
        run(EvalRequest(op="TensorScatter", specs=inputs, save=str(path)))
    assert not path.exists()


def test_what_is_read_is_not_overwritten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    onnx.save(ir.to_proto(model()), "m.onnx")
    np.savez("in.npz", start=np.array([0, 1]))
    link = tmp_path / "link.npz"
    link.symlink_to("in.npz")
    for target in ("m.onnx", "./m.onnx", "in.npz", "link.npz", "-"):
        request = EvalRequest(
            model="m.onnx", specs=(("start", "in.npz:start"),), random=True, save=target
        )
        with pytest.raises(kv.UsageError, match=r"overwritten|standard output"):
            run(request)
    with np.load("in.npz") as arrays:
        assert arrays["start"].tolist() == [0, 1]


def test_caches_are_given_up_in_steps_and_only_there(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[set[str]] = []

    def opened(runtime: Any, part: ir.Model, given: Any) -> Any:
        runner = open_runner("reference", part, given)
        original = runner.run

        def watched(inputs: Any, *, give_up: Any = (), observe: Any = None) -> Run:
            seen.append(set(give_up))
            return original(inputs, give_up=give_up, observe=observe)

        runner.run = watched  # type: ignore[method-assign]
        return runner

    monkeypatch.setattr(command, "open_runner", opened)
    kv.evaluate(model(), feeds(), steps=2)
    assert seen == [set(), {"past"}, {"past"}]


def test_a_present_that_is_the_array_of_the_caller_is_not_written_into() -> None:
    """The first run hands the cache on as it is; the steps write into what they were handed."""
    text = (
        f'<ir_version: 12, opset_import: ["": 24]> g (float[2, {S}, {D}] past_c,'
        f"float[2, 1, {D}] u, int64[2] start, bool write) => (float[2, {S}, {D}] present_c)"
        "{ present_c = If (write) <"
        f"then_branch = a () => (float[2, {S}, {D}] p)"
        "{ p = TensorScatter <axis = 1> (past_c, u, start) },"
        f"else_branch = b () => (float[2, {S}, {D}] q) {{ q = Identity (past_c) }} > }}"
    )
    fed = feeds()
    past = fed["past"].copy()
    given = {"past_c": past, "u": fed["update"], "start": fed["start"]}
    for write in (False, True):
        kv.evaluate(model(text), {**given, "write": np.array(write)}, steps=3)
        assert np.array_equal(past, fed["past"])


CLIP = """<ir_version: 10, opset_import: ["": 18]>
    g (float[3] x, float low, float high) => (float[3] y) { y = Clip (x, low, high) }"""


@pytest.mark.parametrize("runtime", ["reference", "onnxruntime"])
def test_null_leaves_an_optional_input_out(runtime: str, tmp_path: Path) -> None:
    path = tmp_path / "clip.onnx"
    path.write_bytes(onnx.parser.parse_model(CLIP).SerializeToString())
    inputs = (("x", "[1, 2, 3]"), ("low", "null"), ("high", "2"))
    found = run(EvalRequest(model=str(path), specs=inputs, runtime=runtime))
    assert found.values["y"].tolist() == [1, 2, 2]
    values = {"x": [1, 2, 3], "low": None, "high": 2}
    assert kv.evaluate(path, values, runtime=runtime)["y"].tolist() == [1, 2, 2]


def test_null_leaves_an_input_of_an_operator_out() -> None:
    inputs = (("input", "[1, 2, 3]"), ("min", "null"), ("max", "2"))
    assert run(EvalRequest(op="Clip", specs=inputs)).values["output"].tolist() == [1, 2, 2]
    with pytest.raises(kv.UsageError, match="no value for `input` of Clip"):
        run(EvalRequest(op="Clip", specs=(("input", "null"), *inputs[1:])))


_ENDLESS = """agraph (float[2] x) => (float[2] y) {
    c = Constant <value = bool {1}> ()
    y = Loop ("", c, x) <body = b (int64 i, bool d, float[2] a) => (bool e, float[2] f) {
        e = Identity (d)
        f = Add (a, a) }> }"""

_BOMB = 'agraph (string[1] x) => (bool[1] y) { y = RegexFullMatch <pattern = "(a+)+b"> (x) }'

_DOUBLING = (
    "agraph (float[2] v0) => (float[M] v40) {"
    + " ".join(f"v{n + 1} = Concat <axis = 0> (v{n}, v{n})" for n in range(40))
    + "}"
)

_LIMITS: dict[str, Any] = {
    "a Loop without end": (_ENDLESS, {"x": [1.0, 2.0]}, {"time_limit": 0.5}, "0.5 s"),
    "the same in onnxruntime": (
        _ENDLESS,
        {"x": [1.0, 2.0]},
        {"time_limit": 0.5, "runtime": "onnxruntime"},
        "0.5 s",
    ),
    "a pattern that never ends": (_BOMB, {"x": ["a" * 64 + "c"]}, {"time_limit": 0.5}, "0.5 s"),
    "Concats that double": (
        _DOUBLING,
        {"v0": [1.0, 2.0]},
        {"memory_limit": "64MiB"},
        "64 MiB of memory",
    ),
}


@part(2)
@pytest.mark.long
@pytest.mark.forks
@pytest.mark.skipif(not is_confining(), reason="limits hold on Linux alone")
@pytest.mark.parametrize("name", _LIMITS)
def test_a_run_is_ended_at_its_limit(name) -> None:
    text, inputs, limit, reached = _LIMITS[name]
    model = onnx.parser.parse_model('<ir_version: 9, opset_import: ["": 20]> ' + text)
    with pytest.raises(kv.KvtoolError) as raised:
        kv.evaluate(model, inputs, **limit)
    assert raised.value.message == f"the runs took more than {reached} and were ended"
    keyword = 'memory_limit="128MiB"' if "memory" in reached else "time_limit=1"
    assert raised.value.help == f"`{keyword}` allows twice as much"


@pytest.mark.long
@pytest.mark.forks
@pytest.mark.skipif(not is_confining(), reason="limits hold on Linux alone")
def test_a_run_within_its_limits_gives_the_same() -> None:
    text = (
        "agraph (float[N] x) => (float[N] y, seq(float[N]) s)"
        " { y = Neg (x) s = SequenceConstruct (y, x) }"
    )
    model = onnx.parser.parse_model('<ir_version: 9, opset_import: ["": 20]> ' + text)
    inputs = {"x": np.array([2, 3, 5], np.float32)}
    free = kv.evaluate(model, inputs)
    limited = kv.evaluate(model, inputs, time_limit=60, memory_limit=1 << 30)
    assert limited.keys() == free.keys()
    assert np.array_equal(limited["y"], free["y"])
    assert all(map(np.array_equal, limited["s"], free["s"]))


@each(
    ("limit", "message"),
    [
        ({"time_limit": 0}, "`time_limit` is 0, expected a number of seconds above 0"),
        ({"time_limit": float("nan")}, "`time_limit` is nan, expected a number of seconds above"),
        ({"memory_limit": "much"}, "`memory_limit` is `much`, expected a number of bytes above 0"),
        ({"memory_limit": -1}, "`memory_limit` is `-1`, expected a number of bytes above 0"),
    ],
)
def test_a_limit_that_is_none(limit, message) -> None:
    model = onnx.parser.parse_model('<ir_version: 9, opset_import: ["": 20]> ' + _BOMB)
    with pytest.raises(kv.UsageError) as raised:
        kv.evaluate(model, {"x": ["a"]}, **limit)
    assert message in raised.value.message


_LISTING = {
    "Reshape": "g (float[2, 3] x, int64[2] s) => (float[M, N] y) { y = Reshape (x, s) }",
    "Expand": "g (float[2, 3] x, int64[2] s) => (float[M, N] y) { y = Expand (x, s) }",
    "Tile": "g (float[2, 3] x, int64[2] s) => (float[M, N] y) { y = Tile (x, s) }",
    "Slice": "g (float[2, 3] x, int64[2] s) => (float[M, N] y) { y = Slice (x, s, s) }",
    "ReduceSum": "g (float[2, 3] x, int64[2] s) => (float[M, N] y) { y = ReduceSum (x, s) }",
    "Gather": "g (float[2, 3] x, int64[2] s) => (float[M, N] y) { y = Gather (x, s) }",
    "Unsqueeze": "g (float[2, 3] x, int64[2] s) => (float[M, N, O, P] y) { y = Unsqueeze (x, s) }",
}


@each("op", [*_LISTING])
def test_both_types_that_numpy_has_for_int64_are_taken(op) -> None:
    model = onnx.parser.parse_model('<ir_version: 9, opset_import: ["": 20]> ' + _LISTING[op])
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    sizes = np.array([1, 6] if op == "Reshape" else [1, 1] if op in ("Tile", "Gather") else [1, 0])
    sizes = np.array([2, 3]) if op == "Expand" else sizes
    kinds = [sizes.astype(np.dtype(code)) for code in "lq"]
    one, other = (kv.evaluate(model, {"x": x, "s": kind})["y"] for kind in kinds)
    assert np.array_equal(one, other)


_KEPT = """<ir_version: 9, opset_import: ["": 20]>
g (float[2] x) => (float[2] y, float[2] c) <float[2] w = {1, 2}> {
    c = Constant <value = float[2] {3, 5}> ()
    y = Add (x, w)
}"""
_FED = {"x": np.float32([7, 11])}


def test_a_message_is_compiled_once(monkeypatch) -> None:
    model, built = onnx.parser.parse_model(_KEPT), []
    made = Compiler.main
    monkeypatch.setattr(Compiler, "main", lambda *given: built.append(given) or made(*given))
    for _ in range(3):
        assert kv.evaluate(model, _FED)["y"].tolist() == [8, 13]
    assert len(built) == 1
    kv.evaluate(onnx.parser.parse_model(_KEPT.replace("{1, 2}", "{1, 3}")), _FED)
    assert len(built) == 2


def test_a_message_that_was_changed_is_run_as_it_is_now() -> None:
    model = onnx.parser.parse_model(_KEPT)
    kv.evaluate(model, _FED)
    model.graph.initializer[0].CopyFrom(onnx.numpy_helper.from_array(np.float32([2, 2]), "w"))
    assert kv.evaluate(model, _FED)["y"].tolist() == [9, 13]
    model.graph.node[1].op_type = "Mul"
    assert kv.evaluate(model, _FED)["y"].tolist() == [14, 22]


def test_what_is_returned_is_no_part_of_what_is_kept() -> None:
    model = onnx.parser.parse_model(_KEPT)
    for fetch in (["y", "c"], ["c", "w"], ["y", "c"]):
        for value in kv.evaluate(model, _FED, fetch=fetch).values():
            np.add(value, 100, out=value)
    assert kv.evaluate(model, _FED, fetch=["y", "c", "w"])["w"].tolist() == [1, 2]
    assert kv.evaluate(model, _FED)["c"].tolist() == [3, 5]
