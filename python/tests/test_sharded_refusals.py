"""What does not work in several processes is refused in all of them, and nobody waits for the others."""

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("torch.distributed.fsdp", reason="no sharded models in this PyTorch")

import sharded_cases as cases  # noqa: E402
from sharded_workers import pool  # noqa: E402


@pytest.fixture(scope="module")
def workers():
    return pool()


@pytest.mark.parametrize(
    "case, kind, message",
    [
        ("layout", "ValueError", "the layout of parameters must be the same on all ranks"),
        ("weights", "ValueError", "the digest of parameters and buffers (seed every process alike"),
        ("kind", "ValueError", "the layout of parameters must be the same on all ranks"),
        ("seed", "ValueError", "the order of the data must be the same on all ranks"),
        ("batch_size", "ValueError", "the order of the data must be the same on all ranks"),
        ("clip", "ValueError", "the privacy must be the same on all ranks, got (None, 0.5, 0.001, 0.5, 'zero-out') on rank 0"),
        ("noise", "ValueError", "the privacy must be the same on all ranks"),
        ("data", "ValueError", "the order of the data must be the same on all ranks"),
        ("rate", "ValueError", "optimizer must be the same on all ranks"),
        ("argument", "ValueError", "epochs must be a whole number, at least 1, got 0"),
        ("mechanism", "ValueError", "the mechanism must be the same on all ranks"),
        ("key", "", "/no/such/folder"),
        ("DataParallel", "ValueError", "model must be the module itself, got DataParallel"),
        ("mesh", "ValueError", "model must be sharded over all 2 processes of the default group, got a mesh of the ranks"),
        ("DDP of some", "ValueError", "model must be in all 2 processes of the default group, got a DistributedDataParallel of the ranks"),
        ("FSDP1", "ValueError", "model must be the module itself, got FullyShardedDataParallel"),
        ("precision", "ValueError", "model must be sharded without a mixed precision policy"),
        ("offload", "ValueError", "model must be sharded without offloading to the CPU"),
        ("partial", "ValueError", "parameters must be placed by Shard or Replicate"),
        ("tensor parallel", "ValueError", "tensor parallelism and the like are not supported"),
        ("ZeroRedundancyOptimizer", "ValueError", "got ZeroRedundancyOptimizer: shard the model by fully_shard"),
        ("state_dict", "ValueError", "use save(folder) and load(folder)"),
    ],
)
def test_refused_in_all_processes(workers, case, kind, message):
    for error in workers.errors(2, cases.refused, case):
        assert kind in error.split(":")[0] and message in error, error


@pytest.mark.parametrize(
    "case, kind, message",
    [
        ("twice", "PrivacyError", "is in the batch twice"),
        ("wrong order", "PrivacyError", "would take part in a way that the privacy statement does not cover"),
        ("no indices", "PrivacyError", "a batch without indices is refused"),
        ("loss later", "", "broken"),
        ("places", "RuntimeError", ", step 1, participants'; rank 1 is at 'save after step 1"),
    ],
)
def test_what_one_process_finds_wrong_stops_the_step_in_all_and_the_run_goes_on(workers, case, kind, message):
    for found, steps in workers.run(2, cases.stopped, case):
        assert kind in found and message in found and steps == 12, found


def test_a_loss_that_fails_in_one_process(workers):
    for error in workers.errors(3, cases.stopped, "loss"):
        assert "broken" in error


def test_an_optimizer_that_fails_in_one_process(workers):
    for found, steps in workers.run(2, cases.stopped, "optimizer"):
        assert "division" in found and steps == 2, found


@pytest.mark.parametrize("kind", ["one", "fsdp"])
def test_noise_that_fails_in_one_process_is_used_in_none(workers, kind):
    """Nobody takes a step with a part of the noise, and the processes, which are at different steps now, do not go on."""
    for found, same in workers.run(2, cases.without_noise, kind):
        assert len(found) == 2 and "division" in found[0] and "must do the same at the same time" in found[1], found
        assert same


@pytest.mark.parametrize("how", ["weight data", "weight", "buffer", "data"])
def test_sharded_models_that_keep_something_of_examples_are_refused(workers, how):
    for error in workers.errors(2, cases.keeps, how):
        assert "PrivacyError" in error and "kept something of the examples" in error
