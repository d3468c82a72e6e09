#!/usr/bin/env python3
"""Compares psbench net on a GPU with PyTorch on the same one, in turns. For a few minutes of a lent machine.

    python3 tests/bench/net/torch_gpu.py BUILD [NET:BATCH...] [--precisions bf16,tf32] [--modes eager,graph,compile] [--rounds 5]
        [--seconds 0.5] [--psbench-environment NAME=VALUE...] [--time-limit S] --out FILE
    python3 tests/bench/net/torch_gpu.py BUILD [NET:BATCH...] [--precisions bf16,tf32] [--modes compile] --compile-first

In each round psbench, and then each mode of PyTorch, makes steps (forward, backward, momentum update) for some seconds, by the
clock in blocks of steps. A rate is the median of the rounds' images/s, a ratio that of the rounds' ratios of psd to PyTorch.
BUILD has tests/bench/psbench and tests/nets/net-dump, which alone get --psbench-environment, such as LD_LIBRARY_PATH.

Modes: eager; graph: the whole step in one CUDA graph; compile: forward and loss by torch.compile; compile-graph: the same with
"reduce-overhead"; graph-of-compile: a CUDA graph of the whole step of compile. Without --modes: eager and graph, and compile of
resnet50 and vgg19. A mode that fails is reported and skipped. --compile-first only compiles, into TORCHINDUCTOR_CACHE_DIR.

PyTorch has its images on the GPU. psd uploads those of each step beside the step before, and fetches the loss of each step: what
it does beyond PyTorch counts against it. Parameters are float32 on both sides; PyTorch's bf16 is autocast. Its batch norms keep
no running statistics here.
"""
import argparse
import datetime
import gc
import json
import os
import statistics
import subprocess
import sys
import time

import torch

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from torch_net import MODES, WARM_UPS, make_step

NETS = ["lenet:64", "cifar7:64", "alexnet:128", "googlenet:64", "vgg19:32", "resnet50:64"]
COMPILED = ("resnet50", "vgg19")
PRECISIONS = ("float32", "tf32", "bf16")
BLOCK_S = 0.08  # as psbench's


def modes_of(args, net):
    return args.modes or ["eager", "graph"] + (["compile"] if net in COMPILED else [])


def configurations(args):
    """(net, batch, precision) of all."""
    return [(net, batch, precision) for net, batch in args.nets for precision in args.precisions]


def reason(error):
    return f"{type(error).__name__}: {error}"[:4000]


def first_line(text):
    return next(iter(text.splitlines()), "")[:200]


def timed(args, step, n):
    """Seconds of n steps."""
    start = time.monotonic()
    for _ in range(n):
        step()
    if args.device == "cuda":
        torch.cuda.synchronize()
    return time.monotonic() - start


