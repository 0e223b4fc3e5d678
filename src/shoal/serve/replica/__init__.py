"""The process that runs models, and how the gateway talks to it.

A replica dials the gateway's Unix socket and then does one thing at a time, in one thread: it loads a model, runs a
batch, answers. Small frames go over the socket (`wire`, `messages`); tensors lie in memory that both have mapped
(`arena`): the gateway writes the inputs there, the replica reads them in place and puts the outputs beside them.
Neither trusts the other's offsets.

Run one with `python -m shoal.serve.replica --connect SOCKET --name NAME`. It outlives the gateway: when that goes
away, it dials again and offers the models that it still holds.
"""
