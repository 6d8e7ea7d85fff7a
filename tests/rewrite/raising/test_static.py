"""`raise --dim` and `--static`: sizes of what was raised, fixed for good."""

from __future__ import annotations

from collections import Counter
from functools import partial
from pathlib import Path

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from onnx_kvtool.analysis.attention.masks import MaskFunction
from onnx_kvtool.commands.raise_ import raise_
from onnx_kvtool.core.errors import UsageError
from onnx_kvtool.decoding.decoder import Decoder
from onnx_kvtool.emit.emitter import Emitter
from onnx_kvtool.model_io.model import read
from onnx_kvtool.rewrite.raise_report import RaiseReport
from onnx_kvtool.rewrite.raising import contrib
from onnx_kvtool.rewrite.raising.attention import fixed_masks
from onnx_kvtool.rewrite.report import Refused
from onnx_kvtool.runtime.onnxruntime import Session
from onnx_kvtool.symbolic.dimensions import dims_of
from tests.grids import part
from tests.growing_models import Arrays, Host, conversation
from tests.rewrite.fixing.test_fixtures import assert_static

pytestmark = pytest.mark.long

_FIXTURES = Path(__file__).resolve().parents[3] / "fixtures"
_STATIC = _FIXTURES / "models" / "torch_static" / "hf"


@pytest.mark.parametrize(
    ("name", "dims"),
    [
        pytest.param("llama_static__dynamo_op18", {"s58": 3}, id="dynamo"),
        pytest.param(
            *("llama_static__ts_op17", {"seq": 1}),
            id="torchscript, one token",
            marks=pytest.mark.exhaustive,
        ),
        pytest.param("gemma3_static_slidingfull_L1__dynamo_op18", {}, id="no names"),
    ],
)
def test_a_decoder_with_fixed_caches(name: str, dims: dict[str, int]) -> None:
    model, report = raise_(str(_STATIC / f"{name}.onnx"), dims=dims, static=True)
    assert report.raised
    assert_static(model)
    assert report.verification.status == "equal"
    operators = Counter(node.op_type for node in model.graph)
    assert operators["TensorScatter"] == len(report.raised)


@pytest.mark.exhaustive
@pytest.mark.long
def test_dims_without_static_leave_other_names() -> None:
    path = _FIXTURES / "growing" / "llama__optimum.onnx"
    model, report = raise_(str(path), capacity=16, dims={"batch_size": 2})
    shapes = {value.name: dims_of(value) for value in model.graph.inputs}
    assert shapes["input_ids"] == (2, "sequence_length")
    assert shapes["past_key_values.0.key"] == (2, 2, 16, 8)
    assert shapes["attention_mask"] == (2, "past_sequence_length + sequence_length")
    assert report.verification.status == "equal"


@pytest.mark.exhaustive
@pytest.mark.long
def test_a_name_along_which_a_cache_grows_is_no_number() -> None:
    """With one, every step would begin behind the same rows."""
    path = _FIXTURES / "growing" / "llama__optimum.onnx"
    dims = {"past_sequence_length": 5, "batch_size": 2}
    model, _ = raise_(str(path), capacity=16, dims=dims, verify=False)
    mask = next(value for value in model.graph.inputs if value.name == "attention_mask")
    assert dims_of(mask) == (2, "past_sequence_length + sequence_length")


