"""Errors of models and of the requests to them."""

from __future__ import annotations

from shoal.core import Invalid, ShoalError


class BadRequest(Invalid):
    """The request is malformed or does not match the model's inputs (HTTP 400, INVALID_ARGUMENT)."""


class BadModel(Invalid):
    """The model file cannot be loaded, or must not be (HTTP 400 on load, INVALID_ARGUMENT)."""

    code = "bad-model"


class ModelFailed(ShoalError):
    """The model itself raised an error on this input (HTTP 500, INTERNAL)."""

    code = "model-failed"
