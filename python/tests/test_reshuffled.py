"""Epochs in a new order, minimum separation, and encoders of other people: mechanisms, verification and the guard."""

import numpy as np
import pytest

import antiphon
from antiphon import PrivacyError, Schema


def test_a_mechanism_for_reshuffled_epochs():
    schema = Schema.reshuffled(4, 6)
    mechanism = antiphon.make("per-epoch", schema, momentum=0.9)
    verified = antiphon.verify(mechanism)
    assert mechanism.kind == "structured"
    assert verified.lower_bound is not None and verified.loss < 1.1 * verified.lower_bound
    # Block diagonal by epoch: the sensitivity is that of the largest columns.
    squared = sum(max(np.sum(mechanism.C[:, 6 * e : 6 * e + 6] ** 2, axis=0)) for e in range(4))
    assert verified.sensitivity == pytest.approx(np.sqrt(squared), rel=1e-9)
    fixed = antiphon.optimize(Schema.epochs(4, 6), momentum=0.9)
    assert fixed.loss < mechanism.loss
    names = [one.name for one in antiphon.compare(schema, without=["optimal"]).candidates]
    assert names[0] == "per-epoch"


def test_the_guard_lets_every_order_pass_and_no_second_participation():
    mechanism = antiphon.make("tree-online", Schema.reshuffled(2, 3), stamps=2)
    run = antiphon.PrivateRun(mechanism, key=antiphon.Key.from_seed(1), units=3, noise_multiplier=2.0, delta=1e-5, clip_norm=1.0, params=4)
    for batch in ([2], [0], [1], [0]):
        run.admit(batch)
        run.privatize(np.zeros(4, np.float32))
    with pytest.raises(PrivacyError, match="epoch"):
        run.admit([0])


def test_minimum_separation_has_mechanisms():
    mechanism = antiphon.make("fft", Schema.min_separation(20, 5, 3))
    assert antiphon.verify(mechanism).sensitivity <= mechanism.sensitivity


def test_an_encoder_of_somebody_else():
    c = np.tril(np.ones((6, 6)) / (1 + np.abs(np.subtract.outer(np.arange(6), np.arange(6)))))
    schema = Schema.epochs(2, 6)
    mechanism = antiphon.from_encoder(c, schema)
    assert np.allclose(mechanism.C, np.kron(np.eye(2), c))
    antiphon.verify(mechanism)
    again = antiphon.from_encoder(mechanism, Schema.epochs(4, 6), stamps=2)
    assert again.steps == 24
    with pytest.raises(ValueError, match="columns"):
        antiphon.from_encoder(np.eye(5), schema)
    with pytest.raises(ValueError, match="encoder"):
        antiphon.from_encoder(c, schema, stamps=3)
    with pytest.raises(ValueError, match="name must be one of"):
        antiphon.make("from", schema)
