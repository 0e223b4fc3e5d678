"""Hooks for training scripts: report progress, checkpoint when asked to make room, resume where the last attempt ended.

    from shoal import train

    start = load(train.resume_path()) if train.resume_path() else 0
    for step in range(start, steps):
        loss = learn(step)
        train.report(step + 1, total=steps, loss=loss)
        if train.should_checkpoint(every_s=60):
            save(path := train.checkpoint_dir() / "model.npz")
            train.checkpoint(path, step=step + 1)

They need nothing but the standard library and work everywhere: outside Shoal a report goes nowhere, no
checkpoint is asked for, and checkpoints are kept below `.shoal-checkpoints`. A script without hooks runs as well; it
is stopped by SIGTERM and starts again from its beginning.
"""

from shoal.train._hooks import EXIT_RESUMABLE, Hooks

_hooks = Hooks()

artifact = _hooks.artifact
attempt = _hooks.attempt
checkpoint = _hooks.checkpoint
checkpoint_dir = _hooks.checkpoint_dir
is_managed = _hooks.is_managed
rank = _hooks.rank
report = _hooks.report
resume_path = _hooks.resume_path
should_checkpoint = _hooks.should_checkpoint
stop_requested = _hooks.stop_requested
world_size = _hooks.world_size

__all__ = [
    "EXIT_RESUMABLE", "artifact", "attempt", "checkpoint", "checkpoint_dir", "is_managed", "rank", "report",
    "resume_path", "should_checkpoint", "stop_requested", "world_size",
]  # fmt: skip
