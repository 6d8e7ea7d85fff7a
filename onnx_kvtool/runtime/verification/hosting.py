"""Sessions of models that are fed, and whose outputs are read, as a host of theirs would do it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from onnx_kvtool.runtime.sessions import Array, Arrays, Session

__all__ = ["Host", "Hosted"]


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
