"""The runtimes that serving brings: ONNX Runtime, scikit-learn, torch, and Python callables.

This module declares them and imports none of their packages: those are imported when a model needs them. Nothing that
is loaded from a file may bring code along: no pickles, no libraries of custom operators.
"""

from shoal.inference.registry import RuntimeDeclaration

ONNX = RuntimeDeclaration(
    name="onnx",
    platform="onnxruntime_onnx",
    suffixes=(".onnx",),
    opener="shoal.serve.runtimes.onnx:OnnxRuntime",
    packages=("onnxruntime",),
    extra="serve",
    check="shoal.serve.runtimes.onnxfile:check",
)

SKLEARN = RuntimeDeclaration(
    name="sklearn",
    platform="sklearn_skops",
    suffixes=(".skops",),
    opener="shoal.serve.runtimes.sklearn:SklearnRuntime",
    packages=("skops.io",),
    extra="skops",
    delegates={".onnx": "onnx"},
)

TORCH = RuntimeDeclaration(
    name="torch",
    platform="pytorch",
    suffixes=(".pt", ".pt2", ".safetensors"),
    opener="shoal.serve.runtimes.torch:TorchRuntime",
    packages=("torch",),
    extra="torch",
    declares_tensors=True,
)

CALLABLE = RuntimeDeclaration(
    name="callable",
    platform="python_callable",
    opener="shoal.serve.runtimes.callable:CallableRuntime",
    steady=False,
    code=True,
)
