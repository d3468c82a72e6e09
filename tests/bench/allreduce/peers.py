#!/usr/bin/env python3
"""Allreduce of our ring, tree and auto beside gloo (PyTorch) and MPI, all over TCP, in one run. Beside them ours over
unix sockets, and MPI's shared memory.

For each number of ranks all contenders' processes are started once. They then take turns, in an order that rotates: a turn
is a few calls of one size, timed from a barrier to the last rank's end, while all others wait for their FIFOs and use no CPU
time. Every sum is checked. Prints a JSON object for each cell, then a table of medians and ratios, and what is missing.

usage: peers.py BUILD [--python PYTHON] [--ranks 2,4,8] [--bytes 4k,256k,1724320,249M] [--repeat 7] [--quick]
  BUILD: a build folder with tests/bench/psbench and psbench-mpi. PYTHON: one that has torch; without it, no gloo
  --quick: 2 and 4 ranks, up to 1.7 MB, 3 turns
"""

from __future__ import annotations

import argparse
import json
import math
import os
import select
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

LENET_BYTES = 4 * 431080
TURN_BYTES, LIMIT_S = 64e6, 600.0
OURS, PEERS, BESIDE = ("ring", "tree", "auto"), ("gloo", "mpi-tcp"), ("auto-unix", "mpi-shm")


def gloo_rank(prefix: str) -> None:
    """One rank of gloo: the same turns as turns.c."""
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo")
    torch.set_num_threads(1)
    rank, ranks, x = dist.get_rank(), dist.get_world_size(), torch.zeros(0)
    with open(f"{prefix}.{rank}", encoding="ascii") as commands:
        for line in iter(commands.readline, ""):
            floats, calls = (int(word) for word in line.split())
            if x.numel() != floats:
                x = torch.zeros(floats)
                dist.all_reduce(x)
            x.fill_(1)
            dist.barrier()
            begin = time.perf_counter()
            for _ in range(calls):
                dist.all_reduce(x)
            took = torch.tensor([(time.perf_counter() - begin) / calls], dtype=torch.float64)
            dist.all_reduce(took, op=dist.ReduceOp.MAX)
            if x[0].item() != float(ranks) ** calls or x[-1].item() != float(ranks) ** calls:
                sys.exit("gloo: the sum is wrong")
            if rank == 0:
                print(f"{took.item():.9f}", flush=True)
    dist.destroy_process_group()


class Cost(NamedTuple):
    cpu_s: float
    switches: float


class Contender:
    """The ranks of one library. A turn is a line to each rank's FIFO, and a line of rank 0 back."""

    def __init__(self, name: str, folder: Path, ranks: int):
        self.name, self.ranks, self.prefix = name, ranks, str(folder / f"{name}-{ranks}")
        self.processes: list[subprocess.Popen[str]] = []
        self.fifos: list[int] = []
        self.threads: list[Path] = []
        for rank in range(ranks):
            os.mkfifo(f"{self.prefix}.{rank}")
            # Opened for both directions, so that neither end waits for the other to open it.
            self.fifos.append(os.open(f"{self.prefix}.{rank}", os.O_RDWR | os.O_CLOEXEC))

    def start(self, command: list[str], **env: str) -> None:
        out = subprocess.PIPE if not self.processes else subprocess.DEVNULL
        self.processes.append(
            subprocess.Popen(command, stdout=out, stdin=subprocess.DEVNULL, text=True, env={**os.environ, **env})
        )

    def find_threads(self) -> None:
        """Of all its processes: psbench and mpirun start ranks, and libraries start threads."""
        parents: dict[int, list[int]] = {}
        for stat in Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = stat.read_text().rpartition(")")[2].split()
            except OSError:
                continue  # it has ended
            parents.setdefault(int(fields[1]), []).append(int(stat.parent.name))
        pids = [process.pid for process in self.processes]
        for pid in pids:
            pids += parents.get(pid, [])
        self.threads = [task for pid in pids for task in Path(f"/proc/{pid}/task").glob("*")]

    def cost(self) -> Cost:
        """CPU seconds and context switches of all ranks so far."""
        cpu_s, switches = 0.0, 0
        for thread in self.threads:
            cpu_s += int((thread / "schedstat").read_text().split()[0]) * 1e-9
            lines = (thread / "status").read_text().splitlines()
            switches += sum(int(line.split()[1]) for line in lines if "ctxt_switches" in line)
        return Cost(cpu_s, switches)

    def turn(self, floats: int, calls: int) -> float:
        for fifo in self.fifos:
            os.write(fifo, f"{floats} {calls}\n".encode())
        out = self.processes[0].stdout
        assert out is not None
        ready, _, _ = select.select([out], [], [], LIMIT_S)
        line = out.readline() if ready else ""
        if not line.strip():
            sys.exit(f"peers: {self.name}, {self.ranks} ranks, {floats} floats: {'it ended' if ready else 'no answer'}")
        return float(line)

    def end(self) -> None:
        for process in self.processes:
            process.terminate()
        for process in self.processes:
            process.wait()
        for fifo in self.fifos:
            os.close(fifo)


