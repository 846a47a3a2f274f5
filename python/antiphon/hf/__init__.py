"""Private training with the Trainer of Hugging Face transformers, with noise that is correlated across steps.

    trainer = antiphon.hf.PrivateTrainer(
        model, TrainingArguments("out", per_device_train_batch_size=500, num_train_epochs=20, max_grad_norm=0),
        train_dataset=data, epsilon=8, delta=1e-5, max_grad_norm=1.0, key="run.key")
    trainer.train()
    print(trainer.statement())

Made for adapters (peft): frozen weights cost no noise. The Trainer keeps what does not decide about privacy: optimizer, learning rates,
callbacks, evaluation, checkpoints. The order of the data, per-example gradients, clipping and noise are those of `antiphon.torch`.
The loss on training examples is not private: it is not logged, saved or returned.

| file | room |
|---|---|
| `_trainer` | PrivateTrainer |
| `_refuse` | settings of the Trainer for which the privacy statement would not hold, or nothing would work |
| `_attention` | attention masks that torch.func.vmap can handle |
"""

import importlib.util as _util

for _name in ("torch", "transformers", "accelerate"):
    if _util.find_spec(_name) is None:
        raise ImportError(f'antiphon.hf needs {_name}: pip install "antiphon[hf]", from a clone "./python[hf]"')

from ._trainer import PrivateTrainer

__all__ = ["PrivateTrainer"]
