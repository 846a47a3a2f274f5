"""Clipping in JAX: no contribution is longer than the clip norm, and the sum is that of all."""

import numpy as np
import pytest

jax = pytest.importorskip("jax")
pytest.importorskip("optax")

import jax.numpy as jnp  # noqa: E402
from jax_cases import data_of, flat, loss, params_of  # noqa: E402

import antiphon  # noqa: E402
from antiphon.jax import clipped_sum  # noqa: E402
from antiphon.jax._clip import _levels, _sum  # noqa: E402


def given(params, example):
    """A loss whose gradient is the example itself."""
    return sum((leaf.astype(jnp.float32) * there).sum() for leaf, there in zip(jax.tree.leaves(params), jax.tree.leaves(example)))


def per_example():
    """The gradients of all examples, one row each, in double precision."""
    params, batch = params_of(), data_of()
    gradients = jax.jit(jax.vmap(jax.grad(loss), in_axes=(None, 0)))(params, batch)
    return params, batch, gradients, np.stack([flat(jax.tree.map(lambda leaf: leaf[e], gradients)) for e in range(22)])


def test_the_sum_is_that_of_the_slow_way_and_of_the_exact_clip():
    params, batch, gradients, rows = per_example()
    norms = np.linalg.norm(rows, axis=1)
    assert norms.min() < 2.0 < norms.max()
    for clip, changed in [(0.1, {}), (2.0, {}), (2.0, dict(microbatch_size=5))]:
        contributions = rows * np.minimum(1.0, clip / norms)[:, None]
        found = jax.jit(lambda p, b: clipped_sum(loss, p, b, clip, **changed))(params, batch)
        assert found.bound == clip
        # The target is below the clip norm by (64 * 2 levels + 64) * 2^-24; gradients are fused differently, and 22 additions round.
        allowed = 1.5e-5 * np.abs(contributions).sum(axis=0) + 1e-6
        assert (np.abs(flat(found.total) - contributions.sum(axis=0)) <= allowed).all()
        exact = np.zeros(50)
        antiphon.Clip(clip, params=50).add([np.asarray(leaf) for leaf in jax.tree.leaves(gradients)], exact)
        assert (np.abs(flat(found.total) - exact) <= allowed).all()


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_no_contribution_is_longer_than_the_clip_norm(dtype):
    """Norms in double precision, of what is added for one example alone."""
    rng = np.random.default_rng(7)
    for sizes in [(1,), (64, 65), (100_000, 300, 7)]:
        params = [jnp.zeros(size, dtype) for size in sizes]
        one = jax.jit(lambda p, b, clip=1.0: clipped_sum(given, p, b, clip).total)
        for scale in (1e-3, 1.0, 1.0000001, 1e6, 1e15):
            for shape in (rng.standard_normal, np.ones):
                example = [shape(size).astype(np.float32) for size in sizes]
                norm = np.sqrt(sum((leaf.astype(np.float64) ** 2).sum() for leaf in example))
                example = [jnp.asarray(leaf * scale / norm, dtype) for leaf in example]
                found = flat(one(params, [leaf[None] for leaf in example]))
                there = np.linalg.norm(flat(example))
                assert np.linalg.norm(found) <= 1.0
                # And not much shorter: at most by (64 * 5 levels + 64) * 2^-24.
                assert np.linalg.norm(found) >= min(there, 1.0) * (1 - 3e-5)


def test_norms_are_added_up_without_losing_small_squares():
    """Numbers of which a running sum in float32 loses a part: 2²² equal ones behind a large one."""
    numbers = np.full(1 << 22, 1.0, np.float32)
    numbers[0] = 2.0**24
    exact = numbers.astype(np.float64).sum()
    running = np.add.accumulate(numbers, dtype=np.float32)[-1]
    assert running < 0.81 * exact
    assert abs(float(jax.jit(_sum)(numbers)) - exact) <= 64 * _levels(1 << 22) * 2.0**-24 * exact


