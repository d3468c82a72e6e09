"""Draws a job from psd's /history, cell by cell as in a notebook: python history.py psd-state/psd.sock [run.svg]

Needs matplotlib. Where psd is on another machine, give what `psctl history --json` has printed there: history.py history.json"""

# %% What psd knows of the job: over its status socket, or from a file.
import http.client
import json
import pathlib
import socket
import stat
import sys

import matplotlib
import matplotlib.pyplot as plt

source, picture = pathlib.Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else "run.svg"

if stat.S_ISSOCK(source.stat().st_mode):
    connection = http.client.HTTPConnection("psd")
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.connect(str(source))
    connection.request("GET", "/history")
    text = connection.getresponse().read().decode()
else:
    text = source.read_text()
records = json.loads(text)["history"]

# %% A curve for each of these, against the time since the first record.
matplotlib.use("agg")
figure, axes = plt.subplots(2, 2, figsize=(10, 6), sharex=True, layout="constrained")
curves = {
    "loss of the workers": "loss",
    "test accuracy": "test_accuracy",
    "staleness": "staleness",
    "largest distance": "distance",
}
start = records[0]["t"] if records else 0
for axis, (title, key) in zip(axes.flat, curves.items()):
    known = [(r["t"] - start, r[key]) for r in records if r[key] is not None]
    axis.plot([t for t, _ in known], [v for _, v in known], marker=".")
    axis.set(title=title, xlabel="seconds")

# %% What happened, as lines through all of them.
for record in records:
    if record.get("event_kind") in ("method", "drain"):
        for axis in axes.flat:
            axis.axvline(record["t"] - start, color="gray", linestyle=":")
figure.savefig(picture)
print(f"{len(records)} records in {picture}")
