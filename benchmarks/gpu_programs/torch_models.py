"""Shapes of ResNet-50, BERT-base and GPT-2 from plain PyTorch layers: weights are random, and nothing is downloaded."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn


class Bottleneck(nn.Module):
    def __init__(self, inner: int, outer: int, channels: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(channels, inner, 1, bias=False), nn.BatchNorm2d(inner), nn.ReLU(),
            nn.Conv2d(inner, inner, 3, stride, 1, bias=False), nn.BatchNorm2d(inner), nn.ReLU(),
            nn.Conv2d(inner, outer, 1, bias=False), nn.BatchNorm2d(outer),
        )  # fmt: skip
        same = channels == outer and stride == 1
        self.skip = nn.Identity() if same else nn.Conv2d(channels, outer, 1, stride, bias=False)

    def forward(self, x: Any) -> Any:
        return torch.relu(self.body(x) + self.skip(x))


class Text(nn.Module):
    def __init__(self, *, causal: bool) -> None:
        super().__init__()
        self.embed, self.causal = nn.Embedding(30000, 768), causal
        layer = nn.TransformerEncoderLayer(768, 12, 3072, batch_first=True, activation="gelu")
        self.body, self.head = nn.TransformerEncoder(layer, 12, enable_nested_tensor=False), nn.Linear(768, 30000)

    def forward(self, tokens: Any) -> Any:
        mask = None
        if self.causal:
            mask = nn.Transformer.generate_square_subsequent_mask(tokens.shape[1], device=tokens.device)
        return self.head(self.body(self.embed(tokens), mask=mask, is_causal=self.causal))


def _resnet50() -> nn.Module:
    layers: list[nn.Module] = [nn.Conv2d(3, 64, 7, 2, 3), nn.BatchNorm2d(64), nn.ReLU(), nn.MaxPool2d(3, 2, 1)]
    channels = 64
    for stage, depth in enumerate((3, 4, 6, 3)):
        for index in range(depth):
            layers.append(Bottleneck(64 << stage, 256 << stage, channels, 2 if stage and not index else 1))
            channels = 256 << stage
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(2048, 1000))


def _build(name: str, batch: int) -> tuple[Any, Any]:
    torch.manual_seed(0)
    model = _resnet50() if name == "resnet50" else Text(causal=name == "gpt2")
    given = torch.randn(batch, 3, 224, 224) if name == "resnet50" else torch.randint(0, 30000, (batch, 128))
    return model.cuda(), given.cuda()


def request(name: str, mode: str) -> Callable[[], None]:
    """Answers one request. `mode`: eager, graph (a CUDA graph), or compile (torch.compile, kernels by Triton)."""
    model, given = _build(name, 1)
    model.eval()
    call: Callable[[Any], Any] = torch.compile(model) if mode == "compile" else model

    def once() -> None:
        with torch.no_grad():
            call(given)

    if mode == "graph":
        with on_stream(high=False):
            for _ in range(3):
                once()
        torch.cuda.synchronize()
        captured = torch.cuda.CUDAGraph()
        with torch.cuda.graph(captured):
            once()
        once = captured.replay

    def answer() -> None:
        once()
        torch.cuda.current_stream().synchronize()

    return answer


def training(name: str, mode: str) -> Callable[[], None]:
    """Makes one step."""
    model, given = _build(name, 32 if name == "resnet50" else 8)
    call: Callable[[Any], Any] = torch.compile(model) if mode == "compile" else model
    optimizer = torch.optim.SGD(model.parameters(), 1e-4)

    def step() -> None:
        optimizer.zero_grad()
        call(given).float().square().mean().backward()
        optimizer.step()
        torch.cuda.current_stream().synchronize()

    return step


@contextmanager
def on_stream(*, high: bool) -> Iterator[None]:
    with torch.cuda.stream(torch.cuda.Stream(priority=-1 if high else 0)):
        yield


def durations_us(step: Callable[[], None]) -> list[float]:
    """Of the kernels of one step."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as found:
        step()
    return [one.device_time for one in found.events() if one.device_time > 0]
