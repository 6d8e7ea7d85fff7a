"""What came of running decoders in turns."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import Any

from onnx_kvtool.core.shown import Shown
from onnx_kvtool.runtime.decoding.decoder import Form

__all__ = ["BenchReport", "BenchRun", "Workload"]


@dataclass(frozen=True, slots=True)
class Workload:
    """What every model does in each round.

    Attributes:
        prompt: Tokens of the prompt of each sequence.
        tokens: Tokens that are made after it.
        context: Tokens that stand before the steps; between prompt and steps rows of zeros, where
            it is longer than the prompt.
        batch: Sequences.
        threads: Threads that a node may use; None for one for each core.
        rounds: How often each model does it, in turns.
        seed: For the tokens of the prompt.
    """

    prompt: int
    tokens: int
    context: int
    batch: int
    threads: int | None
    rounds: int
    seed: int

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form."""
        return {name: getattr(self, name) for name in self.__slots__}


@dataclass(frozen=True, slots=True)
class BenchRun:
    """How one model did.

    Attributes:
        model: Its path; "" for one in memory.
        form: How it keeps its caches; None when it did not load.
        in_place: Whether every cache is written where it lies.
        first_tokens: Seconds from a prompt to its first token, of each round.
        steps: Seconds of every step, of all rounds.
        peak_bytes: Most memory that it took beyond Python and onnxruntime themselves; None where
            the system does not say.
        chosen: The tokens of the last round, one row for each sequence.
        failure: Why there is nothing more; None when all went well.
    """

    model: str
    form: Form | None = None
    in_place: bool = False
    first_tokens: tuple[float, ...] = ()
    steps: tuple[float, ...] = ()
    peak_bytes: int | None = None
    chosen: tuple[tuple[int, ...], ...] = ()
    failure: str | None = None

    @property
    def first_token_seconds(self) -> float | None:
        """Seconds from a prompt to its first token, the median of the rounds."""
        return statistics.median(self.first_tokens) if self.first_tokens else None

    @property
    def step_seconds(self) -> tuple[float, float, float] | None:
        """Seconds of a step: least, median and most."""
        if not self.steps:
            return None
        return min(self.steps), statistics.median(self.steps), max(self.steps)

    def tokens_per_second(self, batch: int) -> float | None:
        """Return the tokens that a batch makes in a second of median steps."""
        return None if self.step_seconds is None else batch / self.step_seconds[1]

    def to_json(self, batch: int) -> dict[str, Any]:
        """Return the JSON form that the command-line contract fixes."""
        least, median, most = self.step_seconds or (None, None, None)
        return {
            "model": self.model,
            "form": self.form,
            "in_place": self.in_place,
            "first_token_seconds": self.first_token_seconds,
            "step_seconds": {"min": least, "median": median, "max": most},
            "tokens_per_second": self.tokens_per_second(batch),
            "peak_bytes": self.peak_bytes,
            "failure": self.failure,
        }


@dataclass(frozen=True, slots=True)
class BenchReport(Shown):
    """How decoders did, in turns.

    Attributes:
        workload: What each of them did.
        runtime: `onnxruntime <version>`.
        runs: One for each model, in the order in which they were named.

    Examples:
        >>> report = kv.bench("decoder.onnx", prompt=3, tokens=4, rounds=2)
        >>> len(report.runs[0].first_tokens), len(report.runs[0].steps), report.failed
        (2, 6, False)
    """

    workload: Workload
    runtime: str
    runs: tuple[BenchRun, ...]

    @property
    def failed(self) -> bool:
        """Whether a model did not get to the end."""
        return any(run.failure is not None for run in self.runs)

    @property
    def same_tokens(self) -> bool:
        """Whether all that got to the end chose the same tokens in the last round."""
        return len({run.chosen for run in self.runs if run.failure is None}) <= 1

    def ratios(self) -> list[dict[str, Any]]:
        """Return what the others take, by what the first model does; None where one is missing."""
        first, *others = self.runs

        def ratio(ours: float | None, base: float | None) -> float | None:
            return None if ours is None or not base else ours / base

        return [
            {
                "model": run.model,
                "step": ratio(_median(run), _median(first)),
                "first_token": ratio(run.first_token_seconds, first.first_token_seconds),
                "peak": ratio(run.peak_bytes, first.peak_bytes),
            }
            for run in others
        ]

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form that the command-line contract fixes, without the header."""
        return {
            "workload": self.workload.to_json(),
            "runtime": self.runtime,
            "runs": [run.to_json(self.workload.batch) for run in self.runs],
            "ratios": self.ratios(),
            "same_tokens": self.same_tokens,
        }


def _median(run: BenchRun) -> float | None:
    return None if run.step_seconds is None else run.step_seconds[1]
