"""What the doctor finds and what it costs. Run: `python -m benchmarks.doctor`.

Accuracy is counted over the programs under `tests/doctor/programs`, each with its declared
answer. Cost is the median of paired ratios of CPU time: plain, watched, plain, watched, ...
in one process and one thread, after the closely examined first passes; the mean of those first
passes is shown beside it.
"""

import gc
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import torch
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.doctor.cases import diagnose, ends_with, programs, score

from pullback.doctor import doctor

STEPS = 10
REPETITIONS = 31
LIMITS = {("mlp", "light"): 1.07, ("mlp", "full"): 1.6}
LIMITS |= {("transformer", "light"): 1.03, ("transformer", "full"): 1.3}


def mlp() -> Callable[[], None]:
    net = nn.Sequential(
        nn.Linear(64, 256), nn.Tanh(), nn.Linear(256, 256), nn.Tanh(), nn.Linear(256, 1)
    )
    return _stepper(net, torch.randn(256, 64))


def transformer() -> Callable[[], None]:
    layer = nn.TransformerEncoderLayer(128, 4, 256, dropout=0.0, batch_first=True)
    net = nn.Sequential(nn.TransformerEncoder(layer, 4), nn.Linear(128, 1))
    return _stepper(net, torch.randn(8, 32, 128))


def _stepper(net: nn.Module, x: torch.Tensor) -> Callable[[], None]:
    optimizer = torch.optim.SGD(net.parameters(), 1e-4)

    def step() -> None:
        optimizer.zero_grad()
        loss = net(x).pow(2).mean()
        loss.backward()
        optimizer.step()

    return step


def _seconds(step: Callable[[], None], steps: int) -> float:
    start = time.thread_time()
    for _ in range(steps):
        step()
    return time.thread_time() - start


def cost(make: Callable[[], Callable[[], None]], watch: Callable[[], AbstractContextManager]):
    """Median ratio in the steady state with quartiles, and the mean of the first four passes."""
    step = make()
    _seconds(step, STEPS)
    ratios, first = [], []
    for _ in range(REPETITIONS):
        plain = _seconds(step, STEPS)
        with watch():
            first.append(_seconds(step, 4) / 4 / (plain / STEPS))
            _seconds(step, 2)
            watched = _seconds(step, STEPS)
        ratios.append(watched / (0.5 * (plain + _seconds(step, STEPS))))
    low, middle, high = statistics.quantiles(ratios, n=4)
    return middle, low, high, statistics.median(first)


def accuracy() -> None:
    for kind in ("first", "second"):
        for level in ("full", "light"):
            cases = programs(kind)
            scores = [score(case, diagnose(case, level)[0]) for case in cases]
            parts = {key: sum(s[key] for s in scores) for key in scores[0]}
            print(f"{kind:8} {level:6} of {len(cases)}: {parts}")
    silent = programs("silent")
    found = 0
    for case in silent:
        findings = diagnose(case)[0]
        found += any(
            f.rule in case.rules and (not case.carriers or ends_with(f.path, case.carriers))
            for f in findings
        )
    print(f"silent faults found: {found} of {len(silent)}")
    quiet = programs("quiet")
    alarms = [case.name for case in quiet if diagnose(case)[0].at_least("warning")]
    print(f"false alarms: {len(alarms)} of {len(quiet)} {alarms}")


def costs() -> bool:
    watches: dict[str, Callable[[], AbstractContextManager]] = {
        "control": nullcontext,
        "light": lambda: doctor(level="light"),
        "full": lambda: doctor(level="full"),
        "anomaly": lambda: torch.autograd.set_detect_anomaly(True),
    }
    met = True
    print(f"{'work':12} {'watch':8} {'steady':>8} {'quartiles':>16} {'first 4':>8} {'limit':>6}")
    for name, make in (("mlp", mlp), ("transformer", transformer)):
        for label, watch in watches.items():
            gc.collect()
            middle, low, high, first = cost(make, watch)
            limit = LIMITS.get((name, label))
            met &= limit is None or middle <= limit
            print(
                f"{name:12} {label:8} {middle:8.3f} {low:7.3f} .. {high:5.3f} {first:8.2f} "
                f"{limit if limit else '':>6}"
            )
    return met


if __name__ == "__main__":
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    if "--cost" not in sys.argv:
        accuracy()
    if not costs():
        raise SystemExit("a cost limit was missed")