def test_no_sum_of_squares_goes_over_more_than_a_block_at_once():
    """What XLA adds up at once it may add up in any order, one after the other too: the bound holds for blocks, and needs a barrier between levels. On a CPU
    larger sums happen to be as good, so this looks at what is asked for."""
    for numbers in (1, 2, 64, 65, 5000, 64**3 + 1):
        found = jax.make_jaxpr(_sum)(np.zeros(numbers, np.float32)).jaxpr.eqns
        names = [equation.primitive.name for equation in found]
        sums = [place for place, name in enumerate(names) if name == "reduce_sum"]
        assert len(sums) == _levels(numbers)
        for place in sums:
            (axis,) = found[place].params["axes"]
            assert found[place].invars[0].aval.shape[axis] == 64 and names[place + 1] == "optimization_barrier"
        assert sum("dot" in name or "cumsum" in name for name in names) == 0


def test_what_is_not_finite_counts_as_zero():
    params = [jnp.zeros(3), jnp.zeros(2)]
    good = [np.array([0.1, 0.2, 0.3], np.float32), np.array([0.0, 0.1], np.float32)]
    total = jax.jit(lambda batch, clip_norm: clipped_sum(given, params, batch, clip_norm).total, static_argnums=1)
    for bad in (np.nan, np.inf, -np.inf, 3e38):
        for leaf, place in [(0, 1), (1, 0)]:
            wrong = [part.copy() for part in good]
            wrong[leaf][place] = bad
            batch = [np.stack([a, b, a]) for a, b in zip(good, wrong)]
            found = flat(total(batch, 1.0))
            assert np.allclose(found, 2 * np.concatenate(good), rtol=1e-6)
    tiny = [np.full(3, 1e-25, np.float32), np.zeros(2, np.float32)]
    assert np.linalg.norm(flat(total([leaf[None] for leaf in tiny], 1e-12))) <= 1e-12


def test_only_those_who_are_present_count():
    params, (x, y) = params_of(), data_of()
    present = np.arange(22) % 3 == 0
    total = jax.jit(lambda batch, present, size: clipped_sum(loss, params, batch, 0.5, present=present, microbatch_size=size).total, static_argnums=2)
    expected = flat(total((x[present], y[present]), None, None))
    for size in (None, 4):
        found = flat(total((np.where(present[:, None], x, np.nan), y), present, size))
        assert np.abs(found - expected).max() <= 1e-6
    assert flat(total((x[:0], y[:0]), None, None)).tolist() == [0.0] * 50


def test_double_precision_is_kept():
    with jax.enable_x64(True):
        params = [jnp.zeros(5, jnp.float64), jnp.zeros(2, jnp.float32)]
        example = [np.full((1, 5), 1e3), np.zeros((1, 2))]
        found = clipped_sum(lambda p, e: (p[0] * e[0]).sum() + (p[1] * e[1]).sum(), params, example, 1.0).total
        assert [leaf.dtype for leaf in found] == [jnp.float64] * 2
        assert 1 - 1e-13 <= np.linalg.norm(flat(found)) <= 1.0


def test_arguments():
    params, (x, y) = params_of(), data_of()
    for changed, message in [
        (dict(clip_norm=0.0), "clip_norm must be a number"),
        (dict(clip_norm=1e-13), r"clip_norm must be in \[1e-12, 1e12\]"),
        (dict(batch=(x, y[:3])), "batch must have arrays with one first axis"),
        (dict(batch=(x, 3)), "batch must have arrays with one first axis"),
        (dict(batch=()), "batch must have arrays with one first axis"),
        (dict(present=np.ones(3, bool)), "present must be 22 truth values"),
        (dict(present=np.ones(22)), "present must be 22 truth values"),
        (dict(microbatch_size=0), "microbatch_size must be"),
    ]:
        with pytest.raises(ValueError, match=message):
            clipped_sum(loss, params, **{**dict(batch=(x, y), clip_norm=0.5), **changed})
