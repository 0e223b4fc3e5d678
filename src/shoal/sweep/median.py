"""Choice of the trials that go on, by the median rule of Optuna, which the extra `sweep` brings. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from shoal.base import extras
from shoal.core import Invalid


def require() -> None:
    """Raises Invalid where Optuna is missing."""
    try:
        import optuna  # noqa: F401
    except ImportError as error:
        raise Invalid(
            "the rule `median` needs Optuna, which this server has not", where="extensions.sweep.stop.rule",
            hint=f"{extras.install('sweep')}, or use the rule `halving`",
        ) from error  # fmt: skip


def above_median(value: float, others: Iterable[float], *, least: int, lower: bool) -> bool:
    """Whether a trial with this value goes on where trials with the values `others` were before it: it is no worse than
    their median, or they are fewer than `least`. What is no number does not go on, and counts as none of the others."""
    import optuna
    from optuna.trial import TrialState, create_trial

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(
        direction="minimize" if lower else "maximize", pruner=optuna.pruners.MedianPruner(n_startup_trials=least)
    )
    study.add_trials([create_trial(value=one, intermediate_values={0: one}) for one in others if one == one])
    trial = create_trial(state=TrialState.RUNNING, intermediate_values={0: value})
    return not study.pruner.prune(study, trial)
