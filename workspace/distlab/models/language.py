"""A small decoder-only transformer over bytes (Vaswani et al. 2017, arXiv 1706.03762; Radford et al. 2019)."""

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from distlab.errors import SettingError

VOCABULARY = 256
# Below 1 makes likely bytes likelier.
TEMPERATURE = 0.6


class Block(nn.Module):
    """A pre-norm transformer block: causal self-attention and an MLP, each with a residual connection."""

    def __init__(self, embedding_dim: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.attention_norm = nn.LayerNorm(embedding_dim)
        # Without a bias: softmax cancels that of the keys, and its gradient would be rounding errors only.
        self.qkv = nn.Linear(embedding_dim, 3 * embedding_dim, bias=False)
        self.attention_out = nn.Linear(embedding_dim, embedding_dim)
        self.mlp_norm = nn.LayerNorm(embedding_dim)
        self.mlp = nn.Sequential(
            nn.Linear(embedding_dim, 4 * embedding_dim), nn.GELU(), nn.Linear(4 * embedding_dim, embedding_dim)
        )

    def forward(self, x: Tensor) -> Tensor:
        """(N, T, embedding_dim) to the same shape."""
        qkv = self.qkv(self.attention_norm(x)).unflatten(2, (3, self.heads, -1))
        queries, keys, values = qkv.permute(2, 0, 3, 1, 4).unbind()
        attended = F.scaled_dot_product_attention(queries, keys, values, is_causal=True)
        x = x + self.attention_out(attended.transpose(1, 2).flatten(2))
        return x + self.mlp(self.mlp_norm(x))


class LanguageModel(nn.Module):
    """From bytes (N, T), int64, to logits (N, 256, T): which byte comes next at each position.

    A stage of a pipeline has some of the blocks; only the first has the embeddings, only the last norm and
    head. Parameters have the same names in the whole model and in a stage.

    Args:
        layers: number of blocks.
        embedding_dim: numbers that represent one byte between blocks.
        heads: attention heads, which divide the embedding dimension.
        context: the largest T.
        tied: token embedding and head share one matrix (Press and Wolf 2017, arXiv 1608.05859).
        seed: the same seed gives the same weights in every process.

    Raises:
        SettingError: the heads do not divide the embedding dimension.
    """

    def __init__(
        self, layers: int, embedding_dim: int, heads: int, context: int, *, tied: bool = False, seed: int = 0
    ) -> None:
        super().__init__()
        if embedding_dim % heads:
            raise SettingError(
                f"{heads} heads do not divide an embedding dimension of {embedding_dim}: use a multiple of {heads}"
            )
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.token_embedding: nn.Embedding | None = nn.Embedding(VOCABULARY, embedding_dim)
            self.positional_embedding: nn.Embedding | None = nn.Embedding(context, embedding_dim)
            self.blocks = nn.ModuleDict({str(layer): Block(embedding_dim, heads) for layer in range(layers)})
            self.norm: nn.Module | None = nn.LayerNorm(embedding_dim)
            self.head: nn.Module | None = nn.Linear(embedding_dim, VOCABULARY, bias=False)
            for name, weight in self.named_parameters():
                if weight.dim() == 2:
                    nn.init.normal_(weight, std=self._init_std(name, layers, embedding_dim))
        self.embedding_dim, self.tied = embedding_dim, tied
        if tied:
            self.head.weight = self.token_embedding.weight

    def predict(self, text: Tensor) -> Tensor:
        """Bytes (1, T), on any device, to logits (1, 256, T)."""
        return self(text.to(self.positional_embedding.weight.device))

    @staticmethod
    def _init_std(name: str, layers: int, embedding_dim: int) -> float:
        if name in ("token_embedding.weight", "positional_embedding.weight"):
            return embedding_dim**-0.5
        # 2 * layers of these are summed in the residual stream (Radford et al. 2019, section 2.3).
        into_sum = name.endswith(("attention_out.weight", "mlp.2.weight"))
        return 0.02 / (2 * layers) ** 0.5 if into_sum else 0.02

    def forward(self, x: Tensor) -> Tensor:
        """Bytes (N, T), or the previous stage's output (N, T, embedding_dim)."""
        if self.token_embedding is not None:
            # Scaled up, since its initial values are small enough to serve as the head, too (Vaswani, section 3.4).
            x = (self.token_embedding(x) + self.positional_embedding.weight[: x.shape[1]]) * self.embedding_dim**0.5
        for block in self.blocks.values():
            x = block(x)
        if self.head is not None:
            x = self.head(self.norm(x)).transpose(1, 2)
        return x


@torch.no_grad()
def generate(
    predict: Callable[[Tensor], Tensor], length: int, context: int, seed: int = 0, start: bytes = b"def "
) -> str:
    """`start` and `length` more bytes, each sampled from what the model predicts.

    Args:
        predict: from bytes (1, T) on the CPU to logits (1, 256, T).
        length: bytes to sample.
        context: the largest T that the model takes.
    """
    generator = torch.Generator().manual_seed(seed)
    text = list(start)
    for _ in range(length):
        logits = predict(torch.tensor([text[-context:]]))[0, :, -1].float().cpu()
        text.append(int(torch.multinomial((logits / TEMPERATURE).softmax(0), 1, generator=generator)))
    return bytes(text).decode(errors="replace")
