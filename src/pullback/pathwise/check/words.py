"""Findings of the pathwise check in words: which input, by how much, and which remedy."""

from collections.abc import Sequence
from dataclasses import dataclass

from pullback.learning.columns import Columns
from pullback.learning.label_check import LabelFinding
from pullback.pathwise.check.evidence import Evidence

_SMOOTH = (
    "smooth the condition with soft_step (value_hard_derivative_soft keeps the value as it is), or "
    "use likelihood_ratio where the density of the paths is known"
)
_DOMAIN = "look for a logarithm, a root or a quotient that leaves its domain there"
_ROOT = (
    "a root at 0 has an infinite slope, and torch.where(v > 0, v.sqrt(), 0) multiplies it by 0, "
    "which is NaN: use safe_sqrt, or replace the argument before the root is taken"
)


@dataclass(frozen=True)
class Words:
    """Findings about these columns."""

    columns: Columns

    def value_not_finite(
        self, k: int, count: int, rows: int, row: int, at: Sequence[float]
    ) -> LabelFinding:
        """NaN or infinity in a value."""
        sentence = (
            f"{self.columns.outputs[k]} is not finite in {count} of {rows} rows, first in row "
            f"{row} ({self._at(at)})"
        )
        return LabelFinding("not-finite", k, (), None, sentence, _DOMAIN)

    def derivative_not_finite(
        self, k: int, d: int, count: int, rows: int, row: int, at: Sequence[float]
    ) -> LabelFinding:
        """NaN or infinity in a derivative whose value is finite."""
        sentence = (
            f"the derivative of {self._by(k, d)} is not finite in {count} of {rows} rows, first in "
            f"row {row} ({self._at(at)}), though the value is"
        )
        return LabelFinding("not-finite", k, (d,), None, sentence, _ROOT)

    def random(self, k: int, moved: float) -> LabelFinding:
        """Other values for the same arguments."""
        sentence = (
            f"{self.columns.outputs[k]} changes by {moved:.3g} when the payoff is run again with "
            "the same state and noise"
        )
        remedy = (
            "let the payoff draw nothing itself: take all random numbers from its noise argument"
        )
        return LabelFinding("random", k, (), moved, sentence, remedy)

    def fault(self, e: Evidence) -> LabelFinding:
        """Labels that bumps contradict."""
        sentence = f"the derivative of {self._by(e.output, e.input)} is wrong: {self._gap(e)}"
        if e.jumps.share > 0:
            sentence += f"; {self._jumps(e)}"
            return LabelFinding("jump", e.output, (e.input,), e.gap, sentence, _SMOOTH)
        remedy = (
            "there is no jump, so look for .detach(), .item(), a no_grad block, or a backward "
            "written by hand"
        )
        return LabelFinding("bias", e.output, (e.input,), e.gap, sentence, remedy)

    def jumps_alone(self, e: Evidence) -> LabelFinding:
        """Jumps without a bias that shows."""
        sentence = (
            f"{self._jumps(e)}, which derivative labels do not see; no bias shows ({self._gap(e)})"
        )
        remedy = (
            f"nothing is wrong if these are exercise decisions close to the best; else {_SMOOTH}"
        )
        return LabelFinding("jump", e.output, (e.input,), e.gap, sentence, remedy)

    def tail(self, e: Evidence, again: float) -> LabelFinding:
        """A variance that does not settle."""
        sentence = (
            f"one row holds {e.tail:.0%} of the sum of squares of the derivative of "
            f"{self._by(e.output, e.input)}, and in a second batch {again:.0%}: its variance looks "
            "infinite"
        )
        remedy = (
            "leave this part of the state out of wrt, so that its derivative is unknown, or use "
            "another scheme"
        )
        return LabelFinding("tail", e.output, (e.input,), e.tail, sentence, remedy)

    def _by(self, k: int, d: int) -> str:
        return f"{self.columns.outputs[k]} by {self.columns.inputs[d]}"

    def _at(self, values: Sequence[float]) -> str:
        pairs = zip(self.columns.inputs[:6], values, strict=False)
        more = ", …" if len(values) > 6 else ""
        return ", ".join(f"{name} = {value:.6g}" for name, value in pairs) + more

    def _gap(self, e: Evidence) -> str:
        words = (
            f"labels average {e.slope - e.gap:.4g}, bumps of {e.bump:.3g} with the same noise "
            f"{e.slope:.4g} ± {e.error:.2g}"
        )
        if e.bin_score > max(5.0, e.score):
            words += (
                f", and in a part of its range they are {e.bin_score:.1f} standard errors apart"
            )
        return words

    def _jumps(self, e: Evidence) -> str:
        name = self.columns.inputs[e.input]
        return (
            f"{self.columns.outputs[e.output]} jumps by {e.jumps.size:.3g} within "
            f"{e.jumps.share:.2%} of the bumps of {name} (row {e.jumps.row}, at {name} = "
            f"{e.jumps.at:.6g})"
        )
