"""Classes of texts."""

from __future__ import annotations

from typing import Any

import torch

from libai.inference.basic import BasePipeline, labelled, scores_of
from oneflow.engine.core.errors import ArgumentError


class TextClassificationPipeline(BasePipeline):
    """Called with a text, gives ``{"label": "Label_1", "score": ...}``; with a list of texts, a list of these.
    ``return_all_scores`` gives every label."""

    def __init__(
        self,
        config_file: Any,
        data_parallel: int | None = None,
        tensor_parallel: int | None = None,
        pipeline_parallel: int | None = None,
        pipeline_stage_id: list[int] | None = None,
        pipeline_num_layers: int | None = None,
        model_path: str | None = None,
        mode: str = "libai",
        **kwargs: Any,
    ) -> None:
        super().__init__(
            config_file,
            data_parallel,
            tensor_parallel,
            pipeline_parallel,
            pipeline_stage_id,
            pipeline_num_layers,
            model_path,
            mode,
            **kwargs,
        )

    def preprocess(self, inputs: Any, pad: bool = False, **kwargs: Any) -> dict[str, Any]:
        texts = [inputs] if isinstance(inputs, str) else list(inputs)
        if self.tokenizer is None:
            raise ArgumentError("the config has no tokenization.tokenizer, which turns texts into tokens")
        rows = [self.tokenizer.encode(text) for text in texts]
        longest = max(map(len, rows))
        filler = self.tokenizer.pad_token_id or 0
        ids = torch.tensor([row + [filler] * (longest - len(row)) for row in rows])
        mask = torch.tensor([[1] * len(row) + [0] * (longest - len(row)) for row in rows])
        self._is_one = isinstance(inputs, str)
        return {"input_ids": self.to_global(ids), "attention_mask": self.to_global(mask)}

    def forward(self, mdoel_input_dict: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        found: dict[str, Any] = self.model(**mdoel_input_dict)
        return found

    def postprocess(
        self,
        model_outputs_dict: dict[str, Any],
        function_to_apply: str | None = None,
        return_all_scores: bool = False,
        **kwargs: Any,
    ) -> Any:
        scores = scores_of(model_outputs_dict["logits"], function_to_apply)
        names = {i: f"Label_{i}" for i in range(scores.shape[-1])}
        found = [labelled(row, names, return_all_scores) for row in scores]
        return found[0] if self._is_one else found