_GROWING = [
    ("llama__optimum", {"batch_size": 2, "sequence_length": 3}),
    ("gpt2__optimum_op18", {"batch_size": 1, "sequence_length": 1}),
    ("gemma2__optimum", {"batch_size": 3, "sequence_length": 2}),
    ("gemma3__optimum_op18", {"batch_size": 1, "sequence_length": 1}),
    ("gpt_neox__optimum", {"batch_size": 2, "sequence_length": 1}),
    ("qwen3__optimum_op18__onnxsim", {"batch_size": 1, "sequence_length": 1}),
    ("gemma2_eager_dynamo18", {"batch": 1, "seq": 2}),
    ("llama_eager_dynamo18", {"batch": 2, "seq": 1}),
    ("falcon__dynamo_op18", {"s14": 3, "s87": 3, "s0": 2}),
    ("mixtral__dynamo_op18", {"s14": 1, "s87": 1, "s0": 1}),
    ("phi3__ts_op17__onnxslim", {"batch": 3, "seq": 1}),
    ("stablelm__ts_op17__ort", {"batch": 2, "seq": 2}),
    ("gpt_neox_eager__ts_op14", {"batch": 1, "seq": 3}),
    ("gptj_eager__ts_op17", {"batch": 2, "seq": 1}),
    ("mistral_swmask_ts17", {"batch": 3, "seq": 2}),
    ("qwen2_eager_fp16__ts_op17", {"batch": 2, "seq": 1}),
    ("llama_eager_fp16__dynamo_op18", {"s14": 2, "s87": 2, "s85": 2}),
    ("bloom__optimum", {"batch_size": 3, "sequence_length": 2}),
    ("falcon__optimum_op18", {"batch_size": 2, "sequence_length": 1}),
    ("gptj__optimum", {"batch_size": 1, "sequence_length": 3}),
    ("opt__optimum_op18", {"batch_size": 3, "sequence_length": 2}),
    ("cohere__dynamo_op23", {"s14": 3, "s87": 3, "s85": 2}),
    ("gpt2__dynamo_op23", {"s14": 1, "s87": 1, "s85": 3}),
    ("llama__dynamo_op23", {"s14": 2, "s87": 2, "s0": 1}),
    ("smollm3__dynamo_op23", {"s14": 2, "s87": 2, "s0": 2}),
    ("gpt_neo_eager__optimum_op18", {"batch_size": 2, "sequence_length": 2}),
    ("gpt_oss_eager__optimum_op18", {"batch_size": 2, "sequence_length": 1}),
    ("mpt_eager__optimum_op18", {"batch_size": 1, "sequence_length": 3}),
]


@pytest.mark.long
@part(28)
@pytest.mark.parametrize(("name", "dims"), _GROWING, ids=str)
def test_a_decoder_whose_caches_grow(name: str, dims: dict[str, int]) -> None:
    """The mask is as long as the caches; what it says of rows that are not in use is nothing."""
    path = _FIXTURES / "growing" / f"{name}.onnx"
    model, report = raise_(str(path), capacity=11, dims=dims, static=True)
    assert_static(model)
    shapes = {value.name: dims_of(value) for value in model.graph.inputs}
    batch, length = (dims_of(model.graph.inputs[0]) or ())[:2]
    assert shapes["attention_mask"] == (batch, 11)
    assert shapes["past_length"] == (1,)
    assert not [node for node in model.graph if node.op_type in ("Range", "Pad")]
    assert report.verification.status == "equal"
    assert report.verification.steps > 10
    assert {done.form for done in report.attention} <= {"full"}  # none where the source has it
    assert all(
        rows == 11
        for node in model.graph
        if node.op_type == "Attention" and (rows := (dims_of(node.inputs[1]) or (0,) * 4)[2])
    )
    prompt = np.arange(batch * length).reshape(batch, length) % 7
    logits = []
    for decoder in (Decoder(model, threads=1), Decoder(str(path), threads=1)):
        steps = [decoder.prefill(prompt), decoder.step(prompt[::-1]), decoder.step(prompt)]
        logits.append(np.concatenate(steps))
    limit = 2e-2 if "fp16" in name else 1e-4
    np.testing.assert_allclose(*logits, rtol=1e-3, atol=limit)


_ROLLING = [
    ("gemma3_rolling__dynamo_op18", {"s14": 1, "s85": 1}, 23, None),
    ("gemma3_rolling__dynamo_op18", {"s14": 3, "s85": 4}, 23, None),
    ("mistral_rolling__dynamo_op18", {"s14": 3, "s87": 3, "s0": 1}, 23, 6),
    ("mistral_rolling__dynamo_op18", {"s14": 1, "s87": 1, "s0": 8}, 23, 13),
    ("cohere2_rolling__dynamo_op18", {"s14": 2, "s87": 2, "s0": 1}, 23, 23),
    ("cohere2_rolling__dynamo_op18", {"s14": 1, "s87": 1, "s0": 3, "s89": 12}, 12, 12),
    ("cohere2_rolling__dynamo_op18", {"s14": 3, "s87": 3, "s0": 2}, 4, 4),
]
"""The last: fewer rows of all tokens than the window has."""


@part(7)
@pytest.mark.long
@pytest.mark.parametrize(("name", "dims", "capacity", "columns"), _ROLLING, ids=str)
def test_a_decoder_whose_caches_roll(
    name: str, dims: dict[str, int], capacity: int, columns: int | None
) -> None:
    """The mask has a column for each row that is kept before a step, and for each new one.

    It has one for each row of the caches that keep all, where these read it as well.
    """
    path = _FIXTURES / "growing" / f"{name}.onnx"
    assume = ["rotated-rows"]
    model, report = raise_(str(path), capacity=capacity, dims=dims, static=True, assume=assume)
    assert_static(model)
    shapes = {value.name: dims_of(value) for value in model.graph.inputs}
    assert columns is None or shapes["attention_mask"] == (dims["s14"], columns)
    assert not [node for node in model.graph if node.op_type in ("If", "Range", "Pad")]
    assert report.verification.status == "equal"
    assert {done.form for done in report.attention} == {"full"}


