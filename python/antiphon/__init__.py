"""Correlated noise for differentially private training.

    schema = antiphon.Schema.epochs(20, 100)             # who takes part when
    mechanism = antiphon.optimize(schema, momentum=0.9)  # the best one, with a proof
    run = antiphon.PrivateRun(mechanism, epsilon=8, delta=1e-5, clip_norm=1.0, params=d, key="run.key")
    for batch in batches:                                # the same order in every epoch
        run.admit(indices)                               # who takes part; or PrivacyError
        run.privatize(sum_of_clipped_gradients)          # adds the noise of the step, in place
    print(run.statement())                               # what ε means, and what it does not cover

`antiphon.torch.make_private` does all of this for a PyTorch model. Errors: ValueError for an argument,
PrivacyError for what the privacy statement does not cover, VerificationError for a mechanism with a false claim.
"""

from ._antiphon import (
    Audit,
    Clip,
    Event,
    Key,
    Mechanism,
    PrivacyError,
    PrivateRun,
    Schema,
    Sensitivity,
    VerificationError,
    Verified,
    __version__,
    audit,
    delta,
    epsilon,
    noise_multiplier,
    sensitivity,
    verify,
)
from ._design import Candidate, Comparison, Plan, compare, from_encoder, make, optimize, plan
from ._order import FixedOrderBatches

__all__ = [
    "Audit",
    "Candidate",
    "Clip",
    "Comparison",
    "Event",
    "FixedOrderBatches",
    "Key",
    "Mechanism",
    "Plan",
    "PrivacyError",
    "PrivateRun",
    "Schema",
    "Sensitivity",
    "VerificationError",
    "Verified",
    "__version__",
    "audit",
    "compare",
    "delta",
    "epsilon",
    "from_encoder",
    "make",
    "noise_multiplier",
    "optimize",
    "plan",
    "sensitivity",
    "verify",
]
