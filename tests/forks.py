"""`--forks N`: the tests are collected once, and N forks of that process run them, module by module.

What collecting costs, most of it imports, is thus paid once, and the fixtures of a module are made once. A fork takes
the next module where it ended the last; whatever a dead one leaves behind another runs.
"""

from __future__ import annotations

import io
import itertools
import mmap
import os
import random
import signal
import traceback
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection, Pipe, wait
from typing import NoReturn

import pytest

from shoal.base.processes import end_with_parent


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--forks", type=int, default=0, metavar="N", help="run the tests in N forks of this process")


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    if not session.config.option.forks or session.config.option.collectonly or session.testsfailed:
        return None
    _Forks(session).run(session.config.option.forks)
    return True


@dataclass
class _Fork:
    pid: int
    at: int | None = None  # the test that it runs


class _Forks:
    def __init__(self, session: pytest.Session) -> None:
        self.session, self.hook = session, session.config.hook
        self.left = set(range(len(session.items)))
        modules = itertools.groupby(self.left, key=lambda index: session.items[index].path)
        self.blocks = [list(indices) for _, indices in modules]
        random.Random(0).shuffle(self.blocks)  # else all start servers at the same time
        self.take, give = os.pipe()
        with os.fdopen(give, "wb") as pipe:  # a pipe holds 64 KiB at least
            pipe.write(b"".join(number.to_bytes(2, "big") for number in range(len(self.blocks))))
        self.stop = mmap.mmap(-1, 1)  # shared with the forks

    def run(self, count: int) -> None:
        forks = dict(self._fork(number, self._taken()) for number in range(count))
        try:
            while forks:
                for connection in wait(list(forks)):
                    assert isinstance(connection, Connection)
                    try:
                        self._hear(forks[connection], connection.recv())
                    except EOFError:
                        self._ended(forks.pop(connection))
                self.stop[0] = bool(self.session.shouldfail or self.session.shouldstop)
                if not forks and self.left and not self.stop[0]:
                    forks = dict([self._fork(count := count + 1, sorted(self.left))])
        finally:
            for fork in forks.values():
                os.kill(fork.pid, signal.SIGINT)
                os.waitpid(fork.pid, 0)
        if self.session.shouldfail:
            raise self.session.Failed(self.session.shouldfail)
        if self.session.shouldstop:
            raise self.session.Interrupted(self.session.shouldstop)

    def _fork(self, number: int, indices: Iterable[int]) -> tuple[Connection, _Fork]:
        mine, its = Pipe(duplex=False)
        base = self.session.config._tmp_path_factory.getbasetemp() / f"{number}"  # type: ignore[attr-defined]
        base.mkdir(mode=0o700)
        parent, pid = os.getpid(), os.fork()
        if pid == 0:
            mine.close()
            self.session.config._tmp_path_factory._basetemp = base  # type: ignore[attr-defined]
            end_with_parent(parent, signal.SIGINT)
            _run(self.session, indices, its)
        its.close()
        return mine, _Fork(pid)

    def _taken(self) -> Iterator[int]:
        while number := os.read(self.take, 2):
            for index in self.blocks[int.from_bytes(number, "big")]:
                if self.stop[0]:
                    return
                yield index

    def _hear(self, fork: _Fork, told: object) -> None:
        config = self.session.config
        match told:
            case int(index):
                fork.at = index
                self.left.remove(index)
                item = self.session.items[index]
                self.hook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
            case ("finish", nodeid, location):
                self.hook.pytest_runtest_logfinish(nodeid=nodeid, location=location)
            case ("report", data):
                report = self.hook.pytest_report_from_serializable(config=config, data=data)
                self.hook.pytest_runtest_logreport(report=report)
            case ("warning", about):
                config.pluginmanager.getplugin("terminalreporter").pytest_warning_recorded(**about)
            case ("error", text):
                raise RuntimeError(text)

    def _ended(self, fork: _Fork) -> None:
        _, status = os.waitpid(fork.pid, 0)
        if status == 0:
            return
        why = f"its process ended with {os.waitstatus_to_exitcode(status)}"
        if fork.at is None:
            raise RuntimeError(why)
        item = self.session.items[fork.at]
        report = pytest.TestReport(item.nodeid, item.location, {}, "failed", why, "call")
        self.hook.pytest_runtest_logreport(report=report)


class _Teller:
    """What a fork's tests report, told to the process that reports it."""

    registered = False

    def __init__(self, config: pytest.Config, connection: Connection) -> None:
        self.config, self.connection = config, connection
        config.pluginmanager.register(self)
        self.registered = True  # until then it was told again what was recorded before

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        data = self.config.hook.pytest_report_to_serializable(config=self.config, report=report)
        self.connection.send(("report", data))

    def pytest_runtest_logfinish(self, nodeid: str, location: tuple[str, int | None, str]) -> None:
        self.connection.send(("finish", nodeid, location))

    def pytest_warning_recorded(self, warning_message: warnings.WarningMessage, nodeid: str) -> None:
        message = warnings.WarningMessage(
            str(warning_message.message), warning_message.category, warning_message.filename, warning_message.lineno
        )
        if self.registered:
            self.connection.send(("warning", {"warning_message": message, "nodeid": nodeid}))


def _run(session: pytest.Session, indices: Iterable[int], connection: Connection) -> NoReturn:
    code = 1
    signal.signal(signal.SIGINT, signal.default_int_handler)  # also behind `&` of a script
    try:
        manager = session.config.pluginmanager
        manager.getplugin("terminalreporter")._tw._file = io.StringIO()
        capture = manager.getplugin("capturemanager")
        capture.stop_global_capturing()
        capture.start_global_capturing()  # to files of its own
        capture.suspend_global_capture()
        _Teller(session.config, connection)
        random.seed()
        for index, following in itertools.pairwise(itertools.chain(indices, [None])):
            assert index is not None
            connection.send(index)
            item, nextitem = session.items[index], None if following is None else session.items[following]
            item.config.hook.pytest_runtest_protocol(item=item, nextitem=nextitem)
        code = 0
    except KeyboardInterrupt:
        session._setupstate.teardown_exact(None)
    except BaseException:
        connection.send(("error", traceback.format_exc()))
    finally:
        os._exit(code)