class Psd:
    """psbench's rate: one process, which measures when it is told to. Its first measurement, which is not counted, searches for
    algorithms."""

    def __init__(self, args, net, batch, precision):
        command = [os.path.join(args.build, "tests/bench/psbench"), "net", "--backend", args.backend, "--net", net, "--batch", str(batch),
                   "--precision", precision, "--only-steps", "--json", "--paced", "--seconds", str(args.seconds)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                        env=args.environment)
        self.rate(args.seconds)

    def rate(self, _seconds):
        try:
            self.process.stdin.write("\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # it has ended, and says why
        for line in self.process.stdout:
            record = json.loads(line)
            if "repetitions" in record:
                return record["images_s"]
        raise RuntimeError(f"psbench ended with {self.process.wait()}: {self.process.stderr.read().strip()[-2000:]}")

    def close(self):
        self.process.communicate()


class Torch:
    """PyTorch's rate in one mode."""

    def __init__(self, args, net, batch, precision, mode):
        self.args, self.batch = args, batch
        self.step = make_step(args.build, net, batch, precision, args.device, mode, args.environment)
        timed(args, self.step, WARM_UPS)
        once = timed(args, self.step, 1)
        self.n = max(1, round(BLOCK_S / once))
        timed(args, self.step, min(self.n, 5))

    def rate(self, seconds):
        rates = []
        end = time.monotonic() + seconds
        while time.monotonic() < end or not rates:
            rates.append(self.batch * self.n / timed(self.args, self.step, self.n))
        return statistics.median(rates)


def recover():
    """After a failed capture, which may leave its stream the current one."""
    if torch.cuda.is_available():
        torch.cuda.set_stream(torch.cuda.default_stream())


def attempt(record, name, what, call):
    """What call returns. None if it failed, which the record then says."""
    start = time.monotonic()
    try:
        value = call()
    except Exception as error:
        record["error"] = reason(error)
        print(f"  {name} failed {what}: {first_line(record['error'])}", flush=True)
        recover()
        return None
    record.setdefault("set_up_s", round(time.monotonic() - start, 2))
    return value


def begin(args, configuration):
    """The sides by name, and a record of each: psd first, without which no other is begun."""
    sides, records = {}, {"psd": {"rounds": []}}
    sides["psd"] = attempt(records["psd"], "psd", "at first", lambda: Psd(args, *configuration))
    for mode in modes_of(args, configuration[0]) if sides["psd"] is not None else []:
        records[mode] = {"rounds": []}
        sides[mode] = attempt(records[mode], mode, "at first", lambda mode=mode: Torch(args, *configuration, mode))
    return {name: side for name, side in sides.items() if side is not None}, records


def run_rounds(args, sides, records):
    for _ in range(args.rounds):
        for name in list(sides):
            rate = attempt(records[name], name, "in a round", lambda name=name: sides[name].rate(args.seconds))
            if rate is None:
                del sides[name]
            else:
                records[name]["rounds"].append(round(rate, 2))
        if "psd" not in sides:
            return


def summarise(records):
    """Adds medians to the records. The modes that have all rounds, the fastest first."""
    for record in records.values():
        if record["rounds"]:
            record["median"] = statistics.median(record["rounds"])
    ours = records["psd"]
    whole = [name for name, r in records.items() if name != "psd" and r["rounds"] and "error" not in r and "error" not in ours]
    for name in whole:
        ratios = [a / b for a, b in zip(ours["rounds"], records[name]["rounds"])]
        records[name]["psd_ratio"] = round(statistics.median(ratios), 4)
        records[name]["psd_ratio_range"] = [round(min(ratios), 4), round(max(ratios), 4)]
    return sorted(whole, key=lambda name: -records[name]["median"])


def line_of(records, fastest):
    shown = [f"{name} {r['median']:.1f}" if "median" in r and "error" not in r else f"{name} failed"
             for name, r in records.items()]
    ratios = [f"psd/eager {records['eager']['psd_ratio']:.2f}"] if "eager" in fastest else []
    if fastest:
        best = records[fastest[0]]
        low, high = best["psd_ratio_range"]
        ratios.append(f"psd/best ({fastest[0]}) {best['psd_ratio']:.2f} ({low:.2f} to {high:.2f})")
    return ", ".join(shown) + " images/s; " + (", ".join(ratios) or "no ratio")


def compare(args, configuration):
    net, batch, precision = configuration
    start = time.monotonic()
    sides, records = begin(args, configuration)
    run_rounds(args, sides, records)
    if "psd" in sides:
        sides["psd"].close()
    fastest = summarise(records)
    seconds = round(time.monotonic() - start, 1)
    print(f"{net}, batch {batch}, {precision}: {line_of(records, fastest)} [{seconds} s]", flush=True)
    return {"net": net, "batch": batch, "precision": precision, "seconds": seconds, "best": fastest[0] if fastest else None,
            "sides": records}


def clear(args):
    """Releases what the last configuration compiled and allocated: compiled code is looked up by what all nets share."""
    if "torch._dynamo" in sys.modules:
        torch.compiler.reset()
    gc.collect()
    if args.device == "cuda":
        torch.cuda.empty_cache()


def machine(args):
    on_cuda = args.device == "cuda"
    return {"device": torch.cuda.get_device_name() if on_cuda else "cpu", "backend": args.backend, "torch": torch.__version__,
            "cuda": torch.version.cuda, "cudnn": torch.backends.cudnn.version() if on_cuda else None,
            "began": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"), "rounds": args.rounds,
            "seconds": args.seconds}


def compare_all(args):
    """Writes the file anew after each configuration."""
    start = time.monotonic()
    record = {**machine(args), "results": [], "left_out": []}
    print(f"PyTorch {record['torch']}, cuDNN {record['cudnn']}, {record['device']}: medians of {args.rounds} rounds", flush=True)
    for configuration in configurations(args):
        if args.time_limit is not None and time.monotonic() - start > args.time_limit:
            record["left_out"].append("{}:{} {}".format(*configuration))
        else:
            record["results"].append(compare(args, configuration))
            clear(args)
        with open(args.out, "w", encoding="utf-8") as f:
            json.dump(record, f, indent=1)
            f.write("\n")
    if record["left_out"]:
        print(f"left out after {args.time_limit:g} s: {', '.join(record['left_out'])}")
    return any("error" in side for result in record["results"] for side in result["sides"].values())


def compile_all(args):
    failed = False
    for net, batch, precision in configurations(args):
        for mode in [mode for mode in modes_of(args, net) if MODES[mode][0] is not None]:
            record = {}
            done = attempt(record, f"{net}, batch {batch}, {precision}: {mode}", "to compile",
                           lambda c=(net, batch, precision, mode): Torch(args, *c))
            failed = failed or done is None
            if done is not None:
                print(f"{net}, batch {batch}, {precision}: {mode} compiled in {record['set_up_s']} s", flush=True)
            del done
        clear(args)
    return failed


def parse_net(text):
    net, _, batch = text.rpartition(":")
    if not net or not batch.isdecimal() or int(batch) == 0:
        raise argparse.ArgumentTypeError(f"'{text}' is not NET:BATCH")
    return net, int(batch)


def parse_setting(text):
    name, is_set, value = text.partition("=")
    if not name or not is_set:
        raise argparse.ArgumentTypeError(f"'{text}' is not NAME=VALUE")
    return name, value


def names_of(allowed):
    def parse(text):
        names = text.split(",")
        if not set(names) <= set(allowed):
            raise argparse.ArgumentTypeError(f"'{text}': allowed are {', '.join(allowed)}, joined by commas")
        return names
    return parse


def parse_args():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", metavar="BUILD")
    parser.add_argument("nets", nargs="*", type=parse_net, metavar="NET:BATCH", help=f"default: {' '.join(NETS)}")
    parser.add_argument("--precisions", type=names_of(PRECISIONS), default=["bf16", "tf32"])
    parser.add_argument("--modes", type=names_of(MODES))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.5, help="of each side in a round")
    parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda", help="PyTorch's; cpu: to try this script")
    parser.add_argument("--backend", default="cuda", help="psbench's")
    parser.add_argument("--psbench-environment", nargs="+", type=parse_setting, default=[], metavar="NAME=VALUE",
                        help="psbench's alone; before another option, or last")
    parser.add_argument("--time-limit", type=float, metavar="S", help="begin no net or precision after S seconds")
    parser.add_argument("--compile-first", action="store_true", help="only compile")
    parser.add_argument("--out", metavar="FILE")
    args = parser.parse_intermixed_args()
    if args.out is None and not args.compile_first:
        parser.error("--out FILE is needed")
    args.nets = args.nets or [parse_net(text) for text in NETS]
    args.environment = {**os.environ, **dict(args.psbench_environment)}
    return args


def main():
    args = parse_args()
    if args.device == "cpu":
        torch.set_num_threads(1)  # as psbench's
    sys.exit(int(compile_all(args) if args.compile_first else compare_all(args)))


if __name__ == "__main__":
    main()
