"""What the privatizers of jax-privacy take: a matrix and a standard deviation."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from .. import Mechanism, Verified, epsilon, verify
from .._arguments import check_norm


def noising_matrix(
    mechanism: Mechanism | Verified, *, noise_multiplier: float, clip_norm: float
) -> tuple[npt.NDArray[np.float32], float]:
    """The noising matrix and the stddev for `jax_privacy.noise_addition.matrix_factorization_privatizer`, so that its noise is that of the
    mechanism: covariance stddev²·M·Mᵀ across the steps of each coordinate. `noise_multiplier` is that of a privacy level
    (`antiphon.noise_multiplier`), under zero-out; jax-privacy adds the noise to the SUM of gradients clipped to `clip_norm`.

    stddev = noise_multiplier · sensitivity of the mechanism, verified here · clip_norm, and more by a bound on what rounding M and stddev·M
    to float32 can take away.

    Nothing of jax-privacy checks who takes part. Its dense privatizer repeats its last row past the last step, which no privacy
    statement covers; `Noise` refuses that. Its random numbers are those of JAX.
    """
    clip_norm = check_norm("clip_norm", clip_norm)
    epsilon(noise_multiplier, 1e-5)  # raises for what is no noise multiplier
    verified = mechanism if isinstance(mechanism, Verified) else verify(mechanism)
    inverse, encoder = verified.mechanism.Cinv, verified.mechanism.C
    # A matrix M + E instead of M = C⁻¹ with |E| ≤ e·|M|: ‖(M + E)ᵀx‖ ≥ ‖Mᵀx‖ − ‖EᵀCᵀMᵀx‖ for all x, since MC = 1, so the noise is
    # at least (1 − ‖CE‖) times that of M in every direction, and ‖CE‖ ≤ e·‖|C||M|‖. Two roundings by 2⁻²⁴ each, and 1 % for their product.
    lost = 1.01 * 2.0**-23 * float(np.linalg.norm(np.abs(encoder) @ np.abs(inverse)))
    if not lost < 0.5:
        raise ValueError(f"mechanism must have a noising matrix that float32 can hold, got one that loses {lost:.2g} of its noise")
    matrix = inverse.astype(np.float32)
    # Upwards: the four operations, and stddev itself in float32, round by less.
    return matrix, noise_multiplier * verified.sensitivity * clip_norm / (1 - lost) * (1 + 2.0**-22)
