"""Programs on a simulated device: a service that answers requests, and training that takes what it gets."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

from device.simulate.device import Loop, Piece
from device.simulate.workloads import MS, US, DeviceSpec, Model, SimulatedKernel
from shoal.device import native
from shoal.device.policy import Class, Verdict, Way, Ways

SERVICE = 0
"""The service's index among the tenants; training has those after it."""
SPIN_NS = 20 * US


class Device(Protocol):
    def put(self, piece: Piece) -> None: ...

    def stop(self, owner: int) -> None: ...


class Gate:
    """The page in a few words: the tenants as the compiled policy sees them."""

    def __init__(self, loop: Loop, rules: native.NativeRules, trainings: int) -> None:
        self.library = native.library()
        self.loop, self.rules = loop, rules
        self.tenants = (native.NativeTenant * (trainings + 1))()
        self.tenants[SERVICE].cls = Class.GUARANTEED
        for number in range(1, trainings + 1):
            self.tenants[number].cls = Class.BEST_EFFORT
            self.tenants[number].weight = 1
        self.fair_ns = 0
        self.on_submit: list[Callable[[], None]] = []
        self._moved = False

    def submitted(self) -> None:
        """The service has launched: as `Gate::submit` of the library."""
        service, now = self.tenants[SERVICE], self.loop.now
        gap = 0 if service.pending else now - service.last_active_ns
        service.gap_ns = self.library.shoal_next_gap(self.rules, service.gap_ns, gap)
        if not service.pending:
            service.progress_ns = now
        service.pending += 1
        service.last_active_ns = now
        for then in self.on_submit:
            then()

    def ended(self) -> None:
        """The device stores `done`; when is known only after a look."""
        self.tenants[SERVICE].pending -= 1
        self._moved = True

    def look(self) -> None:
        if self._moved:
            self._moved = False
            self.tenants[SERVICE].progress_ns = self.tenants[SERVICE].last_active_ns = self.loop.now


class Service:
    """Answers requests one after the other, each `kernels` in a row, launched as fast as the host can."""

    def __init__(
        self,
        loop: Loop,
        device: Device,
        spec: DeviceSpec,
        model: Model,
        kernels: Sequence[SimulatedKernel],
        gate: Gate | None,
    ) -> None:
        self._loop, self._device, self._spec, self._gate = loop, device, spec, gate
        self._kernels = kernels
        alone = sum(one.alone_ns + spec.start_ns for one in kernels)
        self._host_ns = round(alone * model.host / (1 - model.host))
        self.request_ns = alone + self._host_ns + spec.launch_ns
        """Of one request on a device of its own."""
        self.kernels_done = 0
        self.from_arrival: list[int] = []
        self.from_start: list[int] = []
        self._waiting: deque[int] = deque()
        self._busy = False

    def arrive(self, times: Sequence[int]) -> None:
        for when in times:
            self._loop.at(when, lambda when=when: self._come(when))  # type: ignore[misc]

    def _come(self, when: int) -> None:
        self._waiting.append(when)
        if not self._busy:
            self._begin()

    def _begin(self) -> None:
        self._busy = True
        self._began = self._loop.now
        self._launched = self._ended = 0
        self._loop.at(self._loop.now + self._host_ns, self._launch)

    def _launch(self) -> None:
        if self._gate is not None:
            self._gate.submitted()
        kernel = self._kernels[self._launched]
        self._launched += 1
        piece = Piece(SERVICE, kernel, kernel.blocks, self._done)
        self._loop.at(self._loop.now + self._spec.launch_ns, lambda: self._device.put(piece))
        if self._launched < len(self._kernels):
            self._loop.at(self._loop.now + self._spec.launch_ns, self._launch)

    def _done(self, _piece: Piece, _blocks: int) -> None:
        if self._gate is not None:
            self._gate.ended()
        self.kernels_done += 1
        self._ended += 1
        if self._ended < len(self._kernels):
            return
        now = self._loop.now
        self.from_arrival.append(now - self._waiting.popleft())
        self.from_start.append(now - self._began)
        self._busy = False
        if self._waiting:
            self._begin()


