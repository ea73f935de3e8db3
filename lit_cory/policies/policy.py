"""What an agent is: it reads prompts, samples answers, scores answers given, and knows the reference it came from."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from transformers import LogitsProcessorList, PreTrainedModel, PreTrainedTokenizerBase

from lit_cory import ops
from lit_cory.errors import UserError
from lit_cory.policies.forward import by_chunks, logits_from_hidden, recomputed_blocks, response_hidden
from lit_cory.policies.loading import hidden_size, max_positions
from lit_cory.policies.sampling import Draw, NonFiniteLogitsError, RefuseNonFinite, response_mask
from lit_cory.policies.value_head import ValueHead
from lit_cory.types import Prompt, ReferenceScores, Response, Scores


class Policy(nn.Module, ABC):
    """One agent: a language model that answers, a value head of its own, and the frozen reference.

    The language model stays in evaluation mode whatever the trainer does: with dropout the policy that is scored would
    not be the one that sampled.

    Args:
        name: the agent's fixed name, ``agent_0`` and so on.
        lm: the causal language model.
        tokenizer: the base's own, with a pad token and left padding.
        temperature: of the policy: sampling, scoring and the reference all use logits / temperature.
    """

    gradient_checkpointing = False
    """Whether :meth:`score` keeps the input of each block alone for the backward pass, which makes the rest again."""

    def __init__(
        self, name: str, lm: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, temperature: float = 1.0
    ) -> None:
        super().__init__()
        self.name = name
        self.lm = lm
        self.tokenizer = tokenizer
        self.temperature = temperature
        self.value_head = ValueHead(hidden_size(lm))
        self.train()

    @abstractmethod
    def model(self, *, reference: bool = False) -> AbstractContextManager[PreTrainedModel]:
        """The language model as this agent, or as the frozen reference; restored however the block ends."""

    @abstractmethod
    def lm_parameters(self) -> dict[str, nn.Parameter]:
        """The trainable parameters of the language model by stable name."""

    def trainable(self) -> dict[str, nn.Parameter]:
        """Everything this agent trains, fp32, by a name that does not depend on which agent it is."""
        head = {f"value_head.{name}": p for name, p in self.value_head.named_parameters()}
        return {f"lm.{name}": p for name, p in self.lm_parameters().items()} | head

    def train(self, mode: bool = True) -> "Policy":
        """Stay in evaluation mode (see the class)."""
        del mode
        return super().train(False)

    @property
    def device(self) -> torch.device:
        """Where the language model lies."""
        return torch.device(self.lm.device)

    def encode(self, prompts: Sequence[Prompt], new_tokens: int) -> tuple[Tensor, Tensor]:
        """Token ids [B, P] int64 and mask [B, P] bool of prompts, padded on the left.

        Raises:
            UserError: for a prompt without tokens, or one that leaves no room for ``new_tokens`` more.
        """
        rows = [prompt_ids(self.tokenizer, prompt) for prompt in prompts]
        widest = max(len(row) for row in rows)
        limit = max_positions(self.lm.config)
        if min(len(row) for row in rows) == 0:
            raise UserError("a prompt has no tokens: give it text, or use a base whose tokenizer adds a first token")
        if limit is not None and widest + new_tokens > limit:
            raise UserError(
                f"a prompt of {widest} tokens and {new_tokens} new ones exceed the {limit} positions of "
                f"{self.lm.name_or_path}; shorten the prompts (data) or the answers (model.response_tokens), or take "
                "fewer agents (model.agents)"
            )
        batch = self.tokenizer.pad({"input_ids": rows}, padding=True, padding_side="left", return_tensors="pt")
        return batch["input_ids"].to(self.device), batch["attention_mask"].bool().to(self.device)

    @torch.no_grad()
    def generate(
        self, prompts: Sequence[Prompt], new_tokens: int, *, reference: bool = False, greedy: bool = False
    ) -> Response:
        """Sample one answer a prompt, unfiltered, at the policy's temperature, from torch's global random stream.

        Args:
            prompts: B prompts.
            new_tokens: limit T; an answer may end itself earlier.
            reference: let the frozen reference answer in the agent's place.
            greedy: take the likeliest token each time instead. Such answers are not drawn from the policy: they are for
                evaluation, and their log-ratios say nothing of its KL.

        Raises:
            UserError: for unusable prompts (see :meth:`encode`) and for logits that are not finite.
        """
        ids, mask = self.encode(prompts, new_tokens)
        draw = [] if greedy else [Draw(self.temperature)]
        try:
            with self.model(reference=reference) as lm:
                sample: Any = lm.generate  # its decorators hide its type
                output: Tensor = sample(
                    input_ids=ids,
                    attention_mask=mask.long(),
                    max_new_tokens=new_tokens,
                    do_sample=False,
                    logits_processor=LogitsProcessorList([RefuseNonFinite(), *draw]),
                )
        except NonFiniteLogitsError as error:
            raise UserError(f"{self.name}: {error}; lower the learning rate, or use model.dtype=float32") from error
        tokens = output[:, ids.shape[1] :]
        real, ended = response_mask(tokens, self.eos_ids())
        texts = [
            str(self.tokenizer.decode(row[keep], skip_special_tokens=True, clean_up_tokenization_spaces=False))
            for row, keep in zip(tokens, real, strict=True)
        ]
        return Response(ids, mask, tokens, real, ended, texts)

    def eos_ids(self) -> Tensor:
        """Every token id [E] that ends an answer."""
        eos = self.lm.generation_config.eos_token_id
        return torch.tensor(eos if isinstance(eos, list) else [eos], device=self.device)

    def score(self, response: Response, reference: ReferenceScores | None = None) -> Scores:
        """Log-probs, values and entropy of answers given, from one forward pass; with a graph where gradients are on.

        Args:
            response: B answers of up to T tokens.
            reference: what :meth:`reference_scores` said of the same rows, to have ``full_kl`` as well.
        """
        mask = response.mask
        with self.model(reference=True) as frozen, self.model() as lm, self.recomputing(lm):
            hidden = response_hidden(lm, response)

        def judge(hidden: Tensor, tokens: Tensor, *reference_hidden: Tensor) -> tuple[Tensor, ...]:
            logits = self.logits(lm, hidden)
            numbers = [ops.token_logprobs(logits, tokens), ops.entropy(logits.detach())]
            for states in reference_hidden:
                with torch.no_grad():
                    reference_logits = self.logits(frozen, states)
                numbers.append(ops.full_kl(logits, reference_logits))
            return tuple(numbers)

        reference_hidden = [] if reference is None else [reference.hidden[mask]]
        logprobs, entropy, *full_kl = by_chunks(lm, judge, hidden, response.tokens[mask], *reference_hidden)
        return Scores(
            logprobs=spread(logprobs, mask),
            values=spread(self.value_head(hidden), mask),
            entropy=spread(entropy, mask),
            full_kl=spread(full_kl[0], mask) if full_kl else None,
        )

    def logits(self, lm: PreTrainedModel, hidden: Tensor) -> Tensor:
        """Logits [n, V] fp32 of the policy for hidden states [n, H], at its temperature."""
        logits = logits_from_hidden(lm, hidden)
        return logits if self.temperature == 1 else logits / self.temperature

    def recomputing(self, lm: PreTrainedModel) -> AbstractContextManager[None]:
        """What the forward pass of :meth:`score` runs in."""
        return recomputed_blocks(lm, self.model) if self.gradient_checkpointing else nullcontext()

    @torch.no_grad()
    def reference_scores(self, response: Response) -> ReferenceScores:
        """What the frozen reference says of the same answers."""
        with self.model(reference=True) as lm:
            hidden = response_hidden(lm, response)

        def judge(hidden: Tensor, tokens: Tensor) -> tuple[Tensor]:
            return (ops.token_logprobs(self.logits(lm, hidden), tokens),)

        mask = response.mask
        (logprobs,) = by_chunks(lm, judge, hidden, response.tokens[mask])
        states = torch.zeros(*mask.shape, hidden.shape[-1], dtype=hidden.dtype, device=hidden.device)
        states[mask] = hidden
        return ReferenceScores(spread(logprobs, mask), states)


def spread(values: Tensor, mask: Tensor) -> Tensor:
    """Put ``values`` [n] back at the n True places of ``mask`` [B, T]; 0 elsewhere, differentiable."""
    return torch.zeros(mask.shape, dtype=values.dtype, device=values.device).masked_scatter(mask, values)


def prompt_ids(tokenizer: PreTrainedTokenizerBase, prompt: Prompt) -> list[int]:
    """Token ids of one prompt; a chat goes through the base's chat template.

    Raises:
        UserError: for a chat where the base has no chat template.
    """
    if isinstance(prompt, str):
        return list(tokenizer(prompt)["input_ids"])
    if tokenizer.chat_template is None:
        raise UserError(
            f"model.base={tokenizer.name_or_path}: it has no chat template, and the task writes chats; set "
            "model.task.chat=false, or use a base that was trained to chat"
        )
    encoded: Any = tokenizer.apply_chat_template(prompt, add_generation_prompt=True, return_dict=True)
    return list(encoded["input_ids"])
