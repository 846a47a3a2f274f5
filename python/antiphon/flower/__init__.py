"""User-level private training in Flower, with noise correlated across rounds: a wrapper around a strategy.

    strategy = antiphon.flower.CorrelatedNoise(
        FedAvgM(fraction_evaluate=0.0, server_momentum=0.9), clients=100, clients_per_round=10, epochs=4,
        epsilon=8, delta=1e-3, clip_norm=0.5, key="run.key", checkpoint="run.state")
    result = strategy.start(grid, initial_arrays, evaluate_fn=on_public_data)   # all 40 rounds
    print(strategy.statement())

The unit of privacy is the client, and rounds are steps. The server clips the update of every client, adds them up with equal weights,
adds the noise of the round, and gives the noised mean to the inner strategy as the only reply of the round. Nothing else that clients
send goes further: their metrics are dropped, and they are not asked to evaluate.

The server has to see single updates to clip them, so this does not work under secure aggregation (SecAgg, SecAgg+), where it sees
their sum alone.

| file | room |
|---|---|
| `_strategy` | CorrelatedNoise: the rounds of a run |
| `_cohorts` | who is asked in which round |
| `_clients` | which node is which client |
| `_replies` | from replies to a clipped sum; what is dropped, and what counts as zero |
| `_inner` | the strategy inside: which ones fit, what they see, what they remember |
| `_arrays` | the arrays of a model as one vector |
| `_state` | state files, without pickle |
"""

import importlib.util as _util

if _util.find_spec("flwr") is None:
    raise ImportError('antiphon.flower needs Flower: pip install "antiphon[flower]", from a clone "./python[flower]"')

from ._clients import partition_ids, tell_partition_id
from ._cohorts import SeparatedCohorts
from ._replies import RoundReport
from ._strategy import CorrelatedNoise

__all__ = ["CorrelatedNoise", "RoundReport", "SeparatedCohorts", "partition_ids", "tell_partition_id"]
