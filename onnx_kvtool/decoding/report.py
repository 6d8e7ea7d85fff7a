"""The results of running decoders in turns."""

from __future__ import annotations

import statistics
from dataclasses import dataclass

from onnx_kvtool.core.record import Key, Record
from onnx_kvtool.core.reporting import Shown
from onnx_kvtool.decoding.kept import Form
from onnx_kvtool.decoding.profile import Profile


@dataclass(frozen=True, slots=True)
class Workload(Record):
    """What every model does in each round.

    Attributes:
        prompt: Tokens in the prompt of each sequence.
        tokens: Tokens to generate after it.
        context: Tokens before the first step; rows of zeros follow a shorter prompt.
        batch: Sequences.
        threads: Threads per node; None for one per core.
        rounds: Rounds; the models take turns.
        seed: Seed of the tokens in the prompt.
    """

    prompt: int
    tokens: int
    context: int
    batch: int
    threads: int | None
    rounds: int
    seed: int


@dataclass(frozen=True, slots=True)
class StepSeconds(Record):
    """Seconds of the steps of a model; None where none was made.

    Attributes:
        min: The shortest.
        median: The median.
        max: The longest.
    """

    min: float | None = None
    median: float | None = None
    max: float | None = None


@dataclass(frozen=True, slots=True)
class Ratio(Record):
    """The costs of a model, divided by those of the first one; None if either is missing.

    Attributes:
        model: Path of the model; "" for one in memory.
        step: Ratio of the median steps.
        first_token: Ratio of the times to the first token.
        peak: Ratio of the peak memories.
    """

    model: str
    step: float | None
    first_token: float | None
    peak: float | None


@dataclass(frozen=True, slots=True)
class BenchRun(Record):
    """How one model did.

    Attributes:
        model: Path of the model; "" for one in memory.
        form: Form of the caches; None if the model did not load.
        in_place: Whether every cache is updated in place.
        first_tokens: Seconds from a prompt to its first token, for each round.
        steps: Seconds of each step of all rounds.
        peak_bytes: Peak memory without that of Python and onnxruntime; None if the system does not
            report it.
        chosen: The tokens of the last round, one row per sequence.
        failure: Why results are missing; None without a failure.
        batch: Sequences in the batch.
    """

    model: str
    form: Form | None = None
    in_place: bool = False
    first_tokens: tuple[float, ...] = ()
    steps: tuple[float, ...] = ()
    peak_bytes: int | None = None
    chosen: tuple[tuple[int, ...], ...] = ()
    failure: str | None = None
    batch: int = 1

    JSON = (
        "model",
        "form",
        "in_place",
        "first_token_seconds",
        "step_seconds",
        "tokens_per_second",
        "peak_bytes",
        "failure",
        "batch",
        "first_tokens",
        "steps",
        "chosen",
    )

    @property
    def first_token_seconds(self) -> float | None:
        """Seconds from a prompt to its first token, median of the rounds."""
        return statistics.median(self.first_tokens) if self.first_tokens else None

    @property
    def step_seconds(self) -> StepSeconds:
        """Seconds of a decode step."""
        if not self.steps:
            return StepSeconds()
        return StepSeconds(min(self.steps), statistics.median(self.steps), max(self.steps))

    @property
    def tokens_per_second(self) -> float | None:
        """Tokens per second of the whole batch, at the median step."""
        median = self.step_seconds.median
        return self.batch / median if median else None


@dataclass(frozen=True, slots=True)
class BenchReport(Shown):
    """How decoders did, in turns.

    Attributes:
        workload: The work of each model.
        runtime: `onnxruntime <version>`.
        runs: One entry for each model, in the order of the arguments.
        profile: Time of a step by operator; empty without `--profile`.

    Examples:
        >>> report = kv.bench("decoder.onnx", prompt=3, tokens=4, rounds=2)
        >>> len(report.runs[0].first_tokens), len(report.runs[0].steps), report.failed
        (2, 6, False)
    """

    workload: Workload
    runtime: str
    runs: tuple[BenchRun, ...]
    profile: tuple[Profile, ...] = ()

    JSON = (
        "workload", "runtime", "runs", "ratios", "same_tokens", Key("profile", is_optional=True),
    )  # fmt: skip

    @property
    def failed(self) -> bool:
        """Whether a model did not get to the end."""
        return any(run.failure is not None for run in self.runs)

    @property
    def same_tokens(self) -> bool:
        """Whether all models without a failure chose the same tokens in the last round."""
        return len({run.chosen for run in self.runs if run.failure is None}) <= 1

    @property
    def ratios(self) -> tuple[Ratio, ...]:
        """Ratios of the other models to the first one."""
        if not self.runs:
            return ()
        first, *others = self.runs

        def ratio(ours: float | None, base: float | None) -> float | None:
            return None if ours is None or not base else ours / base

        return tuple(
            Ratio(
                model=run.model,
                step=ratio(run.step_seconds.median, first.step_seconds.median),
                first_token=ratio(run.first_token_seconds, first.first_token_seconds),
                peak=ratio(run.peak_bytes, first.peak_bytes),
            )
            for run in others
        )
