"""Where rows go, read off an index: `start + s`, perhaps modulo the size of the axis."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from onnx_kvtool.analysis.unproven import Unproven
from onnx_kvtool.core.walk import is_op, maker, read_values, upwards
from onnx_kvtool.ops.operators import Mode
from onnx_kvtool.ops.traits import WHOLE_TYPES
from onnx_kvtool.rewrite.raising.proof import Proof, same_dim
from onnx_kvtool.symbolic.expressions import (
    ZERO,
    Choice,
    Dimension,
    Element,
    Expr,
    Extent,
    IsNegative,
    Largest,
    Lookup,
    Modulo,
    coordinate,
    text,
    variable,
)
from onnx_kvtool.symbolic.simplification import (
    Facts,
    as_index,
    at_least,
    below,
    interval,
    simplified,
    substitute,
)


def legal_index(proof: Proof, index: Expr, size: Expr, grid: Sequence[Expr]) -> Expr:
    """Return what an index is in every run that TensorScatter also allows.

    Such a run has no index outside [-size, size - 1], where scatters fail, and none below 0:
    TensorScatter refuses a negative start.
    """
    facts = Facts(tuple(grid)).given(size - 1)
    found = as_index(index, size, facts)
    if not isinstance(found.atom, Modulo):
        # Rows count up even where a cast to 32 bits wraps, if all of them are in the cache: the
        # start is cast as well. A remainder taken afterwards needs more than that.
        wide = as_index(proof.maps.widened(index, facts), size, facts)
        if not isinstance(wide.atom, Modulo):
            proof.is_narrow |= wide != found
            found = wide
    wraps = {a: start for a in found.atoms() if (start := _wrapped(a, size)) is not None}
    return substitute(found, {}, facts, wraps) if wraps else found


def _wrapped(atom: object, size: Expr) -> Expr | None:
    """Return x for `x where x >= 0, else x + size`, the second perhaps not below 0."""
    if not isinstance(atom, Choice) or not isinstance(atom.condition.atom, IsNegative):
        return None
    yes, no = atom.yes, atom.no
    # x is chosen where `-x - 1 < 0`, or where not `x < 0`.
    for below_zero, start, other in ((-yes - 1, yes, no), (no, no, yes)):
        largest, moved = other.atom, start + size
        is_moved = isinstance(largest, Largest) and largest.of == {ZERO, moved}
        if atom.condition.atom.of == below_zero and (is_moved or other == moved):
            return start
    return None


def read_positions(
    proof: Proof, index: Expr, size: Expr, grid: Sequence[Expr], row: int | None, what: str
) -> tuple[Expr, Mode]:
    """Return the start of an index that is `start + s`, and whether that is taken modulo `size`.

    Args:
        proof: The attempt; sentences are added to it.
        index: What `legal_index` returns.
        size: Size of the axis of the cache.
        grid: Size of each axis of the index.
        row: Axis of the index along which s counts; None for a single row.
        what: The index, in words.

    Raises:
        Unproven: If it is something else, or is so only under an assumption that is not granted.
    """
    mode: Mode = "linear"
    if proof.roll is not None and (index.number or 0) < 0:
        index = index + size  # rows that moved have no start that TensorScatter would refuse
    index = _wrapping(index, size, row)
    found = index
    if row is not None and below(size, grid[row], Facts(tuple(grid))):
        raise Unproven(
            "more-rows-than-cache",
            f"the update has {text(grid[row])} rows, and the axis has size {text(size)}",
        )
    if isinstance(index.atom, Modulo):
        mode, found = "circular", index.atom.of
        _check_modulus(index.atom.by, size, grid, row)
    start = found if row is None else found - coordinate(row)
    if row is not None and start.depends_on(row):
        start = _counted(proof, found, row, what)
    if mode == "circular" and start.number is None and any(k < 0 for _, k in start.terms):
        # The start may be below 0 in a legal step. TensorScatter takes its remainder only.
        start = variable(Modulo(start, size))
    names = {row: "s"} if row is not None else {}
    rows = text(found if row is None else start + coordinate(row), names)
    wrap = f"mod({rows}, {text(size)})" if mode == "circular" else rows
    who = "the one row" if row is None else "row s"
    proof.say(f"{who} of the update goes to `{wrap}`")
    if not at_least(start, ZERO, Facts(tuple(grid))):
        meaning = "counts from the end" if mode == "linear" else "wraps as well"
        proof.say(f"a start below 0, which {meaning}, is one that TensorScatter refuses")
    if mode == "circular":
        proof.say(
            "more rows than the axis is long would be written over each other in an order "
            "that ONNX leaves open; TensorScatter refuses them"
        )
    return start, mode


def _wrapping(index: Expr, size: Expr, row: int | None) -> Expr:
    """Return an index with its list of rows, `[9, 10, 0, 1][s]`, as `mod(9 + s, 11)`.

    Exporters fold positions that wrap into such a constant. Any other index stays.
    """
    count = size.number
    if row is None or not count:
        return index
    atom = index.atom
    is_remainder = isinstance(atom, Modulo) and atom.by == size
    inner = atom.of if isinstance(atom, Modulo) and is_remainder else index
    for one, coefficient in inner.linear():
        if not isinstance(one, Lookup) or coefficient != 1 or one.index != coordinate(row):
            continue
        rest, first = inner - variable(one), one.numbers[0]
        counts_up = all((n - first - s) % count == 0 for s, n in enumerate(one.numbers))
        # A sum of the list and more may be beyond the axis, and only a remainder brings it back.
        is_alone = rest.number == 0 and all(0 <= n < count for n in one.numbers)
        if counts_up and (is_remainder or is_alone):
            return variable(Modulo(rest + first + coordinate(row), size))
    return index


def _check_modulus(by: Expr, size: Expr, grid: Sequence[Expr], row: int | None) -> None:
    facts = Facts(tuple(grid)).given(size - 1)
    if row is not None:
        facts = facts.given(size - grid[row])
    same = at_least(by, size, facts) and at_least(size, by, facts)
    if not same and simplified(by, facts) != size:
        raise Unproven(
            "other-modulus",
            f"positions wrap at `{text(by)}`, and the axis has size `{text(size)}`",
            assumption=same_dim(size, by),
        )


def _counted(proof: Proof, found: Expr, row: int, what: str) -> Expr:
    """Return the first position where every position is an element of a tensor.

    Raises:
        Unproven: If the tensor is not assumed to count up by one, or positions are something else.
    """
    for atom, coefficient in found.linear():
        if not isinstance(atom, Element) or coefficient != 1:
            continue
        rest = found - variable(atom)
        along = [i for i, part in enumerate(atom.index) if part.depends_on(row)]
        if rest.depends_on(row) or len(along) != 1 or atom.index[along[0]] != coordinate(row):
            continue
        proof.assume(
            "contiguous",
            atom.value,
            "free-positions",
            f"{what} has the elements of `{atom.value.name}`, and nothing says that they count "
            "up by one",
        )
        index = tuple(ZERO if i == along[0] else part for i, part in enumerate(atom.index))
        return rest + variable(Element(atom.value, index))
    shown = text(found, {row: "s"})
    if any(
        isinstance(atom, Element) and any(part.depends_on(row) for part in atom.index)
        for atom in found.atoms()
    ):
        raise Unproven("data-dependent-positions", f"{what} is `{shown}` for row s")
    raise Unproven("not-counting", f"{what} is `{shown}` for row s, expected a start plus s")


def unrelated(proof: Proof, value: ir.Value, what: str) -> None:
    """Refuse an index that is opaque because sizes are broadcast that may differ."""
    found = proof.maps.unrelated(value)
    if not found:
        return
    pairs = [f"`{text(u.size)}` and `{text(u.other)}`" for u in found]
    assumption = None
    for one in found:
        sizes = [one.other, *(u.other for u in found), *(u.size for u in found)]
        assumption = assumption or next(
            (s for other in sizes if other != one.size and (s := same_dim(one.size, other))), None
        )
    raise Unproven(
        "sizes-unrelated",
        f"{what} is made by a broadcast of sizes that may differ: {', '.join(pairs)}",
        assumption=assumption,
    )


def check_start(start: Expr, grid: Sequence[Expr]) -> None:
    """Refuse a start that is below 0, or can be nothing else but 0.

    Raises:
        Unproven: If it is a negative constant or the negation of an input: the source then counts
            from the end, and TensorScatter fails.
    """
    facts = Facts(tuple(grid))
    low, high = interval(start, facts)
    elements = {a for a in start.atoms() if isinstance(a, Element)}
    sizes = any(isinstance(a, (Dimension, Extent)) for a in start.atoms())
    what = f"the first position is `{text(start)}`, which counts from the end of the axis"
    if high < 0 or (low < 0 and not (elements or sizes)):
        raise Unproven("negative-start", what)
    if low < 0 and _never_above_zero(start, facts):
        raise Unproven("negative-start", f"{what} unless it is 0")


def check_counts_from_zero(proof: Proof, start: Expr, sizes: Sequence[Expr]) -> None:
    """Prove or assume that a start is not below 0, where the source counts from the end.

    Positions that a caller feeds count from 0 on. A computed one such as `pos - 8` may be below 0:
    the source runs, and TensorScatter fails.

    Raises:
        Unproven: If it may be below 0, and nobody granted that it is not.
    """
    elements = {atom.value: None for atom in start.atoms() if isinstance(atom, Element)}
    given = frozenset(value for value in elements if _is_given(value))
    if at_least(start, ZERO, Facts(tuple(sizes), counts=given)):
        return
    carriers = proof.carriers
    measured = {atom.value: None for atom in start.atoms() if isinstance(atom, Extent)}
    for atom in start.atoms():
        if isinstance(atom, Dimension) and atom.name in carriers:
            measured[carriers[atom.name][0]] = None
    missing = f"the first position `{text(start)}` counts from the end of the axis if it is below 0"
    for value in elements or measured:
        proof.assume("in-range", value, "may-be-negative", missing)


def _is_given(value: ir.Value) -> bool:
    """Return whether a value is an input of its graph, perhaps cast to another type."""
    *_, (source, _) = upwards(value, _cast)
    return source.producer() is None


def _cast(node: ir.Node) -> ir.Value | None:
    return node.inputs[0] if is_op(node, "Cast") else None


def _never_above_zero(start: Expr, facts: Facts) -> bool:
    """Return whether a start is at most 0 wherever the elements in it are positions."""
    return all(
        coefficient < 0
        and all(
            isinstance(atom, Element) or interval(variable(atom), facts)[0] >= 0
            for atom, _ in monomial
        )
        for monomial, coefficient in start.terms
    )


# Positions that are computed in 32 bits and may leave their range before they wrap.


_LOWEST, _HIGHEST = -(2**31), 2**31 - 1
_MOST = 1024
"""Most values that are looked at."""


def check_no_overflow(proof: Proof, indices: ir.Value) -> None:
    """Prove that no number of 32 bits that `indices` is computed from leaves its range.

    An index map has integers without bounds. Without a modulus that makes no difference: a position
    that overflows is outside every cache. A modulus brings it back to a row, and TensorScatter,
    which computes in 64 bits, writes another one.

    Raises:
        Unproven: If one may, or if there are too many to look at.
    """
    pending, seen = [indices], {indices}
    while pending:
        value = pending.pop()
        described = proof.maps.of(value)
        if described.dtype == ir.DataType.INT32:
            ends = [end for part in described.parts for end in interval(part, described.facts)]
            if any(not _LOWEST <= end <= _HIGHEST for end in ends):
                raise Unproven(
                    "narrow-positions",
                    f"`{value.name}` is computed in 32 bits and may leave their range before it "
                    "wraps",
                )
        node = maker(value)
        for operand in () if node is None else read_values(node):
            if operand not in seen and proof.maps.of(operand).dtype in WHOLE_TYPES:
                seen.add(operand)
                pending.append(operand)
        if len(seen) > _MOST:
            raise Unproven("narrow-positions", f"`{indices.name}` is computed from too many values")
