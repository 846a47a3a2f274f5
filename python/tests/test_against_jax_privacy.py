"""Sensitivities, losses, noise and accounting against jax_privacy and dp_accounting, on the same inputs.

What antiphon must never be is below: each figure is also compared with a lower bound, by brute force or by their
optimistic estimate. Their figures are computed in float64 here.
"""

import itertools
import math

import numpy as np
import pytest

import antiphon
from antiphon import Event, Key, PrivateRun, Schema

jax = pytest.importorskip("jax")
pytest.importorskip("jax_privacy")
pytest.importorskip("dp_accounting")
import jax.numpy as jnp  # noqa: E402
from dp_accounting import gaussian_mechanism  # noqa: E402
from dp_accounting.pld import privacy_loss_distribution, privacy_loss_mechanism  # noqa: E402
from jax_privacy.matrix_factorization import buffered_toeplitz, dense, sensitivity, toeplitz  # noqa: E402

# antiphon's upper ends are rounded up: a few units in the last place where the method is a closed form or a dynamic
# programme, 1e-8 of the value where a semidefinite programme or branch and bound ends at that gap.
ROUNDED = 1e-13
SEARCHED = 2e-8
# The sensitivity that a mechanism states is that and 1e-8 of it more; its loss has the square of it.
STATED = 5e-8
SIZE = 9


@pytest.fixture(autouse=True)
def float64():
    with jax.enable_x64(True):
        yield


def encoders(rng):
    """Signs of all kinds: non-negative, any, and a band of width 3."""
    full = np.tril(rng.normal(size=(SIZE, SIZE)))
    return [np.tril(rng.uniform(size=(SIZE, SIZE))), full, np.triu(full, -2)]


def along(C, pattern, rng):
    """The largest ‖Σ cᵢ uᵢᵀ‖ over unit vectors uᵢ that a local search finds: what some pair of data sets reaches."""
    X = C[:, pattern].T @ C[:, pattern]
    k = len(pattern)
    signs = np.array(list(itertools.product([1], *[[-1, 1]] * (k - 1))))
    best = np.einsum("si,ij,sj->s", signs, X, signs).max()
    for _ in range(2 if k > 2 else 0):  # Two columns reach the most in one line: by signs.
        U = rng.normal(size=(k, k))
        U /= np.linalg.norm(U, axis=1, keepdims=True)
        for _, i in itertools.product(range(60), range(k)):
            pull = X[i] @ U - X[i, i] * U[i]
            if pull.any():
                U[i] = pull / np.linalg.norm(pull)
        best = max(best, (X * (U @ U.T)).sum())
    return math.sqrt(best)


def absolute(C, pattern):
    X = C.T @ C
    return math.sqrt(np.abs(X[np.ix_(pattern, pattern)]).sum())


def separated(n, least, most):
    """All patterns of at most `most` steps that are `least` or more apart."""
    return [
        list(pattern)
        for k in range(1, most + 1)
        for pattern in itertools.combinations(range(n), k)
        if all(b - a >= least for a, b in itertools.pairwise(pattern))
    ]


def check(found, theirs, exact, reached):
    """Between what is reached and theirs; equal to theirs where theirs is exact."""
    assert found.upper >= reached * (1 - ROUNDED)
    assert found.upper <= reached * (1 + SEARCHED)  # antiphon says that it is exact, and the search finds it.
    assert found.exact and found.lower <= found.upper
    assert found.upper <= theirs * (1 + ROUNDED)
    if exact:
        assert found.upper == pytest.approx(theirs, rel=ROUNDED)


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("epochs", [1, 3, 9])
def test_fixed_order(epochs, seed):
    """Theirs is the sum of the absolute values of the Gram matrix: exact for one epoch or where no sign is against it."""
    rng = np.random.default_rng(seed)
    b = SIZE // epochs
    for C in encoders(rng):
        patterns = [list(range(r, SIZE, b)) for r in range(b)]
        theirs = sensitivity.fixed_epoch_sensitivity(jnp.asarray(C), epochs)
        assert theirs == pytest.approx(max(absolute(C, one) for one in patterns), rel=ROUNDED)
        found = antiphon.sensitivity(C, Schema.epochs(epochs, b))
        check(found, theirs, epochs == 1 or (C >= 0).all(), max(along(C, one, rng) for one in patterns))
        if epochs == 1:
            single = sensitivity.single_participation_sensitivity(jnp.asarray(C))
            assert antiphon.sensitivity(C, Schema.single(SIZE)).upper == pytest.approx(float(single), rel=ROUNDED)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("least, most", [(1, 2), (2, 3), (3, None), (5, None)])
def test_minimum_separation(least, most, seed):
    """Theirs chooses another pattern for every row, an upper bound; for bands no wider than the separation it is exact."""
    rng = np.random.default_rng(seed)
    schema = Schema.min_separation(SIZE, least, most)
    assert schema.max_participations == sensitivity.minsep_true_max_participations(SIZE, least, most)
    patterns = separated(SIZE, least, schema.max_participations)
    for C in encoders(rng):
        theirs = sensitivity.get_min_sep_sensitivity_upper_bound(jnp.asarray(C), least, most)
        found = antiphon.sensitivity(C, schema)
        check(found, theirs, False, max(along(C, one, rng) for one in patterns))
        try:
            banded = sensitivity.get_sensitivity_banded(jnp.asarray(C), least, most)
        except ValueError:
            assert np.triu(C, -least + 1).tolist() != C.tolist()
        else:
            assert found.upper == pytest.approx(banded, rel=ROUNDED)


