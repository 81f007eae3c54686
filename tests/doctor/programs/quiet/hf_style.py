from dataclasses import dataclass

import torch
from torch import nn


@dataclass
class Output:
    loss: torch.Tensor | None
    logits: torch.Tensor


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.body, self.score = nn.Embedding(9, 8), nn.Linear(8, 8), nn.Linear(8, 3)
        self.drop = nn.Dropout(0.1)

    def forward(self, input_ids, labels=None):
        hidden = self.drop(torch.relu(self.body(self.embed(input_ids).mean(1))))
        logits = self.score(hidden)
        loss = nn.functional.cross_entropy(logits, labels) if labels is not None else None
        return Output(loss, logits)


class Trainer:
    def __init__(self, model, accumulate=2):
        self.model, self.accumulate = model, accumulate
        self.optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
        self.schedule = torch.optim.lr_scheduler.LinearLR(self.optimizer)
        self.tr_loss = torch.tensor(0.0)

    def training_step(self, inputs):
        self.model.train()
        loss = self.model(**inputs).loss / self.accumulate
        loss.backward()
        return loss.detach()

    def train(self, batches):
        for step, inputs in enumerate(batches):
            self.tr_loss += self.training_step(inputs)
            if (step + 1) % self.accumulate == 0:
                nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
                self.optimizer.step()
                self.schedule.step()
                self.model.zero_grad()
        return self.evaluate(batches)

    def evaluate(self, batches):
        self.model.eval()
        hits = []
        with torch.inference_mode():
            for inputs in batches:
                hits.append(self.model(**inputs).logits.argmax(-1) == inputs["labels"])
        return torch.cat(hits).float().mean().item()


batches = [
    {"input_ids": torch.randint(0, 9, (4, 5)), "labels": torch.randint(0, 3, (4,))}
    for _ in range(6)
]
Trainer(Classifier()).train(batches)
