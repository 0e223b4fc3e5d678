"""Plays the acts and cleans up after them, whatever happens."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import json
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import FrameType, ModuleType

from shoal.base import extras
from shoal.core import Invalid, ShoalError, Unavailable
from shoal.demo.acts import ACTS, CLUSTER_ACTS, CLUSTER_EPILOGUE, EPILOGUE, Act
from shoal.demo.play import Demo
from shoal.demo.report import Report
from shoal.demo.scenario import SLOTS, scenario
from shoal.demo.screen import Screen, make_screen
from shoal.demo.stage import Stage

_INTERRUPTED = 130
_CLUSTERS = Path(__file__).parents[3] / "benchmarks"
"""Of a source tree: throw-away clusters are instruments of benchmarks and tests."""
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def run_demo(
    *, json_output: bool = False, fast: bool = False, home: Path | None = None, keep: bool = False,
    engine: str = "local",
) -> int:  # fmt: skip
    """Play the demo; the exit code is 0 only if every check held. With the engine `slurm`, its main job is played on a
    private Slurm of this machine. Raises Unavailable where something is missing for that.

    `home` is a directory that is empty or does not exist yet; without one, a temporary one is used, and removed at
    the end unless `keep`, or a check failed. With `json_output` standard output gets one JSON object and nothing else.
    """
    if engine not in ("local", "slurm"):
        raise Invalid(f"the demo has no engine {engine!r}", where="engine", hint="it plays on local and slurm")
    _need_packages()
    if engine == "slurm":
        _need_slurm()
    place = _fresh(home)
    report = Report()
    screen = make_screen(silent=json_output)
    try:
        with _interruptible():
            if engine == "slurm":
                _play_on_slurm(screen, report, place, fast=fast)
            else:
                _play(screen, report, Stage(place, slots=SLOTS), ACTS, EPILOGUE, fast=fast)
    except KeyboardInterrupt:
        _remove(place, unless=home is not None or keep)
        print("interrupted; the server and all jobs of the demo are stopped", file=sys.stderr)
        return _INTERRUPTED
    finally:
        screen.close()
    kept = home is not None or keep or not report.passed
    _remove(place, unless=kept)
    report.extra["home"] = str(place) if kept else None
    if json_output:
        print(json.dumps(report.as_json(), indent=2))
    else:
        screen.result(report)
        if kept:
            screen.say(f"kept: {place} (look into it with `shoal up --home {place}`)")
    return 0 if report.passed else 1


def _remove(place: Path, *, unless: bool) -> None:
    if not unless:
        shutil.rmtree(place, ignore_errors=True)


def _play_on_slurm(screen: Screen, report: Report, place: Path, *, fast: bool) -> None:
    """Real daemons on the loopback; Shoal picks the nodes, so that what it decides is what is seen."""
    screen.say("starting a private Slurm: munged, slurmctld and two slurmd ...")
    with _private_slurm().PrivateSlurm((SLOTS // 2,) * 2) as cluster:
        environ = {**cluster.environment, "SHOAL_ENGINE": "slurm", "SHOAL_SLURM__DELEGATE": "false"}
        stage = Stage(place, slots=None, where="a Slurm cluster of two nodes", environ=environ)
        _play(screen, report, stage, CLUSTER_ACTS, CLUSTER_EPILOGUE, fast=fast)


def _play(
    screen: Screen, report: Report, stage: Stage, acts: Sequence[Act], epilogue: Sequence[Act], *, fast: bool
) -> None:
    """An act that fails ends the demo with a failed check; processes are cleared away in any case."""
    began = time.monotonic()
    report.extra["fast"] = fast
    with contextlib.ExitStack() as after:
        after.callback(_clear, stage)
        demo = Demo(scenario(fast=fast), stage, screen, report, after)
        for act in acts:
            if not _perform(act, demo):
                break
        for act in epilogue:
            _perform(act, demo)
    report.duration_s = time.monotonic() - began


def _perform(act: Act, demo: Demo) -> bool:
    """Whether the act came to its end; one that did not is a failed check."""
    try:
        act(demo)
    except ShoalError as error:
        demo.report.check(act.__name__.replace("_", " "), False, str(error))
        return False
    return True


def _clear(stage: Stage) -> None:
    """End all processes. A second Ctrl-C does not interrupt this."""
    for signum in _SIGNALS:
        signal.signal(signum, signal.SIG_IGN)
    stage.clear()


def _need_packages() -> None:
    missing = [name for name in ("numpy", "sklearn") if importlib.util.find_spec(name) is None]
    if missing:
        raise Unavailable(f"the demo trains with {' and '.join(missing)}", hint=extras.install("demo"))


def _need_slurm() -> None:
    slurm = _private_slurm()
    if absent := slurm.missing():
        raise Unavailable(f"there is no Slurm here: {', '.join(absent)} not found", hint=slurm.HINT)


def _private_slurm() -> ModuleType:
    """`clusters.slurm` of the benchmarks. Raises Unavailable where there is no source tree around this package."""
    if not (_CLUSTERS / "clusters" / "slurm.py").is_file():
        raise Unavailable(
            "the private Slurm is not part of the installed package",
            where=str(_CLUSTERS),
            hint="play it from a source tree: `pip install -e '.[demo]'` there",
        )
    if str(_CLUSTERS) not in sys.path:
        sys.path.append(str(_CLUSTERS))
    return importlib.import_module("clusters.slurm")


def _fresh(home: Path | None) -> Path:
    if home is None:
        return Path(tempfile.mkdtemp(prefix="shoal-demo-"))
    place = home.expanduser().absolute()
    try:
        place.mkdir(parents=True, exist_ok=True)
        occupied = any(place.iterdir())
    except OSError as error:
        raise Invalid(f"the directory cannot be used: {error.strerror}", where=str(place)) from error
    if occupied:
        raise Invalid("the demo needs an empty directory", where=str(place), hint="give another --home, or none")
    return place


@contextlib.contextmanager
def _interruptible() -> Iterator[None]:
    """Let SIGTERM and SIGHUP clean up as Ctrl-C does. What was set before is put back at the end."""

    def interrupt(_signum: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = {signum: signal.signal(signum, interrupt) for signum in _SIGNALS}
    try:
        yield
    finally:
        for signum, handler in before.items():
            signal.signal(signum, handler)
