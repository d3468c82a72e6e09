r"""A small GPT on characters of a generated text, with DiLoCo: torchrun --nproc-per-node 4 gpt.py @endpoint [STEPS]

    psd --method diloco --set optimizer=external --set workers=4 --set outer_momentum=0.5 --set codec.message=int8 \
        --endpoint-file endpoint

Workers step with AdamW and exchange every 50 steps as int8: 1/200 of the bytes of DDP in float32."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator

import torch
from torch import nn
from torch.nn.functional import cross_entropy

import psclient.torch

CONTEXT, WIDTH, HEADS, LAYERS, BATCH = 64, 96, 4, 3, 16
LETTERS = "\n +-=.0123456789abcdefghijklmnopqrstuvwxyz"


def make_text(seed: int, lines: int = 4000) -> torch.Tensor:
    """Sums, differences and owners of things: patterns of different lengths."""
    dice = random.Random(seed)
    names, things = ("ada", "alan", "grace", "kurt"), ("apple", "book", "clock", "drum")
    text = ""
    for _ in range(lines):
        a, b = dice.randrange(50), dice.randrange(50)
        who, thing = dice.choice(names), dice.choice(things)
        text += dice.choice(
            (f"{a} + {b} = {a + b}.\n", f"{a + b} - {b} = {a}.\n", f"{who} has a {thing}. the {thing} is {who}s.\n")
        )
    return torch.tensor([LETTERS.index(c) for c in text])


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attention = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))
        # Not persistent, so not part of the job.
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(CONTEXT), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm1(x)
        x = x + self.attention(y, y, y, attn_mask=self.mask, is_causal=True, need_weights=False)[0]
        out: torch.Tensor = x + self.mlp(self.norm2(x))
        return out


class Gpt(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.letters, self.places = nn.Embedding(len(LETTERS), WIDTH), nn.Embedding(CONTEXT, WIDTH)
        for table in (self.letters, self.places):
            nn.init.normal_(table.weight, std=0.1)
        self.blocks = nn.Sequential(*(Block() for _ in range(LAYERS)), nn.LayerNorm(WIDTH))
        self.head = nn.Linear(WIDTH, len(LETTERS), bias=False)
        self.head.weight = self.letters.weight  # tied: one tensor in the job

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.letters(ids) + self.places(torch.arange(CONTEXT))
        out: torch.Tensor = self.head(self.blocks(x))
        return out


def loss_of(model: nn.Module, text: torch.Tensor, dice: torch.Generator) -> torch.Tensor:
    at = torch.randint(len(text) - CONTEXT - 1, (BATCH,), generator=dice)
    pieces = torch.stack([text[i : i + CONTEXT + 1] for i in at])
    return cross_entropy(model(pieces[:, :-1]).flatten(0, 1), pieces[:, 1:].flatten())


def main(server: str, steps: int) -> None:
    torch.manual_seed(1)
    torch.set_num_threads(1)
    model = Gpt()
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.1)
    with psclient.torch.Trainer(model, optimizer, server=server) as worker:
        text, dice = make_text(seed=worker.rank), torch.Generator().manual_seed(worker.rank)
        count: Iterator[int] = worker.steps(range(steps))
        for _ in count:
            optimizer.zero_grad()
            loss = loss_of(model, text, dice)
            loss.backward()
            worker.step(BATCH)
            worker.report(loss=loss.item())
        worker.pull()  # the center
        with torch.no_grad():
            unseen, dice = make_text(seed=1000), torch.Generator().manual_seed(1)
            loss = torch.stack([loss_of(model, unseen, dice) for _ in range(20)]).mean()
        sent = worker.info.bytes_sent / 1e6
        print(f"worker {worker.rank}: the center's loss on unseen text is {float(loss):.3f} nats; {sent:.1f} MB sent", flush=True)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 500)
