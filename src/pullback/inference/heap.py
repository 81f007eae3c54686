"""The C library gives memory back too eagerly for a loop over batches."""

from functools import cache

import torch

# The largest block that glibc's threshold follows on 64-bit machines is 32 MiB; its header counts.
_BLOCK = 32 * 2**20 - 4096


@cache
def hold_freed_memory() -> None:
    """Let glibc keep the memory of one batch for the next, once a process.

    Freed memory goes back to the system above twice the largest block that was mapped and freed so
    far, and every page that comes again is cleared first: for activations of some megabytes a
    tenth of the time of a small network on a CPU. A program that ever freed 32 MiB has the higher
    threshold already; one block, never written to and so never really there, does the same.
    """
    torch.empty(_BLOCK, dtype=torch.uint8, device="cpu")
