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
from airrep.errors import ConfigError, DataError, TrainingError, caution
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

_MOST_TOKENS = 2048  # longest example where no limit is asked for: many LMs have far more positions
_CPU_BATCH_TOKENS = 2048
_CUDA_BATCH_TOKENS = 16384
_CUDA_PADDING = 8192  # fewer calls of attention: on a card each costs more than the places that it fills
_PROBE = 24  # tokens; more where a window is longer
_TOLERANCE = 1e-3
_REACHES = ("window", "chunk", "index_topk", "block_size")
"""Words in the names of settings that say how far a token looks."""
_STATELESS = ("full_attention", "sliding_attention", "chunked_attention", "attention", "sparse", "dense")
"""Types of layers that read other tokens by attention alone, or none."""


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
        """Numbers of sums over tokens, such as covariances, that whoever reads it may hold at a time."""
        self._base: dict[str, Tensor] | None = None
        self._changed = False
        self.earlier: TargetLM | LmSettings | None = None
        """The LM before a fine-tune that made this one, where its loss is compared with that."""
        self._likelihoods: dict[str, Float64[np.ndarray, " 2"]] = {}
        self._readable: set[str] = set()
        """Fingerprints of corpora of which it can read every example."""

    @cached_property
    def fingerprint(self) -> str:
        """64 hex digits over weights, configuration, tokenizer, chat template and limit of tokens.

        Device, precision and micro-batches are left out: they are execution.
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
        """Longest example, and the template of examples: ``"chat"`` (the LM's own), ``"plain"`` or a text."""
        own = "chat" if self.chat.plain is None else "plain"
        cut = {} if self.chat.cut == "prompt" else {"cut": self.chat.cut}
        read = {"max_tokens": self.max_tokens, "template": _recorded(self.settings.template) or own, **cut}
        return {**read, **summary_of(self.settings.loss, self.settings.beta)}

    def rendering(self, examples: Iterable[Example]) -> dict[str, str]:
        """Ways of reading the examples that the fingerprint does not tell; see :meth:`Chat.rendering`."""
        return self.chat.rendering(examples)

    def key(self, example: Example) -> str:
        """16 hex digits: the hash of the texts, and of how they are read where the fingerprint does not tell it."""
        read = example.reading_hash
        if read != example.content_hash:
            return read
        return content_hash("messages", read) if self.chat.reads_messages(example) else read

    def corpus_key(self, corpus: Corpus) -> str:
        """64 hex digits: the fingerprint of a corpus, and of how it is read where that of the LM does not tell it."""
        own = self.rendering(corpus)
        return json_digest({"corpus": corpus.fingerprint, **own}) if own else corpus.fingerprint

    def tokenise(self, examples: QueriesLike) -> Documents:
        """Token ids of each example, in order; prompts are cut at their front to fit, responses never.

        Examples come in any form that :meth:`airrep.Index.top` takes queries in.
        """
        listed = isinstance(examples, list | tuple) and all(isinstance(one, Example) for one in examples)
        as_they_are = listed or isinstance(examples, Corpus)
        return self._tokenised(examples if as_they_are else as_examples(examples, "examples"))

    def _tokenised(self, examples: Sequence[Example]) -> Documents:
        """Token ids of each example, both sides of pairs, and what its loss is multiplied by."""
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
        if loss == "sft":
            return found
        return replace(found, factors=factors_of(examples, loss))

    def unusable(self, examples: Sequence[Example]) -> dict[int, str]:
        """Row and reason of each example that :meth:`tokenise` refuses: to leave them out beforehand.

        Of a corpus that it can read whole that is remembered, as each channel of an index asks.
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
        """Row and reason of each pair that is refused: its rejected response cannot be read, or the loss reads none."""
        others = {row: other for row, example in enumerate(examples) if (other := example.sides[1]) is not None}
        if self.settings.loss not in PAIRED:
            return {row: one_response(other.id, self.settings.loss) for row, other in others.items()}
        rows = list(others)
        return {rows[n]: reason for n, reason in self.chat.refused(list(others.values())).items()}

    def check_readable(self, examples: Sequence[Example], method: str) -> None:
        """Refuse a corpus of which the LM cannot read every example with a DataError that names the *method*."""
        if refused := self.unusable(examples):
            raise DataError(
                f"{method}: the LM cannot read {len(refused):,} of {len(examples):,} examples. The first: "
                f"{refused[min(refused)]} `airrep index --skip-invalid` leaves such examples out."
            )

    def check_learnable(self, examples: Iterable[Example], where: str) -> None:
        """Refuse examples that lack what the loss of the fine-tune reads, such as a rejected response."""
        loss = self.settings.loss
        if loss != "sft" and (first := next(((one, told) for one in examples if (told := lacking(one, loss))), None)):
            raise DataError(f'{where}: loss={loss} cannot use example "{first[0].id}", which has no {first[1]}.')

    def keep_promise(self, examples: Sequence[Example], square: int = 0, kept: int = 0) -> None:
        """Cut what is held at a time to the memory that was promised, if any was.

        *square* are the numbers of the largest sums over tokens that cannot be cut, *kept* the bytes that stay of all
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

        The seed decides the order of examples, and the adapters' first weights; *on_step* is told of each step while
        adapters are still apart from the weights.
        """
        if not len(documents):
            raise ConfigError("fine-tune: there are no training examples. Give at least one.")
        goals = self._goals(documents, settings, seed)
        with self.training(settings, seed):
            return fine_tune(self.model, documents, settings, seed, self.execution, on_step, goals)

    @contextmanager
    def training(self, settings: FineTuneSettings, seed: int) -> Iterator[None]:
        """Be ready for a fine-tune: what it trains asks for a gradient, and adapters are in place if it has some."""
        self._keep_base()
        self._changed = True
        adapters = nullcontext() if settings.lora_rank is None else adapted(self.model, settings, seed)
        with memory_named("fine-tune", "Lower batch_tokens, or set checkpointing=true."), adapters:
            self.model.train(self.settings.checkpointing)  # transformers recomputes in this mode alone
            try:
                yield
            finally:
                self.model.eval()
                self.model.zero_grad()

    def _goals(self, documents: Documents, settings: FineTuneSettings, seed: int) -> list[Goal] | None:
        """Return what each step of a fine-tune lowers, where that is not the loss of responses."""
        preference = self._preference(documents)
        if preference is None:
            return None
        told = documents.pairs if preference.loss in PAIRED else np.isfinite(preference.factors)
        if not told.all():
            raise DataError(
                f"fine-tune: {int((~told).sum()):,} of {len(told):,} examples lack what loss={preference.loss} needs "
                "(a rejected response, a label or a weight). Leave these examples out."
            )
        return list(goals_of(documents, settings, seed, preference, self.likelihoods_before))

    def _preference(self, documents: Documents) -> Preference | None:
        """The loss of preferences, None for the usual one, without what the LM before the fine-tune says."""
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
        """The loss of preferences as it is of documents with the weights of now; None for the usual one."""
        found = self._preference(documents)
        if found is None or found.loss not in REFERRED or not (self._changed or self.earlier):
            return found
        return replace(found, reference=self.likelihoods_before(documents))

    def likelihoods_before(self, documents: Documents) -> Float64[np.ndarray, "n 2"]:
        """Log likelihoods of both responses of each document under the LM before the fine-tune, in nats.

        That is the LM with its base weights; of a warm-up that was such a fine-tune, the LM that it began from. What is
        asked for once is remembered.
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
        """The LM before the fine-tune."""
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
        """Copy the base weights before the first fine-tune, into the machine's memory; all are float32 from then on."""
        make_whole(self.model)
        if self._base is None:
            weights = self.model.named_parameters()
            self._base = {name: weight.detach().to("cpu", copy=True) for name, weight in weights}

    def reset(self) -> None:
        """Bring the base weights back, in place and to the bit."""
        self._changed = False
        if self._base is not None:
            take_back(self.model, self._base)

    def load_weights(self, path: Path) -> None:
        """Take the weights of a checkpoint until :meth:`reset`: a safetensors file, or a folder as a trainer has it."""
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
        """Mean cross-entropy over each document's response tokens, in nats: ``(n,)``, rows in order.

        Where a part of a response is asked for, its losses alone are added up; the divisor stays that of all.
        Where the LM is tuned on preferences, the loss of that for each document that has what it reads: for DPO,
        −log σ of a pair's margin, which ranks as minus the margin does.
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
        """Cross-entropy of each response token given all before it, in nats; one array for each document."""
        found: dict[int, np.ndarray] = {}
        with self._evaluation("evaluation"):
            for batch, packed in self._batches(documents):
                each = token_losses(self.model, packed).float().cpu().numpy()
                lengths = documents.response_lengths[batch.rows]
                parts = np.split(each, np.cumsum(lengths)[:-1])
                found |= dict(zip(batch.rows.tolist(), parts, strict=True))
        return [found[row] for row in range(len(documents))]

    def hidden_states(
        self, documents: Documents, layer: int = -1, tokens: Literal["mean", "last"] = "mean"
    ) -> Float32[np.ndarray, "n h"]:
        """Hidden states of each document, ``(n, h)``: the mean over its tokens, or that of the last one.

        Layer -1 is the last (behind the final norm), 0 the embeddings, k that behind layer k.
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
        """Compute without gradients, in the precision asked for."""
        with memory_named(what), torch.no_grad(), self.execution.autocast():
            yield

    def _batches(self, documents: Documents) -> Iterator[tuple[Batch, PackedDocuments]]:
        """Packed batches of similar lengths; refuses examples that are not tokens yet."""
        if not isinstance(documents, Documents):
            raise ConfigError(
                f"documents must come from tokenise(), but is a {type(documents).__name__}. Call tokenise() first."
            )
        execution = self.execution
        for batch in pack(documents.lengths, execution.batch_tokens):
            yield batch, PackedDocuments.from_batch(documents, batch, execution.device, execution.padding)

    def generate(self, examples: Sequence[Example], max_new_tokens: int = 64) -> list[str]:
        """Answer the examples' prompts: always the most likely next token, at most *max_new_tokens* of them.

        Spaces around an answer are left out. A prompt is cut at its front so that the answer fits.
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
        """Tokens that end an answer: those that the LM and its tokenizer name."""
        named = [self.model.generation_config.eos_token_id, self.chat.tokenizer.eos_token_id]
        flat = [token for each in named for token in (each if isinstance(each, list) else [each])]
        return sorted({token for token in flat if token is not None})


def shared_lm(settings: LmSettings) -> TargetLM:
    """The LM that another reader of this process holds, of the same settings and files; or :func:`load_lm`.

    Methods give their own settings, whose other fields are not looked at: several channels read one LM, which is in
    memory once. Whoever changes its weights sets them back.
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
    """Put weights of before back into a model, in place."""
    with torch.no_grad():
        for name, weight in model.named_parameters():
            weight.copy_(weights[name])


_shared: WeakValueDictionary[str, TargetLM] = WeakValueDictionary()


@torch.inference_mode(False)  # weights that can be differentiated later, wherever gradients are switched off
def load_lm(settings: LmSettings | Mapping[str, Any] | str | Path, *, stored: bool = False) -> TargetLM:
    """Load a target LM: its folder or Hub id, or settings with it.

    With *stored*, weights stay in memory in the precision of their files, and are brought to float32 one linear map at
    a time where they are used. Results are the same. Weights that are trained are float32.

    Raises:
        ConfigError: there is no such LM, it is no causal LM, its files are damaged, it cannot be run, or a
            setting does not fit it.
        ArtifactError: it is a warm-up that was altered.
        MissingExtraError: it has adapters, and the package peft is missing.

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
    chat = Chat(tokenizer, settings.lm, max_tokens, rows, settings.template, settings.cut or "prompt")
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
        make_whole(model)  # code of this type reads weights otherwise than by their modules
        _settle_packing(lm)
    return lm


def _plan(settings: LmSettings, files: LmFiles, stored: bool) -> MemoryPlan | None:
    """How the LM is read within the memory that was promised; None without a promise."""
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
"""Most times by which quantised weights grow that become float32: of 4 bits."""


def _load_stored(files: LmFiles, trusted: bool, device: str) -> Any:
    """An LM that holds its weights as they are stored.

    None where they are float32, or quantised and to be on another device than the processor, where adapters are added
    to them, and where its code makes constants that :func:`hold` does not know.
    """
    if is_packed(files.weights) and files.adapter is None and torch.device(device).type == "cpu":
        return load_packed(files.weights, files.name, trusted)
    kind = None if files.adapter is not None else stored_type(files.weights, files.name)
    if kind is None:
        return None
    model = load_network(files.weights, files.name, trusted, kind).to(device)
    hold_experts(model)
    return model if hold(model) else None


def load_chat(settings: LmSettings) -> Chat:
    """Load the part of an LM that renders examples, without its weights: tokens are not checked against embeddings."""
    files = settings.find()
    tokenizer = load_tokenizer(files.tokenizer, settings.lm, settings.trust_remote_code)
    settings = _as_recorded(settings, files.folder)
    return Chat(tokenizer, settings.lm, _MOST_TOKENS, sys.maxsize, settings.template, settings.cut or "prompt")


def _recorded(template: str | None) -> str | None:
    """A template as artifacts name it, in which ``"chat"`` always stood for None where the LM has one of its own."""
    return ALL_CHAT if template == "chat" else template


def _as_recorded(settings: LmSettings, folder: Path) -> LmSettings:
    """Let a warm-up read examples as it did when it was trained, where nothing else is asked for."""
    asked = settings.model_dump(include={"max_tokens", "cut", "template"}, exclude_none=True)
    return settings.model_copy(update=dict(recorded_reading(folder)) | asked)


def _max_tokens(settings: LmSettings, model: Any) -> int:
    """The limit asked for, if the LM has so many positions; else those that it has."""
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
                f"lm {settings.lm}: max_tokens is {chosen}, but {what} changes how the LM reads more than {reach} "
                f"tokens, so losses would be wrong. Set max_tokens={reach}."
            )
    return chosen


def _reaches(config: Any) -> Iterator[tuple[str, int]]:
    """Parts of an LM that read a document as it is read alone only up to some length, with that length."""
    ropes = getattr(config, "rope_parameters", None) or getattr(config, "rope_scaling", None) or {}
    # Some LMs have one rope for each type of layer. Those of type dynamic change beyond the LM's positions alone.
    for rope in (ropes, *(each for each in ropes.values() if isinstance(each, Mapping))):
        if "longrope" in (rope.get("rope_type"), rope.get("type")):
            own = getattr(config, "original_max_position_embeddings", None)
            reach = rope.get("original_max_position_embeddings") or own
            # Short or long factors, by the longest document of the whole batch.
            yield from [("RoPE scaling (longrope)", reach)] if reach else []
    chunk = getattr(config, "attention_chunk_size", None)
    if chunk:  # tokens do not see beyond their chunk; packed attention knows no chunks
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
    if asked.precision != "float32":  # in which another part of it may fail
        lm.token_losses(documents)


def _probe(lm: TargetLM) -> Documents:
    """Documents to read alone and together: one that is longer than any window, its first half, and short ones."""
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
    """Losses of documents in one batch; None if the LM's own code fails, which lacks a mask, or needs another."""
    try:
        return lm.token_losses(documents)
    except ConfigError:
        return None


def _agree(found: list[np.ndarray] | None, wanted: list[np.ndarray]) -> bool:
    """True if every token's loss agrees within the tolerance."""
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
