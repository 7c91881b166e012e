"""Measure how long the pretrained network that comes with the package takes for a photo, in torch and in onnxruntime.

    python -m research.benchmarks.backbone_speed --threads 1 2 --batches 1 8 32 --out backbone_speed.json

Beside the time by the clock stands the CPU time of all threads, which other work on the machine changes less.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnxruntime
import torch

from hamtarget.evaluation.provenance import provenance, write_json
from hamtarget.learn import backbone


def milliseconds(work: Callable[[], object], photos: int, repeats: int) -> dict[str, float]:
    """Return milliseconds a photo by the clock and of CPU time, the best of some repeats."""
    work()
    found = []
    for _ in range(repeats):
        clock, cpu = time.perf_counter(), time.process_time()
        work()
        found.append((time.perf_counter() - clock, time.process_time() - cpu))
    clock, cpu = np.min(found, axis=0) * 1000 / photos
    return {"clock": round(float(clock), 1), "cpu": round(float(cpu), 1)}


def main() -> None:
    """Measure every number of threads with every size of a batch."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, nargs="+", default=[1, 2], help="numbers of threads")
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 8, 32], help="photos in a batch")
    parser.add_argument("--repeats", type=int, default=3, help="repeats of each, of which the best counts")
    parser.add_argument("--out", type=Path, help="JSON file for the results")
    arguments = parser.parse_args()
    network = backbone().eval()
    shape = (3, 160, 160)
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        file = Path(folder) / "network.onnx"
        torch.onnx.export(
            network, (torch.zeros(2, *shape),), file, dynamo=False, input_names=["x"], dynamic_axes={"x": {0: "n"}}
        )
        content = file.read_bytes()
    rows = []
    for threads in arguments.threads:
        torch.set_num_threads(threads)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
        for batch in arguments.batches:
            photos = np.random.default_rng(0).integers(0, 256, (batch, *shape)).astype(np.float32)
            tensor = torch.from_numpy(photos)

            def by_runtime(photos: object = photos, session: onnxruntime.InferenceSession = session) -> None:
                session.run(None, {"x": photos})

            @torch.inference_mode()
            def by_torch(tensor: torch.Tensor = tensor) -> None:
                network(tensor)

            row = {
                "threads": threads,
                "batch": batch,
                "torch": milliseconds(by_torch, batch, arguments.repeats),
                "onnxruntime": milliseconds(by_runtime, batch, arguments.repeats),
            }
            print(json.dumps(row), flush=True)
            rows.append(row)
    if arguments.out is not None:
        write_json(arguments.out, {"provenance": provenance(seed=0), "milliseconds_a_photo": rows})


if __name__ == "__main__":
    main()