def free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        port: int = s.getsockname()[1]
        return port


def start_ours(name: str, folder: Path, ranks: int, build: Path) -> Contender:
    c = Contender(name, folder, ranks)
    algorithm, _, road = name.partition("-")
    c.start(
        [str(build / "tests/bench/psbench"), "allreduce", "--turns", c.prefix, "--ranks", str(ranks)]
        + ["--algorithm", algorithm, "--road", road or "tcp"]
    )
    return c


def start_gloo(folder: Path, ranks: int, python: str) -> Contender:
    c, port = Contender("gloo", folder, ranks), str(free_port())
    for rank in range(ranks):
        c.start(
            [python, __file__, "--gloo-rank", c.prefix],
            RANK=str(rank),
            WORLD_SIZE=str(ranks),
            MASTER_ADDR="127.0.0.1",
            MASTER_PORT=port,
            GLOO_SOCKET_IFNAME="lo",
            OMP_NUM_THREADS="1",
        )
    return c


def start_mpi(name: str, folder: Path, ranks: int, build: Path) -> Contender:
    c = Contender(name, folder, ranks)
    crowded = ["--oversubscribe"] if ranks > (os.cpu_count() or 1) else []
    c.start(
        ["mpirun", "--allow-run-as-root", *crowded, "--bind-to", "none", "-n", str(ranks)]
        + [str(build / "tests/bench/psbench-mpi"), "turns", c.prefix],
        OMPI_MCA_btl="self,tcp" if name == "mpi-tcp" else "self,vader",
    )
    return c


def start_all(folder: Path, ranks: int, build: Path, python: str | None) -> list[Contender]:
    """One after the other: auto measures when it begins, and is not to measure the start of the others."""
    starts: list[Callable[[], Contender]] = [partial(start_ours, name, folder, ranks, build) for name in (*OURS, "auto-unix")]
    if python:
        starts.append(partial(start_gloo, folder, ranks, python))
    if shutil.which("mpirun") is not None and (build / "tests/bench/psbench-mpi").exists():
        starts += [partial(start_mpi, name, folder, ranks, build) for name in ("mpi-tcp", "mpi-shm")]
    contenders = []
    for start in starts:
        contenders.append(start())
        contenders[-1].turn(1, 1)
    return contenders


