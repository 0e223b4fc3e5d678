"""Turns capture on and off in this process: now for libraries that are loaded, later for the others when they are."""

from __future__ import annotations

import atexit
import importlib.util
import os
import site
import sys
import sysconfig
import threading
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

from shoal.offload import plugins
from shoal.offload.settings import OffloadSettings, read_settings
from shoal.offload.summaries import Summaries

_lock = threading.RLock()


class _Hooked(Loader):
    def __init__(self, loader: Loader, action: Callable[[], None]) -> None:
        self._loader, self._action = loader, action

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        assert module.__spec__ is not None
        module.__loader__ = module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        self._action()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)


class _AfterImport(MetaPathFinder):
    """Calls an action for each of some modules right after its first import."""

    def __init__(self, actions: dict[str, Callable[[], None]]) -> None:
        self.actions = actions

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None  # noqa: ARG002
    ) -> ModuleSpec | None:  # fmt: skip
        action = self.actions.pop(name, None)
        if action is None:
            return None
        spec = importlib.util.find_spec(name)  # by the other finders: this one has forgotten the name
        if spec is not None and spec.loader is not None:
            spec.loader = _Hooked(spec.loader, action)
        return spec


class Installation:
    """What one `install` did, so that it can be undone."""

    def __init__(self, settings: OffloadSettings) -> None:
        self.settings = settings
        self._undo: list[Callable[[], None]] = []
        self._finder = _AfterImport({})
        self._evaluator: Any = None
        self._summary = Summaries(os.environ)

    def begin(self) -> None:
        for name, action in (
            ("numpy", self._arrays),
            ("pandas", self._frames),
            ("sklearn.decomposition._truncated_svd", lambda: self._decomposition("_truncated_svd", "TruncatedSVD.fit")),
            ("sklearn.decomposition._pca", lambda: self._decomposition("_pca", "PCA.fit")),
            ("sklearn.neighbors._classification", self._neighbours),
            ("torch", self._tensors),
            *plugins.actions(sys.path, self._undo).items(),
        ):
            if name in sys.modules:
                action()
            else:
                self._finder.actions[name] = action
        if self._finder.actions:
            sys.meta_path.insert(0, self._finder)
        if self.settings.report:
            atexit.register(self._report)
        if self.settings.summary:
            self._summary.begin()

    def end(self) -> None:
        if self._finder in sys.meta_path:
            sys.meta_path.remove(self._finder)
        while self._undo:
            self._undo.pop()()
        atexit.unregister(self._report)
        self._summary.end()

    def _report(self) -> None:
        from shoal.offload.profile import PROFILE

        folder = Path(self.settings.report)
        PROFILE.write(folder)
        if self._evaluator is not None and self._evaluator.decisions is not None:
            self._evaluator.decisions.write(folder)

    def _arrays(self) -> None:
        from shoal.offload.arrays.choose import Chooser
        from shoal.offload.arrays.creation import Creation
        from shoal.offload.arrays.evaluate import Evaluator
        from shoal.offload.arrays.pages import keep_memory
        from shoal.offload.arrays.state import forget_files, state
        from shoal.offload.arrays.threads import THREADS
        from shoal.offload.arrays.tracked import memory
        from shoal.offload.calibration import read_calibration
        from shoal.offload.costs import CostModel

        state.libraries = _masked_arrays() if self.settings.everywhere else _library_folders()
        state.program = tuple(filter(None, self.settings.program.split(",")))
        forget_files()
        calibration = read_calibration(self.settings.folder)
        chooser = Chooser(
            self.settings, CostModel(None if calibration is None else calibration.rates), calibrated=bool(calibration)
        )
        self._evaluator = Evaluator(chooser)
        self._evaluator.attach(self.settings.threshold)
        atexit.register(chooser.close)
        creation = Creation()
        creation.install()
        restore = keep_memory()

        def undo() -> None:
            memory.flush_all()
            creation.uninstall()
            restore()
            state.threshold = sys.maxsize
            THREADS.close()
            atexit.unregister(chooser.close)
            chooser.close()

        self._undo.append(undo)

    def _frames(self) -> None:
        from shoal.offload.frames import calls, entry, strings
        from shoal.offload.frames.series import copy_on_write, install
        from shoal.offload.frames.trial import Engine

        self._undo.append(entry.install())
        self._undo.append(strings.install())
        chooser = self._evaluator.chooser
        self._undo.append(calls.install(Engine(self.settings, chooser.history, chooser.trust)))
        if copy_on_write():
            self._undo.append(install(self._evaluator.parts, strict=self.settings.strict))

    def _decomposition(self, module: str, call: str) -> None:
        from shoal.offload.estimators.gram import gram_svds

        if not self.settings.strict:
            owner = sys.modules[f"sklearn.decomposition.{module}"]
            self._replace(owner, "svds", lambda original: gram_svds(original, call))

    def _neighbours(self) -> None:
        from shoal.offload.estimators.neighbours import predicting

        if "sklearnex" in self.settings.allowed and not self.settings.strict:
            module = sys.modules["sklearn.neighbors._classification"]
            history = self._evaluator.chooser.history
            self._replace(module.KNeighborsClassifier, "predict", lambda original: predicting(original, history))

    def _tensors(self) -> None:
        if "numpy" not in sys.modules:
            return
        from shoal.offload.arrays.creation import with_plain_arrays

        self._replace(sys.modules["torch"], "from_numpy", with_plain_arrays)

    def _replace(self, owner: Any, name: str, wrapper: Callable[[Any], Any]) -> None:
        original = getattr(owner, name)
        setattr(owner, name, wrapper(original))
        self._undo.append(lambda: setattr(owner, name, original))


def _masked_arrays() -> tuple[str, ...]:
    """The files of `numpy.ma`, which makes views by methods of the base class, whose memory is then not followed."""
    folder = str(Path(sys.modules["numpy"].__file__ or "").parent / "ma") + os.sep
    return folder + "core.py", folder + "extras.py"


def _library_folders() -> tuple[str, ...]:
    paths = sysconfig.get_paths()
    found = {paths["stdlib"], paths["platstdlib"], paths["purelib"], paths["platlib"], *site.getsitepackages()}
    own = str(Path(__file__).parent)
    return (*(each + os.sep for each in (*sorted(found), own)), "<frozen")


_current: Installation | None = None


def install(settings: OffloadSettings | None = None) -> None:
    """Capture from now on. A second call changes nothing. Raises Invalid for a wrong environment variable."""
    global _current
    with _lock:
        if _current is None:
            _current = Installation(read_settings(os.environ) if settings is None else settings)
            _current.begin()


def uninstall() -> None:
    """Capture no more: NumPy, pandas and scikit-learn have their own functions again. Pending results are computed."""
    global _current
    with _lock:
        if _current is not None:
            _current.end()
            _current = None
