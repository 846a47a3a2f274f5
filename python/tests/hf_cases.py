"""Small models, data and trainers for the tests of antiphon.hf. Also a program that is killed and started again: `hf_cases.py FOLDER` goes on
from the last whole checkpoint in FOLDER/out if there is one, and prints a digest of the trained parameters at the end."""

import os
import sys
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
from torch.utils.data import Dataset
from transformers import BertConfig, BertForSequenceClassification, GPT2Config, GPT2LMHeadModel, TrainingArguments

from antiphon import Key
from antiphon.hf import PrivateTrainer

EXAMPLES, BATCH, EPOCHS = 44, 8, 4
STEPS_PER_EPOCH = 6  # the last batch has 4 examples
STEPS = EPOCHS * STEPS_PER_EPOCH


class Texts(Dataset):
    """Texts of 5 to 8 tokens, padded to 8. The label says which half of the vocabulary the tokens are from."""

    def __init__(self, examples=EXAMPLES, seed=0):
        generator = torch.Generator().manual_seed(seed)
        self.labels = torch.randint(2, (examples,), generator=generator)
        self.mask = torch.arange(8) < torch.randint(5, 9, (examples, 1), generator=generator)
        self.tokens = torch.where(self.mask, torch.randint(1, 20, (examples, 8), generator=generator) + 20 * self.labels[:, None], 0)

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, index):
        return {"input_ids": self.tokens[index], "attention_mask": self.mask[index].long(), "labels": self.labels[index]}


def bert(seed=0, dropout=0.1):
    torch.manual_seed(seed)
    return BertForSequenceClassification(
        BertConfig(vocab_size=48, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=32, max_position_embeddings=8,
                   hidden_dropout_prob=dropout, attention_probs_dropout_prob=dropout, initializer_range=0.1)
    )  # fmt: skip


def gpt(seed=0):
    torch.manual_seed(seed)
    return GPT2LMHeadModel(GPT2Config(vocab_size=48, n_embd=16, n_layer=1, n_head=2, n_positions=8, bos_token_id=0, eos_token_id=0))


def adapted(model=None, **changed):
    from peft import LoraConfig, get_peft_model

    torch.manual_seed(1)
    settings = dict(task_type="SEQ_CLS", r=4, target_modules=["query", "value"], lora_dropout=0.1)
    settings.update(changed)
    return get_peft_model(model or bert(), LoraConfig(**settings))


def arguments_of(folder, **changed):
    settings = dict(
        per_device_train_batch_size=BATCH, num_train_epochs=EPOCHS, learning_rate=0.01, max_grad_norm=0, use_cpu=True, report_to=[],
        save_strategy="no", logging_steps=2, disable_tqdm=True, log_level="error",
    )  # fmt: skip
    settings.update(changed)
    return TrainingArguments(str(folder), **settings)


def trainer_of(folder, model=None, arguments=None, **changed):
    settings = dict(train_dataset=Texts(), noise_multiplier=0.5, delta=1e-3, max_grad_norm=0.5, key=Key.from_seed(1))
    settings.update(changed)
    return PrivateTrainer(model or adapted(), arguments_of(folder, **(arguments or {})), **settings)


def trained(model):
    return torch.cat([p.detach().flatten() for p in model.parameters() if p.requires_grad])


def main(folder):
    torch.set_num_threads(1)
    out = folder / "out"
    arguments = dict(save_strategy="steps", save_steps=3, save_total_limit=2)
    trainer = trainer_of(out, arguments=arguments, key=folder / "run.key", log=folder / "log", mechanism="tree-online")
    resumed = any(out.glob("checkpoint-*/antiphon.pt"))
    print("begun", flush=True)
    trainer.train(resume_from_checkpoint=resumed)
    print("resumed" if resumed else "straight", trained(trainer.model).double().numpy().tobytes().hex())


if __name__ == "__main__":
    main(Path(sys.argv[1]))
