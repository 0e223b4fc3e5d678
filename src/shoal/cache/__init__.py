"""Fast storage shared by tenants, with a proof of fairness.

Several tenants read data sets from slow or remote storage through one fast disk. After ROBUS (Kunjir et al., SIGMOD
2017), with what it left out: the cost of loading, large numbers, live traffic, data that changes. It senses what jobs
declare and what is read, decides how much of each data set stays (`policy`: proportional fairness with a certificate),
and acts by filling and evicting. `simulate` runs the same policies on made-up requests, `baselines` has what to compare
them with.
"""

from typing import TYPE_CHECKING

from shoal.base.faces import on_first_use

if TYPE_CHECKING:
    from shoal.cache.policy import POLICIES, Allocation, Certificate, Decision, Mode, Problem, allocate, certify, decide
    from shoal.cache.policy.demand import Outlook, problem_of

__all__ = [
    "POLICIES", "Allocation", "Certificate", "Decision", "Mode", "Outlook", "Problem", "allocate", "certify", "decide",
    "problem_of",
]  # fmt: skip

__getattr__ = on_first_use(globals(), {
    "policy": "POLICIES Allocation Certificate Decision Mode Problem allocate certify decide",
    "policy.demand": "Outlook problem_of",
})  # fmt: skip
