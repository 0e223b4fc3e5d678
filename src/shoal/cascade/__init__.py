"""Prediction pipelines, compiled, and approximated only as far as a certificate allows (after Willump, MLSys'20).

Senses what each group of features costs and is worth; decides which stages a row goes through and how sure a stage must
be; acts by answering most rows with the cheap ones. What is only compiled predicts the same. What is approximated has a
certificate: a bound on the loss that holds with a stated confidence on rows which had no part in choosing.
"""

from typing import TYPE_CHECKING

from shoal.base.faces import on_first_use

if TYPE_CHECKING:
    from shoal.cascade.cascade import Cascade
    from shoal.cascade.certificate import Certificate
    from shoal.cascade.features import Join, Lookup, Recorded
    from shoal.cascade.optimize import optimize
    from shoal.cascade.recorded import feature

__all__ = ["Cascade", "Certificate", "Join", "Lookup", "Recorded", "feature", "optimize"]

__getattr__ = on_first_use(globals(), {
    "cascade": "Cascade",
    "certificate": "Certificate",
    "features": "Join Lookup Recorded",
    "optimize": "optimize",
    "recorded": "feature",
})  # fmt: skip
