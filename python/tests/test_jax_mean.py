"""The noise meets the sum: types, batch sizes, optax, vmap, callbacks."""

import numpy as np
import pytest

jax = pytest.importorskip("jax")
optax = pytest.importorskip("optax")

import jax.numpy as jnp  # noqa: E402
from jax_cases import CLIP, EXAMPLES, OPTIMIZER, data_of, flat, loss, noise_of, order_of, params_of, step  # noqa: E402

from antiphon import PrivacyError  # noqa: E402
from antiphon.jax import ClippedSum, add_noise, callback_noise, clipped_sum, private_mean  # noqa: E402


def sum_of(tree, bound=CLIP):
    return ClippedSum(tree, bound)


def test_the_mean_is_sum_plus_noise_by_the_batch_size_of_the_run():
    params, noise = params_of(), noise_of()
    rows = [row for _, row in noise]
    for place in (0, 5):  # a batch of 4, and the last one of the epoch, of 2: both are divided by 4
        for call in (private_mean, jax.jit(private_mean)):
            found = call(sum_of(params), rows[place])
            expected = (flat(params) + np.asarray(rows[place].flat, np.float64)) / 4
            # One rounding for the sum and one for the quotient.
            assert np.abs(flat(found) - expected).max() <= 2 * 2.0**-24 * (np.abs(expected) + np.abs(flat(params)) + np.abs(rows[place].flat)).max()
            assert jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), found) == jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), params)


def test_low_precision_is_rounded_after_the_noise_is_added():
    params = params_of(jnp.bfloat16)
    row = noise_of(params).next()
    sums = jax.tree.map(lambda leaf: jnp.full(leaf.shape, 1 + 2.0**-10, jnp.float32), params)  # bfloat16 has no such number
    found = private_mean(sum_of(sums), row)
    expected = jax.tree.map(lambda noise: ((np.float32(1 + 2.0**-10) + noise) / np.float32(4)).astype(jnp.bfloat16), row.tree())
    assert all(leaf.dtype == jnp.bfloat16 for leaf in jax.tree.leaves(found))
    assert np.array_equal(flat(found), flat(expected))
    # A sum in bfloat16 is taken as it is.
    assert np.array_equal(flat(private_mean(sum_of(params), row)), flat(jax.tree.map(lambda a, b: ((a.astype(jnp.float32) + b) / 4).astype(jnp.bfloat16), params, row.tree())))


def test_double_precision_is_kept():
    with jax.enable_x64(True):
        params = params_of(jnp.float64)
        row = noise_of(params).next()
        sums = jax.tree.map(lambda leaf: jnp.full(leaf.shape, 1 + 2.0**-40), params)
        found = jax.jit(private_mean)(sum_of(sums), row)
        assert all(leaf.dtype == jnp.float64 for leaf in jax.tree.leaves(found))
        assert np.array_equal(flat(found), (1 + 2.0**-40 + np.asarray(row.flat, np.float64)) / 4)


def test_what_is_not_the_sum_of_gradients_clipped_for_this_noise_is_refused():
    params, noise = params_of(), noise_of()
    row, chunk = noise.next(), noise.chunk(2)
    with pytest.raises(PrivacyError, match="a sum of gradients clipped to 0.6 is refused"):
        private_mean(sum_of(params, 0.6), row)
    with pytest.raises(PrivacyError, match="a sum of gradients clipped to inf"):
        private_mean(sum_of(params, float("inf")), row)
    for total, given, message in [
        (sum_of(params, CLIP / 4), row, "pass the sum of clipped gradients, not their mean"),
        (sum_of(params, float("nan")), row, "bound must be a number"),
        (params, row, "total must be a ClippedSum"),
        (sum_of(params), row.tree(), "row must be a NoiseRow"),
        (sum_of(params), chunk.rows, "scan over a chunk"),
        (sum_of({"head": params["head"]}), row, "must have the leaves of the parameters"),
        (sum_of({**params, "head": params["head"].T}), row, r"must have shape \(5, 3\) at \['head'\]"),
    ]:
        for call in (private_mean, jax.jit(private_mean)) if isinstance(total, ClippedSum) and total.bound == total.bound else (private_mean,):
            with pytest.raises(ValueError, match=message):
                call(total, given)
    assert private_mean(sum_of(params, CLIP * (1 - 1e-5)), row)  # room for rounding


