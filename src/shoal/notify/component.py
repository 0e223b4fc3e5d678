"""The declaration of this component."""

from shoal.extension import Component

NOTIFY = Component(
    extension="shoal.notify.live.extension:Notify",
    commands={"notify": "shoal.notify.commands.notify"},
    job_options={"notify": "shoal.notify.commands.option:NOTIFY"},
    client={"notify": "shoal.notify.methods:NotifyMethods"},
)
