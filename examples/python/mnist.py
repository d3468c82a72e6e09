"""A LeNet-like net on MNIST, as one worker: python mnist.py @endpoint DIR [EPOCHS]. Start several of them.

DIR has the four files of MNIST. psd chooses the method: psd --method diloco --set optimizer=external …"""

import gzip
import sys

import numpy as np
import torch
from torch import nn
from torch.nn.functional import cross_entropy

import psclient.torch

server, folder, epochs = sys.argv[1], sys.argv[2], int(sys.argv[3]) if len(sys.argv) > 3 else 2


def read(name: str, head: int) -> torch.Tensor:
    with gzip.open(f"{folder}/{name}-ubyte.gz") as file:
        return torch.from_numpy(np.frombuffer(file.read(), np.uint8, offset=head).copy())


images, labels = read("train-images-idx3", 16).view(-1, 1, 28, 28) / 255, read("train-labels-idx1", 8).long()
tests, answers = read("t10k-images-idx3", 16).view(-1, 1, 28, 28) / 255, read("t10k-labels-idx1", 8).long()

torch.manual_seed(1)  # the same initial point for all; the first worker's starts the job
model = nn.Sequential(nn.Conv2d(1, 16, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(16, 32, 5), nn.ReLU(), nn.MaxPool2d(2))
model.extend([nn.Flatten(), nn.Linear(512, 128), nn.ReLU(), nn.Linear(128, 10)])
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

with psclient.torch.Trainer(model, optimizer, server=server) as worker:
    torch.manual_seed(100 + worker.rank)  # another order of the images for each worker
    batches = (b for _ in range(epochs) for b in torch.randperm(len(images)).split(64) if len(b) == 64)
    for batch in worker.steps(batches):
        optimizer.zero_grad()
        loss = cross_entropy(model(images[batch]), labels[batch])
        loss.backward()
        worker.step(len(batch))  # replaces optimizer.step()
        worker.report(loss=loss.item())
    worker.pull()  # the center
    with torch.no_grad():
        accuracy = float((model(tests).argmax(1) == answers).float().mean())
    print(f"worker {worker.rank}: {worker.worker.clock} steps, the center's test accuracy is {accuracy:.4f}")