def test_optax_takes_the_row_as_an_argument():
    params, noise = params_of(), noise_of()
    transform = optax.chain(add_noise(), optax.adam(0.1))
    row = noise.next()
    update = jax.jit(transform.update)
    found, _ = update(sum_of(params), transform.init(params), params, noise=row)
    adam = optax.adam(0.1)
    expected, _ = adam.update(private_mean(sum_of(params), row), adam.init(params), params)
    assert np.allclose(flat(found), flat(expected), rtol=1e-5)
    for call in (transform.update, update):
        with pytest.raises(PrivacyError, match="an update without noise is refused"):
            call(sum_of(params), transform.init(params), params)
    other = {**params, "head": params["head"].astype(jnp.bfloat16)}
    with pytest.raises(ValueError, match=r"params must have shape \(5, 3\) and type float32 at \['head'\]"):
        transform.update(sum_of(params), transform.init(other), other, noise=row)
    with pytest.raises(ValueError, match="row must be a NoiseRow"):
        transform.update(sum_of(params), transform.init(params), params, noise=row.tree())


def test_one_row_for_several_sums_is_refused_however_vmap_and_jit_are_nested():
    params, noise = params_of(), noise_of()
    row, chunk = noise.next(), noise.chunk(2)
    several = jax.tree.map(lambda leaf: jnp.stack([leaf, 2 * leaf]), params)
    mean = lambda tree, row: private_mean(sum_of(tree), row)  # noqa: E731
    deep = jax.tree.map(lambda leaf: jnp.stack([leaf, leaf]), several)
    for call, total, given in [
        (jax.vmap(mean, in_axes=(0, None)), several, row),
        (jax.jit(jax.vmap(mean, in_axes=(0, None))), several, row),
        (jax.vmap(jax.jit(mean), in_axes=(0, None)), several, row),
        (jax.vmap(jax.vmap(mean), in_axes=(0, None)), deep, chunk.rows),
    ]:
        with pytest.raises(PrivacyError, match="one row of noise for several sums"):
            call(total, given)
    found = jax.vmap(mean)(several, chunk.rows)
    for place in range(2):
        alone = mean(jax.tree.map(lambda leaf: leaf[place], several), jax.tree.map(lambda leaf: leaf[place], chunk.rows))
        assert np.array_equal(flat(jax.tree.map(lambda leaf: leaf[place], found)), flat(alone))


def drawn_in(noise):
    draw = callback_noise(noise)
    x, y = map(jnp.asarray, data_of())

    def one(params, state, indices, present):
        return step(params, state, (x[indices], y[indices]), draw(indices, present), present)

    return one


def test_a_callback_draws_the_same_rows_in_order_and_refuses_past_the_end():
    x, y = data_of()
    params, state = params_of(), OPTIMIZER.init(params_of())
    for chunk in noise_of().chunks(1):
        indices, present = chunk.indices[0], chunk.present[0]
        params, state = step(params, state, (x[indices], y[indices]), jax.tree.map(lambda leaf: leaf[0], chunk.rows), present)
    noise, places = noise_of(), noise_of().chunk(18)
    one = jax.jit(drawn_in(noise))
    again, other = params_of(), OPTIMIZER.init(params_of())
    for t in range(12):
        again, other = one(again, other, jnp.asarray(places.indices[t]), jnp.asarray(places.present[t]))

    @jax.jit
    def scanned(carry, indices, present):
        return jax.lax.scan(lambda carry, at: (drawn_in(noise)(*carry, *at), None), carry, (indices, present))[0]

    again, other = jax.block_until_ready(scanned((again, other), places.indices[12:], places.present[12:]))
    assert noise.step == 18
    assert np.abs(flat(again) - flat(params)).max() <= 1e-6
    with pytest.raises(jax.errors.JaxRuntimeError, match="PrivacyError: step 18 is refused: the run has 18 steps"):
        jax.block_until_ready(one(again, other, jnp.asarray(places.indices[0]), jnp.asarray(places.present[0])))


