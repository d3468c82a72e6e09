"""A net of psd's in PyTorch, from the layers that net-dump writes. PyTorch is no dependency of psd."""
import json
import struct

import torch
import torch.nn.functional as F


def read_tensors(path):
    """All tensors of a safetensors file, by name."""
    with open(path, "rb") as f:
        header = json.loads(f.read(struct.unpack("<Q", f.read(8))[0]))
        data = f.read()
    return {name: torch.frombuffer(bytearray(data[slice(*t["data_offsets"])]), dtype=torch.float32).reshape(t["shape"])
            for name, t in header.items() if name != "__metadata__"}


def windows(layer, axis, ceils):
    """How many windows PyTorch's pools have along an axis, with the layer's first pad at both ends."""
    pad, kernel, stride = layer["pads"][axis], layer["kernel"][axis], layer["stride"][axis]
    room = layer["in"][1 + axis] + 2 * pad - kernel
    n = (room + (stride - 1 if ceils else 0)) // stride + 1
    return n - 1 if ceils and (n - 1) * stride >= layer["in"][1 + axis] + pad else n


class Net:
    """params: name to tensor. masks: of dropout, by the layer's name; None: drawn by PyTorch."""

    def __init__(self, description, params, masks=None):
        self.layers = description["layers"]
        self.params = params
        self.masks = masks
        for layer in self.layers:
            for what in ("weight", "bias"):
                name = f"{layer['name']}.{what}"
                if name in params:
                    params[name].requires_grad_(not layer["frozen"])

    def of(self, layer, what):
        return self.params.get(f"{layer['name']}.{what}")

    def conv(self, layer, x):
        top, left, bottom, right = layer["pads"]
        if (top, left) == (bottom, right):
            padding = (top, left)
        else:
            x, padding = F.pad(x, (left, right, top, bottom)), 0
        return F.conv2d(x, self.of(layer, "weight"), self.of(layer, "bias"), layer["stride"], padding, layer["dilation"],
                        layer["groups"])

    def maxpool(self, layer, x, sides):
        """By PyTorch's own pads where its windows are the layer's: equal begins, and as many of them."""
        top, left = layer["pads"][:2]
        if 2 * top <= layer["kernel"][0] and 2 * left <= layer["kernel"][1]:
            for ceils in (False, True):
                if layer["out"][1:] == [windows(layer, axis, ceils) for axis in (0, 1)]:
                    return F.max_pool2d(x, layer["kernel"], layer["stride"], (top, left), ceil_mode=ceils)
        return F.max_pool2d(F.pad(x, sides, value=-torch.inf), layer["kernel"], layer["stride"])

    def pool(self, layer, x):
        """The pad on the far side is made as long as the windows reach: what they find there is -inf, or 0."""
        top, left = layer["pads"][:2]
        rows, columns = layer["out"][1:]
        below = (rows - 1) * layer["stride"][0] + layer["kernel"][0] - layer["in"][1] - top
        right = (columns - 1) * layer["stride"][1] + layer["kernel"][1] - layer["in"][2] - left
        sides = (left, max(right, 0), top, max(below, 0))
        if layer["kind"] == "maxpool":
            return self.maxpool(layer, x, sides)
        if not any(sides):
            return F.avg_pool2d(x, layer["kernel"], layer["stride"])
        total = F.avg_pool2d(F.pad(x, sides), layer["kernel"], layer["stride"], divisor_override=1)
        ones = torch.ones(1, 1, *layer["in"][1:], device=x.device, dtype=x.dtype)
        counted = ones if layer["skips_padding"] else F.pad(ones, (left, layer["pads"][3], top, layer["pads"][2]), value=1)
        room = (0, max(right - layer["pads"][3], 0), 0, max(below - layer["pads"][2], 0))
        counted = F.pad(counted, sides if layer["skips_padding"] else room)
        return total / F.avg_pool2d(counted, layer["kernel"], layer["stride"], divisor_override=1)

    def lrn(self, layer, x):
        return F.local_response_norm(x, layer["size"], layer["alpha"], layer["beta"], layer["k"])

    def dropout(self, layer, x, trains):
        if not trains:
            return x
        if self.masks is None:
            return F.dropout(x, layer["rate"])
        return x * self.masks[layer["name"]].reshape(x.shape) / (1 - layer["rate"])

    def norm(self, layer, x, trains):
        return F.batch_norm(x, None if trains else self.of(layer, "running_mean"),
                            None if trains else self.of(layer, "running_variance"), self.of(layer, "weight"),
                            self.of(layer, "bias"), trains, 0.1, layer["epsilon"])

    def compute(self, layer, xs, trains):
        kind, x = layer["kind"], xs[0]
        simple = {"relu": F.relu, "relu6": F.relu6, "sigmoid": torch.sigmoid, "tanh": torch.tanh,
                  "leaky-relu": lambda v: F.leaky_relu(v, layer["slope"]),
                  "global-avgpool": lambda v: v.mean((2, 3), keepdim=True),
                  "global-maxpool": lambda v: v.amax((2, 3), keepdim=True)}
        if kind in simple:
            return simple[kind](x)
        if kind == "conv":
            return self.conv(layer, x)
        if kind == "fc":
            return F.linear(x.flatten(1), self.of(layer, "weight"), self.of(layer, "bias"))
        if kind in ("maxpool", "avgpool"):
            return self.pool(layer, x)
        if kind == "concat":
            return torch.cat(xs, 1)
        if kind == "add":
            return sum(xs[1:], x)
        if kind == "lrn":
            return self.lrn(layer, x)
        if kind == "dropout":
            return self.dropout(layer, x, trains)
        if kind == "batchnorm":
            return self.norm(layer, x, trains)
        raise ValueError(f"layer {layer['name']}: kind {kind} is not known here")

    def run(self, images, labels, trains):
        """The weighted sum of losses, and the logits of the net's own."""
        values, loss, logits = {"images": images}, 0, None
        for layer in self.layers:
            xs = [values[name] for name in layer["inputs"]]
            if layer["kind"] != "softmax-loss":
                values[layer["name"]] = self.compute(layer, xs, trains)
                continue
            if layer["main"]:
                logits = xs[0].flatten(1)
            if layer["main"] or trains:
                loss = loss + layer["weight"] * F.cross_entropy(xs[0].flatten(1), labels)
        return loss, logits
