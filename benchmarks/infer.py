"""What infer() costs beside the ways people do it today, and what it holds.

    python benchmarks/infer.py                  the whole table (about 15 minutes)
    python benchmarks/infer.py --quick          the same at small sizes, to see it work
    python benchmarks/infer.py --method captum --model small --rows 512    one cell, as JSON

The job is the same for all: infer all N rows, look at all outputs, choose for each picked row the
runner-up class as target, and get ∂(cross entropy)/∂(image) for every pick of b rows. Each method
runs in a process of its own, on one thread; CPU seconds (the machine may be shared), the best of
several runs, and the peak of resident memory above what model and data take. Every method's
gradients are compared with those of one graph and one backward, in the process that measures.
Captum and GradCache are their published steps written out, so that nothing has to be installed.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

MIB = 2**20
# What is returned for each row: ten outputs, and a gradient of 3×32×32, in float32.
ROW = (10 + 3 * 32 * 32) * 4


# -- the networks ------------------------------------------------------------------------------


def small() -> nn.Module:
    """Three blocks of convolution, BatchNorm, ReLU and pooling; the first keeps full size."""
    layers: list[nn.Module] = []
    before = 3
    for width in (32, 64, 128):
        layers += [nn.Conv2d(before, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU()]
        layers += [nn.MaxPool2d(2)]
        before = width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, 10))


class Block(nn.Module):
    """Two 3×3 convolutions and a shortcut."""

    def __init__(self, before: int, width: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(before, width, 3, stride, 1, bias=False)
        self.first_norm = nn.BatchNorm2d(width)
        self.second = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.second_norm = nn.BatchNorm2d(width)
        self.shortcut = nn.Identity()
        if stride > 1 or before != width:
            conv = nn.Conv2d(before, width, 1, stride, bias=False)
            self.shortcut = nn.Sequential(conv, nn.BatchNorm2d(width))

    def forward(self, x: Tensor) -> Tensor:
        """Add the shortcut before the last ReLU."""
        h = torch.relu(self.first_norm(self.first(x)))
        return torch.relu(self.second_norm(self.second(h)) + self.shortcut(x))


def resnet(width: int = 32) -> nn.Module:
    """ResNet-18 for 32×32 images: a 3×3 stem and four stages of two blocks."""
    layers: list[nn.Module] = [nn.Conv2d(3, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width)]
    layers.append(nn.ReLU())
    before = width
    for stage in range(4):
        for number in range(2):
            after = width * 2**stage
            layers.append(Block(before, after, 2 if stage and not number else 1))
            before = after
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, 10))


MODELS = {"small": small, "resnet": resnet}


# -- the job, done in each way -----------------------------------------------------------------


@dataclass(frozen=True)
class Job:
    """Network, images [N, 3, 32, 32], the picks, and the rows run together."""

    net: nn.Module
    x: Tensor
    picks: list[Tensor]
    chunk: int
    timed: int | None = None


def runner_up(outputs: Tensor) -> Tensor:
    """The class with the second largest score: known only once all outputs are."""
    return outputs.detach().topk(2, dim=1).indices[:, 1]


def loss_of(outputs: Tensor, targets: Tensor) -> Tensor:
    return cross_entropy(outputs, targets, reduction="sum")


def outputs_without_graph(job: Job) -> Tensor:
    with torch.no_grad():
        return torch.cat([job.net(part) for part in job.x.split(job.chunk)])


def retain_loop(job: Job) -> list[Tensor]:
    """One graph over all rows, walked once a pick with retain_graph=True."""
    x = job.x.clone().requires_grad_()
    outputs = job.net(x)
    targets = runner_up(outputs)
    found = []
    for rows in job.picks[: job.timed]:
        loss = loss_of(outputs[rows], targets[rows])
        found.append(torch.autograd.grad(loss, x, retain_graph=True)[0][rows])
    return found


def one_graph(job: Job) -> list[Tensor]:
    """One graph over all rows, one backward of the summed losses; all picks known in advance."""
    x = job.x.clone().requires_grad_()
    outputs = job.net(x)
    targets = runner_up(outputs)
    loss = sum(loss_of(outputs[rows], targets[rows]) for rows in job.picks)
    (gradient,) = torch.autograd.grad(loss, x)
    return [gradient[rows] for rows in job.picks]


def kept(job: Job) -> list[Tensor]:
    """The optimum if all graphs may be held: one graph a pick, the picks being the batches."""
    leaves, graphs = [], []
    for rows in job.picks:
        leaves.append(job.x[rows].requires_grad_())
        graphs.append(job.net(leaves[-1]))
    targets = runner_up(torch.cat(graphs)).split([len(rows) for rows in job.picks])
    # Freed as they are walked: the optimum holds no graph longer than it must.
    found = []
    for number, leaf in enumerate(leaves):
        loss = loss_of(graphs[number], targets[number])
        found.append(torch.autograd.grad(loss, leaf)[0])
        graphs[number] = None  # type: ignore[call-overload]
    return found


def captum(job: Job) -> list[Tensor]:
    """Saliency's steps, in chunks: one more forward, then the gradient of the summed outputs."""
    targets = runner_up(outputs_without_graph(job))
    rows = torch.cat(job.picks)
    found = []
    for part in rows.split(job.chunk):
        x = job.x[part].requires_grad_()
        losses = cross_entropy(job.net(x), targets[part], reduction="none")
        found.append(torch.autograd.grad(torch.unbind(losses), x)[0])
    return list(torch.cat(found).split([len(rows) for rows in job.picks]))


