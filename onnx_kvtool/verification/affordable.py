"""Whether to run two models or smaller copies, and whether their runs are short."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property

import onnx
import onnx_ir as ir

from onnx_kvtool.core.errors import KvtoolError
from onnx_kvtool.core.machine import Budget
from onnx_kvtool.core.reporting import Shrunken
from onnx_kvtool.core.storage import tensor_bytes
from onnx_kvtool.core.walk import subgraphs, tensors
from onnx_kvtool.core.words import binary_bytes
from onnx_kvtool.guard.exhaustion import makes_long_vector, may_run_out
from onnx_kvtool.guard.fault import Contents
from onnx_kvtool.guard.weightless import infer_with_data, weightless
from onnx_kvtool.runtime.confined import Exceeded, Limits, confined, is_confining
from onnx_kvtool.runtime.errors import CannotDraw
from onnx_kvtool.shapes.inference import infer_model
from onnx_kvtool.verification.engine import compare_models
from onnx_kvtool.verification.growing.pair import may_be_growing_pair, wrong_order
from onnx_kvtool.verification.inputs.cases import CASES
from onnx_kvtool.verification.inputs.interface import (
    Interface,
    interface_difference,
    interface_of,
    narrowed,
)
from onnx_kvtool.verification.inputs.plan import InputPlan, plan
from onnx_kvtool.verification.inputs.symbols import least_memory
from onnx_kvtool.verification.report import Settings, VerifyReport
from onnx_kvtool.verification.shrinking.alike_layers import Thinned, thinned
from onnx_kvtool.verification.shrinking.drawn_weights import (
    Skeleton,
    skeleton,
    with_counterparts,
    without_unread,
)
from onnx_kvtool.verification.subject import Subject, capture
from onnx_kvtool.verification.weights import alike, weight_difference

# Whether the runs of a model are known to end soon and to stay small.


_MOST_NODES = 128
"""Most nodes of a model whose inference costs less than a process."""

_SIZE = 64
"""What a symbolic dimension counts for, which is more than is drawn for most."""

_BYTES = 16
"""The largest element there is."""

_WORK = 1e9
"""Elements that the windows of a node may look at: more takes the reference seconds."""

_SEARCHING = frozenset({"RegexFullMatch", "StringSplit", "TfIdfVectorizer"})
"""Operators whose time follows from what strings hold."""


def is_bounded(model: ir.Model, memory: int) -> bool:
    """Return whether no run of `model` can take long, or more than `memory` bytes for its values.

    That is known of a model of few nodes, without bodies and functions, whose values all have
    shapes by inference. What the model itself declares of values between inputs and outputs does
    not count, because it may be wrong. The model does not count its weights.
    """
    nodes = list(model.graph)
    if len(nodes) > _MOST_NODES or model.functions:
        return False
    if any(node.op_type in _SEARCHING or any(subgraphs(node)) for node in nodes):
        return False
    try:
        message = weightless(model)
        del message.graph.value_info[:]
        for value in message.graph.output:
            value.type.tensor_type.ClearField("shape")
        contents = Contents(message)
        if may_run_out(contents) or makes_long_vector(contents):
            return False
        inferred = infer_with_data(message).graph
    except (
        KvtoolError,
        onnx.checker.ValidationError,
        onnx.shape_inference.InferenceError,
        RuntimeError,
        ValueError,
    ):
        return False
    sizes = {value.name: _elements(value) for value in (*inferred.value_info, *inferred.output)}
    made = [name for node in inferred.node for name in node.output if name]
    if sum(sizes.get(name, math.inf) for name in made) * _BYTES > memory:
        return False
    return all(
        sizes[node.output[0]] * _kernel(node) <= _WORK
        for node in inferred.node
        if node.output[:1] and node.output[0]
    )


def _kernel(node: onnx.NodeProto) -> int:
    """Return the number of elements in the window of a node; 1 without a window."""
    return math.prod(
        size for a in node.attribute if a.name == "kernel_shape" for size in a.ints if size > 0
    )


def _elements(value: onnx.ValueInfoProto) -> float:
    """Return the maximal number of elements of a value; infinity if unknown."""
    type_ = value.type.tensor_type
    if not value.type.HasField("tensor_type") or not type_.HasField("shape"):
        return math.inf
    return math.prod(_size(dim) for dim in type_.shape.dim)


def _size(dim: onnx.TensorShapeProto.Dimension) -> float:
    if dim.HasField("dim_value"):
        return dim.dim_value if dim.dim_value >= 0 else math.inf
    return _SIZE if dim.dim_param and not dim.dim_param.startswith("unk__") else math.inf


# Whether two models are run as they are or as copies that take less.


_COPIES = 3
"""How often a model stands in memory while it is run: its message, what the runtime makes of it,
and the rearranged copies that kernels keep of matrices."""

_LENIENT = 1.25
"""Times the budget, which is what a run may take about: the smallest run there is may take it."""

_GENEROUS = 4
"""Times the budget: so much memory models may take that have no smaller copies."""


_BOUNDED = 8
"""Of the budget, what the values of a run may take that needs no process of its own."""

_LENIENCE = 3
"""Times the budget, or what the weights take: more memory ends a comparison."""

_LEAST_SECONDS, _MORE_SECONDS = 20.0, 55.0
_TIMES = 12
"""Wall time that ends a comparison: a multiple of the budget, but no more than so much beyond it,
which is a minute for the default budget."""

_CASE_SECONDS = 15.0
"""The same for each case that was asked for."""


def weight_bytes(model: ir.Model) -> int:
    """Return the bytes that the weights of `model` take; none is read."""
    return sum(tensor_bytes(tensor) for _, tensor in tensors(model))


class Large:
    """A model that is too large to run directly, captured before later edits.

    Args:
        model: The model; no weight is read.
        name: What messages call it.

    Raises:
        KvtoolError: If the model has no written form, or weights outside its main graph.
    """

    def __init__(self, model: ir.Model, name: str) -> None:
        self.name = name
        self.skeleton: Skeleton = skeleton(model, name)
        self.interface: Interface = interface_of(model)

    @cached_property
    def plan(self) -> InputPlan | None:
        """What its inputs mean; None when they cannot be drawn."""
        with suppress(CannotDraw):
            return plan(ir.from_proto(self.skeleton.message))
        return None


@dataclass(frozen=True, slots=True)
class Candidate:
    """A model to run directly or as a copy; captured for both.

    Attributes:
        whole: The model as it is; None if it is too large.
        large: What copies are made from; None if the model is small, or has none.
        reason: Why there are no copies.
        needed: Bytes that both models take while they run, by the weights of this one.
        is_bounded: Whether its runs are known to end soon and to stay small.
    """

    whole: Subject | None
    large: Large | None
    reason: str | None
    needed: int
    is_bounded: bool = False

    @property
    def is_small(self) -> bool:
        """Whether the model is run as it is."""
        return self.large is None and self.reason is None

    @staticmethod
    def of(model: ir.Model, name: str, settings: Settings, limit: int | None = None) -> Candidate:
        """Capture a model, which may then be edited.

        `limit` bounds the bytes of both models if they have no copies and are run directly beyond
        the budget. Without it that is a few times the budget.

        Raises:
            KvtoolError: If the model has no written form.
        """
        memory = settings.budget.memory
        most = memory * _GENEROUS if limit is None else max(limit, memory)
        needed = 2 * _COPIES * weight_bytes(model)
        whole = capture(model, name) if needed <= most else None
        if whole is not None and needed <= memory and _least(whole, settings) <= memory:
            bounded = is_confining() and is_bounded(model, memory // _BOUNDED)
            return Candidate(whole, None, None, needed, bounded)
        try:
            return Candidate(whole, Large(model, name), None, needed)
        except KvtoolError as error:
            return Candidate(whole, None, error.message, needed)


def _least(subject: Subject, settings: Settings) -> int:
    """Return the bytes of the smallest run of a model, without weights."""
    return 0 if subject.plan is None else least_memory(subject.plan, CASES[0], settings.dims)


def compare_candidates(a: Candidate, b: Candidate, settings: Settings) -> VerifyReport:
    """Compare two models directly if A is small, else by copies; directly after all if copies fail.

    This happens in a separate process with a limit of time and memory, unless the runs of both are
    known to end soon and to stay small.
    """
    if a.is_bounded and b.is_bounded:
        return _compared(a, b, settings)
    limits = _limits(a, b, settings)
    try:
        return confined(
            lambda progress: _compared(a, b, replace(settings, progress=progress)),
            limits,
            settings.progress,
        )
    except Exceeded as error:
        more = {
            "time": f"{limits.seconds:g}s",
            # No less than the default, which runs small models: what a process takes before its
            # first run alone exceeds a few bytes.
            "memory": binary_bytes(max(limits.memory, Budget().memory)).replace(" ", ""),
        }
        if error.what not in more:
            return _unrunnable(error.message, settings)
        remedy = f"`--verify-budget {more[error.what]}` allows more"
        return _unrunnable(f"{error.message}; {remedy}", settings)


def _limits(a: Candidate, b: Candidate, settings: Settings) -> Limits:
    """Return the limits of a comparison, which one that keeps to its budget does not reach."""
    budget = settings.budget
    longest = min(_TIMES * budget.seconds, budget.seconds + _MORE_SECONDS)
    seconds = max(_LEAST_SECONDS, longest, _CASE_SECONDS * (settings.cases or 0))
    memory = max(budget.memory, *(side.needed for side in (a, b) if side.whole is not None), 0)
    return Limits(seconds, _LENIENCE * memory, is_strict=True)


def _compared(a: Candidate, b: Candidate, settings: Settings) -> VerifyReport:
    if a.is_small and a.whole is not None and b.whole is not None:
        return compare_models(a.whole, b.whole, settings)
    if a.large is not None and b.large is not None:
        report = compare_shrunk(a.large, b.large, settings)
        if report.status != "unrunnable":
            return report
    else:
        report = _unrunnable(a.reason or b.reason or "it is too large to be run", settings)
    if a.whole is None or b.whole is None:
        return report
    whole = compare_models(a.whole, b.whole, settings)
    return replace(report, a_fails=whole.a_fails) if whole.status == "unrunnable" else whole


def compare_shrunk(a: Large, b: Large, settings: Settings) -> VerifyReport:
    """Compare two models by smaller copies.

    Returns:
        What `compare_models` says of the copies, with what was `shrunken` and a note of it;
        `different` without a run for models that are the same but for a weight, or whose inputs
        and outputs differ; `unrunnable` when there are no such copies or they do not run.
    """
    from onnx_kvtool.verification.shrinking.shrink import check_weights

    of_b = b.interface
    if settings.widened is not None:
        of_b = narrowed(of_b, a.interface, settings.widened)
    difference = interface_difference(a.interface, of_b)
    if difference is not None and not may_be_growing_pair(a, b):
        if (order := wrong_order(a, b, settings.dims)) is not None:
            return _unrunnable(order, settings)
        return VerifyReport("different", seed=settings.seed, detail=difference)
    try:
        is_retyped = settings.widened is not None
        found = None if is_retyped else alike(a.skeleton.message, b.skeleton.message)
        weight = None if found is None else weight_difference(a.skeleton, b.skeleton, found)
        if weight is not None and settings.rtol is None and settings.atol is None:
            return VerifyReport("different", seed=settings.seed, detail=weight)
        models = with_counterparts(*without_unread(a.skeleton, b.skeleton))
        check_weights(*models)
    except KvtoolError as error:
        return _unrunnable(error.message, settings)
    failed: list[VerifyReport] = []
    for fewer in _with_fewer_layers(*models):
        report = _compare_copies(a, b, models, fewer, settings)
        if report.status != "unrunnable":
            return report
        failed.append(report)
    # The copies that need least say most of why there is no answer.
    return min(failed, key=lambda report: report.needed)


def _with_fewer_layers(a: Skeleton, b: Skeleton) -> Iterator[Thinned | None]:
    """Yield the models with fewer layers, None for all layers, in the order to try them."""
    yield (two := thinned(a, b, 2))
    if (one := thinned(a, b, 1)) is not None:
        yield one
    if two is not None:
        yield None


def _compare_copies(
    a: Large,
    b: Large,
    models: tuple[Skeleton, Skeleton],
    fewer: Thinned | None,
    settings: Settings,
) -> VerifyReport:
    """Compare copies of two models, or of what is left of their layers."""
    from onnx_kvtool.verification.shrinking.shrink import CannotShrink, shrink

    one, other = models if fewer is None else (fewer.a, fewer.b)
    try:
        pair = shrink(one, other, settings.seed, settings.budget.memory // (2 * _COPIES))
        if fewer is not None and settings.widened is not None:
            # The types of values between layers show what one model has in another type.
            for model in (pair.a, pair.b):
                if any(value.type is None for value in model.graph.outputs):
                    infer_model(model)
        subjects = capture(pair.a, a.name), capture(pair.b, b.name)
    except KvtoolError as error:
        needed = error.needed * 2 * _COPIES if isinstance(error, CannotShrink) else 0
        return _unrunnable(error.message, settings, needed)
    least = min((_least(subject, settings) for subject in subjects if subject.plan), default=0)
    memory = settings.budget.memory
    if least > memory * _LENIENT:
        allowed = binary_bytes(memory)
        reason = f"a run of a copy would take {binary_bytes(least)} of memory, more than {allowed}"
        return _unrunnable(reason, settings, least)
    if least * _LENIENT > memory:
        # More rows take little more than one, and only more than one show a causal mask.
        lenient = replace(settings.budget, memory=int(memory * _LENIENT))
        settings = replace(settings, budget=lenient)
    shrunken = list(pair.shrunken)
    if fewer is not None:
        shrunken.insert(0, Shrunken("blocks that are alike", fewer.before, fewer.after))
    report = replace(compare_models(*subjects, settings), a_fails=False)  # copies are no A
    seen = {output.name: output for output in report.outputs}
    stand_ins = {} if fewer is None else fewer.stand_ins
    own = [port.name for port in a.interface.outputs]
    differing = {name for name, output in seen.items() if output.first_mismatch}
    if differing and not differing & set(own):
        # Models may well agree in what they give and not in between; then no layer stands for
        # another.
        return _unrunnable("the models differ between layers", settings, _ENDLESS)
    stands = {name: stand_ins.get(name, name) for name in own}
    return replace(
        report,
        shrunk=True,
        shrunken=tuple(shrunken),
        outputs=tuple(replace(seen[copy], name=name) for name, copy in stands.items()),
        covered=None if report.covered is None else report.covered.of(stands),
        notes=(_note(shrunken), *report.notes),
    )


_ENDLESS = 1 << 62


def _unrunnable(reason: str, settings: Settings, needed: int = 0) -> VerifyReport:
    return VerifyReport("unrunnable", seed=settings.seed, detail=reason, needed=needed)


def _note(shrunken: list[Shrunken]) -> str:
    """Return what copies have less of, in one line."""
    parts = []
    for what in dict.fromkeys(entry.what for entry in shrunken):
        entries = [entry for entry in shrunken if entry.what == what]
        largest = max(entry.before for entry in entries)
        left = max(entry.after for entry in entries)
        most = "up to " if len(entries) > 1 else ""
        parts.append(f"{most}{left:,} of {largest:,} {what}")
    return f"verified on copies with {', '.join(parts) or 'drawn weights'}"
