"""What a rank's gradients need from other ranks: the other end of tied weights, other replicas, a global norm."""

from collections.abc import Mapping

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.nn.utils import clip_grads_with_norm_, get_total_norm

from distlab.stages.planning import Plan

EMBEDDING, HEAD = "token_embedding.weight", "head.weight"


class GradientSync:
    """All-reduces gradients over replicas and over the ends of a tied model, and clips them by their global norm.

    Not DistributedDataParallel, whose hooks miss a backward that a schedule splits into inputs and weights.

    Args:
        mesh: with the dimensions "stage" and "replica".
        own: this rank's parameters by name.
        tied: the first and the last stage hold the same matrix.
    """

    def __init__(self, mesh: DeviceMesh, plan: Plan, own: Mapping[str, nn.Parameter], tied: bool) -> None:
        self.mesh, self.replicas = mesh, plan.replicas
        self.own = list(own.values())
        last = plan.last
        self.ends = _group_of_ends(mesh, last, plan.replica) if tied and last != 0 else None
        self.matrix = own.get(EMBEDDING, own.get(HEAD)) if self.ends and plan.position in (0, last) else None
        # Two ranks hold the tied matrix; the norm counts it on the first only.
        self.counted = [weight for weight in self.own if weight is not self.matrix or plan.is_first]

    def all_reduce(self) -> None:
        """Sum over the ends of a tied model, and mean over replicas. All ranks must call it."""
        if self.matrix is not None:
            dist.all_reduce(self.matrix.grad, group=self.ends)
        if self.replicas > 1:
            gradients = [weight.grad for weight in self.own if weight.grad is not None]
            flat = torch.cat([gradient.reshape(-1) for gradient in gradients])
            dist.all_reduce(flat, group=self.mesh["replica"].get_group())
            means = (flat / self.replicas).split([gradient.numel() for gradient in gradients])
            for gradient, mean in zip(gradients, means, strict=True):
                gradient.copy_(mean.view_as(gradient))

    def norm(self) -> Tensor:
        """The norm of the whole model's gradient, the same on all ranks of a pipeline."""
        squares = get_total_norm([weight.grad for weight in self.counted if weight.grad is not None]) ** 2
        dist.all_reduce(squares, group=self.mesh["stage"].get_group())
        return squares.sqrt()

    def clip_by_norm(self, max_norm: float) -> None:
        """Clip as `clip_grad_norm_` does for a model in one place."""
        clip_grads_with_norm_(self.own, max_norm, self.norm())


def _group_of_ends(mesh: DeviceMesh, last: int, replica: int) -> dist.ProcessGroup:
    """The ranks with the first and the last stage of this rank's pipeline. Every rank makes all groups."""
    ranks = mesh.mesh if mesh.mesh_dim_names[0] == "stage" else mesh.mesh.T
    groups = [dist.new_group([int(ranks[0, column]), int(ranks[last, column])]) for column in range(ranks.shape[1])]
    return groups[replica]  # type: ignore[return-value]  # a rank in no group gets a number, and never uses it
