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

    def __init__(self, embedding_dim: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.attention_norm = nn.LayerNorm(embedding_dim)
        # A bias of the keys has no effect on attention: its gradient would be nothing but rounding.
        self.qkv = nn.Linear(embedding_dim, 3 * embedding_dim, bias=False)
        self.attention_out = nn.Linear(embedding_dim, embedding_dim)
        self.mlp_norm = nn.LayerNorm(embedding_dim)
        self.mlp = nn.Sequential(
            nn.Linear(embedding_dim, 4 * embedding_dim), nn.GELU(), nn.Linear(4 * embedding_dim, embedding_dim)
        )

    def forward(self, x: Tensor) -> Tensor:
        """(N, T, embedding_dim) to the same shape."""
        heads = self.qkv(self.attention_norm(x)).unflatten(2, (3, self.heads, -1))
        queries, keys, values = heads.permute(2, 0, 3, 1, 4).unbind()
        seen = F.scaled_dot_product_attention(queries, keys, values, is_causal=True)
        x = x + self.attention_out(seen.transpose(1, 2).flatten(2))
        return x + self.mlp(self.mlp_norm(x))


class LanguageModel(nn.Module):
    """From bytes (N, T), int64, to logits (N, 256, T): which byte comes next at each place.

    Every part may be missing: a stage of a pipeline has some blocks, and only the first and the
    last stage have what is around them. A part keeps its name wherever it is.

    Args:
        layers: number of blocks.
        embedding_dim: numbers that stand for one byte between blocks.
        heads: of attention; they share the embedding_dim.
        context: T at most.
        tied: the embedding and the head are one matrix (Press and Wolf 2017, arXiv 1608.05859).
        seed: the same seed gives the same weights in every process.

    Raises:
        ValueError: the heads do not divide the embedding_dim.
    """

    def __init__(
        self, layers: int, embedding_dim: int, heads: int, context: int, *, tied: bool = False, seed: int = 0
    ) -> None:
        super().__init__()
        if embedding_dim % heads:
            raise ValueError(
                f"{heads} heads do not divide an embedding dimension of {embedding_dim}: use a multiple of {heads}"
            )
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.token_embedding: nn.Module | None = nn.Embedding(VOCABULARY, embedding_dim)
            self.position_embedding: nn.Module | None = nn.Embedding(context, embedding_dim)
            self.blocks = nn.ModuleDict({str(layer): Block(embedding_dim, heads) for layer in range(layers)})
            self.norm: nn.Module | None = nn.LayerNorm(embedding_dim)
            self.head: nn.Module | None = nn.Linear(embedding_dim, VOCABULARY, bias=False)
            for name, weight in self.named_parameters():
                if weight.dim() == 2:
                    nn.init.normal_(weight, std=self._spread(name, layers, embedding_dim))
        self.embedding_dim, self.tied = embedding_dim, tied
        if tied:
            self.head.weight = self.token_embedding.weight

    def predict(self, text: Tensor) -> Tensor:
        """Bytes (1, T) from anywhere to logits (1, 256, T)."""
        return self(text.to(self.position_embedding.weight.device))

    @staticmethod
    def _spread(name: str, layers: int, embedding_dim: int) -> float:
        if name in ("token_embedding.weight", "position_embedding.weight"):
            return embedding_dim**-0.5
        # 2 * layers outputs are added up along the way (Radford et al. 2019, section 2.3).
        into_sum = name.endswith(("attention_out.weight", "mlp.2.weight"))
        return 0.02 / (2 * layers) ** 0.5 if into_sum else 0.02

    def forward(self, x: Tensor) -> Tensor:
        """Bytes (N, T), or what the previous stage made of them (N, T, embedding_dim)."""
        if self.token_embedding is not None:
            # A matrix that is small enough to be the head as well is too small here (Vaswani, section 3.4).
            x = (self.token_embedding(x) + self.position_embedding.weight[: x.shape[1]]) * self.embedding_dim**0.5
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
