"""Private fine-tuning with the Trainer of Hugging Face and adapters of peft.

A small BERT with random weights is trained on a public task with Trainer. Then adapters (LoRA) and the classifier are trained on a private
task with PrivateTrainer; all other weights are frozen. Both tasks are generated, and nothing is downloaded. Needs torch, transformers,
accelerate and peft, and takes one to two minutes on one core.
"""

import argparse
import tempfile

import numpy as np
import torch
from peft import LoraConfig, get_peft_model
from torch.nn import functional as F
from torch.utils.data import Dataset
from transformers import BertConfig, BertForSequenceClassification, EvalPrediction, Trainer, TrainingArguments

import antiphon
from antiphon.hf import PrivateTrainer

TOKENS, LENGTH, CLASSES = 32, 16, 4
PADDING = TOKENS  # a token of its own


class Sequences(Dataset):
    """Texts of 12 to 16 tokens, padded to a fixed length, and which group of tokens is the most frequent."""

    def __init__(self, examples: int, group: torch.Tensor, generator: torch.Generator) -> None:
        likely = torch.randint(CLASSES, (examples, 1), generator=generator)  # tokens of this group come three times as often
        tokens = torch.multinomial(1.0 + 2.0 * (group == likely), LENGTH, replacement=True, generator=generator)
        self.mask = torch.arange(LENGTH) < torch.randint(12, LENGTH + 1, (examples, 1), generator=generator)
        self.tokens = torch.where(self.mask, tokens, PADDING)
        counts = (F.one_hot(group[tokens], CLASSES) * self.mask[:, :, None]).sum(1)
        self.labels = counts.argmax(1)

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"input_ids": self.tokens[index], "attention_mask": self.mask[index].long(), "labels": self.labels[index]}


def accuracy(prediction: EvalPrediction) -> dict[str, float]:
    return {"accuracy": float(np.mean(prediction.predictions.argmax(1) == prediction.label_ids))}


def main() -> None:
    parser = argparse.ArgumentParser(description="Private fine-tuning with the Trainer of Hugging Face and adapters of peft")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--epsilon", type=float, default=8.0)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()

    torch.manual_seed(arguments.seed)
    generator = torch.Generator().manual_seed(arguments.seed)
    public_groups = torch.arange(TOKENS) // 8  # tokens 0 to 7, 8 to 15, …
    private_groups = torch.arange(TOKENS) // 4 % CLASSES  # tokens 0 to 3 and 16 to 19, …
    base = BertForSequenceClassification(
        BertConfig(
            vocab_size=TOKENS + 1, pad_token_id=PADDING, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=128,
            max_position_embeddings=LENGTH, num_labels=CLASSES,
        )
    )  # fmt: skip

    with tempfile.TemporaryDirectory() as folder:
        common = dict(
            use_cpu=True, report_to=[], disable_tqdm=True, log_level="error", logging_strategy="no", save_strategy="no", seed=arguments.seed,
            per_device_eval_batch_size=500,
        )  # fmt: skip
        public = TrainingArguments(f"{folder}/public", per_device_train_batch_size=128, max_steps=300, learning_rate=3e-3, **common)
        Trainer(base, public, train_dataset=Sequences(20_000, public_groups, generator)).train()

        train = Sequences(2000, private_groups, generator)
        test = Sequences(2000, private_groups, generator)  # other examples: not private
        model = get_peft_model(base, LoraConfig(task_type="SEQ_CLS", r=8, target_modules=["query", "value", "dense"]))
        model.print_trainable_parameters()
        # With SGD the noise can be optimized for the momentum. The learning rate is the best of 0.03, 0.1 and 0.3: the privacy statement covers
        # one run with given settings, not the choice of the settings.
        optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1, momentum=0.9)
        trainer = PrivateTrainer(
            model,
            # max_grad_norm of TrainingArguments clips after the noise: off.
            TrainingArguments(
                f"{folder}/private", per_device_train_batch_size=100, num_train_epochs=arguments.epochs, lr_scheduler_type="constant",
                max_grad_norm=0, **common,
            ),
            train_dataset=train,
            eval_dataset=test,
            compute_metrics=accuracy,
            optimizers=(optimizer, None),
            in_workload=True,
            epsilon=arguments.epsilon,
            delta=1e-5,
            max_grad_norm=1.0,
            # A seeded key is for a demonstration that can be repeated. It is NOT private: whoever knows the seed can compute the noise. A
            # real run has key="run.key", a file that is made with a fresh key.
            key=antiphon.Key.from_seed(arguments.seed),
        )  # fmt: skip
        print(f"private task, before: accuracy {trainer.evaluate()['eval_accuracy']:.3f}")
        trainer.train()
        print(f"private task, after: accuracy {trainer.evaluate()['eval_accuracy']:.3f}")
    print("\nThe statement of the run. It holds for a secret key, not for one from a seed:")
    print(trainer.statement())


if __name__ == "__main__":
    main()
