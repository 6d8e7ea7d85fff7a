"""Random graphs close to the update of a cache, right or wrong in one of many ways.

A graph is drawn as ONNX text over sizes that are fixed, so that a wrong step shows in a result.
"""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import strategies as st

from tests.rewrite.raising.brute_force import Draws

__all__ = ["NearMiss", "near_misses"]

_BATCH, _HEADS, _WIDTH = 2, 3, 2


@dataclass(frozen=True, slots=True)
class NearMiss:
    """A graph.

    Attributes:
        text: The model.
        draws: Inputs around what it is written for.
    """

    text: str
    draws: Draws


class _Lines:
    """The nodes so far, with constants made as they are needed."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def add(self, expression: str) -> str:
        name = f"v{len(self.lines)}"
        self.lines.append(f"{name} = {expression}")
        return name

    def numbers(self, values: list[int], shape: tuple[int, ...]) -> str:
        dims = f"[{','.join(map(str, shape))}]" if shape else ""
        return self.add(f"Constant <value = int64{dims} {{{', '.join(map(str, values))}}}> ()")

    def number(self, value: int) -> str:
        return self.numbers([value], ())


@st.composite
def near_misses(draw: st.DrawFn) -> NearMiss:
    """Draw a graph; roughly half of them are sound."""
    capacity = draw(st.sampled_from([4, 5]))
    length = draw(st.sampled_from([1, 2, 2, 3]))
    form = draw(st.sampled_from(["elements", "elements", "tuples", "rows", "mask", "concat"]))
    g = _Lines()
    if form == "concat":
        return _concat(draw, g, capacity, length)
    if form == "mask":
        return _mask(draw, g, capacity)
    if form == "rows":
        return _rows(draw, g, capacity, length)
    return _positions(draw, g, capacity, length, form)


def _rarely(draw: st.DrawFn, sound: str, *odd: str) -> str:
    """Draw `sound` three times out of four."""
    return draw(st.sampled_from([sound, sound, sound, draw(st.sampled_from(odd))]))


def _counted(draw: st.DrawFn, g: _Lines, length: int, shape: tuple[int, ...]) -> str:
    """Return the numbers of the rows, in `shape`, perhaps not those of a range."""
    plain = list(range(length))
    kind = _rarely(draw, "range", "table", "reversed", "doubled", "halved", "wrapped", "shifted")
    values = {
        "range": plain,
        "table": draw(st.permutations(plain)),
        "reversed": plain[::-1],
        "doubled": [2 * n for n in plain],
        "halved": [n // 2 for n in plain],
        "wrapped": [n % 2 for n in plain],
        "shifted": [n + 1 for n in plain],
    }[kind]
    if kind in ("range", "shifted") and draw(st.booleans()):
        low, high, one = g.number(values[0]), g.number(values[-1] + 1), g.number(1)
        span = g.add(f"Range ({low}, {high}, {one})")
        return g.add(f"Reshape ({span}, {g.numbers(list(shape), (len(shape),))})")
    return g.numbers(list(values), shape)


def _started(draw: st.DrawFn, g: _Lines, rank: int, axis: int) -> str:
    """Return starts of rank `rank`, perhaps along another axis than the batch."""
    kind = _rarely(draw, "w", "p", "h", "both", "constant", "turned", "rows")
    if kind == "constant":
        return g.number(draw(st.integers(-2, 3)))
    if kind == "p":
        return g.add(f"Gather (p, {g.number(draw(st.sampled_from([0, 1, -1])))})")
    source, along = {"w": ("w", 0), "turned": ("w", 0), "h": ("h", 1), "rows": ("p", axis)}.get(
        kind, ("w", 0)
    )
    if kind == "turned":
        source = g.add(f"Gather (w, {g.numbers([1, 0], (2,))})")
    other = [n for n in range(rank) if n != along]
    start = g.add(f"Unsqueeze ({source}, {g.numbers(other, (len(other),))})")
    if kind == "both" and rank == 4:
        extra = [0, 2, 3]
        heads = g.add(f"Unsqueeze (h, {g.numbers(extra, (3,))})")
        start = g.add(f"Add ({start}, {heads})")
    return start


def _changed(draw: st.DrawFn, g: _Lines, start: str, capacity: int) -> str:
    """Return a start after a step or none."""
    kind = _rarely(
        draw, "same", "less", "more", "clamped", "guarded", "scaled", "narrow", "modulo", "squared"
    )
    if kind == "less":
        return g.add(f"Sub ({start}, {g.number(1)})")
    if kind == "more":
        return g.add(f"Add ({g.number(1)}, {start})")
    if kind == "clamped":
        low = g.add(f"Max ({start}, {g.number(0)})")
        return g.add(f"Min ({low}, {g.number(draw(st.integers(1, capacity)))})")
    if kind == "guarded":
        below = g.add(f"Less ({start}, {g.number(draw(st.sampled_from([0, 0, 1, 2])))})")
        raised = g.add(f"Add ({start}, {g.number(draw(st.sampled_from([capacity, 1])))})")
        return g.add(f"Where ({below}, {raised}, {start})")
    if kind == "scaled":
        return g.add(f"Mul ({start}, {g.number(draw(st.sampled_from([-1, 0, 2])))})")
    if kind == "narrow":
        small = g.add(f"Cast <to = {draw(st.sampled_from([2, 3, 6, 9]))}> ({start})")
        return g.add(f"Cast <to = 7> ({small})")
    if kind == "modulo":
        return g.add(f"Mod ({start}, {g.number(draw(st.sampled_from([capacity, 2, 3])))})")
    if kind == "squared":
        return g.add(f"Mul ({start}, {start})")
    return start


def _wrapped(draw: st.DrawFn, g: _Lines, position: str, capacity: int) -> str:
    """Return positions, perhaps modulo something, perhaps after a guard."""
    kind = draw(st.sampled_from(["no", "no", "mod", "fmod", "guard", "clip", "divided"]))
    by = g.number(draw(st.sampled_from([capacity, capacity, capacity - 1, 3, -capacity])))
    if kind == "mod":
        return g.add(f"Mod ({position}, {by})")
    if kind == "fmod":
        return g.add(f"Mod <fmod = 1> ({position}, {by})")
    if kind == "guard":
        below = g.add(f"Less ({position}, {g.number(0)})")
        other = g.add(f"Add ({position}, {by})")
        return g.add(f"Where ({below}, {other}, {position})")
    if kind == "clip":
        last = g.number(capacity - 1)
        return g.add(f"Clip ({position}, {g.number(0)}, {last})")
    if kind == "divided":
        whole = g.add(f"Div ({position}, {by})")
        taken = g.add(f"Mul ({whole}, {by})")
        return g.add(f"Sub ({position}, {taken})")
    return position


def _finished(
    g: _Lines, capacity: int, update: tuple[int, ...], cache: tuple[int, ...]
) -> NearMiss:
    inputs = (
        f"float[{','.join(map(str, cache))}] cache, float[{','.join(map(str, update))}] upd,"
        f" int64[{_BATCH}] w, int64[{_HEADS}] h, int64[2] p"
    )
    body = "\n".join(g.lines)
    header = '<ir_version: 10, opset_import: ["": 18]>'
    dims = ",".join(f"o{n}" for n in range(len(cache)))
    text = f"{header} g ({inputs}) => (float[{dims}] present) {{ {body} }}"
    starts = [*range(-2, capacity + 2), 0, 1, 1, 2, 2, 256]
    if "Max" not in body and "Min" not in body and "Clip" not in body:
        starts.append(2**32)  # which onnxruntime 1.31 compares wrongly with smaller numbers
    return NearMiss(text, Draws({"w": starts, "h": starts, "p": starts}, count=24))


def _positions(draw: st.DrawFn, g: _Lines, capacity: int, length: int, form: str) -> NearMiss:
    """Draw a start per sequence, as an index for ScatterElements or as tuples for ScatterND."""
    if form == "elements":
        heads = draw(st.sampled_from([_HEADS, _HEADS, _HEADS, _HEADS - 1]))
        cache: tuple[int, ...] = (_BATCH, _HEADS, capacity, _WIDTH)
        update: tuple[int, ...] = (_BATCH, heads, length, _WIDTH)
        axis = 2
        rows = _counted(draw, g, length, (1, 1, length, 1))
    else:
        cache, update, axis = (_BATCH, capacity, _WIDTH), (_BATCH, length, _WIDTH), 1
        rows = _counted(draw, g, length, (1, length))
    start = _changed(
        draw, g, _started(draw, g, axis + (2 if form == "elements" else 1), axis), capacity
    )
    operation = _rarely(draw, "Add", "Sub", "Max", "Mul")
    left, right = draw(st.permutations([start, rows]))
    position = _wrapped(draw, g, g.add(f"{operation} ({left}, {right})"), capacity)
    if form == "elements":
        shape = g.numbers(list(update), (4,))
        index = g.add(f"Expand ({position}, {shape})")
        reduction = _rarely(draw, "none", "add", "max")
        g.lines.append(
            f'present = ScatterElements <axis = 2, reduction = "{reduction}"> (cache, {index}, upd)'
        )
        return _finished(g, capacity, update, cache)
    shape = g.numbers([_BATCH, length], (2,))
    order = _rarely(draw, "0, 1", "1, 0", "0, 0")
    batch = g.add(f"Constant <value = int64[2,1] {{{order}}}> ()")
    last = g.numbers([-1], (1,))
    parts = [
        g.add(f"Unsqueeze ({g.add(f'Expand ({each}, {shape})')}, {last})")
        for each in (batch, position)
    ]
    if draw(st.sampled_from([False] * 7 + [True])):
        parts.reverse()
    index = g.add(f"Concat <axis = -1> ({', '.join(parts)})")
    g.lines.append(f"present = ScatterND (cache, {index}, upd)")
    return _finished(g, capacity, update, cache)


def _rows(draw: st.DrawFn, g: _Lines, capacity: int, length: int) -> NearMiss:
    """Draw one start for all sequences and a ScatterND between transposes."""
    start = g.add(f"Gather (p, {g.number(draw(st.sampled_from([0, 1, -1])))})")
    start = _changed(draw, g, start, capacity)
    rows = _counted(draw, g, length, (length,))
    kind = _rarely(draw, "add", "free", "slice")
    if kind == "free" and length == 2:
        position = g.add("Identity (p)")
    elif kind == "slice":
        table = g.numbers(list(range(capacity)), (capacity,))
        low = g.add(f"Reshape ({start}, {g.numbers([1], (1,))})")
        high = g.add(f"Add ({low}, {g.numbers([length], (1,))})")
        cut = g.add(f"Slice ({table}, {low}, {high})")
        position = g.add(f"Reshape ({cut}, {g.numbers([length], (1,))})")
    else:
        position = _wrapped(draw, g, g.add(f"Add ({rows}, {start})"), capacity)
    index = g.add(f"Unsqueeze ({position}, {g.numbers([-1], (1,))})")
    perm = draw(st.sampled_from([(2, 0, 1, 3), (2, 1, 0, 3), (2, 0, 3, 1), (2, 3, 1, 0)]))
    other = draw(st.sampled_from([perm, perm, perm, (2, 0, 1, 3), (2, 3, 0, 1)]))
    back = tuple(perm.index(n) for n in range(4))
    cache = (_BATCH, _BATCH, capacity, _BATCH)
    update = (_BATCH, _BATCH, length, _BATCH)
    c = g.add(f"Transpose <perm = [{', '.join(map(str, perm))}]> (cache)")
    u = g.add(f"Transpose <perm = [{', '.join(map(str, other))}]> (upd)")
    s = g.add(f"ScatterND ({c}, {index}, {u})")
    if draw(st.sampled_from([False, False, True])):
        back = (1, 0, 2, 3)
    g.lines.append(f"present = Transpose <perm = [{', '.join(map(str, back))}]> ({s})")
    return _finished(g, capacity, update, cache)


def _mask(draw: st.DrawFn, g: _Lines, capacity: int) -> NearMiss:
    """Draw a one-hot mask, and Where or masked products."""
    start = g.add(f"Unsqueeze (w, {g.numbers([1], (1,))})")
    start = _changed(draw, g, start, capacity)
    places = _counted(draw, g, capacity, (1, capacity))
    compare = _rarely(draw, "Equal", "Less", "GreaterOrEqual")
    left, right = draw(st.permutations([start, places]))
    hit = g.add(f"{compare} ({left}, {right})")
    if negated := draw(st.booleans()):
        hit = g.add(f"Not ({hit})")
    mask = g.add(f"Unsqueeze ({hit}, {g.numbers([1, 3], (2,))})")
    cache = (_BATCH, _HEADS, capacity, _WIDTH)
    heads = draw(st.sampled_from([_HEADS, _HEADS, 1]))
    rows = draw(st.sampled_from([1, 1, 1, capacity]))
    update = (_BATCH, heads, rows, _WIDTH)
    if draw(st.sampled_from([False] * 4 + [True])):
        negated = not negated
    new, kept = ("cache", "upd") if negated else ("upd", "cache")
    if draw(st.booleans()):
        g.lines.append(f"present = Where ({mask}, {new}, {kept})")
        return _finished(g, capacity, update, cache)
    factor = g.add(f"Cast <to = 1> ({mask})")
    one = g.add(f"Constant <value = float {{{_rarely(draw, '1', '2')}}}> ()")
    rest = g.add(f"Sub ({one}, {factor})")
    first = g.add(f"Mul ({factor}, {new})")
    second = g.add(f"Mul ({kept}, {rest})")
    g.lines.append(f"present = Add ({', '.join(draw(st.permutations([first, second])))})")
    return _finished(g, capacity, update, cache)


def _concat(draw: st.DrawFn, g: _Lines, capacity: int, length: int) -> NearMiss:
    """Draw slices of the cache around the update."""
    start = g.add(f"Gather (p, {g.number(0)})")
    start = g.add(f"Reshape ({_changed(draw, g, start, capacity)}, {g.numbers([1], (1,))})")
    skipped = draw(st.sampled_from([length, length, length, length - 1, length + 1]))
    rest = g.add(f"Add ({start}, {g.numbers([skipped], (1,))})")
    zero = g.numbers([draw(st.sampled_from([0, 0, 0, 1]))], (1,))
    end = g.numbers([draw(st.sampled_from([2**62, 2**62, capacity, capacity - 1, -1]))], (1,))
    axes = g.numbers([2], (1,))
    head = g.add(f"Slice (cache, {zero}, {start}, {axes})")
    tail = g.add(f"Slice (cache, {rest}, {end}, {axes})")
    between, beside = [head, "upd", tail], [[head, "upd"], ["upd", tail]]
    parts = draw(st.sampled_from([between] * 5 + beside * 2 + [[tail, "upd", head]]))
    g.lines.append(f"present = Concat <axis = 2> ({', '.join(parts)})")
    cache = (_BATCH, _HEADS, capacity, _WIDTH)
    made = _finished(g, capacity, (_BATCH, _HEADS, length, _WIDTH), cache)
    if draw(st.booleans()):
        dims = ",".join(map(str, cache))
        return NearMiss(made.text.replace("float[o0,o1,o2,o3]", f"float[{dims}]"), made.draws)
    return made
