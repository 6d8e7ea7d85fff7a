"""Updates of a cache as exporters write them, as ONNX text; B=2, H=3, S=5, D=7, L=2."""

from __future__ import annotations

CACHE, UPDATE, START = "float[2,3,5,7] cache", "float[2,3,2,7] upd", "int64[2] w"


def graph(
    inputs: str, body: str, outputs: str = "float[2,3,5,7] present", opset: int = 18, tail: str = ""
) -> str:
    """Return a model in ONNX text."""
    header = f'<ir_version: 10, opset_import: ["": {opset}, "local": 1]>'
    return f"{header} decoder ({inputs}) => ({outputs}) {{ {body} }} {tail}"


def elements(
    rows: str = "pos = Add (starts, rows)",
    *,
    inputs: str = f"{CACHE}, {UPDATE}, {START}",
    index: str = "2, 3, 2, 7",
    scatter: str = "present = ScatterElements <axis = 2> (cache, index, upd)",
    outputs: str = "float[2,3,5,7] present",
    opset: int = 18,
) -> str:
    """Return P4: per-sequence starts, expanded for ScatterElements.

    `rows` makes `pos` (2,1,2,1) of `starts` (2,1,1,1) and `rows` (1,1,2,1).
    """
    return graph(
        inputs,
        f"""
        ones = Constant <value = int64[3] {{1, 2, 3}}> ()
        rows = Constant <value = int64[1,1,2,1] {{0, 1}}> ()
        capacity = Constant <value = int64 {{5}}> ()
        one = Constant <value = int64 {{1}}> ()
        shape = Constant <value = int64[4] {{{index}}}> ()
        starts = Unsqueeze (w, ones)
        {rows}
        index = Expand (pos, shape)
        {scatter}
        """,
        outputs,
        opset,
    )


def tuples(
    change: str = "",
    *,
    batch: str = "0, 1",
    rows: str = "pos = Add (starts, rows)",
    order: str = "bx, px",
    inputs: str = "float[2,5,3,7] cache, float[2,2,3,7] upd, int64[2] w",
    scatter: str = "present = ScatterND (cache, index, upd)",
    outputs: str = "float[2,5,3,7] present",
    opset: int = 18,
) -> str:
    """Return P5: per-sequence starts as (b, t) tuples of ScatterND, (2,2,2)."""
    return graph(
        inputs,
        f"""
        last = Constant <value = int64[1] {{-1}}> ()
        first = Constant <value = int64[1] {{1}}> ()
        rows = Constant <value = int64[1,2] {{0, 1}}> ()
        capacity = Constant <value = int64 {{5}}> ()
        b = Constant <value = int64[2,1] {{{batch}}}> ()
        shape = Constant <value = int64[2] {{2, 2}}> ()
        starts = Unsqueeze (w, first)
        {rows}
        be = Expand (b, shape)
        pe = Expand (pos, shape)
        bx = Unsqueeze (be, last)
        px = Unsqueeze (pe, last)
        {change}
        index = Concat <axis = -1> ({order})
        {scatter}
        """,
        outputs,
        opset,
    )


def shared(
    rows: str = "pos = Add (rows, start)",
    *,
    perm: str = "2, 0, 1, 3",
    back: str = "1, 2, 0, 3",
    data: str = "c = Transpose <perm = [2, 0, 1, 3]> (cache)",
    inputs: str = f"{CACHE}, {UPDATE}, int64[2] p",
    outputs: str = "float[2,3,5,7] present",
    scatter: str = "s = ScatterND (c, index, u)",
    extra: str = "",
    opset: int = 18,
) -> str:
    """Return P1: one start for all sequences, ScatterND between Transposes; `start` is p[0]."""
    return graph(
        inputs,
        f"""
        zero = Constant <value = int64 {{0}}> ()
        last = Constant <value = int64[1] {{-1}}> ()
        rows = Constant <value = int64[2] {{0, 1}}> ()
        capacity = Constant <value = int64 {{5}}> ()
        start = Gather (p, zero)
        {rows}
        index = Unsqueeze (pos, last)
        {data}
        u = Transpose <perm = [{perm}]> (upd)
        {scatter}
        present = Transpose <perm = [{back}]> (s)
        {extra}
        """,
        outputs,
        opset,
    )


def one_hot(
    mask: str = "hit = Equal (starts, places)",
    *,
    axes: str = "1, 3",
    places: str = "int64[1,5] {0, 1, 2, 3, 4}",
    inputs: str = f"{CACHE}, float[2,3,1,7] upd, {START}",
    select: str = "present = Where (m, upd, cache)",
    outputs: str = "float[2,3,5,7] present",
    opset: int = 18,
) -> str:
    """Return P9: one token through a mask (2,1,5,1)."""
    return graph(
        inputs,
        f"""
        first = Constant <value = int64[1] {{1}}> ()
        places = Constant <value = {places}> ()
        axes = Constant <value = int64[2] {{{axes}}}> ()
        starts = Unsqueeze (w, first)
        {mask}
        m = Unsqueeze (hit, axes)
        {select}
        """,
        outputs,
        opset,
    )


def concat(
    *,
    end: str = "p",
    resume: str = "resumed = Add (p, length)",
    length: int = 2,
    begin: str = "none",
    limit: int = 2**62,
    parts: str = "head, upd, tail",
    tail: str = "cache",
    axis: int = 2,
    inputs: str = f"{CACHE}, {UPDATE}, int64[1] p",
    outputs: str = "float[2,3,5,7] present",
    opset: int = 18,
) -> str:
    """Return P10: Concat of slices of a cache around new rows."""
    return graph(
        inputs,
        f"""
        none = Constant <value = int64[1] {{0}}> ()
        first = Constant <value = int64[1] {{1}}> ()
        length = Constant <value = int64[1] {{{length}}}> ()
        limit = Constant <value = int64[1] {{{limit}}}> ()
        axes = Constant <value = int64[1] {{{axis}}}> ()
        head = Slice (cache, {begin}, {end}, axes)
        {resume}
        tail = Slice ({tail}, resumed, limit, axes)
        present = Concat <axis = {axis}> ({parts})
        """,
        outputs,
        opset,
    )
