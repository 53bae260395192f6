"""Classes of pictures."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch
from PIL import Image

from libai.config import instantiate
from libai.inference.basic import BasePipeline, labelled, scores_of
from oneflow.engine.core.errors import ArgumentError


class ImageClassificationPipeline(BasePipeline):
    """Called with the path of a picture, or a picture of PIL, gives ``{"label": ..., "score": ...}``; with a list, a
    list of these. ``return_all_scores`` gives every label. A picture goes through the transform of ``dataloader.test``.
    Labels are the lines of the file ``labels``, or of ``model.cfg.labels``; numbers without one."""

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
        labels: str | None = None,
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
        self.labels = labels or (self.cfg.model.get("cfg") or {}).get("labels")
        self.transform = self._test_transform()

    def _test_transform(self) -> Any:
        loaders = (self.cfg.get("dataloader") or {}).get("test")
        found = loaders[0].dataset.get("transform") if loaders else None
        if found is None:
            raise ArgumentError(
                "the config has no dataloader.test[0].dataset.transform, which makes a tensor of a picture"
            )
        return instantiate(found)

    def preprocess(self, inputs: Any, **kwargs: Any) -> dict[str, Any]:
        self._is_one = not isinstance(inputs, (list, tuple))
        pictures = [self.transform(_picture(one)) for one in ([inputs] if self._is_one else inputs)]
        return {"images": self.to_global(torch.stack(pictures))}

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
        scores = scores_of(model_outputs_dict["prediction_scores"], function_to_apply)
        names = self.label2id(scores.shape[-1])
        found = [labelled(row, names, return_all_scores) for row in scores]
        return found[0] if self._is_one else found

    def label2id(self, num_classes: int) -> dict[int, str]:
        """The names of the classes by their numbers."""
        if self.labels is None:
            return {i: str(i) for i in range(num_classes)}
        lines = Path(self.labels).read_text(encoding="utf-8").splitlines()
        if len(lines) != num_classes:
            raise ArgumentError(
                f"{str(self.labels)!r} has {len(lines)} lines, and the model has {num_classes} classes: give a file "
                f"with a line for each"
            )
        return dict(enumerate(lines))


def _picture(given: Any) -> Any:
    if isinstance(given, (str, os.PathLike)):
        with Image.open(given) as file:
            return file.convert("RGB")
    if not isinstance(given, Image.Image):
        raise ArgumentError(f"a picture is the path of one, or a PIL.Image; got {type(given).__name__}")
    return given.convert("RGB")