def test_a_sum_over_those_who_only_fill_up_a_batch_is_refused():
    """Without present= example 0, which fills up the last batch of an epoch, would be in the sum twice more, and at a step that is not its own."""
    x, y = map(jnp.asarray, data_of())

    def mean_of(chunk, present):
        def body(carry, at):
            total = clipped_sum(loss, carry, (x[at.indices], y[at.indices]), CLIP, present=at.present if present else None)
            return carry, private_mean(total, at.rows)

        return jax.lax.scan(body, params_of(), chunk)[1]

    for chunk in noise_of().chunks(3):  # all of them, before one that is filled up
        mean_of(chunk, True)
        with pytest.raises(PrivacyError, match="filled up is refused.*present=present"):
            mean_of(chunk, False)
    whole = order_of(examples=20)
    mean_of(noise_of(order=whole).chunk(3), False)
    with pytest.raises(PrivacyError, match="filled up is refused"):
        mean_of(noise_of(order=whole).chunk(2, [[0, 1], [2]]), False)
    draw = callback_noise(noise_of())
    present = jnp.arange(4) < 2
    with pytest.raises(PrivacyError, match="filled up is refused"):
        private_mean(clipped_sum(loss, params_of(), (x[:4], y[:4]), CLIP), draw(jnp.arange(4), present))
    # Sums of another origin: nobody knows.
    private_mean(ClippedSum(params_of(), bound=CLIP), draw(jnp.asarray(order_of().batch(1))[:2], present[:2]))


def test_a_callback_is_refused_where_it_could_be_repeated_or_dropped():
    noise, order = noise_of(), order_of()
    draw = callback_noise(noise)
    with pytest.raises(ValueError, match="vmap"):
        jax.vmap(draw)(jnp.asarray([order.batch(0), order.batch(1)]))
    with pytest.raises(NotImplementedError, match="checkpoint"):
        jax.grad(jax.checkpoint(lambda w: (draw(jnp.asarray(order.batch(0))).flat * w).sum()))(1.0)
    assert noise.step == 0
    # A row that nothing depends on is drawn all the same.
    jax.block_until_ready(jax.jit(lambda indices: [draw(indices), indices.sum()][1])(jnp.asarray(order.batch(0))))
    jax.effects_barrier()
    assert noise.step == 1
    # The guard decides when it runs.
    with pytest.raises(jax.errors.JaxRuntimeError, match="PrivacyError: step 1 is refused"):
        jax.block_until_ready(jax.jit(draw)(jnp.asarray(order.batch(0))))
    assert noise.step == 1
    for indices, message in [(jnp.zeros(3), "indices must be whole numbers"), (jnp.zeros((2, 2), int), "indices must be whole numbers")]:
        with pytest.raises(ValueError, match=message):
            draw(indices)
    with pytest.raises(ValueError, match="present must be 2 truth values"):
        draw(jnp.asarray([0, 1]), jnp.asarray([True]))
    with pytest.raises(ValueError, match="noise must be a Noise"):
        callback_noise(noise.run)
    with pytest.raises(ValueError, match="rows that are made on the host"):
        callback_noise(noise_of(rows=lambda run: FromElsewhere(run)))


class FromElsewhere:
    """Another source of rows, as one on a device would be."""

    def __init__(self, run):
        self._run = run

    def run(self):
        return self._run

    def take(self):
        return jnp.asarray(self._run.row())

    def restored(self):
        pass


def test_another_source_of_rows_can_be_plugged_in():
    noise, expected = noise_of(rows=FromElsewhere), noise_of()
    assert np.array_equal(noise.next().flat, expected.next().flat)
    assert np.array_equal(noise.chunk(3).rows.flat, expected.chunk(3).rows.flat)
    assert noise.state_dict() == expected.state_dict()
    assert noise.run.state_dict()["units"] == EXAMPLES
    assert "another source gave it" in noise.statement() and "another source" not in expected.statement()
