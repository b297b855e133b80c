"""The target LM: fine-tune, per-example loss, hidden states, generate."""

import logging
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, TypeAlias
from weakref import WeakValueDictionary

import numpy as np
import torch
from torch import Tensor

from airrep.corpus.corpus import Corpus, Example
from airrep.corpus.inputs import QueriesLike, as_examples
from airrep.corpus.records import content_hash
from airrep.corpus.views import chosen_sides, has_pairs
from airrep.errors import ConfigError, DataError, TrainingError, caution, many
from airrep.lm.attention import PackedDocuments, library_attention, reads_packed, use_library_attention
from airrep.lm.chat import PLAIN, Chat
from airrep.lm.documents import PAIRED, REFERRED, Documents, factors_of, lacking, one_response, summary_of
from airrep.lm.files import (
    ALL_CHAT,
    load_network,
    load_tokenizer,
    read_weights,
    recorded_base,
    recorded_reading,
    take_weights,
)
from airrep.lm.folders.forms import LmFiles, find_lm
from airrep.lm.held import SUMS, MemoryPlan, hold, is_held, make_whole, plan_memory, size_read, stored_type
from airrep.lm.lora import adapted, load_whole
from airrep.lm.network import (
    Execution,
    FineTuneReport,
    Goal,
    OnStep,
    Preference,
    fine_tune,
    generate,
    goals_of,
    hidden_states,
    idle_maps_noted,
    likelihoods,
    memory_named,
    recompute_activations,
    token_losses,
)
from airrep.lm.packed import hold_experts, is_packed, load_packed, size_packed
from airrep.lm.settings import FineTuneSettings, LmSettings, memory_bytes
from airrep.runtime.artifacts import json_digest
from airrep.runtime.devices import resolve_device, resolve_precision
from airrep.runtime.packing import Batch, pack
from airrep.shapes import Float32, Float64

Losses: TypeAlias = Float32[np.ndarray, " n"]
"""Mean nats per response token, one for each example."""

_log = logging.getLogger(__name__)

_MOST_TOKENS = 2048  # longest example if max_tokens is not set: many LMs have far more positions
_CPU_BATCH_TOKENS = 2048
_CUDA_BATCH_TOKENS = 16384
_CUDA_PADDING = 8192  # on a GPU, one more call of attention costs more than computing free places
_PROBE = 24  # tokens of the longest probe; more if the LM's attention has a longer window
_TOLERANCE = 1e-3
_REACHES = ("window", "chunk", "index_topk", "block_size")
"""Words in the names of config fields that say how far back a token attends."""
_STATELESS = ("full_attention", "sliding_attention", "chunked_attention", "attention", "sparse", "dense")
"""Types of layers that read other tokens only by attention, or not at all."""