_HYBRID = _FIXTURES / "growing" / "cohere2_rolling__dynamo_op18.onnx"


def _hybrid(verify: bool) -> tuple[ir.Model, RaiseReport]:
    dims = {"s14": 2, "s87": 2, "s0": 1}
    assume = ["rotated-rows"]
    return raise_(str(_HYBRID), capacity=11, dims=dims, static=True, assume=assume, verify=verify)


@pytest.mark.long
def test_a_window_beside_a_cache_of_all_rows_gives_the_tokens_of_the_source() -> None:
    """Ten steps of a padded batch, beyond the window of 6."""
    talk, logits = conversation(2, 10), []
    for message, columns in ((onnx.load(_HYBRID), 0), (ir.to_proto(_hybrid(verify=False)[0]), 11)):
        run = partial(_padded, Session(message.SerializeToString(), ""), columns)
        logits.append(Host(message, run).answer(talk, (1,) * 10)[0][talk.live])
    np.testing.assert_allclose(*logits, atol=1e-4)


def _padded(session: Session, columns: int, feeds: Arrays) -> Arrays:
    """Run a step with a mask that has at least so many columns."""
    mask = feeds["attention_mask"]
    wide = [(0, 0), (0, max(columns - mask.shape[1], 0))]
    return dict(session.run({**feeds, "attention_mask": np.pad(mask, wide, constant_values=1)}))


@part(2)
@pytest.mark.parametrize("shift", ["columns", "queries"])
def test_a_shifted_mask_of_a_window_is_found(shift: str, monkeypatch: pytest.MonkeyPatch) -> None:
    write = fixed_masks.emit_mask_of

    def shifted(
        found: MaskFunction | None, dtype: ir.DataType, columns: fixed_masks.Columns, em: Emitter
    ) -> ir.Value:
        if columns.places is not None and shift == "columns":
            columns = columns._replace(places=em.op("Add", columns.places, em.constant([1])))
        elif columns.places is not None:
            columns = columns._replace(queries=em.op("Sub", columns.queries, em.constant([1])))
        return write(found, dtype, columns, em)

    monkeypatch.setattr(fixed_masks, "emit_mask_of", shifted)
    with pytest.raises(Refused) as error:
        _hybrid(verify=True)
    assert error.value.report.verification.status == "different"


_DECODER = """<ir_version: 8, opset_import: ["" : 17]>
main (float[2, 3, sequence, 4] q, float[2, 3, sequence, 4] k, float[2, 3, sequence, 4] v,
      float[2, 3, past, 4] pk, float[2, 3, past, 4] pv, int64[2, longer] attention_mask)
    => (float[2, 3, sequence, 4] y, float[2, 3, total, 4] nk, float[2, 3, total, 4] nv) {
    new = Neg (k)  nk = Concat <axis = 2> (pk, new)
    more = Neg (v)  nv = Concat <axis = 2> (pv, more)
    turned = Transpose <perm = [0, 1, 3, 2]> (nk)  products = MatMul (q, turned)
    axes = Constant <value = int64[2] {1, 2}> ()  zero = Constant <value = int64 {0}> ()
    low = Constant <value = float {-3.0e38}> ()  none = Constant <value = float {0}> ()
    shown = MASK  wide = Unsqueeze (shown, axes)  hidden = Equal (wide, zero)
    bias = Where (hidden, low, none)  scores = Add (products, bias)
    p = Softmax <axis = -1> (scores)  found = MatMul (p, nv)
    length = Shape <start = 1> (attention_mask)  count = Cast <to = 1> (length)  y = RESULT
}"""

