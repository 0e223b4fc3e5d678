"""MLServer: the Open Inference Protocol with tensors in JSON (it knows no binary ones). `serve_mlserver.py --port P`.

The network runs in the server's own process, which here is faster than handing tensors to its inference workers.
"""

from __future__ import annotations

import asyncio
import sys

import network
from mlserver import MLModel, MLServer, ModelSettings, Settings
from mlserver.codecs import NumpyCodec
from mlserver.types import InferenceRequest, InferenceResponse, MetadataTensor


class Cnn(MLModel):
    async def load(self) -> bool:
        self.loaded = network.session()
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        array = NumpyCodec.decode_input(payload.inputs[0])
        (output,) = self.loaded.run(None, {network.INPUT: array})
        return InferenceResponse(model_name=self.name, outputs=[NumpyCodec.encode_output("y", output)])


async def main(port: int) -> None:
    settings = Settings(
        host="127.0.0.1", http_port=port, grpc_port=port + 1, metrics_endpoint=None, debug=False,
        parallel_workers=0,
    )  # fmt: skip
    tensor = MetadataTensor(name=network.INPUT, datatype="FP32", shape=list(network.SHAPE))
    model = ModelSettings(name="orientation", implementation="serve_mlserver.Cnn", inputs=[tensor])
    await MLServer(settings).start([model])


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[2])))