def vmap_grad(job: Job) -> list[Tensor]:
    """torch.func: vmap of the gradient of one row, in chunks."""
    targets = runner_up(outputs_without_graph(job))
    weights = {**dict(job.net.named_parameters()), **dict(job.net.named_buffers())}
    weights = {name: value.detach() for name, value in weights.items()}

    def loss(row: Tensor, target: Tensor) -> Tensor:
        outputs = torch.func.functional_call(job.net, weights, (row[None],))
        return cross_entropy(outputs, target[None])

    rows = torch.cat(job.picks)
    gradient = torch.func.vmap(torch.func.grad(loss))
    found = [gradient(job.x[part], targets[part]) for part in rows.split(job.chunk)]
    return list(torch.cat(found).split([len(rows) for rows in job.picks]))


def gradcache(job: Job) -> list[Tensor]:
    """Gradient caching's steps: cached output gradients, a surrogate product, .backward()."""
    cached = outputs_without_graph(job).requires_grad_()
    targets = runner_up(cached)
    for rows in job.picks:
        loss_of(cached[rows], targets[rows]).backward()
    assert cached.grad is not None
    rows = torch.cat(job.picks)
    found = []
    for part in rows.split(job.chunk):
        x = job.x[part].requires_grad_()
        (job.net(x) * cached.grad[part]).sum().backward()
        assert x.grad is not None
        found.append(x.grad)
    return list(torch.cat(found).split([len(rows) for rows in job.picks]))


def pullback(job: Job, keep: str | int = "none") -> list[Tensor]:
    """infer, then one lazy pick at a time."""
    import pullback.inference as pb

    run = pb.infer(job.net, job.x, batch_size=job.chunk, keep=keep)
    targets = runner_up(run.outputs)
    picks = [run.pick(rows, loss_of, targets) for rows in job.picks]
    return [pick.gradients for pick in picks]


def pullback_keep(job: Job) -> list[Tensor]:
    """The same with keep="auto", which here has room for all graphs."""
    return pullback(job, keep="auto")


@contextmanager
def unchecked() -> Iterator[None]:
    """Neither inputs nor outputs are compared: not to be had, only to be subtracted."""
    from pullback.inference import first_pass, recompute, recording

    def nothing(*inputs: Tensor) -> Tensor:
        return torch.zeros(len(inputs[0]), dtype=torch.long)

    replaced = {
        (first_pass, "row_fingerprints"): nothing,
        (recompute, "row_fingerprints"): nothing,
        (recompute, "differences"): lambda new, old, sizes: torch.zeros(len(new)).double(),
        (recording, "magnitudes"): lambda values: torch.ones(len(values)).double(),
    }
    saved = {place: getattr(*place) for place in replaced}
    try:
        for (module, name), function in replaced.items():
            setattr(module, name, function)
        yield
    finally:
        for (module, name), function in saved.items():
            setattr(module, name, function)


def check_overhead(job: Job, pairs: int = 8) -> float:
    """What comparing costs, as a fraction: checked and unchecked by turns, the best of each."""
    times: dict[bool, list[float]] = {True: [], False: []}
    for turn in range(2 * pairs):
        checked = turn % 2 == 0
        start = time.process_time()
        with nullcontext() if checked else unchecked():
            pullback(job)
        times[checked].append(time.process_time() - start)
    return min(times[True]) / min(times[False]) - 1