_BODIES: dict[str, tuple[str, str, str]] = {
    "the mask alone": ("Identity (attention_mask)", "Identity (found)", ""),
    "a result that depends on the length of the mask": (
        "Identity (attention_mask)",
        "Div (found, count)",
        "",
    ),
    "a mask that depends on its length": (
        "Sub (attention_mask, length)",
        "Identity (found)",
        "",
    ),
    "a mask of sums": ("CumSum (attention_mask, last)", "Identity (found)", ""),
    "a mask of sums from the end": (
        "CumSum <reverse = 1> (attention_mask, last)",
        "Identity (found)",
        "`CumSum` begins at the last of the rows in use",
    ),
    "a mask that counts tokens": ("ReduceSum (attention_mask, last)", "Identity (found)", ""),
    "a mask of a mean": (
        "Identity (means)",
        "Identity (found)",
        "`ReduceMean` makes one element of all rows in use",
    ),
    "a mask turned over": (
        "Slice (attention_mask, back, front, last, back)",
        "Identity (found)",
        "`Slice` does not take one row after the other",
    ),
    "a mask cut along two axes": (
        "Slice (counted, corner, beyond, both)",
        "Identity (found)",
        "`Slice` cuts along several axes",
    ),
    "a mask whose last column is looked up": (
        "Gather <axis = 1> (attention_mask, back)",
        "Identity (found)",
        "",
    ),
    "a mask of how many elements there are": (
        "Mul (attention_mask, elements)",
        "Identity (found)",
        "`Size` may look at all rows in use",
    ),
}

_LACKS = {
    "last": "last = Constant <value = int64[1] {1}> ()",
    "back": "back = Constant <value = int64[1] {-1}> ()",
    "front": "front = Constant <value = int64[1] {-9999}> ()",
    "counted": "along = Constant <value = int64 {1}> ()  counted = CumSum (attention_mask, along)",
    "corner": "corner = Constant <value = int64[2] {0, 0}> ()",
    "beyond": "beyond = Constant <value = int64[2] {9999, 9999}> ()",
    "both": "both = Constant <value = int64[2] {0, 1}> ()",
    "elements": "elements = Size (attention_mask)",
    "means": "real = Cast <to = 1> (attention_mask)  mean = ReduceMean <axes = [1]> (real)"
    "  means = Cast <to = 7> (mean)",
}


@pytest.mark.parametrize(("mask", "result", "cause"), list(_BODIES.values()), ids=list(_BODIES))
def test_only_a_mask_whose_length_says_nothing_is_as_long_as_the_caches(
    mask: str, result: str, cause: str
) -> None:
    text = _DECODER.replace("MASK", mask).replace("RESULT", result)
    for name, node in _LACKS.items():
        if name in mask:
            text = text.replace("shown =", f"{node}  shown =")
    source = onnx.parser.parse_model(text)
    source.graph.input[5].type.tensor_type.shape.dim[1].dim_param = "past + sequence"
    if not cause:
        model, report = raise_(source, capacity=7, dims={"sequence": 2}, static=True)
        assert_static(model)
        assert dims_of(model.graph.inputs[5]) == (2, 7)
        assert report.verification.status == "equal"
        return
    with pytest.raises(Refused) as error:
        raise_(source, capacity=7, dims={"sequence": 2}, static=True, verify=False)
    assert cause in error.value.report.reasons[0].message


_TOTAL = "total_sequence_length"
_QWEN = _FIXTURES / "growing" / "qwen3__optimum_op18__onnxsim.onnx"
_GENAI = _FIXTURES / "models" / "genai" / "genai_llama_fp32_cpu.onnx"


def test_what_stays_dynamic_is_refused_by_name() -> None:
    source = read(_STATIC / "llama_static__dynamo_op18.onnx")
    with pytest.raises(Refused) as error:
        raise_(source, static=True, verify=False)
    (refused,) = error.value.report.reasons
    assert refused.code == "symbolic-dimension"
    assert refused.help == "give `--dim s58=N`"


def test_sliced_attention_is_not_static() -> None:
    with pytest.raises(UsageError, match="as many rows as are in use"):
        raise_(str(_STATIC / "llama_static__dynamo_op18.onnx"), static=True, attention="sliced")


@pytest.mark.long
@pytest.mark.exhaustive
def test_relative_positions_and_cross_attention() -> None:
    """T5 computes a bias of as many rows as columns, and cuts the last rows of it."""
    dims = {"batch_size": 2, "decoder_sequence_length": 1, "encoder_sequence_length": 3}
    path = _FIXTURES / "growing" / "t5_decoder_with_past__optimum.onnx"
    model, report = raise_(str(path), capacity=11, dims=dims, static=True)
    assert_static(model)
    assert report.verification.status == "equal"
    assert report.verification.steps > 10
    assert Counter(node.op_type for node in model.graph)["Attention"] == 4


