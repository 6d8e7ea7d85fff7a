"""Differences between what two models look like from outside."""

from __future__ import annotations

import pytest

from onnx_kvtool.verification.inputs.interface import (
    Interface,
    Port,
    interface_difference,
    interface_of,
)
from tests.grids import each
from tests.runtime.recorded import model

SOURCE = "g (float[B, L] x, int64[B] i) => (float[B, L] y, int64[B] z) {}"
BODY = "{ y = Identity (x) z = Identity (i) }"


@each(
    ("signature", "difference"),
    [
        pytest.param(SOURCE, None, id="the same"),
        pytest.param(
            "g (float[N, 3] x, int64[N] i) => (float[N, 3] y, int64[7] z) {}",
            None,
            id="other dimensions of the same rank",
        ),
        pytest.param(
            "g (int64[B] i, float[B, L] x) => (float[B, L] y, int64[B] z) {}",
            "the inputs are `i`, `x`, expected `x`, `i`",
            id="inputs in another order",
        ),
        pytest.param(
            "g (float[B, L] x, int64[B] i) => (int64[B] z) {}",
            "the outputs are `z`, expected `y`, `z`",
            id="an output less",
        ),
        pytest.param(
            "g (float16[B, L] x, int64[B] i) => (float[B, L] y, int64[B] z) {}",
            "input `x` is of type FLOAT16, expected FLOAT",
            id="an input of another type",
        ),
        pytest.param(
            "g (float[B, L] x, int64[B] i) => (float[B, L] y, int64[B, 1] z) {}",
            "output `z` has rank 2, expected 1",
            id="an output of another rank",
        ),
    ],
)
def test_differences(signature: str, difference: str | None) -> None:
    source = interface_of(model(SOURCE.format(BODY)))
    other = interface_of(model(signature.format(BODY)))
    assert interface_difference(source, other) == difference


def test_what_one_model_does_not_say_is_no_difference() -> None:
    source, silent = model(SOURCE.format(BODY)), model(SOURCE.format(BODY))
    for value in silent.graph.outputs:
        value.type = value.shape = None
    assert interface_difference(interface_of(source), interface_of(silent)) is None
    assert interface_difference(interface_of(silent), interface_of(source)) is None


MANY = tuple(Port(f"past.{i}", None) for i in range(60))


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        pytest.param(
            MANY[:-1], "the model does not have the inputs `past.59`", id="one is missing"
        ),
        pytest.param(
            (Port("x", None), *MANY[7:]),
            "the model does not have the inputs `past.0`, `past.1`, `past.2`, `past.3` and 3"
            " more and has `x` beside those expected",
            id="some are missing, one is new",
        ),
        pytest.param(
            (*MANY[:2], *MANY[:1:-1]), "input 2 is `past.59`, expected `past.2`", id="another order"
        ),
    ],
)
def test_of_many_names_those_are_told_that_differ(given: tuple[Port, ...], expected: str) -> None:
    assert interface_difference(Interface(MANY, ()), Interface(given, ())) == expected
