"""The declaration of this component."""

from shoal.extension import Component

SESSION = Component(
    extension="shoal.session.live.extension:Sessions",
    terminal="shoal.session.commands.run:run_at_terminal",
    commands={
        "attach": "shoal.session.commands.attach",
        "exec": "shoal.session.commands.exec",
        "forward": "shoal.session.commands.forward",
        "sessions": "shoal.session.commands.sessions",
        "notebook": "shoal.session.commands.notebook",
        "ssh": "shoal.session.commands.ssh",
    },
    client={"session": "shoal.session.methods:Session"},
)