class Training:
    """Steps without end: `kernels` in a row, a few launched ahead, then a pause in which the host works."""

    AHEAD = 8

    def __init__(
        self,
        loop: Loop,
        device: Device,
        spec: DeviceSpec,
        model: Model,
        kernels: Sequence[SimulatedKernel],
        number: int = 1,
    ) -> None:
        self.loop, self.device, self.spec, self.number = loop, device, spec, number
        self._kernels = kernels
        alone = sum(one.alone_ns + spec.start_ns for one in kernels)
        self._host_ns = round(alone * model.host / (1 - model.host))
        self.ran_ns = 0
        """Work done, by what it takes alone."""
        self.share = 1.0
        """Of the device's time; less than all under rate control."""
        self._next = 0
        self._flying = 0
        self._free_at = 0
        loop.at(0, self.go)

    def kernel(self) -> SimulatedKernel | None:
        """The next of this step, if there is one."""
        if self._next == len(self._kernels):
            return None
        self._next += 1
        return self._kernels[self._next - 1]

    def go(self) -> None:
        while self._flying < (self.AHEAD if self.share >= 1 else 1):
            if self.share < 1 and self._free_at > self.loop.now:
                self.loop.at(self._free_at, self.go)
                return
            kernel = self.kernel()
            if kernel is None:
                return
            self._flying += 1
            self._free_at = self.loop.now + round(kernel.alone_ns / self.share)
            piece = Piece(self.number, kernel, kernel.blocks, self._done)
            self.loop.at(self.loop.now + self.spec.launch_ns, lambda piece=piece: self.device.put(piece))  # type: ignore[misc]

    def _done(self, piece: Piece, blocks: int) -> None:
        self._flying -= 1
        self.work(piece.kernel, blocks)
        if not self.step_over(self._flying):
            self.go()

    def work(self, kernel: SimulatedKernel, blocks: int) -> None:
        self.ran_ns += kernel.alone_ns * blocks // kernel.blocks

    def step_over(self, flying: int) -> bool:
        if flying or self._next < len(self._kernels):
            return False

        def again() -> None:
            self._next = 0
            self.go()

        self.loop.at(self.loop.now + self._host_ns, again)
        return True


Profiles = dict[int, native.NativeProfile]
"""By a kernel's number, what the file of kernel profiles would have."""