class TargetLM:
    """A causal LM in memory, whose base weights :meth:`reset` brings back. Made by :func:`load_lm`.

    ``model`` is the transformers model, with packed attention and no dropout; ``chat`` renders and tokenises examples.
    """

    def __init__(self, settings: LmSettings, files: LmFiles, model: Any, chat: Chat, execution: Execution) -> None:
        self.name = settings.lm
        self.settings = settings
        self.files = files
        self.model = model
        self.chat = chat
        self.max_tokens = chat.max_tokens
        self.execution = execution
        self.plan: MemoryPlan | None = None
        self.sums = SUMS
        """Most numbers of sums over tokens, such as covariances, that a method may hold at a time."""
        self._base: dict[str, Tensor] | None = None
        self._changed = False
        self.earlier: TargetLM | LmSettings | None = None
        """The LM before the fine-tune that made this one, if the loss compares the two."""
        self._likelihoods: dict[str, Float64[np.ndarray, " 2"]] = {}
        self._readable: set[str] = set()
        """Fingerprints of the corpora in which the LM can read every example."""

    @cached_property
    def fingerprint(self) -> str:
        """64 hex digits over weights, configuration, tokenizer, chat template, token limit, ``cut`` and loss.

        Device, precision and micro-batches are left out, since they change results only by rounding.
        """
        template = PLAIN if self.reading["template"] == "plain" else None
        return json_digest(
            {
                "kind": "causal lm",
                "files": self.files.digests(self.settings.trust_remote_code),
                "max_tokens": self.max_tokens,
                "template": template or _recorded(self.settings.template) or "chat",
                **({} if self.chat.cut == "prompt" else {"cut": self.chat.cut}),
                **summary_of(self.settings.loss, self.settings.beta),
            }
        )

    @property
    def reading(self) -> dict[str, Any]:
        """Longest example in tokens, template (``"chat"``, ``"plain"`` or a text), and ``cut`` and loss if set."""
        own = "chat" if self.chat.plain is None else "plain"
        cut = {} if self.chat.cut == "prompt" else {"cut": self.chat.cut}
        read = {"max_tokens": self.max_tokens, "template": _recorded(self.settings.template) or own, **cut}
        return {**read, **summary_of(self.settings.loss, self.settings.beta)}

    def rendering(self, examples: Iterable[Example]) -> dict[str, str]:
        """Return how prompts are read where the fingerprint does not cover it; see :meth:`Chat.rendering`."""
        return self.chat.rendering(examples)

    def key(self, example: Example) -> str:
        """Return 16 hex digits over an example's texts, and how they are read if the fingerprint does not cover it."""
        read = example.reading_hash
        if read != example.content_hash:
            return read
        return content_hash("messages", read) if self.chat.reads_messages(example) else read

    def corpus_key(self, corpus: Corpus) -> str:
        """Return 64 hex digits over a corpus, and how it is read if the LM's fingerprint does not cover it."""
        own = self.rendering(corpus)
        return json_digest({"corpus": corpus.fingerprint, **own}) if own else corpus.fingerprint

    def tokenise(self, examples: QueriesLike) -> Documents:
        """Return the token ids of each example, in order, cut to *max_tokens* in the way that ``cut`` says.

        Examples come in any form that :meth:`airrep.Index.top` takes queries in.
        """
        listed = isinstance(examples, list | tuple) and all(isinstance(one, Example) for one in examples)
        as_they_are = listed or isinstance(examples, Corpus)
        return self._tokenised(examples if as_they_are else as_examples(examples, "examples"))

    def _tokenised(self, examples: Sequence[Example]) -> Documents:
        """Tokenise examples, with both sides of pairs, and set the factors of their losses."""
        loss = self.settings.loss
        sides = [example.sides for example in examples]
        if not any(other for _, other in sides):
            found = self.chat.tokenise(examples)
        else:
            rows = [row for row, (_, other) in enumerate(sides) if other is not None]
            if loss not in PAIRED:
                raise DataError(one_response(examples[rows[0]].id, loss))
            others = self.chat.tokenise([other for _, other in sides if other is not None])
            rejected = {row: (others.sequence(n), int(others.starts[n])) for n, row in enumerate(rows)}
            found = Documents.paired(self.chat.tokenise([chosen for chosen, _ in sides]), rejected)
        return found if loss == "sft" else replace(found, factors=factors_of(examples, loss))

    def unusable(self, examples: Sequence[Example]) -> dict[int, str]:
        """Map the row of each example that :meth:`tokenise` refuses to the reason.

        Corpora without such an example are remembered, since each method of an index checks them.
        """
        corpus = examples.fingerprint if isinstance(examples, Corpus) else None
        if corpus in self._readable:
            return {}
        reasons = self.chat.refused(chosen_sides(examples))
        if has_pairs(examples):
            reasons |= self._unusable_pairs(examples)
        if corpus is not None and not reasons:
            self._readable.add(corpus)
        return reasons

    def _unusable_pairs(self, examples: Sequence[Example]) -> dict[int, str]:
        """Map refused pairs' rows to reasons: the rejected response cannot be read, or the loss reads no pairs."""
        others = {row: other for row, example in enumerate(examples) if (other := example.sides[1]) is not None}
        if self.settings.loss not in PAIRED:
            return {row: one_response(other.id, self.settings.loss) for row, other in others.items()}
        rows = list(others)
        return {rows[n]: reason for n, reason in self.chat.refused(list(others.values())).items()}

    def check_readable(self, examples: Sequence[Example], method: str) -> None:
        """Raise a DataError that names the *method* if the LM cannot read every example."""
        if refused := self.unusable(examples):
            raise DataError(
                f"{method}: the LM cannot read {len(refused):,} of {many(len(examples), 'example')}. The first: "
                f"{refused[min(refused)]} `airrep index --skip-invalid` leaves such examples out."
            )

    def check_learnable(self, examples: Iterable[Example], where: str) -> None:
        """Refuse examples that lack what the loss of the fine-tune reads, such as a rejected response."""
        loss = self.settings.loss
        for one in examples if loss != "sft" else ():
            missing, _, advice = lacking(one, loss).partition(". ")
            if missing:
                raise DataError(
                    f'{where}: example "{one.id}" has no {missing}, which loss={loss} needs. {advice}, or leave the '
                    "example out."
                )

    def keep_promise(self, examples: Sequence[Example], square: int = 0, kept: int = 0) -> None:
        """Limit :attr:`sums` so that reading the examples fits into the memory setting, if there is one.

        *square* is the size of the largest sum over tokens that cannot be split, *kept* the bytes that stay for all
        linear maps. ConfigError: they do not fit beside the longest example.
        """
        if self.plan is not None:
            lengths = self.tokenise(examples).lengths
            where = f"lm {self.name}"
            self.sums = min(self.sums, self.plan.sums(int(lengths.max(initial=1)), square, where, kept))

    @torch.inference_mode(False)
    def fine_tune(
        self, documents: Documents, settings: FineTuneSettings, seed: int, on_step: OnStep | None = None
    ) -> FineTuneReport:
        """Train in place, from the present weights on, with a new optimizer; see :func:`airrep.lm.network.fine_tune`.

        The seed decides the order of examples and the adapters' first weights. *on_step* is called after each step,
        before adapters are merged into the weights.
        """
        if not len(documents):
            raise ConfigError("fine-tune: there are no training examples. Give at least one.")
        goals = self._goals(documents, settings, seed)
        with self.training(settings, seed):
            return fine_tune(self.model, documents, settings, seed, self.execution, on_step, goals)

    @contextmanager
    def training(self, settings: FineTuneSettings, seed: int) -> Iterator[None]:
        """Prepare the model for a fine-tune in the context: keep its base weights, and add adapters if they are set."""
        self._keep_base()
        self._changed = True
        adapters = nullcontext() if settings.lora_rank is None else adapted(self.model, settings, seed)
        with memory_named("fine-tune", "Lower batch_tokens, or set checkpointing=true."), adapters:
            self.model.train(self.settings.checkpointing)  # only then transformers recomputes
            try:
                yield
            finally:
                self.model.eval()
                self.model.zero_grad()

    def _goals(self, documents: Documents, settings: FineTuneSettings, seed: int) -> list[Goal] | None:
        """Return the loss of each step of a fine-tune; None for ``sft``. DataError: an example lacks what it needs."""
        preference = self._preference(documents)
        if preference is None:
            return None
        told = documents.pairs if preference.loss in PAIRED else np.isfinite(preference.factors)
        if not told.all():
            raise DataError(
                f"fine-tune: {int((~told).sum()):,} of {many(len(told), 'example lacks', 'examples lack')} what loss="
                f"{preference.loss} needs (a rejected response, a label or a weight). Leave these examples out."
            )
        return list(goals_of(documents, settings, seed, preference, self.likelihoods_before))

    def _preference(self, documents: Documents) -> Preference | None:
        """Return the loss of preferences without its reference log likelihoods; None for ``sft``."""
        if self.settings.loss == "sft":
            return None
        if documents.pairs.any() and not reads_packed(self.model):
            raise ConfigError(
                f"lm {self.name}: reads one document at a time, so it cannot compare the two responses of a pair. Use "
                "another LM."
            )
        told = np.ones(len(documents)) if documents.factors is None else documents.factors
        return Preference(self.settings.loss, self.settings.beta, told)

    def preference(self, documents: Documents) -> Preference | None:
        """Return the loss of preferences on documents under the present weights; None for ``sft``."""
        found = self._preference(documents)
        if found is None or found.loss not in REFERRED or not (self._changed or self.earlier):
            return found
        return replace(found, reference=self.likelihoods_before(documents))

    def likelihoods_before(self, documents: Documents) -> Float64[np.ndarray, "n 2"]:
        """Return the log likelihoods of both responses of each document before the fine-tune, in nats.

        The LM before the fine-tune is this one with its base weights; for a warm-up by dpo or kto, it is the LM that
        the warm-up began from. Results are remembered.
        """
        keys = [documents.digest(row) for row in range(len(documents))]
        missing = [row for row, key in enumerate(keys) if key not in self._likelihoods]
        if missing:
            with self._before() as lm, lm._evaluation("evaluation"):
                found = likelihoods(lm.model, documents.take(missing), lm.execution)
            self._likelihoods |= zip([keys[row] for row in missing], found, strict=True)
        return np.stack([self._likelihoods[key] for key in keys])

    @contextmanager
    def _before(self) -> Iterator["TargetLM"]:
        """Yield the LM before the fine-tune."""
        if self.earlier is not None:
            if isinstance(self.earlier, LmSettings):
                self.earlier = load_lm(self.earlier, stored=True)
            yield self.earlier
        elif not self._changed:
            yield self
        else:
            held = {name: weight.detach().clone() for name, weight in self.model.named_parameters()}
            self.reset()
            try:
                yield self
            finally:
                take_back(self.model, held)
                self._changed = True

    def _keep_base(self) -> None:
        """Copy the base weights to CPU memory before the first fine-tune; all weights are float32 from then on."""
        make_whole(self.model)
        if self._base is None:
            weights = self.model.named_parameters()
            self._base = {name: weight.detach().to("cpu", copy=True) for name, weight in weights}

    def reset(self) -> None:
        """Restore the base weights, in place and to the bit."""
        self._changed = False
        if self._base is not None:
            take_back(self.model, self._base)

    def load_weights(self, path: Path) -> None:
        """Use a checkpoint's weights until :meth:`reset`: a safetensors file, or a folder that a trainer wrote."""
        self._keep_base()
        self._changed = True
        if path.is_dir():
            trusted = self.settings.trust_remote_code
            other = load_whole(find_lm(str(path), trusted, self.settings.base), trusted)
            stored = {name: weight.detach() for name, weight in other.named_parameters()}
        else:
            stored = read_weights(path, f"weights {path}:", "Restore the file.")
        take_weights(self.model, stored, path)

    def losses(self, documents: Documents) -> Losses:
        """Return the mean cross-entropy over each document's response tokens, in nats: ``(n,)``, rows in order.

        With shares, the weighted losses are summed, and the divisor is still the number of response tokens. With
        dpo, orpo or kto, a document that has what the loss reads gets that loss instead: for dpo, −log σ of a pair's
        margin, which ranks pairs as minus the margin does.
        """
        found = np.zeros(len(documents), np.float32)
        preference = self.preference(documents)
        with self._evaluation("evaluation"):
            for batch, packed in self._batches(documents):
                each = token_losses(self.model, packed)
                each = each if packed.shares is None else each * packed.shares
                if preference is not None:
                    found[batch.rows] = preference.take(batch.rows).whole(each, packed).cpu().numpy()
                    continue
                sums = each.new_zeros(len(batch.rows)).index_add_(0, packed.owners, each)
                found[batch.rows] = sums.cpu().numpy() / documents.response_lengths[batch.rows]
        if not np.isfinite(found).all():
            row = int(np.flatnonzero(~np.isfinite(found))[0])
            raise TrainingError(
                f"evaluation: the loss of row {row} is not finite. Lower learning_rate, or use another LM."
            )
        return found

    def token_losses(self, documents: Documents) -> list[Float32[np.ndarray, " t"]]:
        """Return the cross-entropy of each response token given all tokens before it, in nats, for each document."""
        found: dict[int, np.ndarray] = {}
        with self._evaluation("evaluation"):
            for batch, packed in self._batches(documents):
                each = token_losses(self.model, packed).float().cpu().numpy()
                parts = np.split(each, np.cumsum(documents.response_lengths[batch.rows])[:-1])
                found |= dict(zip(batch.rows.tolist(), parts, strict=True))
        return [found[row] for row in range(len(documents))]

    def hidden_states(
        self, documents: Documents, layer: int = -1, tokens: Literal["mean", "last"] = "mean"
    ) -> Float32[np.ndarray, "n h"]:
        """Return a hidden state for each document, ``(n, h)``: the mean over its tokens, or that of its last token.

        Layer -1 is the last one, after the final norm; 0 is the embeddings; k is the output of layer k.
        """
        found: dict[int, np.ndarray] = {}
        with self._evaluation("hidden states"):
            for batch, packed in self._batches(documents):
                states = hidden_states(self.model, packed, layer, self.name).float()
                parts = torch.split(states, batch.lengths.tolist())
                for row, part in zip(batch.rows.tolist(), parts, strict=True):
                    found[row] = (part.mean(0) if tokens == "mean" else part[-1]).cpu().numpy()
        width = self.model.config.hidden_size
        return np.stack([found[row] for row in range(len(documents))]) if found else np.zeros((0, width), np.float32)

    @contextmanager
    def _evaluation(self, what: str) -> Iterator[None]:
        """Compute without gradients, in the precision of :attr:`execution`."""
        with memory_named(what), torch.no_grad(), self.execution.autocast():
            yield

    def _batches(self, documents: Documents) -> Iterator[tuple[Batch, PackedDocuments]]:
        """Yield packed batches of documents of similar lengths; ConfigError for examples that are not tokenised."""
        if not isinstance(documents, Documents):
            raise ConfigError(
                f"the argument documents must be a result of tokenise(), but is a {type(documents).__name__}. Call "
                "tokenise() on the examples first."
            )
        execution = self.execution
        for batch in pack(documents.lengths, execution.batch_tokens):
            yield batch, PackedDocuments.from_batch(documents, batch, execution.device, execution.padding)

    def generate(self, examples: Sequence[Example], max_new_tokens: int = 64) -> list[str]:
        """Answer the examples' prompts greedily, each with at most *max_new_tokens* tokens.

        White space around an answer is removed. A prompt is cut at its front so that the answer fits.
        """
        room = self.max_tokens - max_new_tokens
        if room < 1:
            raise ConfigError(f"max_new_tokens is {max_new_tokens}. Set it below max_tokens, {self.max_tokens}.")
        prompts = self.chat.prompt_ids(examples, room)
        longest = max(map(len, prompts), default=0) + max_new_tokens
        batch_prompts = max(1, self.execution.batch_tokens // longest)
        with self._evaluation("generation"):
            answers = generate(self.model, prompts, self._stops, max_new_tokens, batch_prompts)
        tokenizer = self.chat.tokenizer
        return [tokenizer.decode(answer, skip_special_tokens=True).strip() for answer in answers]

    @property
    def _stops(self) -> list[int]:
        """Ids of the tokens that end an answer, as the LM and its tokenizer name them."""
        named = [self.model.generation_config.eos_token_id, self.chat.tokenizer.eos_token_id]
        flat = [token for each in named for token in (each if isinstance(each, list) else [each])]
        return sorted({token for token in flat if token is not None})


def shared_lm(settings: LmSettings) -> TargetLM:
    """Return the LM that this process already holds for the same settings and files; else load it.

    Only the fields of :class:`LmSettings` count, so that methods with settings of their own share one LM in memory. A
    method that changes the weights must restore them.
    """
    settings = LmSettings.of(settings.model_dump(include=set(LmSettings.model_fields)))
    files = settings.find()
    folders = {files.weights, files.tokenizer, files.adapter or files.weights}
    states = sorted(
        (str(path), path.stat().st_mtime_ns, path.stat().st_size) for folder in folders for path in folder.iterdir()
    )
    key = json_digest({"settings": settings.model_dump(mode="json"), "files": states})
    if (found := _shared.get(key)) is None:
        found = _shared[key] = load_lm(settings, stored=True)
    return found


def take_back(model: Any, weights: Mapping[str, Tensor]) -> None:
    """Copy saved *weights* back into a model, in place."""
    with torch.no_grad():
        for name, weight in model.named_parameters():
            weight.copy_(weights[name])


_shared: WeakValueDictionary[str, TargetLM] = WeakValueDictionary()


@torch.inference_mode(False)  # so that weights can be differentiated later
def load_lm(settings: LmSettings | Mapping[str, Any] | str | Path, *, stored: bool = False) -> TargetLM:
    """Load a target LM from its folder, its Hub id, or settings.

    With *stored*, weights stay in memory in the precision of their files, and are converted to float32 one linear map
    at a time. Results are the same. Fine-tuning converts all weights to float32.

    Raises:
        ConfigError: the LM is not found, is not a causal LM, has damaged files, or cannot be run, or a setting does
            not fit the LM.
        ArtifactError: the LM is a warm-up that was altered.
        MissingExtraError: the LM has adapters, but the package peft is missing.

    Example:
        >>> lm = airrep.load_lm("MODEL")
        >>> lm.losses(lm.tokenise(queries)).shape  # nats per token of the response
        (5,)
    """
    settings = LmSettings.named(settings)
    trusted = settings.trust_remote_code
    files = settings.find()
    settings = _as_recorded(settings, files.folder)
    device = resolve_device(settings.device)
    precision = resolve_precision(settings.precision, device)
    plan = _plan(settings, files, stored)
    model = (_load_stored(files, trusted, device) if stored else None) or load_whole(files, trusted).to(device)
    max_tokens = _max_tokens(settings, model)
    tokenizer = load_tokenizer(files.tokenizer, settings.lm, trusted)
    rows = model.get_input_embeddings().weight.shape[0]
    remedy = _remedy(files, len(tokenizer))
    chat = Chat(tokenizer, settings.lm, max_tokens, rows, settings.template, settings.cut or "prompt", remedy)
    if settings.checkpointing:
        recompute_activations(model, settings.lm)
    cuda = torch.device(device).type == "cuda"
    tokens = settings.batch_tokens or (_CUDA_BATCH_TOKENS if cuda else _CPU_BATCH_TOKENS)
    tokens = tokens if plan is None else min(tokens, plan.batch_tokens)
    lm = TargetLM(settings, files, model, chat, Execution(device, precision, tokens, _CUDA_PADDING if cuda else 0))
    lm.plan = plan
    if settings.loss in REFERRED and (before := recorded_base(files.folder)) is not None:
        lm.earlier = settings.model_copy(update=before)
    try:
        _settle_packing(lm)
    except ConfigError:
        if not is_held(model):
            raise
        make_whole(model)  # the LM's code reads weights past their modules
        _settle_packing(lm)
    return lm


def _plan(settings: LmSettings, files: LmFiles, stored: bool) -> MemoryPlan | None:
    if settings.memory is None:
        return None
    if not stored:
        raise ConfigError(
            f"lm {settings.lm}: memory={settings.memory} is only for commands that do not train the LM, such as "
            "`airrep index`. Remove memory, and lower batch_tokens instead."
        )
    promised = memory_bytes(settings.memory)
    assert promised is not None  # settings are checked
    folder, name = files.weights, files.name
    if is_packed(folder):
        held = files.adapter is None and torch.device(resolve_device(settings.device)).type == "cpu"
        size = size_packed(folder, name) * (1 if held else _WIDENED)
    else:
        size = size_read(folder, name, files.adapter is None and stored_type(folder, name) is not None)
    return plan_memory(promised, folder, name, size)


_WIDENED = 8
"""Factor by which quantised weights of 4 bits grow when they become float32; others grow less."""


def _load_stored(files: LmFiles, trusted: bool, device: str) -> Any:
    """Load an LM that keeps its weights as they are stored; return None if it has to be loaded in float32.

    That is so if weights are stored in float32, are quantised and the device is not the CPU, or get adapters added, or
    if the LM's code makes constants that :func:`hold` cannot convert.
    """
    packed = is_packed(files.weights)
    if packed and files.adapter is None and torch.device(device).type == "cpu":
        return load_packed(files.weights, files.name, trusted)
    kind = None if packed or files.adapter is not None else stored_type(files.weights, files.name)
    if kind is None:
        return None
    model = load_network(files.weights, files.name, trusted, kind).to(device)
    hold_experts(model)
    return model if hold(model) else None


def _remedy(files: LmFiles, tokens: int) -> str:
    """Return what to do if an LM's tokenizer has more *tokens* than the LM has embeddings."""
    if files.base is None:
        return "Use the tokenizer that the LM was trained with."
    if files.adapter is None:
        return (
            f"Its adapters were trained with added tokens. Save a copy of their base, {files.base}, after "
            f"resize_token_embeddings({tokens}), and give the copy: --set base=FOLDER"
        )
    return (
        "Its adapters do not hold the embeddings of added tokens. Save the adapters again with peft's "
        "save_embedding_layers=True, or give the base that has the tokens: --set base=MODEL"
    )


def load_chat(settings: LmSettings) -> Chat:
    """Load the part of an LM that renders examples, without its weights: tokens are not checked against embeddings."""
    files = settings.find()
    tokenizer = load_tokenizer(files.tokenizer, settings.lm, settings.trust_remote_code)
    settings = _as_recorded(settings, files.folder)
    return Chat(tokenizer, settings.lm, _MOST_TOKENS, sys.maxsize, settings.template, settings.cut or "prompt")


def _recorded(template: str | None) -> str | None:
    """Return a template as artifacts name it, where ``"chat"`` already means None for an LM with a chat template."""
    return ALL_CHAT if template == "chat" else template


def _as_recorded(settings: LmSettings, folder: Path) -> LmSettings:
    """Take settings that are not set from the record of a warm-up, which says how its training read examples."""
    asked = settings.model_dump(include={"max_tokens", "cut", "template"}, exclude_none=True)
    return settings.model_copy(update=dict(recorded_reading(folder)) | asked)


def _max_tokens(settings: LmSettings, model: Any) -> int:
    """Return max_tokens if it is set, else the LM's positions, at most 2048; ConfigError: the LM reads fewer."""
    named = (getattr(model.config, name, None) for name in ("max_position_embeddings", "max_seq_len"))
    positions = next((own for own in named if own is not None and own > 0), _MOST_TOKENS)  # XLNet has -1: no limit
    if settings.max_tokens is not None and settings.max_tokens > positions:
        raise ConfigError(
            f"lm {settings.lm}: max_tokens is {settings.max_tokens}, but the LM has {positions} positions. Lower "
            "max_tokens."
        )
    chosen = settings.max_tokens or min(positions, _MOST_TOKENS)
    for what, reach in _reaches(model.config.get_text_config(decoder=True)):
        if chosen > reach:
            raise ConfigError(
                f"lm {settings.lm}: max_tokens is {chosen}, but airrep computes correct losses of an LM with {what} "
                f"only up to {reach} tokens. Set max_tokens={reach}."
            )
    return chosen


def _reaches(config: Any) -> Iterator[tuple[str, int]]:
    """Yield each part of an LM that reads only documents up to some length as if they were alone, and that length."""
    ropes = getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None) or {}
    # Some LMs have one rope for each type of layer. Ropes of type dynamic change only beyond the LM's positions.
    for rope in (ropes, *(each for each in ropes.values() if isinstance(each, Mapping))):
        if "longrope" in (rope.get("rope_type"), rope.get("type")):
            own = getattr(config, "original_max_position_embeddings", None)
            reach = rope.get("original_max_position_embeddings") or own
            # The longest document of the batch decides if all get the short or the long factors.
            yield from [("RoPE scaling (longrope)", reach)] if reach else []
    chunk = getattr(config, "attention_chunk_size", None)
    if chunk:  # tokens do not see beyond their chunk, but packed attention ignores chunks
        yield "attention in chunks", chunk


