"""A small decoder-only transformer over bytes (Vaswani et al. 2017, arXiv 1706.03762; Radford et al. 2019)."""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

VOCABULARY = 256
# Below 1, rare bytes are rarer still.
TEMPERATURE = 0.6


class Block(nn.Module):
    """Causal self-attention and a small network, each normalised before and added to what came in."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before_attention = nn.LayerNorm(width)
        # A bias of the keys has no effect on attention: its gradient would be nothing but rounding.
        self.queries_keys_values = nn.Linear(width, 3 * width, bias=False)
        self.after_attention = nn.Linear(width, width)
        self.before_network = nn.LayerNorm(width)
        self.network = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        """(N, T, width) to the same shape."""
        heads = self.queries_keys_values(self.before_attention(x)).unflatten(2, (3, self.heads, -1))
        queries, keys, values = heads.permute(2, 0, 3, 1, 4).unbind()
        seen = F.scaled_dot_product_attention(queries, keys, values, is_causal=True)
        x = x + self.after_attention(seen.transpose(1, 2).flatten(2))
        return x + self.network(self.before_network(x))


class Language(nn.Module):
    """From bytes (N, T), int64, to logits (N, 256, T): which byte comes next at each place.

    Every part may be missing: a stage of a pipeline has some blocks, and only the first and the
    last stage have what is around them. A part keeps its name wherever it is.

    Args:
        layers: number of blocks.
        width: numbers that stand for one byte between blocks.
        heads: of attention; they share the width.
        context: T at most.
        tied: the embedding and the head are one matrix (Press and Wolf 2017, arXiv 1608.05859).
        seed: the same seed gives the same weights in every process.

    Raises:
        ValueError: the heads do not divide the width.
    """

    def __init__(self, layers: int, width: int, heads: int, context: int, *, tied: bool = False, seed: int = 0) -> None:
        super().__init__()
        if width % heads:
            raise ValueError(f"a width of {width} cannot be shared by {heads} heads: use a multiple of {heads}")
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.tokens: nn.Module | None = nn.Embedding(VOCABULARY, width)
            self.places: nn.Module | None = nn.Embedding(context, width)
            self.blocks = nn.ModuleDict({str(layer): Block(width, heads) for layer in range(layers)})
            self.norm: nn.Module | None = nn.LayerNorm(width)
            self.head: nn.Module | None = nn.Linear(width, VOCABULARY, bias=False)
            for name, weight in self.named_parameters():
                if weight.dim() == 2:
                    nn.init.normal_(weight, std=self._spread(name, layers, width))
        self.width, self.tied = width, tied
        if tied:
            self.head.weight = self.tokens.weight

    def predict(self, text: Tensor) -> Tensor:
        """Bytes (1, T) from anywhere to logits (1, 256, T)."""
        return self(text.to(self.places.weight.device))

    @staticmethod
    def _spread(name: str, layers: int, width: int) -> float:
        if name in ("tokens.weight", "places.weight"):
            return width**-0.5
        # 2 * layers outputs are added up along the way (Radford et al. 2019, section 2.3).
        into_sum = name.endswith(("after_attention.weight", "network.2.weight"))
        return 0.02 / (2 * layers) ** 0.5 if into_sum else 0.02

    def forward(self, x: Tensor) -> Tensor:
        """Bytes (N, T), or what the previous stage made of them (N, T, width)."""
        if self.tokens is not None:
            # A matrix that is small enough to be the head as well is too small here (Vaswani, section 3.4).
            x = (self.tokens(x) + self.places.weight[: x.shape[1]]) * self.width**0.5
        for block in self.blocks.values():
            x = block(x)
        if self.head is not None:
            x = self.head(self.norm(x)).transpose(1, 2)
        return x


@torch.no_grad()
def generate(
    predict: Callable[[Tensor], Tensor], length: int, context: int, seed: int = 0, start: bytes = b"def "
) -> str:
    """`start` and what a model makes of it: `length` more bytes, by chance, the likelier the more often.

    Args:
        predict: from bytes (1, T) on the CPU to logits (1, 256, T).
        context: bytes that the model sees at most.
    """
    dice = torch.Generator().manual_seed(seed)
    text = list(start)
    for _ in range(length):
        logits = predict(torch.tensor([text[-context:]]))[0, :, -1].float().cpu()
        text.append(int(torch.multinomial((logits / TEMPERATURE).softmax(0), 1, generator=dice)))
    return bytes(text).decode(errors="replace")
