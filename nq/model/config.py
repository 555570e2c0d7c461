"""Shape of a model, and the types in which its folder may store the weights."""

from dataclasses import dataclass
from typing import Any, ClassVar

from nq.config import Settings, ensure, option

MEAN = "mean"
CLS = "cls"
STORES = ("float32", "float16", "int8")
MAX_INTEGER = (1 << 31) - 1  # of TensorFlow's indices
MAX_POSITIONS = 1 << 16  # of models without a table of positions, which has as many rows


@dataclass(frozen=True)
class ModelConfig(Settings):
    """Shape of the encoder, in the words of a BERT ``config.json``.

    The defaults describe BERT base.

    Args:
        type_vocab_size: rows of the segment table; 0 for no such table (DistilBERT).
        model_type: whose names the weights have in a folder (``nq.model.families``).
        embedding_size: width of the tables, of which a projection makes ``hidden_size``
            (ALBERT, RemBERT, ELECTRA); 0 for no projection.
        num_hidden_groups: sets of weights that all layers share (ALBERT); 0 for weights of each
            layer's own.
        position_offset: row of the position table that the first piece has (RoBERTa: 2).
        relative_attention_num_buckets: rows of the table of attention biases by the distance of
            two pieces, which all layers share (MPNet: 32); 0 for no such table.
        position_biased_input: whether a table of positions is added to the embeddings.
        relative_attention, pos_att_type: whether attention is disentangled (DeBERTa), and which
            products with embeddings of relative positions are added to its scores.
        position_buckets: the largest relative position where distances share logarithmic buckets;
            0 or less for distances themselves.
        max_relative_positions: the largest distance; 0 or less for ``max_position_embeddings``.
        share_att_key: whether relative positions have the projections of the pieces.
        norm_rel_ebd: whether the embeddings of relative positions are normalized.
        global_rope_theta, local_rope_theta: bases of the rotation by position (ModernBERT) of
            global and of local attention; 0 for none.
        local_attention: pieces that a query of local attention sees, half on each side.
        global_attn_every_n_layers: the first of every N layers has global attention.
        is_gated: whether half of the feed-forward network multiplies the other one.
        is_pre_norm: whether norms come before attention and feed-forward network, not behind the
            residual. The first attention has none then, and one follows the last layer.
        has_biases: whether linear layers and norms have a bias.
        has_span_transform: whether a linear layer, gelu and a norm precede the span head.
        head_size: columns of query, key and value for each head where heads were removed; 0 for
            ``hidden_size / num_attention_heads``, the only size that ``transformers`` knows.
        pooling: what stands for a text in a dual encoder: the mean of its outputs, or that of its
            first piece, [CLS]; empty for a model that reads question and page together.
    """

    BEYOND_TRANSFORMERS: ClassVar[tuple[str, ...]] = ("head_size", "pooling")

    vocab_size: int = option(30522, minimum=1)
    hidden_size: int = option(768, minimum=1)
    num_hidden_layers: int = option(12, minimum=1)
    num_attention_heads: int = option(12, minimum=1)
    intermediate_size: int = option(3072, minimum=1)
    max_position_embeddings: int = option(512, minimum=1)
    type_vocab_size: int = option(2, minimum=0)
    hidden_act: str = option("gelu", choices=("gelu", "gelu_new", "relu"))
    layer_norm_eps: float = option(1e-12, within="(0, 1]")
    initializer_range: float = option(0.02, within="(0, 100]")
    model_type: str = "bert"
    embedding_size: int = option(0, minimum=0)
    num_hidden_groups: int = option(0, minimum=0)
    position_offset: int = option(0, minimum=0)
    relative_attention_num_buckets: int = option(0, minimum=0)
    position_biased_input: bool = True
    relative_attention: bool = False
    pos_att_type: str = option("", choices=("", "c2p", "p2c", "c2p|p2c"))
    position_buckets: int = -1
    max_relative_positions: int = -1
    share_att_key: bool = False
    norm_rel_ebd: str = option("none", choices=("none", "layer_norm"))
    global_rope_theta: float = option(0.0, within="[0, 1e12]")
    local_rope_theta: float = option(0.0, within="[0, 1e12]")
    local_attention: int = option(0, minimum=0)
    global_attn_every_n_layers: int = option(1, minimum=1)
    is_gated: bool = False
    is_pre_norm: bool = False
    has_biases: bool = True
    has_span_transform: bool = False
    head_size: int = option(0, minimum=0)
    pooling: str = option("", choices=("", MEAN, CLS))

    def __post_init__(self) -> None:
        super().__post_init__()
        for name, number in vars(self).items():
            fits = not isinstance(number, int) or abs(number) <= MAX_INTEGER
            ensure(fits, f"{name} is {number!r:.40}: expected a number of at most {MAX_INTEGER}")
        if self.head_size * self.num_attention_heads == self.hidden_size:
            object.__setattr__(self, "head_size", 0)
        width = self.hidden_size
        heads = self.num_attention_heads
        ensure(
            self.head_size > 0 or width % heads == 0,
            f"hidden_size {width} is not a multiple of num_attention_heads {heads}",
        )
        groups = self.num_hidden_groups
        layers = self.num_hidden_layers
        ensure(groups <= layers, f"num_hidden_groups {groups} is more than the {layers} layers")
        rows = self.max_position_embeddings
        offset = self.position_offset
        ensure(
            self.position_biased_input or rows <= MAX_POSITIONS,
            f"max_position_embeddings is {rows}: expected at most {MAX_POSITIONS} without a table",
        )
        buckets = self.position_buckets
        ensure(
            buckets <= 0 or 0 < buckets // 2 < self.farthest - 1,
            f"position_buckets is {buckets}, for distances below {self.farthest}: expected 2 to "
            "less than twice as many",
        )
        ensure(
            (self.global_rope_theta > 0) == (self.local_rope_theta > 0),
            f"rope_theta is {self.global_rope_theta} and {self.local_rope_theta}: expected both",
        )
        ensure(rows > offset, f"max_position_embeddings {rows} leaves no position behind {offset}")

    def to_dict(self) -> dict[str, Any]:
        """Returns all fields as plain JSON values, ``BEYOND_TRANSFORMERS`` only where not 0."""
        values = super().to_dict().items()
        return {n: v for n, v in values if v or n not in self.BEYOND_TRANSFORMERS}

    @property
    def is_dual_encoder(self) -> bool:
        """Whether question and blocks are encoded apart, and compared."""
        return self.pooling != ""

    @property
    def head_width(self) -> int:
        """Columns of query, key and value for each head."""
        return self.head_size or self.hidden_size // self.num_attention_heads

    @property
    def attention_width(self) -> int:
        """Columns of query, key and value for all heads together."""
        return self.num_attention_heads * self.head_width

    @property
    def intermediate_columns(self) -> int:
        """Columns of the first product of a feed-forward network."""
        return self.intermediate_size * (2 if self.is_gated else 1)

    @property
    def table_width(self) -> int:
        """Columns of the embedding tables."""
        return self.embedding_size or self.hidden_size

    @property
    def positions(self) -> int:
        """The maximum number of pieces in a window."""
        return self.max_position_embeddings - self.position_offset

    @property
    def relative_terms(self) -> tuple[str, ...]:
        """The products with relative positions: ``c2p`` (content to position), ``p2c``, or both."""
        return tuple(filter(None, self.pos_att_type.split("|")))

    @property
    def relative_span(self) -> int:
        """The largest relative position of disentangled attention; 0 for other attention."""
        if not (self.relative_attention and self.pos_att_type):
            return 0
        return self.position_buckets if self.position_buckets > 0 else self.farthest

    @property
    def farthest(self) -> int:
        """The distance of two pieces beyond which disentangled attention knows no difference."""
        most = self.max_relative_positions
        return most if most > 0 else self.max_position_embeddings

    @property
    def layer_sets(self) -> int:
        """The number of sets of layer weights, fewer than layers where layers share weights."""
        return self.num_hidden_groups or self.num_hidden_layers

    def layer_set(self, layer: int) -> int:
        """The index of the weight set that a layer uses (ALBERT shares sets)."""
        return layer * self.layer_sets // self.num_hidden_layers
