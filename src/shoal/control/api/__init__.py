"""The REST door of the control plane, versioned under /v1.

Routers are thin: they identify the caller (`shoal.control.tokens`), call the `ControlPlane` and show its records as the
values of `shoal.contract.models`. `create_app` in `shoal.control.api.app` puts them together. Importing this
package imports nothing heavy, so that clients can share the models.
"""
