"""Settings of the attribution methods."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from airrep.corpus.views import View
from airrep.encoder.folders import BUNDLED, DEFAULT
from airrep.errors import ConfigError
from airrep.lm.folders.forms import settled_name, tokenizer_folder
from airrep.lm.settings import LmReading, LmSettings
from airrep.runtime.remote.hub import pinned
from airrep.runtime.remote.places import url_of
from airrep.runtime.settings import Settings
from airrep.scoring.pooling import Pool

REFINED = 8
"""Training examples that ``refine=cg`` takes."""
MOST_ORDERS, LONGEST = 4, 8
"""Most orders of n-grams that are counted side by side, and the longest."""
TOKENIZERS = ("words", "subwords")
"""Tokenizers that need no model."""


def whole_encoder(name: str | None) -> str | None:
    """Return a folder's whole path, so that an index works from any directory; a Hub place with its commit; names of
    encoders that come with airrep, and others, as they are."""
    if name is None or name in BUNDLED:
        return name
    return str(Path(name).resolve()) if Path(name).is_dir() else pinned(name)


def whole_model(name: str | None) -> str | None:
    """Return what :func:`settled_name` makes of a model's name; names of :data:`TOKENIZERS` as they are."""
    return name if name is None or name in TOKENIZERS else settled_name(name)


def _whole(path: str | None) -> str | None:
    """Return the whole path of a file or folder, so that an index works from any directory."""
    return path if path is None else pinned(path) if url_of(path) else str(Path(path).resolve())


def tokens_of(lm: str, base: str | None) -> str:
    """Return the model that has the tokenizer of an LM: the LM itself, or the *base* of adapters without one."""
    if base is None or not Path(lm).is_dir():
        return lm
    try:
        tokenizer_folder(lm, Path(lm))
    except ConfigError:
        return base
    return lm


class EncoderSettings(Settings):
    """Settings of methods that embed texts with a sentence encoder."""

    encoder: str = DEFAULT
    """The sentence encoder: 'static' (word vectors), 'default' or 'untrained' (transformers), a folder or Hub id."""

    _whole_path = field_validator("encoder")(whole_encoder)

    view: View = "whole"
    """The part of an example that is read: whole, response or prompt. The template leaves the other part empty."""
    template: str | None = None
    """Text made of an example, with {prompt} and {response}; None takes the encoder's own."""
    max_tokens: int | None = Field(default=None, ge=8)
    """Longest text in tokens; None takes the encoder's own limit."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """Number type of the matrix products; auto takes bfloat16 on CUDA devices that have it."""
    device: str = "auto"
    """auto, cpu, cuda or cuda:N."""
    batch_tokens: int | None = Field(default=None, ge=1)
    """Tokens in one packed batch; fewer need less memory, results stay the same. None takes what suits the device."""
    query_prompt: str | None = None
    """Text to put before each query: the text itself, or the name of one of the encoder's own prompts; '' puts none.
    None takes the encoder's own prompt for queries, such as GTE-Qwen2's instruction, if it has one."""
    train_prompt: str | None = None
    """Text to put before each training example, as query_prompt; None takes the encoder's own for documents, if any."""
    trust_remote_code: bool = False
    """Run the program code that some models bring. Without this, airrep refuses such models. Read the code first."""


class WordSettings(Settings):
    """Settings of methods that count words."""

    view: View = "whole"
    """The part of an example that is read: whole, response or prompt."""
    signs: bool = False
    """Take each character of scripts without spaces between words, such as Chinese, Japanese and Thai, as a word.
    Without this, all characters between two spaces or punctuation marks are one word."""


class TfidfSettings(WordSettings):
    """Settings of the TF-IDF baseline: scikit-learn's, with its defaults."""

    added = ("view", "signs")  # fingerprints of older indexes have neither

    ngrams: int = Field(default=1, ge=1, le=5)
    """Longest word n-gram."""
    min_count: int = Field(default=1, ge=1)
    """Number of training examples that a term must occur in."""


class Bm25Settings(WordSettings):
    """Settings of BM25, with Lucene's defaults."""

    added = ("signs",)  # fingerprints of older indexes lack it

    view: View = "response"
    """The part of an example that is read: whole, response or prompt."""
    saturation: float = Field(default=1.2, gt=0, allow_inf_nan=False)
    """k: the smaller it is, the less each repetition of a term counts."""
    length: float = Field(default=0.75, ge=0, le=1)
    """b: how much the scores of long examples are lowered."""


