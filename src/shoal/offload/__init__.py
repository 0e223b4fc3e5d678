"""Library calls run where they are fastest, without a change of the program.

After Offload Annotations (USENIX ATC'20) and Mozart (SOSP'19): operations of large arrays are captured as they are
called, a whole chain is placed at once by its measured costs, and runs in blocks on all cores, in a compiled kernel, or
on an accelerator. What could differ, or would not gain, stays with the plain library, and the reason is kept.
"""

from typing import TYPE_CHECKING

from shoal.base.faces import on_first_use

if TYPE_CHECKING:
    from shoal.offload.installation import install, uninstall
    from shoal.offload.profile import CallRecord
    from shoal.offload.settings import OffloadSettings

__all__ = ["CallRecord", "OffloadSettings", "install", "uninstall"]

__getattr__ = on_first_use(globals(), {
    "installation": "install uninstall",
    "profile": "CallRecord",
    "settings": "OffloadSettings",
})  # fmt: skip
