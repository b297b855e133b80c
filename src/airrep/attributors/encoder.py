"""Attribution by sentence encoders: AirRep and plain embeddings."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import ClassVar

import numpy as np

from airrep.arrays import DenseFeatures
from airrep.attributors.base import MethodAttributor, OnRows, TrainedGroups
from airrep.attributors.settings import EncoderSettings
from airrep.corpus.corpus import Example, have_spans
from airrep.corpus.spans import text_of
from airrep.corpus.views import seen, something_seen
from airrep.encoder.base import Encoder
from airrep.encoder.load import load_encoder
from airrep.errors import ConfigError
from airrep.runtime.artifacts import json_digest
from airrep.scoring.pooling import Pool
from airrep.shapes import Float64


class EmbeddingAttributor(MethodAttributor[EncoderSettings]):
    """Inner products of the embeddings of a sentence encoder, summed over a group (the paper's GTE baseline).

    An encoder that was trained with instructions gets them as its model card says, mostly before queries only.
    """

    name = "gte"
    reads_spans = True
    pool: ClassVar[Pool] = "sum"
    shared: "EmbeddingAttributor | None" = None
    """Another attributor with the same encoder, which is so loaded once."""

    @cached_property
    def encoder(self) -> Encoder:
        """The sentence encoder, loaded when it is first needed."""
        if self.shared is not None:
            return self.shared.encoder
        how = self._settings.model_dump(exclude={"encoder", "view"})
        return load_encoder(self._settings.encoder, **how)

    @property
    def fingerprint(self) -> str:
        view = {} if self._settings.view == "whole" else {"view": self._settings.view}
        return json_digest({"method": self.name, "encoder": self.encoder.fingerprint, **view})

    @property
    def symmetric(self) -> bool:
        return self.encoder.symmetric

    @property
    def execution(self) -> Mapping[str, str]:
        return {"precision": self.encoder.precision}

    def encode_train(self, examples: Sequence[Example], on_rows: OnRows | None = None) -> DenseFeatures:
        return self._encode(examples, on_rows, queries=False)

    def encode_queries(self, examples: Sequence[Example], on_rows: OnRows | None = None) -> DenseFeatures:
        """φ_query: the embedding behind the encoder's prompt for queries, if it has one.

        For an answer with a span, only the span's text is embedded, times its share of the answer's characters.
        """
        return self._encode(examples, on_rows, queries=True)

    def _spanned(self, examples: Sequence[Example]) -> tuple[Sequence[Example], Float64[np.ndarray, " n"] | None]:
        """Return the examples to embed for queries, and a factor for each; None if no query has a span."""
        if self._settings.view == "prompt" or not have_spans(examples):
            return examples, None
        read, counts = list[Example](), list[float]()
        for one in examples:
            words = one.response if one.span is None else text_of(one.response, one.span)
            read.append(replace(one, response=words, span=None))
            letters = [sum(not sign.isspace() for sign in text) for text in (words, one.response)]
            counts.append(1.0 if one.span is None else (letters[0] - len(one.span) + 1) / max(letters[1], 1))
        return read, np.array(counts)

    def _encode(self, examples: Sequence[Example], on_rows: OnRows | None, *, queries: bool) -> DenseFeatures:
        """Return embeddings of what the view shows; 0 for an example where that is nothing."""
        view = self._settings.view
        examples, counts = self._spanned(examples) if queries else (examples, None)
        if view != "whole" and f"{{{view}}}" not in self.encoder.template:
            raise ConfigError(
                f"{self.name}: view={view} reads only the {view}, but the template {self.encoder.template!r} does not "
                "contain it. Use another template, or another view."
            )
        if view == "whole":
            features = self.encoder.encode(examples, on_rows, queries=queries)
        else:
            features = self.encoder.encode([seen(example, view) for example in examples], on_rows, queries=queries)
            features[~something_seen(examples, view)] = 0
        return features if counts is None else features * counts[:, None].astype(np.float32)


class AirRepAttributor(EmbeddingAttributor):
    """The AirRep encoder with attention pooling (Eq. 6): φ(z) = W·mean-pool(BERT(z)) + b.

    In an encoder that was trained so, the mean is scaled to unit length before W; in others its length counts.
    """

    name = "airrep"
    pool: ClassVar[Pool] = "attention"

    @property
    def own_pool(self) -> Pool:
        """The pool that the encoder was trained or scaled for; attention if that is not known."""
        return self.encoder.trained_pool or self.pool

    @property
    def trained_groups(self) -> TrainedGroups | None:
        sizes = self.encoder.trained_group_sizes
        return None if sizes is None else TrainedGroups(self.own_pool, *sizes)

    @property
    def caution(self) -> str:
        if not self.encoder.trained_for_attribution:
            return (
                f"The encoder '{self.encoder.name}' is a general sentence encoder, not yet trained for attribution. "
                "Its scores show which texts are alike in words and meaning. Often, but not always, such texts "
                "influenced the model."
            )
        learnt = ((self.encoder.card.training or {}).get("settings") or {}).get("view", "whole")
        if learnt == self._settings.view:
            return self.encoder.caution
        other_view = (
            f"The encoder was trained with view={learnt}, but reads view={self._settings.view} here. Set "
            f"view={learnt}: with --set, or in the settings of this method in a recipe (list of methods)."
        )
        return " ".join(filter(None, (self.encoder.caution, other_view)))
