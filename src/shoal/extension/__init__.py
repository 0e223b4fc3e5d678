"""The seam by which a component joins the server.

A component offers a class derived from `Extension` under the entry point group `shoal.extensions`. The server finds it
there, reads its section of the settings, and calls it at the points named below. Adding a component edits no file of
the server, the command line or the client. Other entry point groups of the seam: `shoal.engines` (where processes run),
`shoal.manifests` (kinds of manifests beside jobs), `shoal.commands` (commands of the command line), `shoal.up_options`
(options of `shoal up`), `shoal.subjects` (what `shoal explain` and `shoal events` are told of beside jobs) and
`shoal.client` (methods of the Python client).
"""

from shoal.extension.base import Decide, Explain, Extension, NoSection, Section
from shoal.extension.server import KIND_LABEL, LiveJob, Manifest, Server, kind_of

__all__ = [
    "KIND_LABEL", "Decide", "Explain", "Extension", "LiveJob", "Manifest", "NoSection", "Section", "Server", "kind_of",
]  # fmt: skip
