"""The users of the server's machine as callers: who they are to Shoal, and that their jobs run as them.

The kernel says who is at the other end of the server's local socket. A table says to which tenant a user or a group
belongs, with which role; the system says who is in which group. What is decided of that is pure (`rules`); `accounts`
asks the system, `live` is the part in the server.
"""

from typing import TYPE_CHECKING

from shoal.base.faces import on_first_use

if TYPE_CHECKING:
    from shoal.users.rules import Kind, Role, Rule, RunAs, rule_for

__all__ = ["Kind", "Role", "Rule", "RunAs", "rule_for"]

__getattr__ = on_first_use(globals(), {"rules": "Kind Role Rule RunAs rule_for"})
