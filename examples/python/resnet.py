r"""Fine-tunes a ResNet on a folder of images, with two workers: python resnet.py @endpoint DIR --classes 5:10 --start FILE

    psd --method diloco --set optimizer=external --set workers=2 --set period=20 --set outer_momentum=0.5 \
        --endpoint-file endpoint --state-dir pretrained

Needs Pillow. DIR has train/CLASS/*.jpg and val/CLASS/*.jpg, such as Imagenette; --classes takes a part of the classes, in
the order of their names. First train on some classes without --start, then drain psd (psctl drain). Its last checkpoint,
pretrained/checkpoints/center-*.safetensors, is the --start of a second job on other classes: the new head and the last two
stages are trained there, and the others are frozen."""

from __future__ import annotations

import argparse
import json
import pathlib

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.nn.functional import cross_entropy, relu

import psclient.torch

STAGES, FROZEN = (64, 128, 256, 512), 2


class Block(nn.Module):
    def __init__(self, before: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(before, width, 3, stride, 1, bias=False)
        self.conv2 = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.bn1, self.bn2 = nn.BatchNorm2d(width), nn.BatchNorm2d(width)
        self.downsample = nn.Sequential()
        if stride != 1 or before != width:
            self.downsample = nn.Sequential(nn.Conv2d(before, width, 1, stride, bias=False), nn.BatchNorm2d(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.bn2(self.conv2(relu(self.bn1(self.conv1(x)))))
        return relu(y + self.downsample(x))


class ResNet(nn.Module):
    """ResNet-18, with torchvision's names."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, STAGES[0], 7, 2, 3, bias=False), nn.BatchNorm2d(STAGES[0])
        before = STAGES[0]
        for i, width in enumerate(STAGES):
            setattr(self, f"layer{i + 1}", nn.Sequential(Block(before, width, 1 + (i > 0)), Block(width, width, 1)))
            before = width
        self.fc = nn.Linear(before, classes)

    def parts(self) -> list[nn.Module]:
        return [self.get_submodule(f"layer{i + 1}") for i in range(len(STAGES))]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = nn.functional.max_pool2d(relu(self.bn1(self.conv1(x))), 3, 2, 1)
        for part in self.parts():
            x = part(x)
        out: torch.Tensor = self.fc(x.mean((2, 3)))
        return out


def read(folder: pathlib.Path, classes: slice, size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Bytes [n, 3, size, size] and labels [n]."""
    names = sorted(p.name for p in folder.iterdir() if p.is_dir())[classes]
    files = [(path, label) for label, name in enumerate(names) for path in sorted((folder / name).iterdir())]
    pictures = [np.asarray(Image.open(path).convert("RGB").resize((size, size))) for path, _ in files]
    return torch.from_numpy(np.stack(pictures)).permute(0, 3, 1, 2), torch.tensor([label for _, label in files])


def ready(pictures: torch.Tensor) -> torch.Tensor:
    mean, deviation = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])
    return (pictures / 255 - mean.view(3, 1, 1)) / deviation.view(3, 1, 1)


def model_from(start: str, classes: int) -> tuple[ResNet, list[nn.Module]]:
    """The model of a checkpoint, with a new head, and its frozen parts."""
    with open(start, "rb") as file:  # the number of classes before
        before = json.loads(file.read(int.from_bytes(file.read(8), "little")))["fc.bias"]["shape"][0]
    model = ResNet(before)
    psclient.torch.load_checkpoint(model, start)
    model.fc = nn.Linear(STAGES[-1], classes)
    frozen = [model.conv1, model.bn1, *model.parts()[:FROZEN]]
    for part in frozen:
        part.requires_grad_(False)
    return model, frozen


def main(args: argparse.Namespace) -> None:
    torch.manual_seed(1)
    torch.set_num_threads(1)
    wanted = slice(*(int(n) if n else None for n in args.classes.split(":")))
    images, labels = read(args.folder / "train", wanted, args.size)
    tests, answers = read(args.folder / "val", wanted, args.size)
    classes = int(labels.max()) + 1
    model, frozen = model_from(args.start, classes) if args.start else (ResNet(classes), [])
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=args.learning_rate)
    with psclient.torch.Trainer(model, optimizer, server=args.server, net="resnet18", data=str(args.folder)) as worker:
        torch.manual_seed(100 + worker.rank)  # another order of the images for each worker
        batches = (b for _ in range(args.epochs) for b in torch.randperm(len(images)).split(args.batch) if len(b) == args.batch)
        model.train()
        for part in frozen:
            part.eval()  # the statistics of frozen layers stay
        for batch in worker.steps(batches):
            optimizer.zero_grad()
            loss = cross_entropy(model(ready(images[batch])), labels[batch])
            loss.backward()
            worker.step(len(batch))
            worker.report(loss=loss.item())
        worker.pull()  # the center
        model.eval()
        with torch.no_grad():
            found = torch.cat([model(ready(part)).argmax(1) for part in tests.split(args.batch)])
        accuracy = float((found == answers).float().mean())
        print(f"worker {worker.rank}: {worker.worker.clock} steps, the center's accuracy is {accuracy:.4f}", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("server")
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--classes", default=":", help="FIRST:END of the classes' names in their order (all)")
    parser.add_argument("--start", help="a checkpoint of psd to fine-tune")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--size", type=int, default=128, help="pixels of a side")
    parser.add_argument("--learning-rate", type=float, default=5e-4)
    main(parser.parse_args())