_BRANCHES = """If (use) <
    then_branch = used () => (float[2, 3, length, 4] some) { some = Identity (found) },
    else_branch = unused () => (float[0, 3, 1, 4] none) { none = ConstantOfShape (empty) }
>"""


@pytest.mark.parametrize(
    ("dims", "shape"), [({}, "(2, 3, sequence, 4)"), ({"sequence": 5}, "(2, 3, 5, 4)")], ids=str
)
def test_branches_of_two_shapes_are_named(dims: dict[str, int], shape: str) -> None:
    text = _DECODER.replace("MASK", "Identity (attention_mask)").replace("RESULT", _BRANCHES)
    text = text.replace("attention_mask)\n", "attention_mask, bool use)\n")
    text = text.replace("float[2, 3, sequence, 4] y", "float[batch, 3, length, 4] y")
    text = text.replace("shown =", "empty = Constant <value = int64[4] {0, 3, 1, 4}> ()  shown =")
    source = onnx.parser.parse_model(text)
    source.graph.input[5].type.tensor_type.shape.dim[1].dim_param = "past + sequence"
    with pytest.raises(Refused) as error:
        raise_(source, capacity=11, dims=dims, static=True, verify=False)
    (reason,) = error.value.report.reasons
    assert reason.message == f"the branches give {shape} and (0, 3, 1, 4) for `y`"
    assert "with_past" in (reason.help or "")


@pytest.mark.exhaustive
def test_branches_with_and_without_an_encoder_are_named() -> None:
    """Optimum hands out cross attention of no sequence where it is not computed."""
    path = _FIXTURES / "growing" / "t5_decoder_merged__optimum.onnx"
    dims = {"batch_size": 2, "decoder_sequence_length": 1, "encoder_sequence_length": 3}
    with pytest.raises(Refused) as error:
        raise_(str(path), capacity=11, dims=dims, static=True, verify=False)
    (reason,) = error.value.report.reasons
    assert reason.message == (
        "the branches give (2, 4, 3, 8) and (0, 4, 1, 8) for `present.0.encoder.key`"
    )


@pytest.mark.parametrize(
    ("path", "given", "lacking"),
    [
        (_QWEN, {}, ["batch_size", "sequence_length"]),
        pytest.param(_QWEN, {"batch_size": 2}, ["sequence_length"], marks=pytest.mark.exhaustive),
        (_GENAI, {"batch_size": 1}, ["sequence_length"]),
    ],
)
def test_a_size_that_lacks_is_named_and_nothing_that_follows_from_it(
    path: Path, given: dict[str, int], lacking: list[str]
) -> None:
    with pytest.raises(Refused) as error:
        raise_(str(path), capacity=11, dims=given, static=True, verify=False)
    report = error.value.report
    flags = " ".join(f"--dim {name}=N" for name in lacking)
    assert [one.help for one in report.reasons] == [f"give `{flags}`"]
    assert report.notes == []


@pytest.mark.parametrize(
    ("columns", "end"),
    [(11, "`attention_mask` counts the tokens, and has 11 columns"), (13, "onnxruntime")],
    ids=["as long as the capacity", "longer"],
)
def test_the_end_of_a_mask_that_counts_tokens_is_the_end_of_the_caches(
    columns: int, end: str
) -> None:
    """No host can ask for a step past the capacity where the mask has no column for it."""
    sizes = {"batch_size": 1, "sequence_length": 1, _TOTAL: columns}
    model, report = raise_(str(_GENAI), capacity=11, dims=sizes, static=True)
    assert_static(model)
    assert report.verification.status == "equal"
    assert f"as it has to: {end}" in report.verification.detail


@pytest.mark.parametrize(("batch", "length"), [(2, 1), (2, 8), (1, 3)])
def test_a_mask_that_is_declared_as_long_as_the_caches_needs_no_size(
    batch: int, length: int
) -> None:
    """A prompt that is padded on the right begins at row 0 as well."""
    dims = {"batch_size": batch, "sequence_length": length}
    model, report = raise_(str(_GENAI), capacity=11, dims=dims, static=True)
    assert_static(model)
    shapes = {value.name: dims_of(value) for value in model.graph.inputs}
    assert shapes["attention_mask"] == (batch, 11)
    assert report.verification.status == "equal"


def test_a_prompt_that_begins_before_row_0_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(contrib, "_start_prompts", lambda *_: None)
    dims = {"batch_size": 2, "sequence_length": 8}
    with pytest.raises(Refused) as error:
        raise_(str(_GENAI), capacity=11, dims=dims, static=True)
    assert error.value.report.verification.status == "different"
