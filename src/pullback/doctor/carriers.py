"""From an edge into a freed graph to the tensor that carries it."""

import ast
import linecache
from typing import TYPE_CHECKING, Any

from pullback.doctor import _torch
from pullback.doctor.growth import containers_of
from pullback.doctor.lines import Lines
from pullback.doctor.owners import Held, rank, search_everywhere
from pullback.doctor.records import Backward, Carrier
from pullback.doctor.sites import Site, user_frames
from pullback.doctor.walk import Edge, consumers_of, walk

if TYPE_CHECKING:
    from pullback.doctor.recorder import Call, ThreadRecord

_MANY_OUTPUTS = ("Unbind", "Split", "UnsafeSplit", "Chunk")


def edges_into_freed(
    call: "Call", record: "ThreadRecord", freed: dict[int, Backward]
) -> list[tuple[Edge, Backward | None]]:
    """Edges from what this trip made to what an earlier trip freed."""
    found: list[tuple[Edge, Backward | None]] = []
    for edge in call.found.below:
        trip = _freed_below(edge.producer, freed)
        if trip is not None or _is_gone_below(edge.producer):
            found.append((edge, trip))
    if found:
        return found
    within: list[tuple[Edge, Backward | None]] = []
    for edge in consumers_of(call.found):
        above, below = call.found.nodes[edge.consumer], call.found.nodes[edge.producer]
        if above not in freed and below in freed:
            within.append((edge, freed[below]))
    # The newest shared tensor is the one that the user wrote down last: fake, out, q.
    within.sort(key=lambda pair: -call.found.nodes[pair[0].producer])
    return within


def _freed_below(node: Any, freed: dict[int, Backward]) -> Backward | None:
    for _, sequence in sorted(walk([node], limit=20_000).nodes.items(), key=lambda p: -p[1]):
        if sequence in freed:
            return freed[sequence]
    return None


def _is_gone_below(node: Any) -> bool:
    return any(_torch.saved_state(n)[0] == "freed" for n in walk([node], limit=20_000).nodes)


def make_carrier(
    node: Any,
    number: int,
    consumer: Any,
    trip: Backward | None,
    call: "Call",
    here: Held,
    record: "ThreadRecord",
    lines: Lines,
    path: str = "",
) -> Carrier:
    """Everything that is known of the tensor that is output `number` of `node`."""
    if node.name().startswith(_MANY_OUTPUTS) and node.next_functions[0][0] is not None:
        # Nobody thinks of the rows of `out` as tensors of their own.
        inner = node.next_functions[0]
        if here.paths_of(*inner) and _torch.sequence_of(inner[0]) < _torch.LEAF:
            (node, number), consumer = inner, node
    if consumer is not None and not here.paths_of(node, number):
        # What was made from it between two passes, and is kept, is what the user calls the state.
        kept = [p for p in here.paths_of(consumer, 0) if not rank(p)[0]]
        own = [p for t in record.turns for p in t.names.get((_torch.sequence_of(node), number), ())]
        if kept and kept[0] not in own:
            node, number = consumer, 0
    sequence = _torch.sequence_of(node)
    now = here.paths_of(node, number)
    seen = [(t, p) for t in record.turns for p in t.names.get((sequence, number), ())]
    then = [path for _, path in seen]
    path = path or _best(now, then)
    binding = _binding(now, [path for turn, path in seen if turn is not record.turn])
    if not path:
        # Still held, by something that no variable leads to: a cache, a property.
        path, binding = search_everywhere(node, number) or "", "same"
    made = lines.of(sequence)
    path = path or assigned_at(made)
    used = lines.of(_torch.sequence_of(consumer)) if consumer is not None else call.backward.site
    turn = record.turn_of(sequence)
    container, lengths = _growing(path, here, record)
    fresh = walk([root for root, _ in call.roots], record.turn.start)
    return Carrier(
        path=path,
        node=node.name(),
        consumer=consumer.name() if consumer is not None else "",
        scalar=_torch.is_scalar(node, number),
        made=made,
        used=used,
        turn=turn,
        freed=trip,
        binding=binding if path else "rebound",
        lengths=lengths,
        container=container,
        was_root=any(sequence in t.roots for t in record.backwards),
        remade=lines.ran_since(made, record.turn.start) if made is not None else None,
        own_parameters=bool(fresh.leaves),
        dropped_detach=_dropped_detach(path, call),
        holder=_holder(path, here),
    )


def _best(now: list[str], then: list[str]) -> str:
    # A loop variable names an item; the list that it was taken from names the fault.
    both = [p for p in now if p in then]
    return min(both, key=rank) if both else min([*now, *then] or [""], key=rank)


def _binding(now: list[str], then: list[str]) -> str:
    if any(path in then for path in now):
        return "same"
    return "moved" if now else "rebound"


def _growing(path: str, here: Held, record: "ThreadRecord") -> tuple[str, tuple[int, int] | None]:
    earlier = [t.lengths for t in record.turns if t is not record.turn and t.lengths]
    for container in containers_of(path, here.lengths):
        for lengths in earlier:
            before, after = lengths.get(container), here.lengths[container]
            if before is not None and before < after:
                return container, (before, after)
    return "", None


def _holder(path: str, here: Held) -> str:
    owners = [m for m in here.modules if path.startswith(m + ".")]
    owner = max(owners, key=len, default="")
    return f"module `{owner}` ({here.modules[owner]})" if owner else ""


def assigned_at(site: Site | None) -> str:
    """The name that a line assigns to or writes into: for variables that are gone by now."""
    if site is None:
        return ""
    try:
        statement = ast.parse(linecache.getline(site.file, site.line).strip()).body[0]
    except (SyntaxError, IndexError):
        return ""
    if isinstance(statement, ast.Assign) and len(statement.targets) == 1:
        return ast.unparse(statement.targets[0])
    if isinstance(statement, ast.AugAssign | ast.AnnAssign):
        return ast.unparse(statement.target)
    calls = [n for n in ast.walk(statement) if isinstance(n, ast.Call)]
    for call in reversed(calls):
        if isinstance(call.func, ast.Attribute) and call.func.attr.endswith("_"):
            return ast.unparse(call.func.value)
    return ""


def _dropped_detach(path: str, call: "Call") -> str:
    """A statement `x.detach()` whose result nobody keeps, in a file of the calling stack."""
    name = path.rpartition(".")[2].partition("[")[0]
    for file in {frame.f_code.co_filename for frame in user_frames(call.frame)}:
        try:
            tree = ast.parse("".join(linecache.getlines(file)))
        except SyntaxError:
            continue
        for node in ast.walk(tree):
            if (
                name
                and isinstance(node, ast.Expr)
                and isinstance(node.value, ast.Call)
                and isinstance(node.value.func, ast.Attribute)
                and node.value.func.attr == "detach"
                and ast.unparse(node.value.func.value).rpartition(".")[2].startswith(name)
            ):
                return f"{file}:{node.lineno}"
    return ""
