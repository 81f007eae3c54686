"""Words that several rules share, and the one decision about why a graph was gone."""

from pullback.doctor.records import Carrier, Failure
from pullback.doctor.standing import INDEXING

_ADDS = ("AddBackward0", "SubBackward0")


def cause_of(failure: Failure) -> str:
    """Why the graph that a backward reached was gone: the id of a rule, or ""."""
    if failure.kind != "freed" or not failure.carriers:
        return ""
    carrier, trip = failure.carriers[0], failure.carriers[0].freed
    if failure.same_root is not None:
        repeated = failure.same_root.site == failure.backward.site
        return "made-once" if repeated else "same-root-twice"
    if trip is not None and trip.turn == failure.backward.turn:
        if trip.of_grad:
            return "freed-by-grad"
        return "loss-accumulator" if carrier.scalar and carrier.was_root else "shared-in-pass"
    return _cause_of_older(carrier)


def _cause_of_older(carrier: Carrier) -> str:
    # A cache also grows, but it is asked for what it made once; a list makes more every pass.
    if carrier.lengths is not None and not (carrier.binding == "same" and carrier.remade is False):
        return "growing-container"
    still = carrier.binding == "same" and (carrier.turn == 0 or not carrier.remade)
    if (
        carrier.consumer.startswith(INDEXING)
        and not carrier.own_parameters
        and (still or carrier.remade is False)
    ):
        return "row-by-row"
    summed = carrier.was_root or carrier.consumer in _ADDS
    if carrier.scalar and summed and carrier.binding == "rebound" and carrier.remade is not False:
        return "loss-accumulator"
    if still or (carrier.remade is False and carrier.binding != "moved"):
        return "made-once"
    return "carried-state"


def named(carrier: Carrier) -> str:
    """The carrier, with its holder."""
    name = f"`{carrier.path}`" if carrier.path else f"an unnamed result of {carrier.node}"
    return f"{name} ({carrier.holder})" if carrier.holder else name


def short(carrier: Carrier) -> str:
    """The carrier's own name, as it is written in the code that owns it."""
    return carrier.path.rpartition(".")[2] or "it"


def made(carrier: Carrier, failure: Failure) -> str:
    """Pass and line in which the carrier was made."""
    if carrier.made is not None:
        return f"pass {carrier.turn}, {carrier.made} ({carrier.node})"
    lines = "" if failure.lines else "; level='full' records the line"
    return f"pass {carrier.turn} ({carrier.node}{lines})"


def freed(carrier: Carrier) -> str:
    """The trip that freed what lies behind the carrier."""
    trip = carrier.freed
    return "" if trip is None else f"pass {trip.turn}, {trip.call} at {trip.site}"


def used(carrier: Carrier, failure: Failure) -> str:
    """Where the old graph came into this pass."""
    site = carrier.used or failure.backward.site
    how = f" ({carrier.consumer})" if carrier.consumer else ""
    return f"pass {failure.backward.turn}, {site}{how}"


def steps_between(carrier: Carrier, failure: Failure) -> int:
    """Optimizer steps between the trip that freed the graph and this one."""
    return failure.backward.steps - (carrier.freed.steps if carrier.freed else 0)


def retaining_grows(carrier: Carrier, failure: Failure) -> str:
    """What retain_graph would do where every pass hangs on the one before."""
    grows = f"the graph grows by about {failure.nodes} nodes every pass"
    if steps_between(carrier, failure):
        return (
            f"retain_graph=True: {grows}, old terms keep the weights they were computed with, "
            "and a weight that was stepped since stops it with 'modified by an inplace operation'"
        )
    return f"retain_graph=True: it would run, but {grows} and all of it is walked again"


def retaining_is_stale(carrier: Carrier, failure: Failure) -> str:
    """What retain_graph would do where one old value is used for ever."""
    if steps_between(carrier, failure):
        return (
            "retain_graph=True: it would run on the value that the weights had in pass "
            f"{carrier.turn}, or stop with 'modified by an inplace operation'"
        )
    return "retain_graph=True: the whole old graph is held and walked again by every backward"
