"""The hazard itself: two groups over all ranks, gathered asynchronously in an order that depends on the rank."""

from __future__ import annotations

import torch
import torch.distributed as dist


def main() -> None:
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    experts = dist.new_group(group_desc="experts")
    dense, expert = torch.ones(8), torch.full((8,), 2.0)
    calls = [(dense, dist.group.WORLD), (expert, experts)]
    if dist.get_rank() % 2:
        calls.reverse()
    works = [dist.all_reduce(tensor, group=group, async_op=True) for tensor, group in calls]
    for work in works:
        work.wait()
    print(f"dense {dense[0].item():.0f}, expert {expert[0].item():.0f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
