"""The plot: one function after the other. Each tells what it does and why, does it, and adds to the report.

To extend the demo, write such a function and put it into `ACTS`.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Sequence

from shoal.contract.lifecycle import JobState
from shoal.core import Invalid
from shoal.demo.device import share_a_device
from shoal.demo.isolation import guard_against_a_flood
from shoal.demo.judge import judge
from shoal.demo.planes import give_teams_planes
from shoal.demo.play import Demo
from shoal.demo.scenario import SLOTS, WRONG_MANIFEST, DemoJob
from shoal.demo.screen import Picture
from shoal.demo.serving import (
    count_the_answers,
    deploy_the_services,
    serve_alone,
    serve_beside_the_training,
    undeploy_the_services,
)
from shoal.demo.streams import hold_streams
from shoal.sdk.models import EventView

_FAREWELL_S = 15.0
"""How long the gateway, which ends by itself once it has nothing to serve, may take for that on a busy machine."""

Act = Callable[[Demo], None]

_LINE_AND_HINT = re.compile(r".+:\d+: .+ \(.+\)$")
_STEPS_LEFT = 8
"""How many steps some running job must still have before it when the server is killed."""

_CALM_S = 6.0
"""How long the kill may be put off until all running jobs are past their imports, which would slow a restart down."""


def meet_the_tenants(demo: Demo) -> None:
    """Start the server and make the tenants."""
    demo.screen.heading(f"1. Three tenants share {demo.stage.where} with {SLOTS} slots")
    demo.stage.start()
    demo.screen.say(
        f"A real server (pid {demo.stage.pid}) answers at {demo.stage.url}; its database is in {demo.stage.home}."
    )
    for tenant in demo.scenario.tenants:
        demo.admin.create_tenant(
            tenant.name, weight=tenant.weight, quota={"accelerators": tenant.quota_slots}, sandbox="none"
        )
        demo.enter_tenant(tenant.name, demo.admin.create_token(tenant.name, label="demo").token)
        demo.screen.say(f"  {tenant.name:<9} weight {tenant.weight:g}: {tenant.about}")


def submit_the_first_jobs(demo: Demo) -> None:
    """Fill the slots with a long best-effort job and guaranteed ones."""
    demo.screen.heading("3. They submit training jobs: real data, real models")
    _submit(demo, demo.scenario.opening)
    demo.watch(lambda picture: len(picture.slots) >= SLOTS, what="all slots were taken")


def explain_a_wait(demo: Demo) -> None:
    """Ask why the job over its tenant's quota waits."""
    name = demo.scenario.quota_waiter
    demo.screen.heading(f"4. Why does {name} wait? `shoal explain {name}` says:")
    found = demo.admin.explain(demo.acknowledged[name])
    demo.screen.quote(_shoal(demo, "explain", name))
    blocking = [cause.cause for cause in found.causes if cause.blocking]
    demo.report.extra["explanation"] = found.model_dump(mode="json")
    demo.report.check("wait explained", "quota" in blocking, f"{name}: {found.summary}")


def submit_a_wrong_manifest(demo: Demo) -> None:
    """A manifest with mistakes is refused with their lines, and leaves no trace."""
    demo.screen.heading("5. A manifest with two mistakes is refused, and nothing of it is stored")
    before = len(demo.admin.jobs(limit=1000).jobs)
    position = demo.admin.event_page(limit=0).next
    lines: list[str] = []
    try:
        demo.tenants["vision"].submit(WRONG_MANIFEST)
    except Invalid as error:
        lines = [str(problem) for problem in error.problems] or [str(error)]
    demo.screen.quote(lines)
    stored = len(demo.admin.jobs(name="digits-typo").jobs)
    recorded = [event for event in demo.admin.event_page(after=position).events if event.kind == "job.submitted"]
    demo.report.extra["rejected"] = {"problems": lines, "jobs_stored": stored}
    demo.report.check(
        "wrong manifest rejected",
        len(lines) == 2
        and all(_LINE_AND_HINT.match(line) for line in lines)
        and not stored
        and not recorded
        and before > 0,
        f"{len(lines)} problems named with line and hint, {stored} jobs stored",
    )