class NgramSettings(LmReading):
    """Settings of the counting language model over n-grams."""

    added = ("skip", "copied", "space", "signs", "rendered", "lm", "device", "precision", *LmReading.model_fields)

    view: View = "response"
    """The part of an example that is read: whole, response or prompt. A fine-tune's loss counts only the response."""
    lm: str | None = Field(default=None, min_length=1)
    """The target LM before fine-tuning. It reads each example once. A token of probability p counts 1 − p: little if
    the LM expects it. The LM's own tokens are counted unless a tokenizer is given. None: all tokens count alike."""
    device: str = "auto"
    """Device of the LM: auto, cpu, cuda or cuda:N."""
    precision: Literal["auto", "float32", "bfloat16"] = "auto"
    """Precision of the LM's matrix products; auto takes bfloat16 on CUDA devices that have it."""
    orders: tuple[int, ...] = (1, 2, 3)
    """Lengths of the n-grams, at most four of them, whose gains are added up."""
    tokenizer: str = "words"
    """'words' (and punctuation marks), 'subwords' (tokens of the LM that comes with airrep), or the folder or Hub id of
    a model whose tokenizer to use, best the target LM."""
    mix: float = Field(default=0.5, gt=0, lt=1)
    """λ: weight of the group's n-grams in their mixture with those of the whole corpus."""
    smoothing: float = Field(default=0.1, gt=0, allow_inf_nan=False)
    """Added to the corpus's count of each n-gram."""
    length: float = Field(default=0.5, ge=0, le=1)
    """Weight of an example in a group: its count of tokens to this power. 1 weighs all tokens alike, 0 all examples."""
    skip: float = Field(default=0.0, ge=0, le=100, allow_inf_nan=False)
    """Weight of pairs of tokens that have any one token between them; 0 does not count such pairs."""
    space: bool = False
    """Put a space before each text, so that its first word is the same token as elsewhere."""
    copied: bool = False
    """Replace the words of a response that its prompt has by one mark, to count that it copies, not what. Needs the
    tokenizer 'words' and the view 'response'."""
    signs: bool = False
    """Take each character of scripts without spaces between words, such as Chinese, Japanese and Thai, as a word.
    Without this, all characters between two spaces or punctuation marks are one word. Needs the tokenizer 'words'."""
    rendered: bool = False
    """Count the tokens that a trainer learns: those of the answer as the model's chat template writes it, with tool
    calls and thoughts, as the settings template, cut and max_tokens say. A row that no template writes counts as it
    stands. Needs the view 'response'."""

    @model_validator(mode="before")
    @classmethod
    def _tokens_of_the_lm(cls, values: dict[str, Any]) -> dict[str, Any]:
        """Take the LM's own tokens if no tokenizer is given."""
        lm = values.get("lm")
        if lm is None or "tokenizer" in values:
            return values
        return {**values, "tokenizer": tokens_of(str(lm), values.get("base"))}

    @property
    def counts_tokens_of_lm(self) -> bool:
        return self.lm is not None and self.tokenizer in (self.lm, tokens_of(self.lm, self.base))

    @property
    def kinds(self) -> int:
        """Number of kinds of n-grams that are counted: the orders, and pairs with a gap."""
        return len(self.orders) + (self.skip > 0)

    @model_validator(mode="after")
    def _fitting(self) -> Self:
        if self.kinds > MOST_ORDERS:
            raise ValueError(
                f"skip: with skip above 0, the setting orders can list at most {MOST_ORDERS - 1} n-gram lengths. "
                "Remove a length from orders, or set skip=0"
            )
        if self.copied and (self.tokenizer != "words" or self.view != "response"):
            raise ValueError(
                "copied: works only with tokenizer=words and view=response, because it marks the words that a "
                "response copies from its prompt. Set tokenizer=words and view=response"
            )
        if self.lm is not None and self.view != "response":
            raise ValueError(
                "lm works only with view=response, because an LM predicts only responses. Set view=response"
            )
        if self.rendered and self.view != "response":
            raise ValueError(
                "rendered=true counts the tokens of a response as the chat template writes them, so rendered=true "
                "needs view=response. Set view=response"
            )
        return self

    @field_validator("orders", mode="before")
    @classmethod
    def _some_orders(cls, orders: object) -> object:
        """Read ``"1,2"``, as typed on a command line, as (1, 2)."""
        typed = orders.split(",") if isinstance(orders, str) else orders
        parts = typed if isinstance(typed, list | tuple) else [typed]
        found = [int(part) if isinstance(part, str) and part.strip().isdecimal() else part for part in parts]
        good = all(type(order) is int and 1 <= order <= LONGEST for order in found)
        if not good or not 1 <= len(set(found)) == len(found) <= MOST_ORDERS:
            raise ValueError(
                f"orders must be 1 to {MOST_ORDERS} different n-gram lengths from 1 to {LONGEST}, such as 1,2,3"
            )
        return tuple(found)

    _whole_paths = field_validator("tokenizer", "lm")(whole_model)


