#!/usr/bin/env python3
"""Compares P partitions of a worker with P processes of one pinned thread each, and with one net on P threads; the three alternate.

    tests/bench/net/apart.py build [NET...] [--partitions 2] [--batch 64] [--rounds 5] [--seconds 2] [--precision float32]

--batch is the whole worker's: each process and each partition computes a P-th part. A process is bound to one core and exchanges nothing:
what P cores can do at best. Prints medians of images/s and of the rounds' ratios. See docs/CORES.md.
"""
import argparse
import json
import os
import statistics
import subprocess


def command(args, spec, batch, *options):
    return [os.path.join(args.build, "tests/bench/psbench"), "net", "--net", spec, "--batch", str(batch), "--seconds", str(args.seconds),
            "--precision", args.precision, "--only-steps", "--json", *options]


def images_s(process):
    out = process.communicate()[0]
    if process.returncode:
        raise SystemExit(f"{' '.join(process.args)}: exit status {process.returncode}")
    return json.loads(out.splitlines()[-1])["images_s"]


def start(words):
    return subprocess.Popen(words, stdout=subprocess.PIPE, text=True)


def together(args, spec, *options):
    return images_s(start(command(args, spec, args.batch, *options)))


def apart(args, spec, cores):
    part = command(args, spec, args.batch // args.partitions, "--threads", "1")
    processes = [start(["taskset", "-c", str(core), *part]) for core in cores]
    return sum([images_s(p) for p in processes])


def ratio(ours, theirs):
    r = [a / b for a, b in zip(ours, theirs)]
    return f"{statistics.median(r):.2f} ({min(r):.2f} to {max(r):.2f})"


def compare(args, spec, cores):
    parts, processes, threads = [], [], []
    for _ in range(args.rounds):
        parts.append(together(args, spec, "--partitions", str(args.partitions), "--threads", "1"))
        processes.append(apart(args, spec, cores))
        threads.append(together(args, spec, "--threads", str(args.partitions)))
    print(f"{spec}, batch {args.batch}, {args.precision}: {args.partitions} partitions {statistics.median(parts):.1f} images/s; "
          f"of {args.partitions} pinned processes' {statistics.median(processes):.1f}: {ratio(parts, processes)}; "
          f"of {args.partitions} threads' {statistics.median(threads):.1f}: {ratio(parts, threads)}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build")
    parser.add_argument("nets", nargs="*", default=["lenet", "cifar7", "resnet18"])
    parser.add_argument("--partitions", type=int, default=2)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2)
    parser.add_argument("--precision", choices=["float32", "bf16"], default="float32")
    args = parser.parse_args()
    cores = sorted(os.sched_getaffinity(0))[:args.partitions]
    if len(cores) < args.partitions or args.batch % args.partitions:
        parser.error(f"--partitions {args.partitions}: at most the {len(cores)} cores, and a divisor of the batch of {args.batch}")
    for spec in args.nets:
        compare(args, spec, cores)


if __name__ == "__main__":
    main()
