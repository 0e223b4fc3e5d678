"""Choices that commands offer: without imports, so that they start at once."""

from enum import StrEnum


class Mechanism(StrEnum):
    """What carries a policy out: the loop of the control plane; Gavel's rounds; or Gavel's published rounds and
    programs to the letter (nothing is filled in that its objectives leave open)."""

    SHOAL = "shoal"
    GAVEL = "gavel"
    PUBLISHED = "published"


class Durations(StrEnum):
    """The distribution of the durations of heavy-tailed jobs."""

    LOGNORMAL = "lognormal"
    PARETO = "pareto"
