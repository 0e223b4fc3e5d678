"""Options in a manifest for the runtime `recurrent`."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class RecurrentOptions(BaseModel):
    """`by_steps` and `frames` are of any file, the others of .onnx or .safetensors: an .rnn artefact has its own."""

    model_config = ConfigDict(extra="forbid")

    type: Literal["fp32", "bf16", "int8"] = Field("fp32", description="Of the weights.")
    first_type: Literal["fp32", "bf16", "int8"] | None = Field(
        None, description="Of the weights of the first recurrent node, which reads the network's own input."
    )
    set: dict[str, float] = Field(default_factory=dict, description="Inputs that are fixed, by name.")
    state: dict[str, str] = Field(default_factory=dict, description="Inputs whose next value is an output, by name.")
    shape: dict[str, list[int]] = Field(
        default_factory=dict,
        description="Shapes of inputs for good, by name: with all fixed, convolutions and the like are compiled too.",
    )  # fmt: skip
    by_steps: bool = Field(
        False, description="Requests are whole sequences, and join and leave between steps; there are no sessions."
    )
    frames: bool = Field(
        False,
        description="Of a network that is not recurrent alone: a request of a session has any number of frames, "
        "[1, frames, ...], and the outputs of each.",
    )  # fmt: skip
    cell: str | None = Field(None, description="The cell of a state dict: lstm, gru, rnn or rnn-relu.")
