"""Where a model is cut into stages, and what each stage has of it."""

import copy
from collections.abc import Sequence

from torch import nn

from distlab.errors import SettingError
from distlab.models import LanguageModel


def evenly(layers: int, stages: int) -> list[int]:
    """Blocks of each stage, the earlier ones one more where they cannot be equal.

    >>> evenly(8, 3)
    [3, 3, 2]

    Raises:
        SettingError: a stage would have none.
    """
    if stages > layers:
        raise SettingError(
            f"{layers} layers cannot be cut into {stages} stages: use --layers {stages} or more, or fewer ranks"
        )
    return [layers // stages + (stage < layers % stages) for stage in range(stages)]


def require_cut(cut: Sequence[int], layers: int, stages: int) -> None:
    """Refuse a cut that does not fit.

    Raises:
        SettingError: it has another number of stages or layers than there are, or an empty stage.
    """
    text = ",".join(map(str, cut))
    if len(cut) != stages:
        raise SettingError(f"--cut {text} makes {len(cut)} stages, but there are {stages}: give {stages} numbers")
    if min(cut) < 1:
        raise SettingError(f"--cut {text}: stage {list(cut).index(min(cut))} has no layer, give each 1 or more")
    if sum(cut) != layers:
        raise SettingError(f"--cut {text} shares out {sum(cut)} layers, but the model has {layers}")


def stage_of(model: LanguageModel, cut: Sequence[int], stage: int) -> LanguageModel:
    """One stage: its blocks, in the first also the embedding, in the last also the head.

    Its parts are those of the model itself, under the same names, so two stages of a tied model on one
    rank hold the same matrix.

    Args:
        cut: blocks of each stage.
    """
    part = copy.copy(model)
    # A shallow copy of a module shares its dicts of submodules and hooks; a stage needs its own.
    vars(part).update({name: copy.copy(table) for name, table in vars(model).items() if isinstance(table, dict)})
    first = sum(cut[:stage])
    part.blocks = nn.ModuleDict({name: model.blocks[name] for name in map(str, range(first, first + cut[stage]))})
    if stage > 0:
        part.token_embedding = part.positional_embedding = None
    if stage < len(cut) - 1:
        part.norm = part.head = None
    return part
