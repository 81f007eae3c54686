"""Graphs that are held and grow, though nothing fails."""

from collections.abc import Iterator

from pullback.doctor.events import Events
from pullback.doctor.examination import Examination
from pullback.doctor.findings import Finding
from pullback.doctor.growth import rate

RULES = {
    "graph-growth": "Something holds a graph that grows with every pass.",
    "evaluation-graph": "An evaluation builds graphs.",
    "gradient-graph": "A .grad keeps the graph that made it.",
    "output-on-ctx": "A Function keeps its own output on ctx, a cycle that is never freed.",
}


def findings(events: Events, examination: Examination) -> Iterator[Finding]:
    """Findings about memory."""
    for path, container, series in examination.growth.growing():
        kib, live = rate(series)
        kept = "activations too" if live > 0 else "graph nodes only, all activations are freed"
        last = series[-1]
        how = f"holds {last.length} entries and " if container else ""
        yield Finding(
            "graph-growth",
            "warning",
            f"`{path}` {how}keeps a graph that grows by about {kib:.1f} KiB a pass ({kept}); "
            f"{last.nodes} nodes in pass {last.turn}",
            path=path,
            cause="growing-container" if container else "accumulator",
            fix=f"empty `{path}` where a pass begins, or append `.detach()`"
            if container
            else f"add `.item()` or `.detach()` values to `{path}`, not tensors with a graph",
            numbers={"kib_per_pass": round(kib, 2), "nodes": last.nodes},
        )
    for event, tally in events.of("evaluation"):
        kib = tally.numbers.get("kib_per_pass", 0.0)
        grows = f"; `{event.path}` keeps them, {kib:.1f} KiB a batch" if event.path else ""
        yield Finding(
            "evaluation-graph",
            "warning" if event.path else "info",
            f"an evaluation builds graphs that no backward uses{grows}",
            path=event.path,
            cause="evaluation",
            made=str(event.site),
            fix="put the evaluation under torch.no_grad() or torch.inference_mode()",
            numbers={"kib_per_pass": round(kib, 2)},
        )
    for event, _ in events.of("gradient-graph")[:1]:
        yield Finding(
            "gradient-graph",
            "warning",
            f"`{event.path}.grad` keeps the graph of an earlier pass (backward with create_graph)",
            path=event.path,
            cause="gradient-graph",
            used=str(event.site),
            fix="take the gradient with torch.autograd.grad(..., create_graph=True), or set "
            "gradients to None after every step",
        )
    for event, _ in events.of("output-on-ctx"):
        yield Finding(
            "output-on-ctx",
            "warning",
            f"{event.path} is the Function's own output: output and node keep each other alive",
            path=event.path,
            cause="output-on-ctx",
            made=str(event.site),
            fix="use ctx.save_for_backward() in place of an attribute",
        )
