"""Evaluators, and the loop that runs a model over a data set for them."""

from __future__ import annotations

import datetime
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch

from libai.evaluation.utils import batch_rows, pad_batch, parts_of
from libai.utils import distributed as dist
from libai.utils.logger import log_every_n_seconds
from oneflow.engine.core.errors import ArgumentError, DTypeError
from oneflow.engine.graph.proxy import origin_of

_LOG_SECONDS = 5


class DatasetEvaluator:
    """Takes the batches of a data set with what a model says of them, and gives numbers. ``process`` is called on rank
    0 alone."""

    def reset(self) -> None:
        """Forgets everything; called before the first batch."""

    def process(self, inputs: dict[str, Any], outputs: dict[str, Any]) -> None:
        """Takes one batch: the model's inputs and its outputs, by name, without rows that only fill it up."""

    def evaluate(self) -> dict[str, Any] | None:
        """The results by name: numbers, or dictionaries of them."""


class DatasetEvaluators(DatasetEvaluator):
    """Several evaluators as one."""

    def __init__(self, evaluators: Sequence[DatasetEvaluator]) -> None:
        self._evaluators = list(evaluators)

    def reset(self) -> None:
        for evaluator in self._evaluators:
            evaluator.reset()

    def process(self, inputs: dict[str, Any], outputs: dict[str, Any]) -> None:
        for evaluator in self._evaluators:
            evaluator.process(inputs, outputs)

    def evaluate(self) -> dict[str, Any]:
        results: dict[str, Any] = {}
        for evaluator in self._evaluators:
            for name, value in (evaluator.evaluate() or {}).items():
                if name in results:
                    raise ArgumentError(
                        f"two evaluators give a result {name!r}; one of them is {type(evaluator).__name__}"
                    )
                results[name] = value
        return results


def inference_on_dataset(
    model: Any,
    data_loader: Any,
    batch_size: int,
    eval_iter: float,
    get_batch: Callable[..., dict[str, Any]],
    input_placement_device: str,
    evaluator: DatasetEvaluator | Sequence[DatasetEvaluator] | None,
) -> dict[str, Any]:
    """The evaluator's results, on every rank, of a model on the first ``eval_iter`` batches of a loader.

    The model, a module or a graph, is called with the fields of ``get_batch(batch, input_placement_device)``, in eval
    mode and without gradients. Every batch is filled up to ``batch_size`` rows, so that a graph is compiled once; each
    sample counts once.
    """
    if eval_iter <= 0:
        raise ArgumentError(f"eval_iter is the number of batches to evaluate and above 0, got {eval_iter}")
    judge: Any = evaluator if hasattr(evaluator, "process") else DatasetEvaluators(evaluator or ())
    run = _Run(data_loader, batch_size, eval_iter)
    judge.reset()
    with inference_context(model):
        for number, batch in enumerate(data_loader):
            if number >= run.batches:
                break
            with run.clock("data"):
                data = get_batch(batch, input_placement_device)
            with run.clock("compute"):
                padded, _ = pad_batch(data, batch_size, 0, False)
                outputs = model(**padded)
            with run.clock("eval"):
                rows = run.rows(number, data)
                inputs, outputs = (
                    _on_rank_0(padded, rows, batch_size),
                    _on_rank_0(_named(model, outputs), rows, batch_size),
                )
                if dist.is_main_process():
                    judge.process(inputs, outputs)
            run.log(number)
    run.log_end()
    results = judge.evaluate() if dist.is_main_process() else None
    return dist.broadcast_py_object({} if results is None else results, src=0)


@contextmanager
def inference_context(model: Any) -> Iterator[None]:
    """Runs without gradients, the model (or that of a graph) in eval mode; afterwards its mode is what it was."""
    module = model if isinstance(model, torch.nn.Module) else origin_of(getattr(model, "model", None))
    with ExitStack() as stack:
        stack.enter_context(torch.no_grad())
        if isinstance(module, torch.nn.Module):
            stack.callback(module.train, module.training)
            module.eval()
        yield


