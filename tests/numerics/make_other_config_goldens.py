#!/usr/bin/env python3
"""Makes tests/fixtures/other_configs/training_arguments*.json: what transformers writes of its TrainingArguments, with
nothing said and with much said. Needs transformers and accelerate; written with transformers 5.23:
    python tests/numerics/make_other_config_goldens.py
"""

import pathlib

from transformers import TrainingArguments

OUT = pathlib.Path(__file__).resolve().parent.parent / "fixtures" / "other_configs"


def write(name, **said):
    arguments = TrainingArguments(output_dir="out", use_cpu=True, **said)
    (OUT / name).write_text(arguments.to_json_string() + "\n")


def main():
    write("training_arguments.json")
    write("training_arguments_said.json", per_device_train_batch_size=2, gradient_accumulation_steps=4, max_steps=1000,
          learning_rate=2e-5, lr_scheduler_type="cosine", warmup_steps=0.03, weight_decay=0.1, adam_beta2=0.95, bf16=True,
          gradient_checkpointing=True, seed=7, eval_strategy="steps", eval_steps=50, save_steps=200, logging_steps=10,
          optim="adamw_torch", max_grad_norm=0.5, label_smoothing_factor=0.1)
    write("training_arguments_epochs.json", num_train_epochs=2.5, optim="adafactor", lr_scheduler_type="polynomial",
          warmup_steps=100, save_strategy="epoch", neftune_noise_alpha=5.0)


if __name__ == "__main__":
    main()
