"""Random outputs of two models, compared over many runs."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from onnx_kvtool.core.storage import fixed_tensor
from onnx_kvtool.core.walk import subgraphs
from onnx_kvtool.ops.contrib import contrib_facts
from onnx_kvtool.ops.schema import NEWEST, op_facts
from onnx_kvtool.ops.traits import Trait, traits
from onnx_kvtool.runtime.errors import RunFailed
from onnx_kvtool.runtime.sessions import Array, Arrays, Session
from onnx_kvtool.verification.comparison.differences import (
    Mask,
    Mismatch,
    OutputDifference,
    Tolerance,
    compare,
    compare_form,
)
from onnx_kvtool.verification.comparison.tolerances import Measure

# Which values of a model depend on random numbers, so that no two runs need agree on them.


_TRAINING = "training_mode"
"""The input that says whether an operator draws numbers."""


def random_values(model: ir.Model) -> frozenset[str]:
    """Return the values of the main graph that random numbers go into, by name.

    Sizes of a value do not depend on its elements. A function or a body that draws anything makes
    all that the node gives random.
    """
    functions = _drawing(model.functions)
    random: set[ir.Value] = set()
    for node in model.graph:
        if _is_random(node, random, functions):
            random.update(node.outputs)
    return frozenset(value.name for value in random if value.name)


def _drawing(
    functions: Mapping[ir.OperatorIdentifier, ir.Function],
) -> frozenset[ir.OperatorIdentifier]:
    """Return the functions that draw numbers, by themselves or by others that they call."""
    drawing = {key for key, body in functions.items() if any(map(_draws, body.all_nodes()))}
    size = -1
    while size != len(drawing):  # once for each level of calls
        size = len(drawing)
        for key, body in functions.items() if drawing else ():
            if any(node.op_identifier() in drawing for node in body.all_nodes()):
                drawing.add(key)
    return frozenset(drawing)


def _is_random(
    node: ir.Node, random: set[ir.Value], functions: frozenset[ir.OperatorIdentifier]
) -> bool:
    if _draws(node) or node.op_identifier() in functions:
        return True
    if not random.isdisjoint(node.inputs) and Trait.READS_SHAPE not in traits(node):
        return True
    if not node.attributes.data:
        return False
    # What a body reads of the graph around it counts as well.
    return any(
        _is_random(inner, random, functions) for _, body in subgraphs(node) for inner in body
    )


def _draws(node: ir.Node) -> bool:
    """Return whether a node draws numbers, or may do so as an input decides it at run time."""
    if Trait.RANDOM in traits(node):
        return True
    domain, op_type = node.domain, node.op_type
    facts = op_facts(op_type, NEWEST, domain) or contrib_facts(domain, op_type)
    given = zip(() if facts is None else facts.inputs, node.inputs, strict=False)
    flag = next((value for formal, value in given if formal.name == _TRAINING), None)
    if flag is None:
        return False
    known = fixed_tensor(flag)
    return known is None or bool(known.numpy().any())


RUNS = 256
"""Runs of each model."""

_SAMPLES = 2
"""Sets of inputs that models are run on so often."""

_SECONDS = 2.0
"""Models that take longer for so many runs are not run so often."""

_Z = 6.0
"""Times the standard error of a difference of means. If both models draw from one distribution, one
comparison in 10^9 is further out; the spread is that of both samples together, so that no rare
value makes it small."""

_Floats = npt.NDArray[np.float64]


class Sample:
    """The values of one output over many runs; only the first run is kept.

    Attributes:
        first: What the first run gave.
        origin: What sums are taken relative to, the same for both models.
        is_fixed: Which elements had the same bits in every run.
        runs: Number of runs.
        sums: Sums of the elements over all runs.
        squares: Sums of their squares.
        whole: Of each run, the mean and the mean square of all elements.
    """

    def __init__(self, first: Array, origin: _Floats) -> None:
        self.first, self.origin = first, origin
        self.is_fixed = np.ones(first.shape, np.bool_)
        self.runs = 0
        self.sums, self.squares = np.zeros(first.shape), np.zeros(first.shape)
        self.whole: list[tuple[float, float]] = []

    def add(self, value: Array) -> None:
        """Add what a run gave, in the shape of the first one."""
        self.is_fixed &= np.asarray((value == self.first) | (_is_nan(value) & _is_nan(self.first)))
        with np.errstate(invalid="ignore", over="ignore"):
            wide = _wide(value)
            apart = wide - self.origin
            self.runs += 1
            self.sums += apart
            self.squares += apart**2
            self.whole.append((float(wide.mean()), float((wide**2).mean())))


class RandomOutputs:
    """Compares the outputs that random numbers go into.

    In the first runs each model is run many times on the same inputs. An output that turns out to
    be the same in all of them is compared by its values from then on.

    Args:
        measure: How close outputs have to be, and which are random.
        sessions: A and B.

    Attributes:
        varied: Outputs with a random element.
        sampled: Outputs that were compared over many runs.
    """

    def __init__(self, measure: Measure, sessions: tuple[Session, Session]) -> None:
        self._measure = measure
        self._sessions = sessions
        self._left = _SAMPLES
        self._inputs: Arrays | None = None
        self._pairs: dict[str, tuple[Sample, Sample]] = {}
        self.varied: set[str] = set()
        self.sampled: set[str] = set()

    def compare(self, name: str, inputs: Arrays, a: Arrays, b: Arrays) -> OutputDifference:
        """Compare one output of a run of both models."""
        found = compare_form(name, a[name], b[name])
        if not found.within:
            return found
        tolerance = self._measure.of(a[name], name)
        is_fixed = name in self.sampled - self.varied
        by_value = compare(name, a[name], b[name], tolerance)
        if self._left or (is_fixed and not by_value.within):
            self._sample(inputs, a, b)
        pair = self._pairs.get(name) if self._inputs is inputs else None
        if pair is None:
            if not (found.bit_equal or (is_fixed and by_value.within)):
                self.varied.add(name)
            return by_value if is_fixed and by_value.within else found
        self.sampled.add(name)
        if all(sample.is_fixed.all() for sample in pair):
            return by_value
        self.varied.add(name)
        is_random = name in self._measure.drawn[0], name in self._measure.drawn[1]
        how = unlike(pair, tolerance, is_random)
        if how is None:
            return found
        reason, mismatch = f"output `{name}` {how[0]}", how[1]
        return replace(found, within=False, first_mismatch=mismatch, reason=reason)

    def _sample(self, inputs: Arrays, a: Arrays, b: Arrays) -> None:
        """Run both models many times on the inputs of a run, once for all outputs."""
        if self._inputs is inputs:
            return
        self._inputs, self._left = inputs, max(0, self._left - 1)
        pairs: dict[str, tuple[Sample, Sample]] = {}
        for name in self._measure.random.intersection(a):
            one, other = a[name], b[name]
            is_alike = (one.shape, one.dtype) == (other.shape, other.dtype)
            if is_alike and one.size and one.dtype != np.dtype(object):
                origin = _wide(one)
                pairs[name] = Sample(one, origin), Sample(other, origin)
        with suppress(RunFailed):
            self._pairs = pairs if _is_sampled(pairs, inputs, self._sessions) else {}


def _is_sampled(
    pairs: Mapping[str, tuple[Sample, Sample]],
    inputs: Arrays,
    sessions: tuple[Session, Session],
) -> bool:
    """Run two models many times; return whether no run takes too long for it."""
    begin = time.monotonic()
    for number in range(RUNS if pairs else 0):
        if number == 1 and (time.monotonic() - begin) * RUNS > _SECONDS:
            return False
        for side, session in enumerate(sessions):
            values = session.run(inputs)
            for name, samples in pairs.items():
                if values[name].shape != samples[side].first.shape:
                    return False  # a size is random, too
                samples[side].add(values[name])
    return True


def unlike(
    pair: tuple[Sample, Sample], tolerance: Tolerance, is_random: tuple[bool, bool]
) -> tuple[str, Mismatch | None] | None:
    """Return how the samples of A and of B differ; None if nothing tells them apart.

    The text is to follow the name of the output; with it comes the first element whose values or
    means differ, if one element does.

    Elements that are the same in all runs of both models have to agree. Of the others the means
    over the runs have to agree, and the mean and mean square over all elements.

    `is_random` tells whether random numbers go into the output of A, and into that of B.
    """
    a, b = pair
    for is_drawn, other, names in zip(is_random, (b, a), ("AB", "BA"), strict=True):
        if not is_drawn and not other.is_fixed.all():
            index = _index(~other.is_fixed)
            return f"is random in {names[1]} and not in {names[0]}, as at {list(index)}", None
    fixed = a.is_fixed & b.is_fixed
    found = compare("", a.first[fixed], b.first[fixed], tolerance)
    if found.first_mismatch is not None:
        index = tuple(int(i) for i in np.argwhere(fixed)[found.first_mismatch.index[0]])
        mismatch = Mismatch(index, found.first_mismatch.expected, found.first_mismatch.actual)
        return f"{mismatch}, in every run", mismatch
    means = a.sums / a.runs, b.sums / b.runs
    apart = _is_apart(means, a.squares / a.runs, b.squares / b.runs, a.runs, tolerance, a.origin)
    if apart.any():
        index = _index(apart)
        texts = [f"{float(mean[index] + a.origin[index]):.4g}" for mean in means]
        mismatch = Mismatch(index, *texts)
        at = f" at {list(index)}" if index else ""
        return f"has a mean{at} of {texts[1]} over {b.runs} runs, expected {texts[0]}", mismatch
    wholes = [np.asarray(sample.whole) for sample in pair]
    means = wholes[0].mean(axis=0), wholes[1].mean(axis=0)
    squares = (wholes[0] ** 2).mean(axis=0), (wholes[1] ** 2).mean(axis=0)
    apart = _is_apart(means, *squares, a.runs, tolerance, np.zeros(2))
    for place, kind in enumerate(("mean", "mean square")):
        if apart[place]:
            text = f"has a {kind} of {means[1][place]:.4g} over all elements of {b.runs} runs"
            return f"{text}, expected {means[0][place]:.4g}", None
    return None


def _is_apart(
    means: tuple[_Floats, _Floats],
    square_a: _Floats,
    square_b: _Floats,
    runs: int,
    tolerance: Tolerance,
    origin: _Floats,
) -> Mask:
    """Return which means differ by more than chance and rounding explain."""
    with np.errstate(invalid="ignore", over="ignore"):
        distance = np.abs(means[0] - means[1])
        pooled = (square_a + square_b) / 2 - ((means[0] + means[1]) / 2) ** 2
        error = np.sqrt(np.maximum(pooled, 0) * 2 / runs)
        least = tolerance.atol + tolerance.rtol * np.abs(means[0] + origin)
        return np.asarray((distance > _Z * error) & (distance > least))


def _wide(value: Array) -> _Floats:
    real: Any = value.astype(np.complex128).real if value.dtype.kind == "c" else value
    return np.asarray(real.astype(np.float64))


def _is_nan(value: Array) -> Mask:
    return np.asarray(value != value)


def _index(where: Mask) -> tuple[int, ...]:
    return tuple(int(i) for i in np.argwhere(where)[0]) if where.ndim else ()