def _settle_packing(lm: TargetLM) -> None:
    """Pack documents if that gives each token the loss that transformers gives it; else read them one at a time."""
    documents, asked = _probe(lm), lm.execution
    kind = f"lm {lm.name}: a {type(lm.model).__name__}"
    lm.execution = replace(asked, precision="float32", batch_tokens=1)
    with library_attention(lm.model), idle_maps_noted(lm.model):
        alone = lm.token_losses(documents)
    if not all(np.isfinite(each).all() for each in alone):
        raise ConfigError(f"{kind} gives losses that are not finite. Use another checkpoint.")
    if not _agree(alone[1:2], [alone[0][: len(alone[1])]]):
        raise ConfigError(
            f"{kind} changes a token's loss when more tokens follow it, so it is not causal. Use a causal LM."
        )
    lm.execution = replace(asked, precision="float32", batch_tokens=int(documents.lengths.sum()))
    packs = reads_packed(lm.model) and not _keeps_state(lm.model) and _agree(_packed(lm, documents), alone)
    lm.execution = asked if packs else replace(asked, batch_tokens=1)
    if not packs:
        use_library_attention(lm.model)
        why = "is read one document at a time, since its layers cannot read several in a row: slower, but correct"
        caution(_log, f"{kind} {why}")
    if asked.precision != "float32":  # another part of the LM may fail in it
        lm.token_losses(documents)