METHODS: dict[str, Callable[[Job], list[Tensor]]] = {
    f.__name__: f
    for f in (
        retain_loop,
        one_graph,
        kept,
        captum,
        vmap_grad,
        gradcache,
        pullback,
        pullback_keep,
    )
}


# -- one measurement ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Cell:
    """What is measured: a method, a network and sizes."""

    method: str
    model: str = "small"
    rows: int = 512
    pick: int = 32
    fraction: float = 1.0
    chunk: int = 32
    timed: int | None = None


def job_of(cell: Cell, rows: int | None = None) -> Job:
    torch.manual_seed(0)
    net = MODELS[cell.model]().eval()
    n = rows or cell.rows
    x = torch.randn(n, 3, 32, 32)
    order = torch.randperm(n)[: max(int(n * cell.fraction), 1)]
    return Job(net, x, list(order.split(cell.pick)), cell.chunk, cell.timed)


def resident() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def measure(cell: Cell) -> dict[str, float]:
    """CPU seconds, peak memory above model and data, and the error against one graph."""
    method = METHODS[cell.method]
    torch.set_num_threads(1)
    method(job_of(cell, rows=16))  # imports, code pages and kernels are not what is compared
    job = job_of(cell)
    before = resident()
    start = time.process_time()
    found = method(job)
    seconds = time.process_time() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before
    if cell.timed is not None:
        # The walks are alike: the rest of the loop is the timed ones, repeated.
        forward = time.process_time()
        job.net(job.x.clone().requires_grad_())
        forward = time.process_time() - forward
        seconds = forward + (seconds - forward) / len(found) * len(job.picks)
    error = worst_error(job, found)
    return {"cpu": seconds, "peak": peak / MIB, "error": error}


def worst_error(job: Job, found: Sequence[Tensor]) -> float:
    """The largest difference of a row's gradient, relative to the row; rows checked: up to 256."""
    worst, checked = 0.0, 0
    targets = runner_up(outputs_without_graph(job))
    for rows, gradient in zip(job.picks, found, strict=False):
        if checked >= 256:
            break
        x = job.x[rows].repeat(8 if len(rows) < 8 else 1, 1, 1, 1)[: max(8, len(rows))]
        x.requires_grad_()
        loss = loss_of(job.net(x)[: len(rows)], targets[rows])
        (want,) = torch.autograd.grad(loss, x)
        want = want[: len(rows)].flatten(1)
        off = (gradient.flatten(1) - want).norm(dim=1) / want.norm(dim=1)
        worst, checked = max(worst, float(off.max())), checked + len(rows)
    return worst


def in_a_process(cell: Cell, *more: str) -> dict[str, float]:
    """Measure in a process of its own."""
    words = [sys.executable, __file__, "--method", cell.method, "--model", cell.model, *more]
    for name in ("rows", "pick", "fraction", "chunk", "timed"):
        if getattr(cell, name) is not None:
            words += [f"--{name}", str(getattr(cell, name))]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "1"}
    done = subprocess.run(words, check=True, capture_output=True, text=True, env=environment)
    return json.loads(done.stdout)


# -- the table ---------------------------------------------------------------------------------


class Table:
    """Measures the cells of a section by turns, prints each claim beside what it should reach."""

    def __init__(self, repeats: int) -> None:
        self.repeats = repeats
        self.missed: list[str] = []

    def cells(self, title: str, cells: Sequence[Cell]) -> list[dict[str, float]]:
        """Measure and print: all cells once, then again, so that a busy hour meets all of them."""
        print(f"== {title}", flush=True)
        rounds = [[in_a_process(cell) for cell in cells] for _ in range(self.repeats)]
        best = []
        for cell, *runs in zip(cells, *rounds, strict=True):
            found = {key: min(run[key] for run in runs) for key in runs[0]}
            print(
                f"    {cell.model:6} {cell.method:13} N={cell.rows:<5} picks of {cell.pick:<3}"
                f" fraction {cell.fraction:<7.4g}{found['cpu']:8.2f} CPU s"
                f" {found['peak']:8.0f} MiB   error {found['error']:.0e}",
                flush=True,
            )
            # The premise of every comparison: the same gradients (one kink row may differ).
            assert max(run["error"] for run in runs) < 2e-2, (cell, runs)
            best.append(found)
        return best

    def claim(self, text: str, value: float, limit: float, *, at_least: bool = False) -> None:
        """Print a ratio beside its limit."""
        met = value >= limit if at_least else value <= limit
        sign = "≥" if at_least else "≤"
        print(f"{'reached' if met else 'MISSED ':7}  {text}: {value:.3g} ({sign} {limit:g})")
        if not met:
            self.missed.append(text)