def rush_hour(demo: Demo) -> None:
    """Guaranteed work comes, and the best-effort job makes room."""
    marathon = demo.scenario.marathon
    demo.screen.heading("6. Guaranteed work arrives: best-effort work checkpoints and makes room")
    demo.watch(
        lambda picture: _saved(demo, marathon) >= 4 and picture.jobs[marathon].progress.get("checkpoint_step"),
        what=f"{marathon} had a checkpoint",
    )
    _submit(demo, demo.scenario.rush)
    twice = demo.scenario.jobs[demo.scenario.submitted_twice]
    again = demo.submit(twice, key=f"demo-{twice.name}")
    first = demo.acknowledged[twice.name]
    demo.screen.say(
        f"  {twice.name} was submitted again with the same key, as after a broken connection: still {again.id}"
    )
    count = len(demo.admin.jobs(name=twice.name).jobs)
    demo.report.check("submitted twice is one job", again.id == first and count == 1, f"{count} job for two requests")
    demo.watch(
        lambda picture: (
            picture.jobs[marathon].state.terminal
            or any(event.kind == "job.preempt-requested" for event in demo.events_of(marathon))
        ),
        what=f"{marathon} made room",
    )


def kill_the_server(demo: Demo) -> None:
    """SIGKILL in the middle; the jobs train on; a new server takes them over."""
    demo.screen.heading("7. Half-way the server is killed with SIGKILL, and started again")
    demo.screen.say("  first some jobs have to be done, while others train and others wait ...")
    picture = demo.watch(_half_way(demo), what="some jobs were done, some ran, some waited")
    last = demo.scenario.last_word
    demo.submit(last, key=f"demo-{last.name}")
    killed_pid = demo.stage.kill()
    killed_at = time.monotonic()
    demo.report.server_killed = True
    ran = picture.in_state(JobState.RUNNING)
    demo.screen.say(
        f"  killed pid {killed_pid}: {len(picture.done())} jobs were done, {len(ran)} ran, the others waited; "
        f"{last.name} had been acknowledged a moment before"
    )
    steps = _train_on(demo, killed_at)
    told = ", ".join(f"{name} {count}" for name, count in sorted(steps.items()))
    demo.screen.say(f"  without a server, in {time.monotonic() - killed_at:.1f} s, steps were trained by {told}")
    demo.report.check(
        "jobs outlive the server", sum(steps.values()) > 0, f"while it was dead, steps were trained by {told}"
    )

    seen = demo.events[-1].seq
    began = demo.stage.start()
    wanted = [job.id for job in ran]
    demo.await_events(lambda events: _taken_over(events, wanted, seen), what="the running jobs were adopted")
    recovery_s = time.monotonic() - began
    demo.report.recovery_s = round(recovery_s, 3)
    adopted = [event for event in demo.events if event.seq > seen and event.kind == "attempt.adopted"]
    status = demo.admin.status()
    demo.screen.say(
        f"  started again as pid {demo.stage.pid}: ready, {len(adopted)} running jobs adopted, "
        f"{recovery_s:.2f} s after its process began"
    )
    demo.report.extra["adopted"] = len(adopted)
    demo.report.check(
        "server recovered", status.ready and bool(adopted), f"{len(adopted)} running jobs adopted in {recovery_s:.2f} s"
    )
    replay = demo.submit(last, key=f"demo-{last.name}")
    demo.report.check(
        "acknowledged before the kill, known after it",
        replay.id == demo.acknowledged[last.name],
        f"{last.name} sent again with its key is still {replay.id}",
    )


def let_them_finish(demo: Demo) -> None:
    """Wait until every job is over."""
    demo.screen.heading("9. All jobs go on to their end; the one that made room resumes from its checkpoint")
    demo.watch(
        lambda picture: all(job.state.terminal for job in picture.jobs.values()),
        what="all jobs were over",
    )


def leave_nothing_behind(demo: Demo) -> None:
    """Stop the server as `shoal down` does, and look for processes that outlived their jobs."""
    demo.stage.stop()
    give_up_at = time.monotonic() + _FAREWELL_S
    while demo.stage.processes() and time.monotonic() < give_up_at:
        time.sleep(0.05)
    left = demo.stage.clear()
    demo.report.extra["processes_left"] = len(left)
    named = "".join(f"; {one.pid} {'supervisor of ' if one.supervisor else ''}{one.job or 'server'}" for one in left)
    demo.report.check("no process left", not left, f"{len(left)} processes of this home after `shoal down`{named}")