class RdsSettings(LmSettings):
    """Settings of hidden states as features."""

    layer: int = -1
    """Which hidden states: -1 for the last (after the final norm), 0 for the embeddings, k for those after layer k."""
    tokens: Literal["mean", "last"] = "mean"
    """Mean over all tokens, or the last token alone."""


class LinearMapSettings(LmSettings):
    """Settings of methods that read gradients of linear maps."""

    modules: tuple[str, ...] | None = ("all-linear",)
    """Names of linear maps whose gradients are taken, with * for any text; 'all-linear': all but the output layer;
    None: all in MLPs, as in the papers."""
    store: str | None = None
    """Directory of gradients, curvature and scores that runs share; None: the user's cache. 'none': nothing is kept."""


class GradientSettings(LinearMapSettings):
    """Settings that methods of projected gradients share."""

    rank: int | None = Field(default=8, ge=1)
    """Size of a projected gradient on each side: modules × rank² features. None: whole gradients, for tiny LMs only."""
    seed: int = 0
    """Random seed of projections and samples."""


class CheckpointSettings(GradientSettings):
    """Settings of methods that can take several checkpoints of a warm-up."""

    checkpoints: Literal["final", "all"] = "final"
    """The last weights of the LM, or all checkpoints that `airrep warmup --set checkpoints=N` kept."""


class TracinSettings(CheckpointSettings):
    """Settings of TracIn."""

    unit: bool = True
    """Scale each checkpoint's gradients to length 1."""


class LograSettings(GradientSettings):
    """Settings of LoGra."""

    rank: int | None = Field(default=64, ge=1)
    """Directions kept on each side of a linear map: rank² numbers a map. None: whole gradients, for tiny LMs only."""
    damping: float = Field(default=0.1, ge=0, allow_inf_nan=False)
    """Added to each module's curvature, as a share of its mean eigenvalue."""
    sample: int = Field(default=100, ge=1)
    """Number of training examples, drawn at random, that directions and Kronecker factors are learnt from."""
    unit: bool = True
    """Scale features to length 1."""
    exponent: float = Field(default=0.5, ge=0, le=1, allow_inf_nan=False)
    """p: gradients are multiplied by (H + λI)^(-p/2), so a score has (H + λI)^(-p) in it. 1 as in the paper; 0.5 is the
    root of the curvature, by which AdamW divides."""
    sketch: int | None = Field(default=2**14, ge=1)
    """Numbers stored for each example. Larger gradients are compressed to this size by random projection, each linear
    map to an equal share. A map narrower than the rank keeps its width. None: all numbers are stored."""

    @model_validator(mode="after")
    def _sketched_directions(self) -> Self:
        if self.sketch is not None and self.rank is None:
            raise ValueError("sketch: needs a rank. Set rank, or sketch=null")
        return self


