"""The declaration of the runtime `recurrent`."""

from shoal.inference import RuntimeDeclaration

RUNTIME = RuntimeDeclaration(
    name="recurrent",
    platform="shoal_recurrent",
    opener="shoal.recurrent.runtime:open_recurrent",
    suffixes=(".rnn",),
    packages=("onnxruntime", "onnx", "safetensors"),
    extra="recurrent",
    options="shoal.recurrent.options:RecurrentOptions",
)
