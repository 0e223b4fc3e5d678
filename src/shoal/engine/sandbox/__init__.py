"""Keeping a tenant's processes apart from the server and from other tenants, on the machine of the local engine.

Acts: user ids, mounts, namespaces (`enter`, in the child that becomes the rank) and owners of directories (`grant`).
What can be had is tried for real (`probe`); a level that cannot be had is refused and never weakened.
"""

from shoal.engine.sandbox.grant import acting_as, grant_tree, open_to
from shoal.engine.sandbox.plan import Rights, devices, opens, plan, runtime_folders, session_of
from shoal.engine.sandbox.probe import capabilities
from shoal.engine.sandbox.users import Users

__all__ = [
    "Rights", "Users", "acting_as", "capabilities", "devices", "grant_tree", "open_to",
    "opens", "plan", "runtime_folders", "session_of",
]  # fmt: skip
