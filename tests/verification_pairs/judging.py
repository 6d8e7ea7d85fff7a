"""What runs a pair: whether its models truly differ or agree, and what `verify` says of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Literal

import numpy as np
import onnx
import onnxruntime as ort

import onnx_kvtool as kv
from tests.verification_pairs.pair import Array, Pair, disguised

__all__ = ["Verdict", "agreement", "apart", "runners", "verdict", "verdicts", "witness"]

Verdict = Literal["different", "equal with a word", "equal", "unrunnable"]

_MOST = 500
_Run = Callable[[dict[str, Array]], Sequence[Array]]


def verdicts(pair: Pair, seed: int = 0) -> dict[str, Verdict]:
    """Return what `verify` says of a pair, and of its first model and the second one disguised."""
    one, other = pair.models(seed)
    forms = {"as they are": other, "disguised": disguised(other)}
    return {name: verdict(one, form, seed) for name, form in forms.items()}


def verdict(one: onnx.ModelProto, other: onnx.ModelProto, seed: int) -> Verdict:
    """Return what `verify` says of two models.

    What was not covered is a word, as is a tolerance that another type than that of the output has
    widened: the table of the report names both.
    """
    report = kv.verify(one, other, seed=seed)
    covered = report.covered
    is_said = covered is not None and (covered.unnoticed or covered.not_finite or covered.constant)
    return "equal with a word" if report.status == "equal" and is_said else report.status


def witness(pair: Pair, seed: int = 0) -> str | None:
    """Return None if the feeds of a pair tell its models apart, else what is wrong with them.

    The models are run by onnxruntime, or by the reference if onnxruntime does not load both. An
    element tells them apart by a share of what is largest in its output; whole numbers by anything.
    """
    one, other = pair.models(seed)
    feeds = pair.inputs(one, seed)
    first, second = runners(one, other, pair.runtime)
    expected = first(feeds)
    try:
        found = second(feeds)
    except Exception as error:  # noqa: BLE001 - a runtime raises of every kind
        return None if pair.fails else f"the second model fails: {error}"
    if pair.fails:
        return "the second model was to fail"
    if any(
        apart(a, b, pair.apart, by_moments=pair.is_random)
        for a, b in zip(expected, found, strict=True)
    ):
        return None
    return f"the feeds show no difference: {expected} and {found}"[:_MOST]


def agreement(pair: Pair, seed: int = 0) -> str | None:
    """Return None if the models of a pair agree on its feeds, else where they do not."""
    one, other = pair.models(seed)
    feeds = pair.inputs(one, seed)
    first, second = runners(one, other, pair.runtime)
    for a, b in zip(first(feeds), second(feeds), strict=True):
        if apart(a, b, pair.apart):
            return f"the models differ: {a} and {b}"[:_MOST]
    return None


def runners(
    one: onnx.ModelProto, other: onnx.ModelProto, runtime: str = "auto"
) -> tuple[_Run, _Run]:
    """Return what runs each of two models, both in onnxruntime if that loads them."""
    if runtime == "auto":
        with suppress(Exception):  # it raises of every kind
            return _onnxruntime(one), _onnxruntime(other)
    return _reference(one), _reference(other)


def _reference(model: onnx.ModelProto) -> _Run:
    session = kv.ReferenceEvaluator(model)
    return lambda feeds: session.run(None, feeds)


def _onnxruntime(model: onnx.ModelProto) -> _Run:
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    data = model.SerializeToString()
    session = ort.InferenceSession(data, options, providers=["CPUExecutionProvider"])
    return lambda feeds: session.run(None, feeds)


def apart(a: Array, b: Array, share: float, *, by_moments: bool = False) -> bool:
    """Return whether two outputs differ by more than a share of what is largest; 0 for integers."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return True
    if a.dtype.kind not in "fcV":
        return not np.array_equal(a, b)
    a, b = a.astype(np.float64), b.astype(np.float64)
    if by_moments:
        a, b = np.array([a.mean(), a.std()]), np.array([b.mean(), b.std()])
    if not np.array_equal(np.isfinite(a), np.isfinite(b)):
        return True
    finite = np.isfinite(a)
    largest = np.abs(a[finite]).max(initial=0.0)
    return bool((np.abs(a - b)[finite] > share * largest).any())
