"""Pure decisions: what an event tells, to whom, when it is sent, and when it is tried again."""
