"""The declaration of this component."""

from shoal.extension import Component

WEB = Component(
    extension="shoal.web.extension:Web",
    commands={
        "dashboards": "shoal.web.commands.dashboards",
        "shares": "shoal.web.commands.shares",
        "web": "shoal.web.commands.web",
    },
    client={"web": "shoal.web.methods:WebMethods"},
)
