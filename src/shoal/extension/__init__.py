"""The seam by which a component joins the server, the command line and the client.

A component declares all of its parts in one `Component`, which one entry point of the group `shoal.components` names:
its extension, commands, methods of the client, options of `shoal up`, kinds of manifests, runtimes, engines, scheduling
policies. Adding a component edits no file of the server, the command line or the client. Its part in the server
is a class derived from `Extension`, which the server calls at the points named there.
"""

from typing import TYPE_CHECKING

from shoal.base.faces import on_first_use

if TYPE_CHECKING:
    from shoal.extension.base import Decider, Extension, NoSection, Section
    from shoal.extension.component import Component
    from shoal.extension.server import KIND_LABEL, Beside, LiveJob, Manifest, Server, kind_of

__all__ = [
    "KIND_LABEL", "Beside", "Component", "Decider", "Extension", "LiveJob", "Manifest", "NoSection", "Section",
    "Server", "kind_of",
]  # fmt: skip

# A declaration is read by every command: it must not load what an extension needs.
__getattr__ = on_first_use(globals(), {
    "base": "Decider Extension NoSection Section",
    "component": "Component",
    "server": "KIND_LABEL Beside LiveJob Manifest Server kind_of",
})  # fmt: skip
