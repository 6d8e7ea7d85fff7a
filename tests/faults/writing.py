"""Faults while a command writes: killed, interrupted, or refused by the system, at every point."""

from __future__ import annotations

import math
import random
import re
import shutil
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.faults.judge import complaints_of_end, is_temporary, loads, mixture, unclean
from tests.faults.kvtool_process import Fault, Outcome, Runner
from tests.faults.points import ERRORS
from tests.faults.scenarios import SCENARIOS, Scenario, Tree, tree

__all__ = ["Attempt", "Bench", "faults_of"]

_ENDS = {"term": (128 + signal.SIGTERM,), "int": (128 + signal.SIGINT,)}


@dataclass(frozen=True)
class Attempt:
    """A command that met a fault.

    Attributes:
        name: Which command, which fault, and where.
        complaints: What is wrong; nothing when all is well.
    """

    name: str
    complaints: tuple[str, ...]


class Bench:
    """A scenario that is played again and again in one directory.

    Args:
        runner: Runs commands.
        name: Key of `SCENARIOS`.
        sources: What `stage` returned.
        directory: Where to play it; it need not exist.

    Attributes:
        before: What is there before.
        after: What is there when nothing has gone wrong.
        points: Names of the points that it meets.
        seconds: How long it takes.
    """

    def __init__(
        self, runner: Runner, name: str, sources: dict[str, Path], directory: Path
    ) -> None:
        self.name = name
        self.directory = directory
        self._runner = runner
        self._scenario: Scenario = SCENARIOS[name]
        self._source = sources[self._scenario.model]
        self.code = self._scenario.code
        self.is_many = self._scenario.is_many
        self.is_in_place = not {"--in-place", "--fix"}.isdisjoint(self._scenario.arguments)
        self.before: Tree = tree(self._source)
        outcome = self.play()
        problems = list(complaints_of_end(outcome, (self.code,)))
        assert not problems, problems
        self.after: Tree = tree(directory)
        assert self.after != self.before, f"{name} writes nothing"
        assert not any(map(is_temporary, self.after))
        self.points = outcome.points
        self.seconds = outcome.seconds

    def set_up(self) -> None:
        """Put the files there as they are before the command runs."""
        shutil.rmtree(self.directory, ignore_errors=True)
        shutil.copytree(self._source, self.directory)

    def run(self, fault: Fault | None = None) -> Outcome:
        """Run the command on what is there."""
        return self._runner.run(self._scenario.arguments, self.directory, fault)

    def play(self, fault: Fault | None = None) -> Outcome:
        """Set up, and run the command."""
        self.set_up()
        return self.run(fault)

    def kill_at(self, at: int) -> Attempt:
        """Kill the command at a point; then it has to succeed as if nothing had happened."""
        outcome = self.play(Fault(at=at, name="kill"))
        problems = [] if outcome.code == -signal.SIGKILL else [f"exit code {outcome.code}"]
        return self._killed(f"kill at {self._point(at)}", problems)

    def kill_after(self, seconds: float) -> Attempt:
        """Kill the command after some time, if it still runs."""
        outcome = self.play(Fault(signal_after=seconds))
        problems = list(complaints_of_end(outcome, (-signal.SIGKILL, self.code)))
        return self._killed(f"kill after {seconds:.4f} s", problems)

    def stop_at(self, at: int, name: str) -> Attempt:
        """Send SIGTERM or SIGINT at a point; nothing may be left of what was begun."""
        outcome = self.play(Fault(at=at, name=name))
        problems = list(complaints_of_end(outcome, _ENDS[name]))
        if name == "int":
            is_same = tree(self.directory) == self.before
            if is_same != ("nothing was written" in outcome.stderr):
                problems.append(f"the same files: {is_same}; what is said: {outcome.stderr}")
        return self._stopped(f"{name} at {self._point(at)}", problems)

    def stop_after(self, seconds: float, name: str) -> Attempt:
        """Send SIGTERM or SIGINT after some time, if the command still runs."""
        number = signal.SIGTERM if name == "term" else signal.SIGINT
        outcome = self.play(Fault(signal_after=seconds, signal=number))
        # Before it has its handlers and after it has given them back, the signal itself ends it.
        allowed = (*_ENDS[name], -number, self.code)
        problems = list(complaints_of_end(outcome, allowed))
        return self._stopped(f"{name} after {seconds:.4f} s", problems)

    def fail_at(self, at: int, error: str) -> Attempt:
        """Let the system refuse one call."""
        outcome = self.play(Fault(at=at, name=error))
        # What cannot be kept of an owner, or removed, is passed over.
        problems = list(complaints_of_end(outcome, (2, self.code)))
        if outcome.code == 2 and not re.search("kvtool: error: .*cannot ", outcome.stderr):
            problems.append(f"no reason is given: {outcome.stderr}")
        return self._stopped(f"{error} at {self._point(at)}", problems)

    def unclean(self) -> Iterator[str]:
        """Yield what is wrong with the directory after a command that could still tidy up."""
        now = tree(self.directory)
        if self.is_many:
            yield from mixture(self.before, self.after, now)
            yield from (f"`{name}` is left" for name in filter(is_temporary, now))
        else:
            yield from unclean(self.before, self.after, now)

    def every_point(self) -> Iterator[int]:
        """Yield the number of each point."""
        yield from range(1, len(self.points) + 1)

    def any_time(self, rng: random.Random) -> float:
        """Return a moment of the run, late ones more often: there it writes."""
        return self.seconds * 1.1 * math.sqrt(rng.random())

    def _play(self, fault: Fault | None) -> Outcome:
        shutil.rmtree(self.directory, ignore_errors=True)
        shutil.copytree(self._source, self.directory)
        return self._runner.run(self._scenario.arguments, self.directory, fault)

    def _killed(self, what: str, problems: list[str]) -> Attempt:
        now = tree(self.directory)
        problems += mixture(self.before, self.after, now)
        problems += loads(self.directory)
        return self._again(what, problems)

    def _stopped(self, what: str, problems: list[str]) -> Attempt:
        problems += self.unclean()
        return self._again(what, problems)

    def _again(self, what: str, problems: list[str]) -> Attempt:
        """Run the command once more, without a fault."""
        outcome = self.run()
        problems += [
            f"run again: {problem}" for problem in complaints_of_end(outcome, (self.code,))
        ]
        now = tree(self.directory)
        if now != self.after:
            different = sorted(
                name
                for name in {*now, *self.after}
                if now.get(name, b"absent") != self.after.get(name, b"absent")
            )
            problems.append(f"run again: the result differs in {different}")
        return Attempt(f"{self.name}: {what}", tuple(problems))

    def _point(self, at: int) -> str:
        return f"point {at} of {len(self.points)}, {self.points[at - 1]}"


def faults_of(bench: Bench) -> Iterator[Attempt]:
    """Yield an attempt for every point and every kind of fault."""
    for at in bench.every_point():
        yield bench.kill_at(at)
        for name in _ENDS:
            yield bench.stop_at(at, name)
        for error in ERRORS:
            yield bench.fail_at(at, error)
