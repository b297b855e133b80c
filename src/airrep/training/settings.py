"""Settings of encoder training."""

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, field_validator, model_validator

from airrep.corpus.views import View
from airrep.encoder.folders import DEFAULT
from airrep.runtime.settings import Settings
from airrep.scoring.pooling import TrainedPool


class TrainingSettings(Settings):
    """Settings of encoder training; defaults are the paper's where it states them."""

    added: ClassVar[tuple[str, ...]] = ("view", "channel_learning_rate")

    start: str = DEFAULT
    """Encoder to start from: 'static' (word vectors), 'default' or 'untrained' (transformers), a folder or Hub id."""
    view: View = "whole"
    """Part of an example that the encoder reads: whole, response or prompt. Index with the same view."""
    pool: TrainedPool = "attention"
    """Pool: turns the scores of a group's members into one score, in training and in evaluation. Attention (Eq. 6),
    signed-attention (weighs by signed scores), or the mean."""
    normalise: bool | None = None
    """Scale the mean of the token vectors to unit length before the head; None does as the start does. With true, the
    result cannot be saved in the published AirRep format."""
    dimension: int | None = Field(default=None, ge=1)
    """Number of features. A number adds a random projection (deviation 1/√dimension) after the start's head."""
    initial_scale: Annotated[float, Field(gt=0, allow_inf_nan=False)] | Literal["auto"] = "auto"
    """Factor on the scores of the start; 'auto' takes the one that ranks the training labels best."""
    train_layers: Annotated[int, Field(ge=0)] | Literal["all"] = "all"
    """Layers that learn, counted from the top: 0 is the head alone, and all includes the embeddings. The output of the
    layers below is computed once and kept on disk."""

    @model_validator(mode="after")
    def _ranges_hold(self) -> Self:
        if not all(0 <= beta < 1 for beta in self.betas):
            raise ValueError(f"betas={self.betas}: both numbers must be at least 0 and less than 1")
        if self.t_min > self.t_max:
            raise ValueError(f"t_min={self.t_min} is greater than t_max={self.t_max}")
        return self

    @field_validator("train_layers", mode="before")
    @classmethod
    def _all_or_a_number(cls, layers: object) -> object:
        """Turn a number that a command line gives as text into an int."""
        if isinstance(layers, str) and layers.isdecimal():
            return int(layers)
        if layers != "all" and (type(layers) is not int or layers < 0):
            raise ValueError("the number of layers to train must be 0, 1, 2 ... or 'all'")
        return layers

    steps: int = Field(default=2000, ge=1)
    """Training steps, at most."""
    queries_per_step: int = Field(default=1000, ge=1)
    """Queries in a step, at most."""
    subsets_per_step: int = Field(default=32, ge=2)
    """Subsets in a step, at most."""
    learning_rate: float = Field(default=1e-4, gt=0, allow_inf_nan=False)
    """AdamW's learning rate of the layers."""
    head_learning_rate: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """AdamW's learning rate of the head; None takes learning_rate."""
    channel_learning_rate: float = Field(default=0.01, gt=0, allow_inf_nan=False)
    """AdamW's learning rate of the channels' log weights, if the encoder is trained beside channels."""
    weight_decay: float = Field(default=0.01, ge=0, allow_inf_nan=False)
    """AdamW's decoupled weight decay of matrices; biases and norms do not decay."""
    pull_to_start: bool = False
    """Decay towards the weights of the start, not towards 0."""
    betas: tuple[float, float] = (0.9, 0.999)
    """AdamW's decay rates of the first and second moment."""
    warmup_steps: int = Field(default=100, ge=0)
    """Steps over which the learning rates rise from 0, at most half of all steps."""
    schedule: Literal["constant", "linear", "cosine"] = "linear"
    """Learning rates after the warm-up: constant, or falling to 0 at the last step."""
    clip: float | None = Field(default=1.0, gt=0, allow_inf_nan=False)
    """Largest gradient norm; longer gradients are scaled down to it. None sets no limit."""
    dropout: float = Field(default=0.0, ge=0, lt=1)
    """Share of values set to 0 in the layers that learn."""
    head_dropout: float = Field(default=0.1, ge=0, lt=1)
    """Share of values set to 0 before the last head."""
    label_scale: Literal["std", "var"] = "std"
    """Divisor of centred losses (Eq. 7)."""
    t_min: float = Field(default=0.1, ge=0, allow_inf_nan=False)
    """Smallest difference of labels at which a pair of subsets counts (Eq. 8)."""
    t_max: float = Field(default=5.0, gt=0, allow_inf_nan=False)
    """Largest weight of a pair (Eq. 8)."""
    evaluate_every: int = Field(default=50, ge=1)
    """Steps between evaluations on the held-out instances."""
    patience: int | None = Field(default=None, ge=1)
    """Evaluations without a better held-out LDS after which training stops. None trains to the last step."""
    checkpoint_every: int = Field(default=50, ge=1)
    """Steps between checkpoints; an interruption can lose this many."""
    max_tokens: int | None = Field(default=None, ge=8)
    """Longest text in tokens; None takes the start's own limit."""
    precision: Literal["auto", "float32", "bfloat16"] = "float32"
    """Number type of the large matrix products; auto takes bfloat16 on CUDA devices. Weights, their updates and scores
    stay float32."""
    device: str = "auto"
    """auto, cpu, cuda or cuda:N."""
    memory_budget: float = Field(default=4.0, gt=0, allow_inf_nan=False)
    """GiB for one pass through the encoder; larger steps are computed in chunks (gradient cache)."""
    chunk_tokens: int | None = Field(default=None, ge=1)
    """Tokens computed together. None takes 2,048 on a CPU and 32,768 elsewhere; for a static encoder, 1,048,576."""
    activations: Literal["float16", "float32"] = "float16"
    """Type of the stored activations below the layers that learn."""
    seed: int = Field(default=0, ge=0)
    """Random seed."""