def _probe(lm: TargetLM) -> Documents:
    """Return documents to read alone and together: one longer than any window, its first half, and two short ones."""
    config = lm.model.config.get_text_config(decoder=True)
    rows = lm.model.get_input_embeddings().weight.shape[0]
    named = (value for name, value in vars(config).items() if any(word in name for word in _REACHES))
    reaches = [value for value in named if isinstance(value, int) and value < lm.max_tokens]
    longest = max([_PROBE, *(reach + _PROBE // 2 for reach in reaches)])
    words = np.setdiff1d(np.arange(min(config.vocab_size, rows)), lm.chat.tokenizer.all_special_ids)
    long, *short = (
        np.random.default_rng(0).choice(words, max(2, min(length, lm.max_tokens))) for length in (longest, 9, 5)
    )
    return Documents.of((ids, 1) for ids in (long, long[: max(2, len(long) // 2)], *short))


def _packed(lm: TargetLM, documents: Documents) -> list[np.ndarray] | None:
    """Return the losses of documents in one batch; None if the LM's own code cannot read a packed batch."""
    try:
        return lm.token_losses(documents)
    except ConfigError:
        return None


def _agree(found: list[np.ndarray] | None, wanted: list[np.ndarray]) -> bool:
    return found is not None and all(
        np.allclose(one, other, rtol=_TOLERANCE, atol=_TOLERANCE) for one, other in zip(found, wanted, strict=True)
    )


def _keeps_state(model: Any) -> bool:
    """True if some layer passes state to later tokens outside attention, even across packed documents."""
    layers = getattr(model.config.get_text_config(decoder=True), "layer_types", None) or ()
    return (
        bool(getattr(model, "_is_stateful", False))
        or any(isinstance(module, torch.nn.Conv1d) for module in model.modules())
        or not all(kind in _STATELESS for kind in layers)
    )