@pytest.mark.parametrize("epochs, steps_per_epoch, momentum", [(1, 12, 0.0), (3, 6, 0.9)])
def test_their_optimum_is_no_better(epochs, steps_per_epoch, momentum):
    """By their own loss and sensitivity: above the proved lower bound, and no less than antiphon's optimum."""
    schema = Schema.epochs(epochs, steps_per_epoch)
    n = schema.steps
    powers = np.array([[momentum ** (i - j) if i >= j else 0.0 for j in range(n)] for i in range(n)])
    A = np.tri(n) @ powers
    gap = 1e-6
    mechanism = antiphon.optimize(schema, momentum=momentum, gap=gap)

    def loss(C):
        return sensitivity.fixed_epoch_sensitivity(jnp.asarray(C), epochs) ** 2 * float(
            dense.per_query_error(strategy_matrix=jnp.asarray(C), workload_matrix=jnp.asarray(A)).sum()
        )

    # Its loss is as they compute it: at the optimum the columns of a pattern are orthogonal, so no sign matters.
    assert mechanism.loss == pytest.approx(loss(mechanism.C), rel=STATED)
    theirs = loss(dense.optimize(n, epochs=epochs, A=jnp.asarray(A)))
    assert theirs >= mechanism.lower_bound
    assert mechanism.loss <= theirs * (1 + gap)
    # They stop at a gradient of 1e-3 in the largest entry; the loss is then this close.
    assert theirs <= mechanism.loss * 1.01


@pytest.mark.parametrize("name", ["tree-optimal", "blt", "comb-blt", "fft-optimal", "single-epoch"])
def test_mechanisms_are_as_they_evaluate_them(name):
    """Their error of every iterate, from C⁻¹; their sensitivity is above where signs are against it."""
    schema = Schema.epochs(3, 8)
    mechanism = antiphon.make(name, schema)
    theirs = dense.per_query_error(noising_matrix=jnp.asarray(mechanism.Cinv))
    assert (mechanism.B**2).sum(axis=1) == pytest.approx(np.asarray(theirs), rel=1e-9)
    bound = sensitivity.fixed_epoch_sensitivity(jnp.asarray(mechanism.C), 3)
    assert antiphon.sensitivity(mechanism).upper <= bound * (1 + SEARCHED)
    assert antiphon.sensitivity(mechanism).lower**2 * float(theirs.sum()) <= mechanism.loss
    assert mechanism.loss <= bound**2 * float(theirs.sum()) * (1 + STATED)


def blt():
    return buffered_toeplitz.BufferedToeplitz.build(buf_decay=[0.95, 0.6, 0.1], output_scale=[0.1, 0.2, 0.15], dtype=jnp.float64)


@pytest.mark.parametrize("least, most", [(1, 1), (5, 4), (8, None)])
def test_buffered_toeplitz(least, most):
    """Their closed forms for sensitivity and error of a BLT against the matrix, as antiphon sees it."""
    n = 20
    theirs, schema = blt(), Schema.min_separation(n, least, most)
    C = np.asarray(theirs.materialize(n))
    mechanism = antiphon.from_encoder(C, schema)
    squared = toeplitz.minsep_sensitivity_squared(theirs.toeplitz_coefs(n), least, most)
    found = antiphon.sensitivity(mechanism)
    assert found.upper**2 == pytest.approx(float(squared), rel=2 * ROUNDED)
    assert found.upper <= mechanism.sensitivity <= found.upper * (1 + STATED)
    if most == 1:
        assert found.upper**2 == pytest.approx(float(buffered_toeplitz.sensitivity_squared(theirs, n)), rel=2 * ROUNDED)
    inverse = theirs.inverse()
    # Their closed form takes differences of sums of about n² terms.
    errors = [float(buffered_toeplitz.iteration_error(inverse, jnp.array(i))) for i in (0, 7, n - 1)]
    assert (mechanism.B**2).sum(axis=1)[[0, 7, n - 1]] == pytest.approx(errors, rel=1e-9)