ACTS: Sequence[Act] = (
    meet_the_tenants,
    deploy_the_services,
    serve_alone,
    submit_the_first_jobs,
    serve_beside_the_training,
    explain_a_wait,
    submit_a_wrong_manifest,
    rush_hour,
    kill_the_server,
    count_the_answers,
    let_them_finish,
    give_teams_planes,
    guard_against_a_flood,
    share_a_device,
    hold_streams,
)
"""Played in this order; one that fails ends the plot."""

CLUSTER_ACTS: Sequence[Act] = (
    meet_the_tenants,
    submit_the_first_jobs,
    explain_a_wait,
    submit_a_wrong_manifest,
    rush_hour,
    kill_the_server,
    let_them_finish,
)
"""The main job: all but what needs the machine of the server itself."""

EPILOGUE: Sequence[Act] = (judge, undeploy_the_services, leave_nothing_behind)
"""Played in any case."""

CLUSTER_EPILOGUE: Sequence[Act] = (judge, leave_nothing_behind)


def _submit(demo: Demo, jobs: Sequence[DemoJob]) -> None:
    for job in jobs:
        stored = demo.submit(job, key=f"demo-{job.name}")
        demo.screen.say(f"  {stored.tenant:<9} {job.name:<16} {job.priority_class:<12} {job.about}")


def _saved(demo: Demo, name: str) -> int:
    return max((execution.saved for execution in demo.executions() if execution.job == name), default=0)


def _half_way(demo: Demo) -> Callable[[Picture], bool]:
    """Some jobs done, some training, some waiting; if possible at a moment when none of them is just starting."""
    since: list[float] = []

    def half_way(picture: Picture) -> bool:
        running, done = picture.in_state(JobState.RUNNING), picture.done()
        if len(done) == len(picture.jobs):
            return True
        if len(done) < demo.scenario.kill_after_done or not picture.in_state(JobState.QUEUED):
            return False
        since.append(time.monotonic())
        reached = {(e.job, e.attempt): e.steps[-1] for e in demo.executions() if e.steps}
        started = [job for job in running if (job.name, job.attempt) in reached]
        left = [demo.scenario.jobs[job.name].steps - reached[job.name, job.attempt] for job in started]
        plain = [job for job in running if job.name == demo.scenario.plain]
        calm = len(started) + len(plain) == len(running) == len(picture.slots)
        return max(left, default=0) >= _STEPS_LEFT and (calm or since[-1] - since[0] > _CALM_S)

    return half_way


def _train_on(demo: Demo, since: float, *, patience_s: float = 10.0) -> dict[str, int]:
    """Wait until every job that was training has trained three steps without a server, or ended; what each did."""
    alive = {process.pid for process in demo.stage.processes()}
    training = {execution.job for execution in demo.executions() if execution.steps and execution.pid in alive}
    while True:
        finished = {execution.job for execution in demo.executions() if execution.finished}
        steps = {name: demo.steps_since(name, since) for name in training}
        if (
            all(count >= 3 or name in finished for name, count in steps.items())
            or time.monotonic() > since + patience_s
        ):
            return steps
        time.sleep(0.05)


def _taken_over(events: Sequence[EventView], wanted: Sequence[str], seen: int) -> bool:
    """Whether each of these jobs was adopted, or its attempt had ended, after the given place in the log."""
    over = {state for state in JobState if state.terminal} | {JobState.QUEUED}
    settled = {
        event.job_id
        for event in events
        if event.seq > seen and (event.kind == "attempt.adopted" or event.new_state in over)
    }
    return settled.issuperset(wanted)


def _shoal(demo: Demo, *words: str) -> list[str]:
    """What the command line says."""
    env = {**os.environ, "SHOAL_HOME": str(demo.stage.home), "NO_COLOR": "1"}
    for name in ("SHOAL_URL", "SHOAL_TOKEN"):
        env.pop(name, None)
    command = [sys.executable, "-m", "shoal.cli", *words]
    said = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    return (said.stdout or said.stderr).rstrip().splitlines()
