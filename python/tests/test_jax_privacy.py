"""With jax-privacy 2.0: its clipped gradients with our noise, and its privatizer with our matrix."""

import numpy as np
import pytest

jax = pytest.importorskip("jax")
jax_privacy = pytest.importorskip("jax_privacy")

import jax.numpy as jnp  # noqa: E402
from jax_cases import CLIP, data_of, flat, loss, noise_of, params_of  # noqa: E402

import antiphon  # noqa: E402
from antiphon import PrivacyError  # noqa: E402
from antiphon.jax import ClippedSum, clipped_sum, noising_matrix, private_mean  # noqa: E402

SCHEMA = antiphon.Schema.epochs(3, 6)


def clipped(**changed):
    return jax_privacy.clipped_grad(loss, l2_clip_norm=CLIP, keep_batch_dim=False, **changed)


def test_its_clipped_gradients_take_our_noise():
    params, (x, y) = params_of(), data_of()
    function, row = clipped(), noise_of().next()
    theirs = ClippedSum(jax.jit(function.fun)(params, (x[:4], y[:4])), bound=function.l2_norm_bound)
    ours = jax.jit(lambda params, batch: clipped_sum(loss, params, batch, CLIP))(params, (x[:4], y[:4]))
    # Both in float32; ours is shorter by 1.2e-5 of its norm at most.
    assert np.abs(flat(theirs.total) - flat(ours.total)).max() <= 4 * CLIP * 1.5e-5
    assert np.allclose(flat(private_mean(theirs, row)), flat(private_mean(ours, row)), atol=CLIP * 1.5e-5)
    for wrong, error, message in [
        (clipped(normalize_by=4.0), ValueError, "normalize_by=1.0"),
        (clipped(rescale_to_unit_norm=True), PrivacyError, "clipped to 1.0 is refused"),
        (jax_privacy.clipped_grad(loss, l2_clip_norm=0.7, keep_batch_dim=False), PrivacyError, "clipped to 0.7 is refused"),
    ]:
        with pytest.raises(error, match=message):
            private_mean(ClippedSum(theirs.total, bound=wrong.l2_norm_bound), row)


def noise_of_privatizer(matrix, stddev, steps, width=40):
    """What their privatizer adds to zeros, row by row, with one key."""
    privatizer = jax_privacy.noise_addition.matrix_factorization_privatizer(matrix, stddev=stddev, prng_key=5)
    zeros, rows = jnp.zeros(width), []
    state, update = privatizer.init(zeros), jax.jit(privatizer.update)
    for _ in range(steps):
        row, state = update(zeros, state)
        rows.append(np.asarray(row, np.float64))
    return np.stack(rows)


@pytest.mark.parametrize("name", ["optimal", "tree-online"])
def test_its_privatizer_has_the_covariance_of_our_mechanism(name):
    mechanism = antiphon.make(name, SCHEMA)
    matrix, stddev = noising_matrix(mechanism, noise_multiplier=0.5, clip_norm=CLIP)
    # The same key with the unit matrix gives their normals themselves, one row each: so what they add is exactly this linear map of normals.
    normals = noise_of_privatizer(np.eye(matrix.shape[1], dtype=np.float32), 1.0, matrix.shape[1])
    added = noise_of_privatizer(matrix, stddev, 18)
    expected = (stddev * matrix.astype(np.float64)) @ normals
    # A sum of up to 38 products in float32.
    scale = np.abs(stddev * matrix) @ np.abs(normals)
    assert (np.abs(added - expected) <= 42 * 2.0**-24 * scale).all()
    # Its covariance, against that of a run of ours: not less in any direction, and not 1e-4 more.
    run = antiphon.PrivateRun(mechanism, noise_multiplier=0.5, delta=1e-5, clip_norm=CLIP, params=1, key=antiphon.Key.from_seed(1))
    ours = run.stddev**2 * mechanism.Cinv @ mechanism.Cinv.T
    used = (np.float32(stddev) * matrix).astype(np.float64)  # as they round it
    root = np.linalg.inv(np.linalg.cholesky(ours))
    ratios = np.linalg.eigvalsh(root @ (used @ used.T) @ root.T)
    assert 1 <= ratios.min() and ratios.max() <= 1 + 1e-4
    # The sensitivity of what they do, computed from the matrix alone, is covered by the noise.
    gram = np.linalg.inv(used @ used.T)
    assert float(antiphon.sensitivity((gram + gram.T) / 2, SCHEMA, gram=True)) * CLIP <= 1 / 0.5 * (1 + 1e-9)


@pytest.mark.parametrize("noise_multiplier", [1.0, 3.3])
def test_rounding_takes_no_noise_away_in_any_direction(noise_multiplier):
    """A matrix of 256 steps, in which rounding to float32 takes about 1e-8 of the noise of some direction more than the last factor of stddev gives."""
    verified = antiphon.verify(antiphon.make("comb-blt", antiphon.Schema.epochs(4, 64), progress=False))
    matrix, stddev = noising_matrix(verified, noise_multiplier=noise_multiplier, clip_norm=1.7)
    used = (np.float32(stddev) * matrix).astype(np.float64)
    # C times what they use is the unit matrix but for rounding. The singular values are known to about 1e-14.
    least = np.linalg.svd(verified.mechanism.C @ used, compute_uv=False).min()
    assert least >= noise_multiplier * verified.sensitivity * 1.7


def test_past_the_end_they_repeat_a_row_and_we_refuse():
    """The difference of the last two sums would have no noise at all."""
    matrix, stddev = noising_matrix(antiphon.make("optimal", SCHEMA), noise_multiplier=0.5, clip_norm=CLIP)
    added = noise_of_privatizer(matrix, stddev, 20)
    assert np.array_equal(added[18], added[17]) and np.array_equal(added[19], added[17])
    noise = noise_of()
    assert len({np.asarray(row.flat).tobytes() for _, row in noise}) == 18
    with pytest.raises(PrivacyError, match="step 18 is refused: the run has 18 steps"):
        noise.next()


def test_arguments():
    mechanism = antiphon.make("identity", SCHEMA)
    for changed, message in [(dict(noise_multiplier=0.0), "noise"), (dict(clip_norm=0.0), "clip_norm must be"), (dict(noise_multiplier=float("nan")), "noise")]:
        with pytest.raises(ValueError, match=message):
            noising_matrix(mechanism, **{**dict(noise_multiplier=1.0, clip_norm=1.0), **changed})
    matrix, stddev = noising_matrix(antiphon.verify(mechanism), noise_multiplier=1.0, clip_norm=2.0)
    assert matrix.dtype == np.float32 and np.array_equal(matrix, np.eye(18)) and 2 * 3**0.5 <= stddev <= 2 * 3**0.5 * (1 + 1e-5)