@pytest.mark.parametrize("kind", ["blt", "banded"])
def test_noise_is_theirs_on_the_same_gaussians(kind):
    """The rows of a run are their streaming C⁻¹ applied to the rows of a run without correlation, sample by sample."""
    n, params, sigma = 12, 50, 0.7
    if kind == "blt":
        C, streaming = np.asarray(blt().materialize(n)), blt().inverse_as_streaming_matrix()
    else:
        coefficients = jnp.array([1.0, 0.5, 0.25])
        C, streaming = np.asarray(toeplitz.materialize_lower_triangular(coefficients, n)), toeplitz.inverse_as_streaming_matrix(coefficients)

    def rows(mechanism):
        run = PrivateRun(
            mechanism, noise_multiplier=sigma / mechanism.sensitivity, delta=1e-5, clip_norm=1.0, params=params, key=Key.from_seed(5)
        )
        taken = []
        for step in range(n):
            run.admit([step])
            taken.append(np.zeros(params))
            run.privatize(taken[-1])
        return np.stack(taken)

    independent = rows(antiphon.make("identity", Schema.single(n)))
    correlated = rows(antiphon.from_encoder(C, Schema.single(n)))
    expected = np.asarray(streaming @ jnp.asarray(independent))
    # Weights are rounded to float32, and the noise is larger by what that may cost: no less than theirs, and next to nothing more.
    scale = (correlated * expected).sum() / (expected**2).sum()
    assert 1 <= scale < 1 + 2e-6
    # What is left is float32: of the weights, of the rows of both runs, and of the rows that go into theirs.
    assert np.abs(correlated / scale - expected).max() < 4 * np.finfo(np.float32).eps * np.abs(expected).max()
    assert np.std(independent) == pytest.approx(sigma, rel=0.2)  # 600 samples: 7 standard errors.


def test_gaussian_mechanism_on_a_grid():
    """Both compute the same formula. antiphon's ε is rounded up; its noise multiplier has a margin of 1e-9."""
    for sigma, delta in itertools.product([0.05, 0.3, 1.0, 4.0, 100.0, 1e4], [1e-12, 1e-8, 1e-5, 1e-2, 0.3]):
        theirs = gaussian_mechanism.get_epsilon_gaussian(sigma, delta, tol=1e-14)
        ours = antiphon.epsilon(sigma, delta)
        # Theirs is the root of a difference of logarithms in float64, on either side of the value.
        assert theirs * (1 - 1e-11) - 1e-12 <= ours <= theirs * (1 + 1e-9) + 1e-12, (sigma, delta)
        if theirs > 0:
            assert antiphon.delta(sigma, theirs) == pytest.approx(delta, rel=1e-7), (sigma, delta)
    for epsilon, delta in itertools.product([0.01, 1.0, 8.0, 100.0], [1e-10, 1e-5, 0.1]):
        theirs = gaussian_mechanism.get_sigma_gaussian(epsilon, delta, tol=1e-15)
        assert theirs <= antiphon.noise_multiplier(epsilon, delta) <= theirs * (1 + 2e-9), (epsilon, delta)


@pytest.mark.parametrize("sigma, rate", [(0.5, 0.2), (1.0, 0.01), (1.0, 0.8), (3.0, 0.5), (0.3, 0.05)])
def test_one_sampled_step(sigma, rate):
    """Their δ of a single step is a closed form; antiphon's is the upper end of its bracket, never below."""
    closed = privacy_loss_mechanism.GaussianPrivacyLoss(sigma, sampling_prob=rate)
    for epsilon in (0.1, 0.5, 1.0, 2.0):
        theirs = float(closed.get_delta_for_epsilon(epsilon))
        ours = antiphon.delta(Event.poisson_sampled(rate, sigma), epsilon)
        assert ours >= theirs * (1 - 1e-9), epsilon
        # Measured: up to 0.43% above (σ = 1, sampling rate 0.01, ε = 0.1); 1e-12 where δ is next to nothing.
        assert ours <= theirs * 1.01 + 1e-12, epsilon
        if theirs > 1e-12:
            low, high = Event.poisson_sampled(rate, sigma).epsilon_bracket(theirs)
            # Their δ is good to about 1e-12 of its value; the bracket of ε is narrower than that of δ.
            assert low <= epsilon * (1 + 1e-9) and epsilon * (1 - 1e-9) <= high <= epsilon + 1e-4, epsilon


@pytest.mark.parametrize("sigma, rate, steps", [(1.0, 0.01, 200), (0.7, 0.1, 30), (2.0, 0.5, 50), (4.0, 1.0, 16)])
def test_brackets_overlap(sigma, rate, steps):
    """Their optimistic and pessimistic distributions hold the truth between them, and so does antiphon's bracket."""

    def theirs(pessimistic):
        one = privacy_loss_distribution.from_gaussian_mechanism(
            sigma, sampling_prob=rate, pessimistic_estimate=pessimistic, value_discretization_interval=1e-3, use_connect_dots=pessimistic
        )
        return one.self_compose(steps)

    optimistic, pessimistic = theirs(False), theirs(True)
    event = Event.composed([(Event.poisson_sampled(rate, sigma) if rate < 1 else Event.gaussian(sigma), steps)])
    for delta in (1e-7, 1e-5, 1e-2):
        low, high = event.epsilon_bracket(delta)
        below, above = optimistic.get_epsilon_for_delta(delta), pessimistic.get_epsilon_for_delta(delta)
        assert below <= high and low <= above, (delta, below, low, high, above)
        assert antiphon.epsilon(event, delta) == high
        # Connecting the dots is good to about the width squared per step; the rest is antiphon's own width.
        assert high <= above * (1 + 1e-3) + 1e-4, (delta, high, above)
