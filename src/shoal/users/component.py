"""The declaration of this component."""

from shoal.extension import Component

USERS = Component(
    extension="shoal.users.live.extension:Users",
    commands={"users": "shoal.users.commands.users"},
    client={"users": "shoal.users.methods:UserMethods"},
)