class EkfacSettings(LinearMapSettings):
    """Settings of EK-FAC."""

    damping: float = Field(default=0.1, gt=0, allow_inf_nan=False)
    """Added to each module's curvature, as a share of its mean eigenvalue."""
    exponent: float = Field(default=1.0, ge=0, le=1, allow_inf_nan=False)
    """p in the score ∇ℓ(x)ᵀ (H + λI)⁻ᵖ ∇ℓ(z): 1 as in influence functions; 0.5 divides by the root of the curvature, as
    the first steps of AdamW do, and predicts fine-tunes of few small steps much better on most data, on some worse."""
    sample: int = Field(default=5000, ge=1)
    """Number of training examples, drawn at random, that the curvature is learnt from."""
    query_rank: int | None = Field(default=None, ge=1)
    """Keep gradients of queries as factors of this rank. They need less memory, and scores stay nearly the same. None:
    whole gradients for LMs of up to 16M weights in these maps, factors of rank 16 for larger LMs."""
    unit: bool = False
    """Divide each score by the lengths of both gradients, as the curvature measures them."""
    refine: str | None = None
    """'cg' divides a query's gradient by the curvature more exactly, by conjugate gradients on the Gauss-Newton matrix
    of 8 training examples; 'cg:200' takes 200. Each query takes longer. Needs exponent 1."""

    added = (*LmSettings.added, "refine")  # fingerprints of older indexes lack it

    @property
    def examples(self) -> int | None:
        """Number of training examples that ``refine`` takes; None without it."""
        return None if self.refine is None else int(self.refine.partition(":")[2] or REFINED)

    @model_validator(mode="after")
    def _refinable(self) -> Self:
        if self.refine is not None and not re.fullmatch(r"cg(:[1-9]\d{0,6})?", self.refine):
            raise ValueError(f"refine={self.refine!r}: must be cg, or cg:COUNT to use COUNT training examples")
        if self.refine is not None and self.exponent != 1:
            raise ValueError(
                f"refine: works only with exponent=1, not exponent={self.exponent:g}. Set exponent=1, or remove refine"
            )
        if self.refine is not None and self.loss != "sft":
            raise ValueError(f"refine: supports only loss=sft, not loss={self.loss}. Remove refine, or set loss=sft")
        return self


class TrakSettings(CheckpointSettings):
    """Settings of TRAK and DsDm."""

    modules: tuple[str, ...] | None = None
    damping: float = Field(default=0.1, ge=0, allow_inf_nan=False)
    """Added to the Fisher matrix, as a share of its mean eigenvalue."""


class LessSettings(LmSettings):
    """Settings of LESS. The LM is a warm-up with adapters: `airrep warmup --set lora_rank=128`."""

    added = ("merged", "loss", "beta")  # fingerprints always had base

    dimension: int = Field(default=8192, ge=1)
    """Number of features after the random projection; the paper takes 768 and 8192."""
    seed: int = 0
    """Random seed of the projection."""
    base: str | None = None
    """The LM that the adapters belong to, if it has moved since the warm-up; None: where it was then."""
    store: str | None = None
    """Directory of gradients that runs share; None: the user's cache. 'none': nothing is kept."""


class MetagradientSettings(LmSettings):
    """Settings of metagradients. The LM is a warm-up on the same data, or a sample: `airrep warmup DATA --lm MODEL`."""

    base: str | None = None
    """The LM that the warm-up began from, if it has moved since; None: where it was then."""


class InfluenceSettings(LinearMapSettings):
    """Settings of the exact influence function, for small LMs."""

    precision: Literal["auto", "float32", "bfloat16"] = "float32"
    """Number type of the gradients' matrix products; the Hessian is always computed in float64."""
    modules: tuple[str, ...] | None = None
    """Names of linear maps whose weights count as parameters, with * for any text; None: the last one in an MLP."""
    solver: Literal["cg", "explicit"] = "cg"
    """'cg': conjugate gradients for each query, for up to 1,048,576 weights. 'explicit': the whole Hessian, for up to
    4,096 weights; order-k pools need it."""
    damping: float = Field(default=0.1, ge=0, allow_inf_nan=False)
    """Added to the Hessian's diagonal."""
    tolerance: float = Field(default=1e-6, gt=0)
    """Relative residual at which conjugate gradients stop."""


class DsirSettings(WordSettings):
    """Settings of DSIR, with its authors' defaults."""

    added = ("view", "signs")  # fingerprints of older indexes have neither

    ngrams: int = Field(default=2, ge=1, le=5)
    """Longest word n-gram."""
    buckets: int = Field(default=10_000, ge=2)
    """Number of hash buckets, which are the features."""
    smoothing: float = Field(default=1e-8, gt=0, allow_inf_nan=False)
    """Added to probabilities before their logarithm."""