class _Run:
    """Numbers of one evaluation: how many batches, which rows of them count, and the time it takes."""

    def __init__(self, loader: Any, batch_size: int, eval_iter: float) -> None:
        self.logger = logging.getLogger("libai.evaluation.evaluator")
        self._loader, self._batch_size = loader, batch_size
        self._samples = len(loader.dataset)
        self.batches = int(min(eval_iter, len(loader)))
        self._wanted = min(self.batches * batch_size, self._samples)
        self._counted = 0
        self._seconds = {"data": 0.0, "compute": 0.0, "eval": 0.0}
        self._start = self._last = time.perf_counter()
        self.logger.info("with eval_iter %s, reset total samples %s to %s", eval_iter, self._samples, self._wanted)
        self.logger.info("Start inference on %s samples", self._wanted)

    @contextmanager
    def clock(self, what: str) -> Iterator[None]:
        start = self._last if what == "data" else time.perf_counter()
        yield
        self._last = time.perf_counter()
        self._seconds[what] += self._last - start

    def rows(self, number: int, data: Mapping[str, Any]) -> list[int]:
        """The rows of a batch that count, as they lie when each rank's part is filled up."""
        there = batch_rows(data)
        sampler: Any = getattr(self._loader, "batch_sampler", None)
        counting = (
            sampler.rows_that_count(number)
            if hasattr(sampler, "rows_that_count")
            else list(range(min(there, self._samples - self._counted)))
        )
        self._counted += len(counting)
        parts = max(parts_of(value) for value in data.values())
        share, full = there // parts, self._batch_size // parts
        return [row // share * full + row % share for row in counting]

    def log(self, number: int) -> None:
        done = number + 1
        per_batch = {what: seconds / done for what, seconds in self._seconds.items()}
        total = (time.perf_counter() - self._start) / done
        left = datetime.timedelta(seconds=int(total * (self.batches - done)))
        log_every_n_seconds(
            logging.INFO,
            f"Inference done {self._counted}/{self._wanted}. Dataloading: {per_batch['data']:.4f} s/iter. "
            f"Inference: {per_batch['compute']:.4f} s/iter. Eval: {per_batch['eval']:.4f} s/iter. Total: {total:.4f} "
            f"s/iter. ETA={left}",
            n=_LOG_SECONDS,
            name="libai.evaluation.evaluator",
        )

    def log_end(self) -> None:
        total, compute = time.perf_counter() - self._start, self._seconds["compute"]
        each = max(self.batches, 1)
        self.logger.info("Total valid samples: %s", self._counted)
        self.logger.info(
            "Total inference time: %s (%.6f s / iter per device)", datetime.timedelta(seconds=int(total)), total / each
        )
        self.logger.info(
            "Total inference pure compute time: %s (%.6f s / iter per device)",
            datetime.timedelta(seconds=int(compute)),
            compute / each,
        )


def _named(model: Any, outputs: Any) -> dict[str, Any]:
    if not isinstance(outputs, Mapping):
        raise DTypeError(
            f"in eval mode a model returns a dictionary such as {{'prediction_scores': logits}}; "
            f"{type(model).__name__} returned {type(outputs).__name__}"
        )
    return dict(outputs)


def _on_rank_0(values: Mapping[str, Any], rows: list[int], batch_size: int) -> dict[str, Any]:
    """The values with only the rows that count, whole on rank 0."""
    return {
        name: _rows(dist.tensor_to_rank0(value, to_local=True), rows, batch_size)
        if isinstance(value, torch.Tensor)
        else value
        for name, value in values.items()
    }


def _rows(tensor: torch.Tensor, rows: list[int], batch_size: int) -> torch.Tensor:
    if not tensor.ndim or tensor.shape[0] != batch_size or len(rows) == batch_size:
        return tensor
    return tensor[: len(rows)] if rows == list(range(len(rows))) else tensor[rows]
