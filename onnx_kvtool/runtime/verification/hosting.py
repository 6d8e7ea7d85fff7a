"""Sessions of models that are fed, and whose outputs are read, as a host of theirs would do it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import ml_dtypes
import numpy as np

from onnx_kvtool.runtime.sessions import Array, Arrays, Session

__all__ = ["Host", "Hosted", "NearestHost", "Through", "WideHost", "through"]

_NARROW = np.dtype(ml_dtypes.bfloat16)


class Host(Protocol):
    """What stands between the inputs and outputs of a comparison and those of one model."""

    def feeds(self, inputs: Mapping[str, Array]) -> Arrays:
        """Return what the model is fed for the inputs of the comparison."""
        ...

    def outputs(self, inputs: Mapping[str, Array], outputs: Arrays) -> Arrays:
        """Return what is compared of what the model gave for the inputs of the comparison."""
        ...


@dataclass(frozen=True, slots=True)
class Hosted:
    """A session with its host."""

    session: Session
    host: Host

    @property
    def runtime(self) -> str:
        """Name and version of what runs the model."""
        return self.session.runtime

    def run(self, inputs: Mapping[str, Array]) -> Arrays:
        """Run the model on what its host makes of `inputs`, and return what it reads."""
        return self.host.outputs(inputs, self.session.run(self.host.feeds(inputs)))


@dataclass(frozen=True, slots=True)
class WideHost:
    """Feeds a model that has another type where the comparison has bfloat16.

    What it gives in place of bfloat16 is rounded to that, so that data which was only moved has
    the same bits.

    Attributes:
        dtype: The type that the model has.
        narrow: Outputs that the comparison has in bfloat16.
    """

    dtype: np.dtype[Any]
    narrow: frozenset[str]

    def feeds(self, inputs: Mapping[str, Array]) -> Arrays:
        """Return the inputs, those of bfloat16 in the type of the model."""
        return {
            name: array.astype(self.dtype) if array.dtype == _NARROW else array
            for name, array in inputs.items()
        }

    def outputs(self, inputs: Mapping[str, Array], outputs: Arrays) -> Arrays:
        """Return the outputs, rounded to bfloat16 where the comparison has that."""
        return {
            name: array.astype(_NARROW) if name in self.narrow else array
            for name, array in outputs.items()
        }


@dataclass(frozen=True, slots=True)
class NearestHost:
    """Feeds a model in bfloat16 what another type holds of it.

    float16 has steps of 6e-8 below 6e-5, so that a small number of a cache becomes another one in
    a model of that type. Whatever it becomes, bfloat16 holds it.

    Attributes:
        dtype: The other type.
    """

    dtype: np.dtype[Any]

    def feeds(self, inputs: Mapping[str, Array]) -> Arrays:
        """Return the inputs, those of bfloat16 as near as the other type comes to them."""
        return {
            name: array.astype(self.dtype).astype(_NARROW) if array.dtype == _NARROW else array
            for name, array in inputs.items()
        }

    def outputs(self, inputs: Mapping[str, Array], outputs: Arrays) -> Arrays:
        """Return the outputs as they are."""
        return outputs


def through(outer: Host, inner: Host | None) -> Host:
    """Return a host of a host, or the outer one where there is no other."""
    return outer if inner is None else Through(outer, inner)


@dataclass(frozen=True, slots=True)
class Through:
    """A host of a host: it stands between the comparison and another one.

    Attributes:
        outer: The host next to the comparison.
        inner: The host next to the model.
    """

    outer: Host
    inner: Host

    def feeds(self, inputs: Mapping[str, Array]) -> Arrays:
        """Return what the inner host feeds for what the outer one does."""
        return self.inner.feeds(self.outer.feeds(inputs))

    def outputs(self, inputs: Mapping[str, Array], outputs: Arrays) -> Arrays:
        """Return what the outer host reads of what the inner one does."""
        given = self.inner.outputs(self.outer.feeds(inputs), outputs)
        return self.outer.outputs(inputs, given)
