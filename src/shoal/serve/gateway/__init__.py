"""The process between callers and replicas: fronts for REST and gRPC, a directory of permissions, a scheduler that
decides what is executed next, a registry that replicas dial in to, and the usage of each tenant.

It senses by measuring every execution, decides through `shoal.serve.scheduling`, and acts by handing batches to
replicas. `process.GatewayProcess` serves a directory, `standalone.Standalone` starts replicas of its own as well.
"""
