"""Every form that `lower` gives a TensorScatter comes back, whatever is known of its sizes."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import onnx
import onnx_ir as ir
import pytest

import onnx_kvtool as kv
from onnx_kvtool.model_io.model import serialize
from onnx_kvtool.rewrite.raise_report import RaiseReport
from tests.cache_models import tensor_scatter_oracle
from tests.grids import part, rest
from tests.rewrite.raising.brute_force import Arrays, Runtimes, same_bits

SIZES = (2, 3, 5, 7, 4)
CAPACITY, LENGTH = 11, 3
STARTS = {"linear": (8, 2), "circular": (9, 4)}
"""Up to the end of the cache, and past it."""

OPSETS = (11, 13, 18, 21, 23)

Starts = Literal["none", "input", "fixed", "fixed, one for all"]


@dataclass(frozen=True)
class Form:
    """How `lower` is asked to write the update."""

    via: Literal["scatternd", "scatterelements"]
    index_dtype: Literal["int64", "int32"]
    bounds: Literal["checked", "unchecked"]


FORMS = [
    Form("scatternd", "int64", "checked"),
    Form("scatternd", "int64", "unchecked"),
    Form("scatterelements", "int64", "checked"),
    Form("scatterelements", "int64", "unchecked"),
    Form("scatterelements", "int32", "checked"),
    Form("scatterelements", "int32", "unchecked"),
]

PLACES = [(rank, axis) for rank in (2, 3, 4, 5) for axis in range(1, rank)]


@dataclass(frozen=True)
class Known:
    """What the model says of the sizes: of the cache, of the update, and of the starts."""

    past: Literal["numbers", "names", "batch", "capacity", "but the axis", "nothing"] = "numbers"
    update: Literal["as the cache", "other names", "nothing", "computed"] = "as the cache"
    length: int | str = LENGTH
    starts: Literal["as the batch", "other name", "nothing"] = "as the batch"


PROVABLE = {
    "all sizes": Known(),
    "names alone": Known("names", length="L"),
    "all but the rows": Known(length="L"),
    "all but the batch": Known("batch"),
    "all but the capacity": Known("capacity"),
    "all but the rows and the capacity": Known("but the axis", length="?"),
    "the sizes of the cache alone": Known(update="computed"),
    "the names of the cache alone": Known("names", update="computed"),
}
GRANTABLE = {
    "starts with another name": Known("batch", starts="other name"),
    "an update with other names": Known("names", "other names", "L"),
}
UNKNOWABLE = {
    "starts without a size": Known("batch", starts="nothing"),
    "no sizes at all": Known("nothing", "nothing", starts="nothing"),
}


def one_update(rank: int, axis: int, mode: str, starts: Starts, known: Known) -> onnx.ModelProto:
    numbers = [CAPACITY if i == axis else SIZES[i] for i in range(rank)]
    past: list[int | str] = list(numbers)
    if known.past == "names":
        past = [f"d{i}" for i in range(rank)]
    elif known.past == "nothing":
        past = ["?"] * rank
    elif known.past == "batch":
        past[0] = "B"
    elif known.past != "numbers":
        past[axis] = "S" if known.past == "capacity" else "?"
    rows = [known.length if i == axis else d for i, d in enumerate(past)]
    node, more = "", ""
    if known.update == "other names":
        rows = [f"u{i}" for i in range(rank)]
    elif known.update == "nothing":
        rows = ["?"] * rank
    elif known.update == "computed":
        rows, node = ["E"], "rows = Reshape (update, shape) "
        more = f", int64[{rank}] shape"
    inputs = f"float[{_text(past)}] past, float[{_text(rows)}] update{more}"
    given = f"past, {'rows' if node else 'update'}"
    constant = ""
    if starts == "input":
        size = {"as the batch": past[0], "other name": "W", "nothing": "?"}[known.starts]
        inputs += f", int64[{size}] w"
    elif starts != "none":
        constant = f"<int64[2] w = {{{_text(first_rows(mode, starts))}}}>"
    if starts != "none":
        given += ", w"
    return onnx.parser.parse_model(
        f'<ir_version: 11, opset_import: ["": 24]> g ({inputs}) => (float[{_text(past)}] present)'
        f" {constant} {{ {node} present = TensorScatter "
        f'<axis = {axis}, mode = "{mode}"> ({given}) }}'
    )


def first_rows(mode: str, starts: Starts) -> tuple[int, int]:
    one, other = STARTS[mode]
    return (one, one) if starts == "fixed, one for all" else (one, other)


def _text(dims: Sequence[object]) -> str:
    return ", ".join(map(str, dims))


def there_and_back(
    model: onnx.ModelProto, form: Form, opset: int, assume: Sequence[str] = ()
) -> tuple[ir.Model, RaiseReport]:
    lowered, _ = kv.lower(
        ir.from_proto(model),
        opset=opset,
        via=form.via,
        index_dtype=form.index_dtype,
        bounds=form.bounds,
        verify=False,
    )
    return kv.raise_(lowered, assume=assume, verify=False)


def trips(*, everywhere: bool = True) -> Iterator[tuple[int, int, Form, int]]:
    """Yield places, forms and opsets: all forms at one place, two of them at all others."""
    opsets, forms = itertools.cycle(OPSETS), itertools.cycle(FORMS)
    for rank, axis in PLACES:
        if (rank, axis) == (4, 2):
            yield from ((rank, axis, form, next(opsets)) for form in FORMS)
        elif everywhere:
            yield from ((rank, axis, next(forms), next(opsets)) for _ in range(2))


def begins(form: Form, mode: str) -> set[str]:
    """Return names of the starts: those that are fed, or these as 32 bits hold them."""
    return {"w", "write_indices"} if (form.index_dtype, mode) == ("int32", "linear") else {"w"}


def agrees(model: ir.Model, rank: int, axis: int, mode: str, starts: Starts, known: Known) -> bool:
    """Run the result on starts that reach the end, or pass it where they wrap."""
    rng = np.random.default_rng(0)
    past = [CAPACITY if i == axis else SIZES[i] for i in range(rank)]
    rows = [LENGTH if i == axis else n for i, n in enumerate(past)]
    feeds: Arrays = {
        "past": rng.random(past).astype(np.float32),
        "update": rng.random(rows).astype(np.float32),
    }
    first = None
    if starts != "none":
        first = np.asarray(first_rows(mode, starts), np.int64)
    if starts == "input" and first is not None:
        feeds["w"] = first
    expected = tensor_scatter_oracle(feeds["past"], feeds["update"], first, axis, mode)
    if known.update == "computed":
        feeds["update"] = feeds["update"].reshape(-1)
        feeds["shape"] = np.asarray(rows, np.int64)
    runs = Runtimes(onnx.load_from_string(serialize(model))).run(feeds)
    return all(out is not None and same_bits(out["present"], expected) for out in runs.values())


both_modes = pytest.mark.parametrize("mode", ["linear", "circular"])


def provable() -> Iterator[object]:
    places = itertools.count()
    for title, known in PROVABLE.items():
        starts: tuple[Starts, ...] = ("none", "input")
        if known.past not in ("names", "batch"):  # fixed starts are a batch of two
            starts += ("fixed", "fixed, one for all")
        for one in starts:
            yield pytest.param(known, one, next(places), id=f"{title}, starts: {one}")


PARTS = 12
SHARES = [0, *rest(*range(1, PARTS, 2))]
"""Of the trips of a case each run takes one in twelve, other ones for each case, and all half."""


@both_modes
@pytest.mark.parametrize("share", SHARES, ids=lambda share: f"share {share}")
@pytest.mark.parametrize(("known", "starts", "place"), list(provable()))
@part(3)
def test_what_lower_writes_is_raised_again(
    known: Known, mode: str, starts: Starts, place: int, share: int
) -> None:
    first = (place + share) % PARTS
    for number, trip in enumerate(itertools.islice(trips(), first, None, PARTS)):
        rank, axis, form, opset = trip
        source = one_update(rank, axis, mode, starts, known)
        model, report = there_and_back(source, form, opset)
        assert [str(refusal) for refusal in report.refused] == [], trip
        (done,) = report.raised
        assert (done.axis, done.past) == (axis, "past"), trip
        if starts in ("none", "input"):
            assert done.write_indices in (begins(form, mode) if starts == "input" else {None}), trip
        # From 0 on no row passes the end, which more rows than the cache has would do.
        assert done.mode == ("linear" if starts == "none" else mode), trip
        assert done.update == ("rows" if known.update == "computed" else "update"), trip
        if number % 2 == 0:
            assert agrees(model, rank, axis, mode, starts, known), trip


@pytest.mark.long
@both_modes
@part(2)
@pytest.mark.parametrize("known", GRANTABLE.values(), ids=GRANTABLE)
def test_names_that_only_tensor_scatter_made_equal_may_be_granted(known: Known, mode: str) -> None:
    for rank, axis, form, opset in trips(everywhere=False):
        source = one_update(rank, axis, mode, "input", known)
        assume: list[str] = []
        for _ in range(rank + 1):
            model, report = there_and_back(source, form, opset, assume)
            if report.raised:
                break
            (refusal,) = report.refused
            assert refusal.assumption is not None and refusal.assumption not in assume
            assume.append(refusal.assumption)
        assert all(text.startswith("same-dim:") for text in assume) and assume
        (done,) = report.raised
        assert (done.mode, done.update) == (mode, "update")
        assert done.write_indices in begins(form, mode)
        assert agrees(model, rank, axis, mode, "input", known)


@pytest.mark.long
@both_modes
@pytest.mark.parametrize("known", UNKNOWABLE.values(), ids=UNKNOWABLE)
def test_sizes_that_only_tensor_scatter_made_equal_and_have_no_name(
    known: Known, mode: str
) -> None:
    for rank, axis, form, opset in trips(everywhere=False):
        _, report = there_and_back(
            one_update(rank, axis, mode, "input", known), form, opset, ["contiguous", "in-range"]
        )
        assert not report.raised
        assert [refusal.code for refusal in report.refused] == ["sizes-unrelated"]
