"""What a run decided, and why."""

from dataclasses import dataclass

from pullback.inference.keep import KeepBudget
from pullback.inference.plan import Rules
from pullback.inference.recompute import Replay


@dataclass(frozen=True)
class Explanation:
    """The decisions of one run; str() writes them out.

    Attributes:
        rows: N. shapes: how many shapes of rows. batches: batches of the first pass.
        kept: batches whose graph is held. kept_bytes: what they hold together, estimated.
        budget: what they may hold. row_bytes: a row's graph, measured on the first batch, or None.
        keep_reason: where the budget comes from.
        unit: what is recomputed together, and why.
        tolerance: allowed difference of recomputed outputs, relative. tolerance_source: its origin.
        device: where batches run. autocast: its dtype, or None.
    """

    rows: int
    shapes: int
    batches: int
    kept: int
    kept_bytes: int
    budget: int
    row_bytes: int | None
    keep_reason: str
    unit: str
    tolerance: float
    tolerance_source: str
    device: str
    autocast: str | None

    def __str__(self) -> str:
        measured = (
            "not measured" if self.row_bytes is None else f"{self.row_bytes / 1024:.0f} KiB a row"
        )
        shapes = "one shape" if self.shapes == 1 else f"{self.shapes} shapes"
        return "\n".join(
            [
                f"{self.rows} rows of {shapes}, in {self.batches} batches on {self.device}"
                + (f", autocast to {self.autocast}" if self.autocast else ""),
                f"graphs: {self.kept} of {self.batches} batches kept "
                f"({self.kept_bytes / 2**20:.1f} of {self.budget / 2**20:.1f} MiB; {measured}); "
                f"{self.keep_reason}",
                f"recomputing: {self.unit}",
                f"verified: outputs within {self.tolerance:.1e} of their size "
                f"({self.tolerance_source})",
            ]
        )


def explain(replay: Replay, rules: Rules, budget: KeepBudget) -> Explanation:
    """Read the decisions off a run's parts."""
    recording, setting = replay.recording, replay.network.setting
    return Explanation(
        rows=recording.n,
        shapes=len(recording.groups),
        batches=len(recording.batches),
        kept=sum(batch.graph is not None for batch in recording.batches),
        kept_bytes=budget.spent,
        budget=budget.bytes,
        row_bytes=budget.row_bytes,
        keep_reason=budget.reason,
        unit=_unit(replay, rules),
        tolerance=replay.tolerance.allowed,
        tolerance_source=replay.tolerance.source,
        device=str(setting.device),
        autocast=None if setting.autocast is None else str(setting.autocast),
    )


def _unit(replay: Replay, rules: Rules) -> str:
    if replay.coupled:
        return "whole batches of the first pass, since coupled='batch'"
    drew = sum(batch.random is not None for batch in replay.recording.batches)
    free = f"any rows, {replay.smallest} to {rules.batch_size} at a time"
    if not drew:
        return f"{free}; the network drew no random numbers"
    return (
        f"whole batches with their random numbers replayed, for the {drew} batches that drew some"
        + ("" if drew == len(replay.recording.batches) else f"; else {free}")
    )
