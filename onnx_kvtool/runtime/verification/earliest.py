"""The earliest node at which two models that differ part."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from onnx_kvtool.runtime.comparison.compare import compare
from onnx_kvtool.runtime.comparison.measure import Measure
from onnx_kvtool.runtime.errors import RunFailed, RuntimeUnavailable
from onnx_kvtool.runtime.sessions import Array, Arrays, RuntimeName, open_session
from onnx_kvtool.runtime.verification.likeness import Likeness
from onnx_kvtool.runtime.verification.places import GraphView
from onnx_kvtool.runtime.verification.planting import handing_out
from onnx_kvtool.runtime.verification.report import EarliestDifference
from onnx_kvtool.runtime.verification.subject import Subject

__all__ = ["earliest_difference"]

_GROUP = 128
"""Values that are fetched at a time; so many of both models are held in memory."""

_ATTEMPTS = 64
"""Runs that a search may take; values that no runtime hands out are found by halving a group."""


def earliest_difference(
    a: Subject,
    b: Subject,
    inputs: Arrays,
    measure: Measure,
    runtime: RuntimeName,
    found: Likeness | None,
) -> tuple[EarliestDifference | None, str | None]:
    """Return the first value in the order of A that both models name and that differs.

    Values are those of the main graph, paired by position in models that are alike and by name in
    others; a value inside a body or a function is known by the node that holds it. Both models
    run with these values as outputs and without optimisation.

    Args:
        a: Model A.
        b: Model B.
        inputs: Inputs on which outputs differ.
        measure: How close values have to be.
        runtime: What runs the models.
        found: How the models correspond; None if they are not alike.

    Returns:
        The difference and None, or None and why none can be named.
    """
    search = _Search(a, b, inputs, runtime)
    pairs = search.pairs(found)
    if not pairs:
        return None, "no node can be named, as the models name no value in common"
    for one, other, value_a, value_b in search.values(pairs):
        if found is None and (value_a.shape, value_a.dtype) != (value_b.shape, value_b.dtype):
            continue  # the same name for another thing
        if one in a.random or other in b.random:
            continue
        tolerance = measure.of(value_a, one, other)
        exact = measure.exact and not measure.is_given
        seen = compare(one, value_a, value_b, exact=exact, rtol=tolerance.rtol, atol=tolerance.atol)
        if not seen.within:
            reason = (seen.reason or "").replace("output", "value", 1)
            places = search.a.location(one), search.b.location(other)
            return EarliestDifference(*places, seen.first_mismatch, reason), None
    if search.is_exhausted:
        return None, "no node can be named, as no runtime hands out the values between"
    return None, (
        "no node can be named: the values that both models name agree in the runs that expose them"
    )


def _fetch(
    view: GraphView, names: Sequence[str], inputs: Mapping[str, Array], runtime: RuntimeName
) -> Arrays:
    """Run a model with `names` for its only outputs."""
    subject = view.subject
    session = open_session(runtime, handing_out(view, names), subject.directory, optimize=False)
    return session.run(inputs if subject.host is None else subject.host.feeds(inputs))


class _Search:
    """Fetches values of both models, group by group."""

    def __init__(self, a: Subject, b: Subject, inputs: Arrays, runtime: RuntimeName) -> None:
        self.a = GraphView.of(a)
        self.b = GraphView.of(b)
        self.is_exhausted = False
        self._inputs = inputs
        self._runtime: RuntimeName = runtime
        self._attempts = _ATTEMPTS

    def pairs(self, found: Likeness | None) -> list[tuple[str, str]]:
        """Return the names of values that correspond, in the order of A."""
        if found is not None:
            return found.values
        return [(name, name) for name in self.a.producers if name in self.b.producers]

    def values(self, pairs: Sequence[tuple[str, str]]) -> Iterator[tuple[str, str, Array, Array]]:
        for start in range(0, len(pairs), _GROUP):
            yield from self._group(pairs[start : start + _GROUP])

    def _group(self, pairs: Sequence[tuple[str, str]]) -> Iterator[tuple[str, str, Array, Array]]:
        """Yield the values of a group; those that are no tensors are left out by halving it."""
        if self._attempts <= 0:
            self.is_exhausted = True
            return
        self._attempts -= 1
        # Two values of A may correspond to one of B, which cannot be two outputs.
        names_a = list(dict.fromkeys(one for one, _ in pairs))
        names_b = list(dict.fromkeys(other for _, other in pairs))
        try:
            values_a = _fetch(self.a, names_a, self._inputs, self._runtime)
            values_b = _fetch(self.b, names_b, self._inputs, self._runtime)
        except (RunFailed, RuntimeUnavailable):
            if len(pairs) > 1:
                half = len(pairs) // 2
                yield from self._group(pairs[:half])
                yield from self._group(pairs[half:])
            return
        for one, other in pairs:
            yield one, other, values_a[one], values_b[other]
