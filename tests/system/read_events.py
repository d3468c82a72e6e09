"""What TensorBoard's own reader makes of the folders that psd and psworker wrote: `run tag kind count first-step last-step`, a
line each. $1: the folder."""

import os
import sys

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

for run in sorted(os.listdir(sys.argv[1])):
    events = EventAccumulator(os.path.join(sys.argv[1], run), size_guidance={"scalars": 0, "histograms": 0})
    events.Reload()
    tags = events.Tags()
    for kind, read in (("scalars", events.Scalars), ("histograms", events.Histograms)):
        for tag in sorted(tags[kind]):
            found = read(tag)
            print(run, tag, kind, len(found), found[0].step, found[-1].step)
            if kind == "histograms":
                for event in found:
                    values = event.histogram_value
                    assert sum(values.bucket) == values.num > 0, (run, tag, event.step, values)
                    assert values.min <= values.max, (run, tag, event.step, values)
