"""Settings of encoder training."""

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, field_validator, model_validator

from airrep.corpus.views import View
from airrep.encoder.folders import DEFAULT
from airrep.runtime.settings import Settings
from airrep.scoring.pooling import TrainedPool


class TrainingSettings(Settings):
    """How an encoder learns to rank subsets by their labels; defaults are the paper's where it states them."""

    added: ClassVar[tuple[str, ...]] = ("view", "channel_learning_rate")

    start: str = DEFAULT
    """Encoder to start from: 'default', 'untrained', 'static', a folder or a Hub id."""
    view: View = "whole"
    """What of an example the encoder reads: whole, response or prompt. Index with the same view."""
    pool: TrainedPool = "attention"
    """How member scores become group scores, in training and in evaluation: attention (Eq. 6), attention that weighs
    by the signed scores, or the mean."""
    normalise: bool | None = None
    """Scale means to unit length before the head; None keeps what the start has. With it the result cannot be
    saved in the published AirRep format."""
    dimension: int | None = Field(default=None, ge=1)
    """Features; an int puts a random projection (deviation 1/√dimension) after the start's head, None keeps it."""
    initial_scale: Annotated[float, Field(gt=0, allow_inf_nan=False)] | Literal["auto"] = "auto"
    """Scores of the start are multiplied by this; 'auto' takes what ranks the training labels best."""
    train_layers: Annotated[int, Field(ge=0)] | Literal["all"] = "all"
    """all, or how many layers from the top; 0 = head. The embeddings learn with all; what lies below the layers that
    learn is computed once and kept on disk."""

    @model_validator(mode="after")
    def _ranges_hold(self) -> Self:
        if not all(0 <= beta < 1 for beta in self.betas):
            raise ValueError(f"betas are {self.betas}; expected two numbers from 0 up to, not including, 1")
        if self.t_min > self.t_max:
            raise ValueError(f"t_min is {self.t_min} and t_max {self.t_max}; expected t_min to be at most t_max")
        return self

    @field_validator("train_layers", mode="before")
    @classmethod
    def _all_or_a_number(cls, layers: object) -> object:
        """``"2"`` is 2, as command lines give it."""
        if isinstance(layers, str) and layers.isdecimal():
            return int(layers)
        if layers != "all" and (type(layers) is not int or layers < 0):
            raise ValueError("expected all, or a number of layers from 0 up")
        return layers

    steps: int = Field(default=2000, ge=1)
    """Most training steps."""
    queries_per_step: int = Field(default=1000, ge=1)
    """Most queries in a step."""
    subsets_per_step: int = Field(default=32, ge=2)
    """Most subsets in a step."""
    learning_rate: float = Field(default=1e-4, gt=0, allow_inf_nan=False)
    """AdamW's learning rate of the layers."""
    head_learning_rate: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    """AdamW's learning rate of the head; None takes the layers' one."""
    channel_learning_rate: float = Field(default=0.01, gt=0, allow_inf_nan=False)
    """AdamW's learning rate of the logarithms of weights, where the encoder is trained beside channels."""
    weight_decay: float = Field(default=0.01, ge=0, allow_inf_nan=False)
    """AdamW's decoupled weight decay of matrices; biases and norms are left alone."""
    pull_to_start: bool = False
    """Decay towards the weights of the start, not towards 0."""
    betas: tuple[float, float] = (0.9, 0.999)
    """AdamW's decay rates of the first and second moment."""
    warmup_steps: int = Field(default=100, ge=0)
    """Steps over which the learning rates rise from 0; half of all steps at most."""
    schedule: Literal["constant", "linear", "cosine"] = "linear"
    """Learning rates after the warm-up: as they are, or down to 0 at the last step."""
    clip: float | None = Field(default=1.0, gt=0, allow_inf_nan=False)
    """Longest gradient; None does not clip."""
    dropout: float = Field(default=0.0, ge=0, lt=1)
    """Share of values set to 0 in the layers that learn."""
    head_dropout: float = Field(default=0.1, ge=0, lt=1)
    """Share of values set to 0 before the last head."""
    label_scale: Literal["std", "var"] = "std"
    """Divisor of centred losses (Eq. 7)."""
    t_min: float = Field(default=0.1, ge=0, allow_inf_nan=False)
    """Pairs of subsets whose labels differ by less are not counted (Eq. 8)."""
    t_max: float = Field(default=5.0, gt=0, allow_inf_nan=False)
    """Greatest weight of a pair (Eq. 8)."""
    evaluate_every: int = Field(default=50, ge=1)
    """Steps between evaluations on the held-out instances."""
    patience: int | None = Field(default=None, ge=1)
    """Evaluations without a better held-out LDS before training stops; None goes on to the last step."""
    checkpoint_every: int = Field(default=50, ge=1)
    """Steps between checkpoints: what an interruption can lose."""
    max_tokens: int | None = Field(default=None, ge=8)
    """Longest text in tokens; None takes the start's own limit."""
    precision: Literal["auto", "float32", "bfloat16"] = "float32"
    """Arithmetic of the large matrix products; auto takes bfloat16 on CUDA devices. Weights, their
    updates and scores are float32."""
    device: str = "auto"
    """auto, cpu, cuda or cuda:N."""
    memory_budget: float = Field(default=4.0, gt=0, allow_inf_nan=False)
    """GiB for one graph through the encoder; a larger step is computed by gradient cache, one chunk at a time."""
    chunk_tokens: int | None = Field(default=None, ge=1)
    """Tokens that are computed together; None takes 2,048 on a CPU and 32,768 elsewhere."""
    activations: Literal["float16", "float32"] = "float16"
    """Type of the stored activations below the layers that learn."""
    seed: int = Field(default=0, ge=0)
    """Seed of all draws: queries, subsets, dropout, a random projection."""
