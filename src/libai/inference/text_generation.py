"""Texts that go on from texts."""

from __future__ import annotations

from typing import Any

import torch

from libai.inference.basic import BasePipeline
from libai.utils import distributed as dist
from oneflow.engine.core.errors import ArgumentError


class TextGenerationPipeline(BasePipeline):
    """Called with a text or a list of texts and with what ``generate`` takes; gives a list of ``{"generated_text":
    ...}``."""

    postprocess_names = ("skip_special_tokens", "clean_up_tokenization_spaces")

    def load_pretrain_weight(self, libai_cfg_model: Any, model_path: str | None, mode: str = "huggingface") -> Any:
        return super().load_pretrain_weight(libai_cfg_model, model_path, mode)

    def preprocess(self, inputs: Any, pad: bool = False, **kwargs: Any) -> dict[str, Any]:
        """Texts of different lengths are filled up, whatever ``pad`` says: prompts on the left, an encoder's inputs on
        the right."""
        texts = [inputs] if isinstance(inputs, str) else list(inputs)
        if self.tokenizer is None:
            raise ArgumentError("the config has no tokenization.tokenizer, which turns texts into tokens")
        rows = [self.tokenizer.encode(text) for text in texts]
        if not rows or not all(rows):
            raise ArgumentError(
                f"a text has no token: {texts[[bool(row) for row in rows].index(False)]!r}"
                if rows
                else "there is no text"
            )
        longest = max(map(len, rows))
        filler = self._filler()
        is_right = bool(getattr(self.model, "is_encoder_decoder", False))
        padding = [[filler] * (longest - len(row)) for row in rows]
        ids = [row + more if is_right else more + row for row, more in zip(rows, padding)]
        mask = [
            [1] * len(row) + [0] * len(more) if is_right else [0] * len(more) + [1] * len(row)
            for row, more in zip(rows, padding)
        ]
        return {"inputs": self.to_global(torch.tensor(ids)), "attention_mask": self.to_global(torch.tensor(mask))}

    def _filler(self) -> int:
        tokens = self.tokenizer
        return next((int(one) for one in (tokens.pad_token_id, tokens.eos_token_id) if one is not None), 0)

    def forward(self, encoder_input_dict: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        if not hasattr(self.model, "generate"):
            raise ArgumentError(
                f"{type(self.model).__name__} has no generate(); a model of one's own derives from "
                f"libai.inference.generator.generation_utils.Generator"
            )
        ends = {
            "eos_token_id": self.tokenizer.eos_token_id,
            "pad_token_id": self._filler(),
            "bos_token_id": self.tokenizer.start_token_id,
        }
        said = getattr(self.model, "cfg", None)
        told = {name: value for name, value in ends.items() if said is None or said.get(name) is None}
        if getattr(self.model, "is_encoder_decoder", False):
            told.setdefault(
                "decoder_start_token_id",
                told.get("bos_token_id") if told.get("bos_token_id") is not None else self._filler(),
            )
        return {"return_ids": self.model.generate(**encoder_input_dict, **{**told, **kwargs})}

    def postprocess(
        self,
        model_output_dict: dict[str, Any],
        skip_special_tokens: bool = True,
        clean_up_tokenization_spaces: bool = True,
        **kwargs: Any,
    ) -> list[dict[str, str]]:
        found = dist.ttol(model_output_dict["return_ids"]).tolist()
        return [
            {"generated_text": self.tokenizer.decode(row, skip_special_tokens, clean_up_tokenization_spaces)}
            for row in found
        ]
