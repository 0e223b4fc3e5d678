"""Features of PyTorch models, against sums by hand. Skipped where PyTorch is missing."""

from __future__ import annotations

from pathlib import Path

import pytest

from shoal.core import Invalid
from shoal.forecast.features import Counted, Features
from shoal.forecast.torch_model import features_of_factory, features_of_module, features_of_script

torch = pytest.importorskip("torch", reason="torch is not installed")

NET = """
import torch

def net():
    return torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.Flatten(), torch.nn.Linear(800, 5))

def text():
    return "no module"
"""


def net() -> object:
    return torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.Flatten(), torch.nn.Linear(800, 5))


def by_hand(batch: int) -> Counted:
    forward = 2 * batch * (8 * 100 * 27 + 5 * 800)
    parameters = 216 + 8 + 4000 + 5
    return Counted(Features(3 * forward, parameters, 4), 4 * parameters)


@pytest.mark.parametrize("batch", [1, 16])
def test_a_module_on_meta_is_counted(batch: int) -> None:
    with torch.device("meta"):
        module = net()
    assert features_of_module(module, (batch, 3, 10, 10)) == by_hand(batch)


def test_a_function_of_a_file_here_builds_the_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a_net_of_mine.py").write_text(NET)
    monkeypatch.chdir(tmp_path)
    assert features_of_factory("a_net_of_mine:net", (3, 10, 10), batch=4) == by_hand(4)
    with pytest.raises(Invalid, match="returns a str"):
        features_of_factory("a_net_of_mine:text", (3, 10, 10), batch=4)
    with pytest.raises(Invalid, match="cannot be imported"):
        features_of_factory("a_net_of_mine:none", (3, 10, 10), batch=4)


def test_torchscript_is_counted(tmp_path: Path) -> None:
    torch.jit.save(torch.jit.trace(net(), torch.zeros(1, 3, 10, 10)), str(path := tmp_path / "net.pt"))
    assert features_of_script(path, (3, 10, 10), batch=2) == by_hand(2)
    path.write_text("nothing")
    with pytest.raises(Invalid, match="is no TorchScript"):
        features_of_script(path, (3, 10, 10), batch=2)


def test_a_shape_that_does_not_fit_is_refused() -> None:
    with torch.device("meta"):
        module = net()
    with pytest.raises(Invalid, match="does not take a tensor of 1x4x10x10"):
        features_of_module(module, (1, 4, 10, 10))
    with pytest.raises(Invalid, match="no dimension below one"):
        features_of_module(module, (0, 3, 10, 10))
