"""Serving models to many tenants: the Open Inference Protocol in front, replicas behind, and between them a scheduler
that shares compute by weight and deadline (after Perseus, IC2E'20).

Senses how long each model takes at each batch size and what waits; decides what to execute next and whom to refuse;
acts by handing batches to replica processes.
"""
