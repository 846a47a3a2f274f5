"""CorrelatedNoise: the rounds of a private run, as a Flower strategy around another one."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from logging import INFO, getLogger
from pathlib import Path
from typing import Any

import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy

from .. import Clip, Key, Mechanism, PrivacyError, PrivateRun, Verified
from .._arguments import check_budget, check_norm, whole
from .._progress import Progress
from . import _state
from ._arrays import Layout
from ._clients import ClientId, Clients
from ._cohorts import cohorts_for, mechanism_of
from ._inner import CohortGrid, check_messages, memory_of, only_reply, refuse_forgetful, refuse_inner, remember
from ._replies import RoundReport, add_up

_log = getLogger("flwr").log
_Path = str | os.PathLike[str]


class _Round:
    """A round that is under way."""

    def __init__(self, arrays: ArrayRecord, cohort: list[int], asked: dict[int, int]) -> None:
        self.arrays, self.cohort = arrays, cohort
        #: Indices of clients by node, of those who can be reached.
        self.asked = asked


class CorrelatedNoise(Strategy):
    """Makes a strategy differentially private for every client, with noise that is correlated across rounds.

    strategy             the inner strategy: FedAvg, FedProx, FedAvgM, FedAdagrad, FedAdam, FedYogi, or one of your own that averages.
                         It must have fraction_evaluate=0.0. It gets one reply per round: the current arrays plus the noised mean update
    clients              how many clients the run has, or the list of their ids. A number: those who are connected when the first round
                         begins (the lowest ids, if they are more). Who joins later takes no part, and nobody takes the place of one who left
    clients_per_round    the size of a cohort. Sums are divided by it, whoever replies
    epochs, rounds       the length of the run: epochs for "fixed-order", where every client is asked once per epoch; rounds for
                         "min-separation"
    sampling             "fixed-order": clients are shuffled once (`seed`), and every epoch has the same cohorts in the same order. Or
                         "min-separation": a client that was asked in round t is asked in round t + min_separation at the earliest, and
                         at most max_participations times; cohorts are drawn by a generator with `seed`
    epsilon, delta       the privacy of the whole run; or noise_multiplier and delta. Choose delta well below one over the number of
                         clients
    clip_norm            the update of every client, over all arrays together, is clipped to this norm by the server
    zero_threshold       an update with a larger entry (absolute value) than this counts as zero. A fixed number that does not come from
                         the data
    key                  a file for the key of the noise: made with a fresh key, or read to resume a run. Or a Key
    checkpoint           a file for the state of the run, written before the first round and after every round, before anybody sees the
                         new arrays. If it is there when the run begins, the run goes on from it. Keep it as private as the data
    mechanism            a name that `antiphon.make` knows (with `stamps`), a Mechanism, or a mechanism file. None: "optimal" in a fixed
                         order, and "blt" under minimum separation, where no optimum can be computed
    client_id            the id of a client by its node id: a function or a dict (None: no client). It must stay the same when the server
                         is started again. Default: the node id, which is new in every simulation
    wait_for             clients that must be connected before the first round of this process, if they are known by then (default: all)
    log                  a file for who took part when, for antiphon.audit: indices in `client_ids`. Keep it as private as the data
    noise_memory         bytes for noise while training

    What becomes of replies (`reports` has the numbers of every round; no noise protects them, so do not give them out):
    - a client that does not reply, fails, or sends NaN, infinity, or other arrays than it got counts as zero. It took part all the same
    - a second reply of a client in one round is dropped, and so is a reply of a node that was not asked
    - all clients weigh the same: weights such as num-examples would let one client add more than the clip norm
    - metrics are dropped: a training loss comes from the data of the client, and no noise protects it
    - the server has to see every update alone to clip it: under secure aggregation (SecAgg, SecAgg+) this does not work
    Only if a whole first round has replies with other arrays than the model's is the round refused: the client app is wrong then.
    """

    def __init__(
        self,
        strategy: Strategy,
        *,
        clients: int | Sequence[ClientId],
        clients_per_round: int,
        delta: float,
        clip_norm: float,
        key: Key | _Path,
        epochs: int | None = None,
        rounds: int | None = None,
        epsilon: float | None = None,
        noise_multiplier: float | None = None,
        sampling: str = "fixed-order",
        min_separation: int | None = None,
        max_participations: int | None = None,
        mechanism: str | os.PathLike[str] | Mechanism | Verified | None = None,
        stamps: int = 1,
        zero_threshold: float | None = None,
        client_id: Callable[[int], ClientId] | Mapping[int, ClientId] | None = None,
        wait_for: int | None = None,
        seed: int = 0,
        adjacency: str = "zero-out",
        log: _Path | None = None,
        checkpoint: _Path | None = None,
        noise_memory: int = 1 << 30,
        progress: Progress = None,
    ) -> None:
        self._clients = Clients(clients, client_id, wait_for)
        self.cohorts = cohorts_for(
            sampling,
            self._clients.count,
            clients_per_round,
            epochs=epochs,
            rounds=rounds,
            min_separation=min_separation,
            max_participations=max_participations,
            seed=seed,
        )
        self.clients_per_round = int(clients_per_round)
        if isinstance(strategy, CorrelatedNoise):
            raise ValueError("strategy must be one without noise of its own, got CorrelatedNoise in itself")
        refuse_inner(strategy, min(len(self.cohorts.batch(step)) for step in range(self.cohorts.steps)))
        if checkpoint is not None:
            refuse_forgetful(strategy)
        self.strategy = strategy
        clip_norm = check_norm("clip_norm", clip_norm)
        self.zero_threshold = None if zero_threshold is None else check_norm("zero_threshold", zero_threshold)
        noise_memory = whole("noise_memory", noise_memory, (1 << 63) - 1)
        # The budget before the work of the optimizer: a wrong epsilon is found at once.
        check_budget(epsilon, noise_multiplier, delta)
        self._name, made = mechanism_of(self.cohorts, mechanism, stamps=stamps, progress=progress)
        self._settings: dict[str, Any] = dict(
            epsilon=epsilon,
            noise_multiplier=noise_multiplier,
            delta=delta,
            clip_norm=clip_norm,
            key=key,
            units=self._clients.count,
            unit="user",
            adjacency=adjacency,
            memory=noise_memory,
            log=log,
        )
        self._mechanism = made
        self._checkpoint = None if checkpoint is None else Path(checkpoint)
        self._run: PrivateRun | None = None
        self._layout: Layout | None = None
        self._clip: Clip | None = None
        self._arrays: ArrayRecord | None = None
        self._under_way: _Round | None = None
        self._settled = self._loaded = self._fitting = False
        #: Rounds that are done in the checkpoint, and by which its file is known again.
        self._kept: int | None = None
        self._written: tuple[int, ...] | None = None
        #: Rounds that were done before `start`, which counts from one.
        self._before = 0
        #: What became of the replies, by round of this process. No noise protects these numbers: do not give them out.
        self.reports: list[RoundReport] = []

    @property
    def run(self) -> PrivateRun:
        """The private run; it begins with the first arrays."""
        if self._run is None:
            raise ValueError("the run must have begun: call start(), configure_train() or load() before")
        return self._run

    @property
    def arrays(self) -> ArrayRecord:
        """The arrays after the last round that is done: the privacy statement covers them, and they may be given out."""
        if self._arrays is None:
            raise ValueError("the run must have begun: call start(), configure_train() or load() before")
        return self._arrays

    @property
    def client_ids(self) -> list[ClientId]:
        """The clients of the run, in the order of their indices in the log."""
        if self._clients.ids is None:
            raise ValueError("the clients must be known: they are settled when the first round begins")
        return list(self._clients.ids)

    def statement(self) -> str:
        """What ε means, what it does not cover, and what was not checked."""
        return self.run._statement_of_training(
            self._name,
            "The statement holds for the arrays that the server gives out after a round. It does not hold against the server itself, which "
            "gets the updates before noise is added, nor for its log and reports. Not checked: that a user has no more than one client id, "
            "that the reply of a node comes from the client whose id it has, and that it depends on no other client except by the arrays "
            "that the server gave out.",
        )

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord,
        num_rounds: int | None = None,
        timeout: float = 3600,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: Callable[[int, ArrayRecord], MetricRecord | None] | None = None,
    ) -> Result:
        """Trains until `num_rounds` rounds of the run are done (default: all), as Strategy.start does.

        If there is a checkpoint, or if rounds are done already, it goes on from there and not from `initial_arrays`, and rounds keep
        their numbers. `evaluate_fn` may use public data only: what it returns is shown without noise. In a resumed run, the result has
        the metrics of the rounds of this process.
        """
        if evaluate_config is not None:
            raise ValueError("evaluate_config must not be given: clients are not asked to evaluate, because no noise protects their metrics")
        steps = self.cohorts.steps
        wanted = steps if num_rounds is None else whole("num_rounds", num_rounds)
        if wanted > steps:
            raise PrivacyError(f"num_rounds must be at most {steps}, got {wanted}: the noise and the privacy statement are for {steps} rounds")
        if self._run is None and self._checkpoint is not None and self._checkpoint.exists():
            self.load(self._checkpoint)
        if self._run is None:
            self._begin(initial_arrays)
        self._check_layout(initial_arrays)
        done = self.run.step
        if done == steps and not self._loaded:
            raise PrivacyError(
                f"all {steps} rounds of the run are done: more would not be covered by the privacy statement. The model is in `arrays`"
            )
        if wanted < done:
            raise ValueError(f"num_rounds must be in {done}..={steps}, got {wanted}: it counts the rounds of the whole run, and {done} are done")
        if done:
            _log(INFO, "antiphon: %d of %d rounds are done; [ROUND 1] below is round %d of the run", done, steps, done + 1)

        def evaluated(number: int, arrays: ArrayRecord) -> MetricRecord | None:
            assert evaluate_fn is not None
            return evaluate_fn(number + done, arrays)

        self._before = done
        try:
            result = super().start(grid, self.arrays, wanted - done, timeout, train_config, None, evaluated if evaluate_fn else None)
        finally:
            self._before = 0
        result.arrays = self.arrays
        result.evaluate_metrics_serverapp = {number + done: found for number, found in result.evaluate_metrics_serverapp.items()}
        return result

    def configure_train(self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid) -> Iterable[Message]:
        """The messages to the cohort of the round. Who takes part was settled before the run."""
        if self._run is None:
            self._begin(arrays)
        self._check_layout(arrays)
        number = self._number(server_round)
        if not self._settled:
            self._clients.settle(grid)
            self._settled = True
        self._refuse_other_process()
        if self._checkpoint is not None and self._kept != self.run.step:
            # Before the first round: a key begins one run, and a kill in it would lose the key. And after a round whose state could not be
            # written: clients get no arrays that a resumed run would make once more, with the same noise on other updates.
            self.save(self._checkpoint)
        elif self._checkpoint is None and self.run.step:
            # Clients get these arrays now: a run that goes on from an earlier state would make them once more, with the same noise on other
            # updates. The key remembers it, as if there were a state.
            self.run.state_is_kept()
        cohort = self.cohorts.batch(self.run.step)
        nodes = self._clients.nodes(grid, cohort)
        # Those who are not connected have no node: the inner strategy sees a number that no node has, and their messages are not sent.
        shown = {(-1 - index if node is None else node): index for index, node in nodes.items()}
        messages = list(self.strategy.configure_train(number, arrays, config, CohortGrid(grid, list(shown))))
        check_messages(messages, list(shown))
        asked = {node: index for node, index in shown.items() if nodes[index] is not None}
        self._under_way = _Round(arrays, cohort, asked)
        return [message for message in messages if message.metadata.dst_node_id in asked]

    def aggregate_train(self, server_round: int, replies: Iterable[Message]) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """The arrays after the round, and no metrics."""
        number, under_way = self._number(server_round), self._under_way
        if under_way is None:
            raise ValueError(f"configure_train must be called before aggregate_train, got round {number} without it")
        assert self._layout is not None and self._clip is not None
        current = self._layout.flat(under_way.arrays)
        report = RoundReport(number, len(under_way.cohort))
        total = add_up(replies, under_way.asked, current, self._layout, self._clip, self.zero_threshold, report)
        report.tell()
        self._refuse_unfit(report)
        # The whole cohort, whoever replied: privacy is accounted for those who were asked.
        self.run.admit(under_way.cohort)
        self._under_way = None
        self.run.privatize(total)
        self.reports.append(report)
        reply = only_reply(self.strategy, self._layout.record(current + total / self.clients_per_round))
        aggregated, _ = self.strategy.aggregate_train(number, [reply])
        if aggregated is None:
            raise ValueError(f"the inner strategy must return arrays, got None in round {number}")
        self._arrays = self._layout.cast(aggregated)
        if self._checkpoint is not None:
            self.save(self._checkpoint)
        return self._arrays, None

    def configure_evaluate(self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid) -> Iterable[Message]:
        """Nobody is asked: metrics of clients come from private data, and no noise protects them."""
        return []

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """Nothing, as nobody was asked."""
        if list(replies):
            raise PrivacyError(
                "metrics of clients are refused: they come from private data, and no noise protects them. Evaluate on public data by evaluate_fn"
            )
        return None

    def summary(self) -> None:
        """Logs the settings."""
        _log(INFO, "\t├──> antiphon: correlated noise (%s), user-level", self._name)
        _log(INFO, "\t│\t├── Privacy of all %d rounds: epsilon %.4g at delta %.4g", self.cohorts.steps, self.run.epsilon, self.run.delta)
        _log(INFO, "\t│\t├── Clients: %d, of whom %d per round", self._clients.count, self.clients_per_round)
        _log(INFO, "\t│\t└── Clip norm: %s | zero threshold: %s", self.run.clip_norm, self.zero_threshold)
        self.strategy.summary()

    def state_dict(self) -> dict[str, Any]:
        """The run, its clients, the arrays and what the inner strategy remembers: all that is needed to go on, except the key."""
        return {
            "antiphon_flower": 1,
            "run": self.run.state_dict(),
            "cohorts": self.cohorts._description(),
            "zero_threshold": self.zero_threshold,
            "clients": self._clients.ids,
            "inner": type(self.strategy).__name__,
            "arrays": {name: array.numpy() for name, array in self.arrays.items()},
            "memory": memory_of(self.strategy),
        }

    def load_state_dict(self, state: dict[str, Any], *, repeat_noise: bool = False) -> None:
        """Goes on after the last round of a state. The run must be the same: mechanism, noise, clip norm, layout, cohorts and key are compared.
        If the client app is deterministic, the run ends with the same arrays bit for bit.

        A state is for going on after a crash. Rounds after it that were already made get the same noise again: do not go back to a state to
        try other settings, the difference of two such runs has no noise. Once `save` has written a later state, or clients got later arrays, an
        earlier state is refused, unless repeat_noise=True says that the later one is lost and that nobody, clients included, got what followed
        from it. So only `checkpoint`, which keeps every round, survives a crash at any time.
        """
        if self._run is not None:
            raise ValueError("a state must be loaded before the run begins, got a strategy whose run has begun")
        if not isinstance(state, dict) or state.get("antiphon_flower") != 1:
            raise ValueError("state must be what state_dict() of a CorrelatedNoise gave, version 1")
        ours = {**self.cohorts._description(), "zero_threshold": self.zero_threshold, "inner": type(self.strategy).__name__}
        theirs = {**state["cohorts"], "zero_threshold": state["zero_threshold"], "inner": state["inner"]}
        differ = [f"{name} was {theirs.get(name)} and is {ours.get(name)}" for name in {**ours, **theirs} if ours.get(name) != theirs.get(name)]
        if differ:
            raise ValueError(f"the state must be of a run with the same settings: {'; '.join(differ)}")
        if None not in (self._clients.ids, state["clients"]) and self._clients.ids != state["clients"]:
            raise PrivacyError("the state is of a run with other clients: the clients of a run are settled when it begins")
        refuse_forgetful(self.strategy)
        try:
            self._begin(ArrayRecord({name: Array(np.asarray(values)) for name, values in state["arrays"].items()}))
            self.run.load_state_dict(state["run"], repeat_noise=repeat_noise)
        except BaseException:
            self._run = self._layout = self._clip = self._arrays = None
            raise
        self._clients.ids = state["clients"]
        remember(self.strategy, state["memory"])
        self._loaded = True

    def save(self, path: _Path) -> None:
        """Writes the state to a file, whole or not at all: a kill leaves the old file or the new one. `checkpoint` does it every round.

        Keep the file as private as the data: it says who takes part when.
        """
        if self._checkpoint is not None and Path(path) == self._checkpoint:
            self._refuse_other_process()
        _state.write(path, self.state_dict())
        self.run.state_is_kept()
        if self._checkpoint is not None and Path(path) == self._checkpoint:
            self._kept, self._written = self.run.step, _state.stamp(path)

    def load(self, path: _Path, *, repeat_noise: bool = False) -> None:
        """Goes on from a file that `save` or `checkpoint` wrote, as `load_state_dict` does."""
        self.load_state_dict(_state.read(path), repeat_noise=repeat_noise)
        if self._checkpoint is not None and Path(path) == self._checkpoint:
            self._kept, self._written = self.run.step, _state.stamp(path)

    def _begin(self, arrays: ArrayRecord) -> None:
        layout = Layout.of(arrays)
        run = PrivateRun(self._mechanism, params=layout.params, layout=layout.digest, **self._settings)
        run.rehearse(self.cohorts.batch)  # refused now, not in the middle of the run
        self._run, self._layout, self._clip, self._arrays = run, layout, run.clip(), arrays

    def _check_layout(self, arrays: ArrayRecord) -> None:
        found = Layout.of(arrays)
        if found != self._layout:
            raise PrivacyError("the arrays must have the names, shapes and types of those that the run began with: its noise is made for them")

    def _number(self, server_round: int) -> int:
        """The round of the run, counted from 1."""
        number, done = server_round + self._before, self.run.step
        if done == self.run.steps:
            raise PrivacyError(f"round {number} is refused: all {done} rounds of the run are done")
        if number != done + 1:
            raise PrivacyError(f"round {number} is refused: the next round of the run is {done + 1}, and each gets noise once")
        return number

    def _refuse_other_process(self) -> None:
        """Two processes that go on from one state, such as one that was taken for dead: clients would get the same noise on other updates."""
        if self._checkpoint is not None and self._written is not None and _state.stamp(self._checkpoint) not in (None, self._written):
            raise PrivacyError(
                f"{os.fspath(self._checkpoint)} was written by another process since this one wrote or read it: a run that goes on twice gives "
                "the same noise to different updates, and it cancels in their difference. Let one process go on; this one is behind"
            )

    def _refuse_unfit(self, report: RoundReport) -> None:
        """A client app that sends other arrays, found in the first round: otherwise all rounds would be noise alone."""
        if not self._fitting and report.wrong_arrays > 1 and report.wrong_arrays == report.asked - report.missing:
            raise ValueError(
                f"clients must reply with the arrays of the model, got others from all {report.wrong_arrays} that replied: {report.reasons[0]}. "
                "The round was not made"
            )
        self._fitting = self._fitting or report.counted > 0