def measure(contenders: list[Contender], n_bytes: int, repeats: int) -> tuple[dict[str, list[float]], dict[str, Cost]]:
    """Milliseconds of a call, of each contender and turn; and what a call costs all ranks together."""
    ranks = contenders[0].ranks
    # So many that scheduling shows, and so few that float32 holds the sums.
    calls = max(1, min(int(TURN_BYTES / n_bytes), int(100 / math.log2(ranks))))
    times: dict[str, list[float]] = {c.name: [] for c in contenders}
    begun: dict[str, Cost] = {}
    for k in range(repeats + 1):  # the first turn warms up
        first = k % len(contenders)
        for c in contenders[first:] + contenders[:first]:
            took = c.turn(n_bytes // 4, calls) * 1e3
            if k > 0:
                times[c.name].append(took)
            else:
                c.find_threads()
                begun[c.name] = c.cost()
    costs = {}
    for c in contenders:
        now, then, made = c.cost(), begun[c.name], repeats * calls
        costs[c.name] = Cost((now.cpu_s - then.cpu_s) / made, (now.switches - then.switches) / made)
    return times, costs


def row_of(ranks: int, n_bytes: int, times: dict[str, list[float]], costs: dict[str, Cost]) -> dict[str, object]:
    median = {name: statistics.median(t) for name, t in times.items()}
    best_of_ours = min(median[name] for name in OURS)
    peers = {name: median[name] for name in PEERS if name in median}
    row: dict[str, object] = {"bench": "peers", "ranks": ranks, "bytes": n_bytes, "repeats": len(times["ring"])}
    for name, t in times.items():
        row[name] = {"median_ms": round(median[name], 4), "min_ms": round(min(t), 4), "max_ms": round(max(t), 4)}
    # With what fills the vectors. On a crowded machine more threads get more of the cores, so that times alone mislead.
    row["cpu_ms"] = {name: round(cost.cpu_s * 1e3, 4) for name, cost in costs.items()}
    row["switches"] = {name: round(cost.switches, 1) for name, cost in costs.items()}
    # Of the same turn, so that what loads the machine loads both.
    row["auto_to_best_of_ours"] = round(median["auto"] / best_of_ours, 3)
    if peers:
        best = min(peers, key=lambda name: peers[name])
        paired = [a / b for a, b in zip(times["auto"], times[best])]
        row["best_peer"], row["auto_to_best_peer"] = best, round(median["auto"] / peers[best], 3)
        row["auto_to_best_peer_by_turn"] = round(statistics.median(paired), 3)
    return row


def size_name(n_bytes: int) -> str:
    unit, by = ("MB", 1e6) if n_bytes >= 1e6 else ("kB", 1e3)
    return f"{n_bytes / by:.3g} {unit}"


def print_table(rows: list[dict[str, object]]) -> None:
    names = [n for n in (*OURS, *PEERS, *BESIDE) if n in rows[0]]
    print("\nMilliseconds of a call, CPU milliseconds and context switches of all ranks together:\n")
    print(f"| ranks | bytes | {' | '.join(names)} | auto / best of ours | auto / best peer |")
    print("|" + "---|" * (4 + len(names)))
    for row in rows:
        cells = [f"{row[n]['median_ms']:.4g} / {row['cpu_ms'][n]:.3g} / {row['switches'][n]:.0f}" for n in names]  # type: ignore[index]
        peer = f"{row['auto_to_best_peer']} ({row['best_peer']})" if "best_peer" in row else "-"
        print(f"| {row['ranks']} | {size_name(int(str(row['bytes'])))} | {' | '.join(cells)} | "
              f"{row['auto_to_best_of_ours']} | {peer} |")  # fmt: skip


def print_misses(rows: list[dict[str, object]]) -> None:
    """What issue 23 asks for and these medians do not show."""
    for row in rows:
        where = f"{row['ranks']} ranks, {size_name(int(str(row['bytes'])))}"
        ours, peer = float(str(row["auto_to_best_of_ours"])), float(str(row.get("auto_to_best_peer", 0)))
        if ours > 1.1:
            print(f"missed: {where}: auto takes {ours} times as long as the best of ours (at most 1.1)")
        if peer > 1.1:
            print(f"missed: {where}: auto takes {peer} times as long as {row['best_peer']} (at most 1.1)")
        if row["ranks"] == 2 and int(str(row["bytes"])) > 200e6 and peer > 1 / 1.3:
            print(f"missed: {where}: auto takes {peer} times as long as {row['best_peer']} (at most 0.77)")


def read_sizes(text: str) -> list[int]:
    units = {"k": 1000, "M": 1000000}
    sizes = [int(float(t.rstrip("kM")) * units.get(t[-1], 1)) for t in text.split(",")]
    if min(sizes) < 4:
        raise argparse.ArgumentTypeError("at least 4 bytes")
    return [n // 4 * 4 for n in sizes]


def read_args() -> argparse.Namespace:
    p = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    p.add_argument("build", type=Path)
    p.add_argument("--python", help="a Python with torch, for gloo")
    p.add_argument("--ranks", type=lambda t: [int(n) for n in t.split(",")])
    p.add_argument("--bytes", type=read_sizes)
    p.add_argument("--repeat", type=int)
    p.add_argument("--quick", action="store_true", help="2 and 4 ranks, up to 1.7 MB, 3 turns")
    args = p.parse_args()
    small = f"4k,256k,{LENET_BYTES}"
    args.ranks = args.ranks or ([2, 4] if args.quick else [2, 4, 8])
    args.bytes = args.bytes or read_sizes(small if args.quick else small + ",249M")
    args.repeat = args.repeat or (3 if args.quick else 7)
    if min(args.ranks) < 2 or args.repeat < 1:
        p.error("at least 2 ranks and 1 repeat")
    return args


def main() -> None:
    if sys.argv[1:2] == ["--gloo-rank"]:
        gloo_rank(sys.argv[2])
        return
    args, rows = read_args(), []
    with tempfile.TemporaryDirectory(prefix="psd-peers-") as folder:
        for ranks in args.ranks:
            contenders = start_all(Path(folder), ranks, args.build, args.python)
            try:
                for n_bytes in args.bytes:
                    rows.append(row_of(ranks, n_bytes, *measure(contenders, n_bytes, args.repeat)))
                    print(json.dumps(rows[-1]), flush=True)
            finally:
                for c in contenders:
                    c.end()
    print_table(rows)
    print_misses(rows)


if __name__ == "__main__":
    main()