class Gated(Training):
    """Training whose launches wait at the gate; `ways` is what its kernels can do beside going whole."""

    def __init__(
        self, loop: Loop, device: Device, spec: DeviceSpec, model: Model, kernels: Sequence[SimulatedKernel],
        gate: Gate,
        ways: Ways, profiles: Profiles | None = None, number: int = 1,
    ) -> None:  # fmt: skip
        self._gate, self._ways = gate, ways
        self._tenant = gate.tenants[number]
        self.profiles = profiles or {one.number: native.NativeProfile(wave_blocks=one.wave) for one in kernels}
        self._pieces: deque[Piece] = deque()
        self._flown: deque[int] = deque()
        self._size = 0
        self._out = 0
        self._since = -1
        self._asked = 0
        self._bound = False
        self._stopping = False
        self.pieces = self.violations = 0
        if Ways.TICKET in ways:
            gate.on_submit.append(self._guaranteed_came)
        super().__init__(loop, device, spec, model, kernels, number)

    def go(self) -> None:
        if not self._pieces:
            kernel = self.kernel()
            if kernel is None:
                return
            self._plan(kernel, kernel.blocks)
        if self._since < 0:
            self._since = self.loop.now
            self._tenant.used_ns = self._gate.library.shoal_start(
                self._gate.rules, self._tenant.used_ns, self._tenant.weight, self._gate.fair_ns
            )
            self._ask(self._asked)

    def _plan(self, kernel: SimulatedKernel, blocks: int) -> None:
        gate = self._gate
        bound = gate.library.shoal_bound(gate.rules, gate.tenants, len(gate.tenants), self.loop.now)
        plan = gate.library.shoal_choose(self.profiles[kernel.number], int(self._ways), blocks, bound)
        way = Way(plan.way)
        size = self._size = min(plan.blocks, blocks) if way is Way.SLICE else blocks
        for begins in range(0, blocks, size):
            part = min(size, blocks - begins)
            ends = self._stopped if way is Way.TICKET else self._ended if way is Way.SLICE else self._whole
            self._pieces.append(Piece(self.number, kernel, part, ends, plan.cost_ns, way is Way.TICKET))

    def _ask(self, asked: int) -> None:
        if asked != self._asked or self._since < 0:
            return
        self._asked += 1
        gate, now, piece = self._gate, self.loop.now, self._pieces[0]
        gate.look()
        self._tenant.last_active_ns = now
        found = gate.library.shoal_decide(
            gate.rules, gate.tenants, len(gate.tenants), self.number, piece.cost_ns, self._since, now
        )
        if found.verdict > Verdict.GO_SHARE:
            self._tenant.waiting = 1
            self._bound = found.verdict == Verdict.WAIT_BOUND
            asked = self._asked
            if self._bound:
                # The gate looks more and more often until enough has run, or a piece has ended: then `_gone` asks.
                left = self._tenant.outstanding_ns - (now - self._tenant.progress_ns)
                enough = left + piece.cost_ns - self._gate.rules.bound_ns
                if piece.cost_ns <= self._gate.rules.bound_ns and enough > 0:
                    self.loop.at(now + enough + self.spec.look_ns, lambda: self._ask(asked))
                return
            self.loop.at(found.look_at_ns + self.spec.look_ns, lambda: self._ask(asked))
            return
        gate.fair_ns = max(gate.fair_ns, self._tenant.used_ns // self._tenant.weight)
        self._tenant.waiting = 0
        if not self._tenant.pending:
            self._tenant.progress_ns = now
        self._tenant.pending += 1
        self._tenant.outstanding_ns += piece.cost_ns
        self._flown.append(piece.cost_ns)
        self._tenant.running_ns = self._flown[0]
        self._tenant.used_ns += piece.cost_ns
        self._since = -1
        self._pieces.popleft()
        self._out += 1
        self.pieces += 1
        bound = gate.library.shoal_bound(gate.rules, gate.tenants, len(gate.tenants), now)
        self.violations += piece.cost_ns > bound

        def launched() -> None:
            self.device.put(piece)
            self.go()

        self.loop.at(now + self.spec.launch_ns, launched)

    def _gone(self, piece: Piece, ran: int) -> None:
        self._tenant.pending -= 1
        self._tenant.progress_ns = self.loop.now
        self._tenant.outstanding_ns -= piece.cost_ns
        self._flown.popleft()
        self._tenant.running_ns = self._flown[0] if self._flown else 0
        self._out -= 1
        self.work(piece.kernel, ran)
        if self._since >= 0:
            # A gate that spins, or waits for a piece to end, sees it soon; one that sleeps when it wakes.
            if self._bound or self.loop.now - self._since < SPIN_NS:
                asked = self._asked
                self.loop.at(self.loop.now + self.spec.look_ns, lambda: self._ask(asked))
        elif not self._pieces:
            self.step_over(self._out)

    def _learn(self, piece: Piece, way: Way, blocks: int, took: int) -> None:
        self._gate.library.shoal_learn(self.profiles[piece.kernel.number], way, blocks, took)

    def _ended(self, piece: Piece, ran: int) -> None:
        if piece.blocks == self._size:  # of one size only: not the last one
            self._learn(piece, Way.SLICE, piece.blocks, piece.ran_ns)
        self._gone(piece, ran)

    def _whole(self, piece: Piece, ran: int) -> None:
        self._learn(piece, Way.WHOLE, piece.blocks, piece.ran_ns)
        self._gone(piece, ran)

    def _stopped(self, piece: Piece, ran: int) -> None:
        if piece.stopped_at >= 0:
            self._learn(piece, Way.TICKET, 0, max(self.loop.now - piece.stopped_at, 1))
        if ran < piece.blocks:
            rest = Piece(self.number, piece.kernel, piece.blocks - ran, self._stopped, piece.cost_ns, ticket=True)
            self._pieces.appendleft(rest)
        self._gone(piece, ran)
        if self._pieces and self._since < 0:
            self.go()

    def _guaranteed_came(self) -> None:
        """A thread of the training's front end looks at the page now and then, and stops ticket kernels."""
        if self._out and not self._stopping:
            self._stopping = True
            self.loop.at(self.loop.now + self.spec.stop_ns, self._stop)

    def _stop(self) -> None:
        self._stopping = False
        self.device.stop(self.number)


class RateControl:
    """After TGS (NSDI'23): the share of training falls when the service's kernels come slower than they did, and grows
    slowly again. Its gains were set so that training has about the throughput that Tally's artifact gives it (0.8)."""

    WINDOW_NS = 100 * MS

    def __init__(self, loop: Loop, service: Service, training: Training) -> None:
        self._loop, self._service, self._training = loop, service, training
        self._usual = 0.0
        self._before = 0
        training.share = 0.5
        loop.at(self.WINDOW_NS, self._tick)

    def _tick(self) -> None:
        came = self._service.kernels_done - self._before
        self._before = self._service.kernels_done
        self._usual = came if not self._usual else 0.9 * self._usual + 0.1 * came
        slower = came < 0.75 * self._usual
        self._training.share = min(max(self._training.share * (0.92 if slower else 1.04), 0.05), 0.99)
        self._loop.at(self._loop.now + self.WINDOW_NS, self._tick)