def main_table(quick: bool, repeats: int) -> int:
    scale = 8 if quick else 1
    table = Table(repeats)
    for model, size in (("small", 512), ("resnet", 256)):
        n = size // scale
        names = ("one_graph", "kept", "captum", "vmap_grad", "gradcache", "pullback")
        *others, single = table.cells(
            f"{model}: all rows picked, N={n}",
            [Cell(name, model, n) for name in (*names, "pullback_keep")]
            + [Cell("pullback", model, n, pick=1)],
        )
        cpu = {name: cell["cpu"] for name, cell in zip((*names, "keep"), others, strict=True)}
        ours, keep = cpu["pullback"], cpu["keep"]
        table.claim(f"{model}: recomputing against the kept optimum", ours / cpu["kept"], 1.5)
        table.claim(f"{model}: keep='auto' against the kept optimum", keep / cpu["kept"], 1.1)
        for name in ("captum", "vmap_grad", "gradcache"):
            table.claim(f"{model}: recomputing against {name}", ours / cpu[name], 1.0)
            table.claim(f"{model}: keep='auto' against {name}", keep / cpu[name], 1.0)
        table.claim(f"{model}: picks of one row against 32", single["cpu"] / ours, 1.2)
        extra = in_a_process(Cell("pullback", model, n), "--overhead")["overhead"]
        table.claim(f"{model}: overhead of the value check", extra, 0.03)
    big, n = 2048 // scale, 512 // scale
    low, high, graph_low, graph_high, loop = table.cells(
        f"small: as N grows, {n} to {big}",
        [
            Cell("pullback", rows=n),
            Cell("pullback", rows=big),
            Cell("one_graph", rows=n),
            Cell("one_graph", rows=big),
            Cell("retain_loop", rows=big, timed=4),
        ],
    )
    mine = [cell["peak"] - rows * ROW / MIB for cell, rows in ((low, n), (high, big))]
    table.claim("peak memory beyond inputs, outputs, gradients", mine[1] / mine[0], 1.3)
    assert quick or graph_high["peak"] > 2 * graph_low["peak"], "premise: one graph grows with N"
    table.claim("against the retain_graph loop", loop["cpu"] / high["cpu"], 25, at_least=True)
    part = 1024 // scale
    few, whole = table.cells(
        f"small: 1/16 of the rows picked, N={part}",
        [Cell(name, rows=part, fraction=1 / 16) for name in ("pullback", "one_graph")],
    )
    table.claim("1/16 picked, against one graph, one backward", few["cpu"] / whole["cpu"], 0.5)
    print(f"missed: {', '.join(table.missed) or 'nothing'}")
    return 1 if table.missed and not quick else 0


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="small sizes; limits are not enforced")
    parser.add_argument("--repeats", type=int, default=3, help="runs a cell; the best counts")
    parser.add_argument("--method", choices=METHODS, help="measure one cell and print JSON")
    parser.add_argument("--overhead", action="store_true", help="of the check, in that cell")
    parser.add_argument("--model", choices=MODELS, default="small")
    parser.add_argument("--rows", type=int, default=512)
    parser.add_argument("--pick", type=int, default=32)
    parser.add_argument("--fraction", type=float, default=1.0)
    parser.add_argument("--chunk", type=int, default=32)
    parser.add_argument("--timed", type=int, help="time this many picks and extrapolate")
    return parser.parse_args()


def main() -> int:
    options = parse()
    if options.method is None:
        return main_table(options.quick, options.repeats)
    sizes = {name: getattr(options, name) for name in ("model", "rows", "pick", "fraction")}
    cell = Cell(options.method, **sizes, chunk=options.chunk, timed=options.timed)
    if options.overhead:
        torch.set_num_threads(1)
        print(json.dumps({"overhead": check_overhead(job_of(cell))}))
    else:
        print(json.dumps(measure(cell)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