class PrecomputedSettings(Settings):
    """Settings of features that were made elsewhere."""

    train: str
    """File with the features of the training examples, (n, d), in the order of the corpus: .npy or .safetensors."""
    queries: str | None = None
    """File with the features of queries, (q, d), of the same type; None: queries are training examples."""
    query_data: str | None = None
    """The data file of these queries, in the same order."""
    pool: Pool = "sum"
    """The pool that suits these features."""

    _whole_paths = field_validator("train", "queries", "query_data")(_whole)


class DatamodelsSettings(Settings):
    """Settings of datamodels."""

    weights: str
    """The folder that `airrep train --method datamodels` wrote."""

    _whole_paths = field_validator("weights")(_whole)


METHOD_SETTINGS: dict[str, type[Settings]] = {
    "airrep": EncoderSettings,
    "gte": EncoderSettings,
    "tfidf": TfidfSettings,
    "bm25": Bm25Settings,
    "ngram": NgramSettings,
    "rds": RdsSettings,
    "dsir": DsirSettings,
    "tracin": TracinSettings,
    "logra": LograSettings,
    "ekfac": EkfacSettings,
    "trak": TrakSettings,
    "dsdm": TrakSettings,
    "less": LessSettings,
    "metagradient": MetagradientSettings,
    "influence": InfluenceSettings,
    "datamodels": DatamodelsSettings,
    "precomputed": PrecomputedSettings,
}
"""Settings of each method that can be a channel."""

DROPPED_METHODS = {
    "readout": "Other methods predict better: use --method rds, or --recipe lm.",
    "stack": "Weights learnt from measured losses are now a recipe (list of methods): give it with --recipe.",
}
"""Replacements of methods that airrep no longer has, by name."""
DROPPED_SETTINGS = {
    "preset": "--method logra and tracin have the best settings; --recipe papers/logra has the paper's settings.",
    "gradients": "Name a recipe (list of methods): --recipe text, lm, lm-warm, lm-whole or lm-whole-warm.",
    "map_weights": "All linear maps have the same weight: remove this setting.",
    "projection": "Gradients are projected on their leading directions: remove this setting.",
    "curvature": "Curvature is Kronecker-factored: remove this setting, or use --method trak for raw Fisher.",
    "trak.objective": "Use --method dsdm for gradients of the loss.",
    "dsdm.objective": "Use --method trak for gradients of the log odds.",
    "trak.output_probability": "Use --method dsdm, which has no output probability.",
    "dsdm.output_probability": "Use --method trak, which has the output probability.",
    "ekfac.reduction": "An example's loss is the sum over its tokens: remove this setting.",
    "reduction": "An example's loss is the mean over its tokens: remove this setting.",
    "influence.iterations": "Raise tolerance or damping instead.",
    "logra.pool": "In a recipe file, write the line 'pool: sum' under the method.",
    "tracin.pool": "In a recipe file, write the line 'pool: sum' under the method.",
    "logra.temperature": "In a recipe file, write the temperature under the method.",
    "tracin.temperature": "In a recipe file, write the temperature under the method.",
    "ekfac.seed": "The sample depends only on the examples' texts: remove this setting, or raise the setting sample.",
    "ekfac.rank": "Gradients are not stored: remove this setting, or use --method logra, which stores small gradients.",
}
"""Replacements of settings that airrep no longer has, by name or ``method.name``."""


def refuse_dropped(method: str, settings: Mapping[str, Any], where: str = "") -> None:
    """Refuse a method, or a setting, that airrep no longer has; errors begin with *where*.

    ConfigError: it says what to type instead.
    """
    if method in DROPPED_METHODS:
        raise ConfigError(f"{where}method {method!r}: was removed. {DROPPED_METHODS[method]}")
    for name, value in settings.items():
        instead = DROPPED_SETTINGS.get(f"{method}.{name}") or DROPPED_SETTINGS.get(name)
        if instead and (method in METHOD_SETTINGS or method == "channels"):  # a method of another package may have any
            raise ConfigError(f"{where}{method}: {name}={value!r}: was removed. {instead}")
