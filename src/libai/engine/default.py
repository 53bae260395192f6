"""``DefaultTrainer``: everything from a config to a trained model, each part a method that subclasses may override."""

from __future__ import annotations

import inspect
import logging
import math
import os
import time
from collections.abc import Mapping, Sequence
from typing import Any

from omegaconf import DictConfig, ListConfig, OmegaConf

from libai.config import instantiate
from libai.config.batch import iterations
from libai.config.complete import completed, require_fields
from libai.config.errors import ConfigError, ConfigTypeError
from libai.config.names import locate
from libai.config.tree import copied, plain, where
from libai.engine import hooks
from libai.engine.resuming import ResumePoint, RunState, resume_point
from libai.engine.seeding import seed_iteration
from libai.engine.setup import default_setup, resolved, save_config
from libai.engine.trainer import EagerTrainer, GraphTrainer, HookBase, TrainerBase
from libai.evaluation import inference_on_dataset, print_csv_format
from libai.models import build_graph, build_model
from libai.models.utils.recompute import recompute_eagerly
from libai.optim import build_optimizer
from libai.scheduler import build_lr_scheduler
from libai.tokenizer.build import build_tokenizer
from libai.utils import distributed as dist
from libai.utils.checkpoint import Checkpointer
from libai.utils.events import CommonMetricPrinter, EventWriter, JSONWriter, TensorboardXWriter
from libai.utils.logger import setup_logger
from oneflow import nn
from oneflow.engine.core.errors import ArgumentError

__all__ = ["DefaultTrainer", "default_setup"]

_log = logging.getLogger(__name__)


class DefaultTrainer(TrainerBase):
    """Builds all parts from a config and trains.

    ``cfg`` is not changed. ``self.cfg`` is the config of the run: a copy with all defaults and derived values. The
    class methods take it, or any other config, which they complete for themselves.
    """

    graph_train: nn.Graph | None = None
    graph_eval: nn.Graph | None = None

    def __init__(self, cfg: Any) -> None:
        super().__init__()
        if not logging.getLogger("libai").hasHandlers():
            setup_logger()
        given = completed(cfg)
        require_fields(given, "model", "graph", "optim", "dataloader")
        ready = resolved(given)
        self.cfg = cfg = copied(given) if ready is given else ready
        self.tokenizer = self.tokenizer_for_model(cfg)
        begin = resume_point(cfg)
        self.start_iter = cfg.train.start_iter = begin.iteration
        cfg.dataloader.consumed_samples = begin.samples
        self.train_loader, valid, test = self.build_train_loader(cfg, self.tokenizer)
        self.test_loader = [loader for loader in (valid, test) if loader is not None] + list(
            self.build_test_loader(cfg, self.tokenizer)
        )
        if cfg.train.rdma_enabled:
            _log.info("train.rdma_enabled: between GPUs NCCL uses RDMA by itself where the network has it")
        self.auto_scale_hyperparams(cfg, self.train_loader)
        self._require_iterations(given, begin)
        if dist.is_main_process() and os.path.isdir(cfg.train.output_dir):
            save_config(given, cfg)

        dist.synchronize()
        self.model = self._built_model(cfg)
        self.optimizer = self.build_optimizer(cfg, self.model)
        self.lr_scheduler = self.build_lr_scheduler(cfg, self.optimizer)
        self._trainer = self._graph_trainer(cfg) if cfg.graph.enabled else self._eager_trainer(cfg)
        self.run_state = RunState(cfg, begin)
        self.checkpointer = self._checkpointer(cfg)
        self.resume_or_load(cfg.train.resume if "resume" in cfg.train else False)
        self.max_iter = cfg.train.train_iter
        # Read once: a config's keys are slow to read, and every iteration asks.
        self._seed, self._input_device = cfg.train.seed, cfg.train.input_placement_device
        self.register_hooks(self.build_hooks())

    # ------------------------------------------------------------------------------------------------ parts of __init__

    @classmethod
    def tokenizer_for_model(cls, cfg: DictConfig) -> Any:
        """Returns the tokenizer of a config, or None, and sets the model's ``vocab_size`` in ``cfg`` from it."""
        if cfg.get("tokenization") is None:
            return None
        tokenizer = cls.build_tokenizer(cfg)
        inner = cfg.model.get("cfg")
        if isinstance(inner, DictConfig) and "vocab_size" in inner:
            multiple = cfg.tokenization.get("make_vocab_size_divisible_by", 1) * dist.get_tensor_parallel_size()
            inner.vocab_size = tokenizer.padded_vocab_size(multiple)
        return tokenizer

    def _require_iterations(self, given: DictConfig, begin: ResumePoint) -> None:
        length = self.cfg.train.train_iter
        if length < 1:
            raise ConfigError(
                f"train.train_iter={given.train.train_iter} and "
                f"train.train_epoch={given.train.train_epoch}{where(given)}: there is nothing to train; raise one"
            )
        # A run that was interrupted in its final evaluation still has to evaluate.
        if begin.iteration > length or (begin.iteration == length and begin.is_evaluated):
            raise ConfigError(
                f"model training has finished, the last checkpoint in {self.cfg.train.output_dir!r} is of iteration "
                f"{self.start_iter - 1} of {length}; "
                "raise train.train_iter or train.train_epoch, take another train.output_dir, or leave --resume out"
            )

    @classmethod
    def _built_model(cls, cfg: DictConfig) -> nn.Module:
        start = time.perf_counter()
        _log.info("> Start building model...")
        model = cls.build_model(cfg)
        _log.info("Model:\n%s", model)
        _log.info(">>> done with building model. Building time: %.3f seconds", time.perf_counter() - start)
        return model

    def _graph_trainer(self, cfg: DictConfig) -> GraphTrainer:
        self.graph_train = self.build_graph(cfg, self.model, self.optimizer, self.lr_scheduler, is_train=True)
        self.graph_eval = self.build_graph(cfg, self.model, is_train=False)
        trainer = GraphTrainer(self.graph_train, self.train_loader, cfg.train.num_accumulation_steps)
        if dist.is_main_process():
            trainer.plan_file = os.path.join(cfg.train.output_dir, "plan.html")
        return trainer

    def _eager_trainer(self, cfg: DictConfig) -> EagerTrainer:
        if cfg.train.zero_optimization.enabled:
            raise ConfigError(
                f"train.zero_optimization.enabled=true needs graph.enabled=true{where(cfg)}: only a graph shards the "
                f"optimizer state"
            )
        if cfg.train.activation_checkpoint.enabled:
            recompute_eagerly(self.model)
        return EagerTrainer(
            self.model, self.train_loader, self.optimizer, cfg.train.num_accumulation_steps, cfg.train.amp.enabled
        )

    def _checkpointer(self, cfg: DictConfig) -> Checkpointer:
        kept: dict[str, Any] = (
            {"graph": self.graph_train} if self.graph_train is not None else {"optimizer": self.optimizer}
        )
        if isinstance(self._trainer, EagerTrainer) and self._trainer.precision.is_active:
            kept["grad_scaler"] = self._trainer.precision
        return Checkpointer(
            self.model, cfg.train.output_dir, **kept, lr_scheduler=self.lr_scheduler, trainer=self.run_state
        )

    # ---------------------------------------------------------------------------------------------------- what is done

    def resume_or_load(self, resume: bool = True) -> None:
        """Resumes from the last checkpoint in the output folder, or loads the weights of ``train.load_weight``.

        The latter if ``resume`` is false or there is no checkpoint.
        """
        if resume and not self.checkpointer.has_checkpoint():
            _log.warning(
                "--resume: there is no checkpoint in %s yet; training starts from the beginning",
                self.cfg.train.output_dir,
            )
        formula = {
            name: value for name, value in self.lr_scheduler.state_dict().items() if isinstance(value, (int, float))
        }
        self.checkpointer.resume_or_load(self.cfg.train.load_weight, resume=resume)
        loaded = self.lr_scheduler.state_dict()
        changed = [name for name, value in formula.items() if name != "last_step" and loaded.get(name) != value]
        if changed:
            _log.warning(
                "the scheduler continues with its saved settings: %s",
                ", ".join(f"{name}={loaded.get(name)}, not {formula[name]}" for name in changed),
            )

    def build_hooks(self) -> list[HookBase]:
        """Returns the hooks in the order in which they run."""
        cfg, state = self.cfg.train, self.run_state
        periodic = hooks.PeriodicCheckpointer(
            self.checkpointer, cfg.checkpointer.period, max_to_keep=cfg.checkpointer.max_to_keep
        )
        if self.start_iter:
            periodic.adopt(self.start_iter)
        found: list[HookBase] = [hooks.IterationTimer(), hooks.LRScheduler(), periodic]
        if cfg.evaluation.enabled:
            self._eval_hook = hooks.EvalHook(cfg.evaluation.eval_period, self._evaluate)
            best = hooks.BestCheckpointer(
                cfg.evaluation.eval_period, self.checkpointer, cfg.evaluation.eval_metric, cfg.evaluation.eval_mode
            )
            found += [state.keep("evaluation", self._eval_hook), state.keep("best", best)]
        if dist.is_main_process():
            found += [hooks.PeriodicWriter(self.build_writers(), cfg.log_period), hooks.ProgressBar()]
        return [*found, hooks.StopOnSignal(periodic)]

    def _evaluate(self) -> dict[str, Any]:
        return self.test(self.cfg, self.test_loader, self.graph_eval if self.graph_eval is not None else self.model)

    def build_writers(self) -> list[EventWriter]:
        """Returns the writers of metrics; called on rank 0."""
        folder = self.cfg.train.output_dir
        return [
            CommonMetricPrinter(
                self.cfg.train.global_batch_size if self.graph_train is not None else self.run_state.per_iteration,
                self.max_iter,
            ),
            JSONWriter(os.path.join(folder, "metrics.json")),
            TensorboardXWriter(folder),
        ]

    def train(self) -> Any:  # type: ignore[override]
        """Trains to the end and returns the results of the final evaluation."""
        super().train(self.start_iter, self.max_iter)
        if not self.cfg.train.evaluation.enabled:
            return None
        self.checkpointer.save_part("model_final", "trainer", iteration=self.max_iter - 1)  # with the last evaluation
        return self._eval_hook.results

    def run_step(self) -> None:
        """Runs one iteration."""
        seed_iteration(self._seed, self.iter, of_torch=self.graph_train is None)
        self._trainer.iter = self.iter
        self._trainer.run_step(self.get_batch, self._input_device)

    def samples_after(self, iteration: int) -> int:
        """Returns the number of samples that all ranks together have used after this iteration."""
        self.run_state.done = iteration + 1
        return self.run_state.consumed_samples

    @classmethod
    def get_batch(cls, data: Any, input_placement_device: str = "cuda", mixup_func: Any = None) -> dict[str, Any]:
        """Returns the fields of a batch as global tensors, by the names of the model's arguments.

        Args:
            data: An ``Instance``.
            input_placement_device: The device type that the fields are placed on.
            mixup_func: Mixes ``images`` and ``labels``.
        """
        if mixup_func is not None:
            device = dist.available(input_placement_device)
            images, labels = data.get("images"), data.get("labels")
            images.tensor, labels.tensor = mixup_func(images.tensor.to(device), labels.tensor.to(device))
        batch = {}
        for name, field in data.get_fields().items():
            field.to_global(device_type=input_placement_device)
            batch[name] = field.tensor
        return batch

    # ------------------------------------------------------------------------------------------------- what is built

    @classmethod
    def build_tokenizer(cls, cfg: Any) -> Any:
        """Builds the tokenizer from ``cfg.tokenization``."""
        return build_tokenizer(cfg.tokenization)

    @classmethod
    def build_model(cls, cfg: Any) -> nn.Module:
        """Builds the model from ``cfg.model``; its parameters are global tensors."""
        require_fields(cfg, "model")
        return build_model(cfg.model)

    @classmethod
    def build_graph(
        cls, cfg: Any, model: nn.Module, optimizer: Any = None, lr_scheduler: Any = None, is_train: bool = True
    ) -> nn.Graph:
        """Builds the graph that trains or evaluates from ``cfg.graph``."""
        require_fields(cfg, "graph")
        return build_graph(cfg, model, optimizer, lr_scheduler, is_train)

    @classmethod
    def build_optimizer(cls, cfg: Any, model: nn.Module) -> Any:
        """Builds the optimizer from ``cfg.optim``."""
        require_fields(cfg, "optim")
        return build_optimizer(cfg.optim, model)

    @classmethod
    def build_lr_scheduler(cls, cfg: Any, optimizer: Any) -> Any:
        """Builds the scheduler from ``cfg.train.scheduler``."""
        return build_lr_scheduler(cfg.train.scheduler, optimizer)

    @classmethod
    def build_train_loader(cls, cfg: Any, tokenizer: Any = None) -> tuple[Any, Any, Any]:
        """Builds the training, validation and test loaders from ``cfg.dataloader.train``; the last two may be None."""
        require_fields(cfg, "dataloader")
        cfg = resolved(cfg)
        if cfg.dataloader.get("train") is None:
            raise ConfigError(
                f"dataloader{where(cfg)} has no 'train': dataloader.train = "
                f"LazyCall(build_image_train_loader)(dataset=[...])"
            )
        train = cfg.train
        evaluation = train.evaluation
        batches = int(min(evaluation.eval_iter, 10**9)) if evaluation.enabled else 1
        each = batches * train.test_micro_batch_size * dist.get_data_parallel_size()
        periods = train.train_iter // evaluation.eval_period + 1 if evaluation.enabled and evaluation.eval_period else 1
        offered = {
            "train_batch_size": train.train_micro_batch_size,
            "test_batch_size": train.test_micro_batch_size,
            "seed": train.seed,
            "consumed_samples": cfg.dataloader.get("consumed_samples", 0),
            # A run that is summary in epochs alone learns its length from the data: one epoch of samples is made then.
            "train_val_test_num_samples": [max(1, int(train.samples)), int(periods * each), int(each)],
        }
        loaders = _built_loader(cfg.dataloader.train, offered, train.seed, tokenizer)
        return loaders if isinstance(loaders, tuple) else (loaders, None, None)

    @classmethod
    def build_test_loader(cls, cfg: Any, tokenizer: Any = None) -> list[Any]:
        """Builds the list of loaders from ``cfg.dataloader.test``."""
        require_fields(cfg, "dataloader")
        cfg = resolved(cfg)
        described = cfg.dataloader.get("test")
        if described is None:
            return []
        if not isinstance(described, (ListConfig, list)):
            raise ConfigTypeError(
                f"dataloader.test{where(cfg)} is a list, also of one loader: dataloader.test = [LazyCall(...)(...)]; "
                f"got {type(described).__name__}"
            )
        offered = {"test_batch_size": cfg.train.test_micro_batch_size, "seed": cfg.train.seed}
        return [_built_loader(one, offered, cfg.train.seed, tokenizer) for one in described]

    @classmethod
    def auto_scale_hyperparams(cls, cfg: Any, data_loader: Any) -> None:
        """Sets the number of iterations in ``cfg``, and what depends on it: warm-up, milestones, periods in epochs."""
        train = cfg.train
        samples, batch = len(data_loader.dataset), train.global_batch_size
        # Without a graph an iteration is one micro-batch.
        steps = 1 if cfg.graph.enabled else train.num_accumulation_steps
        length = iterations(train.train_iter, train.train_epoch, train.iter_per_epoch, samples, batch)
        warmup = math.ceil(length * train.warmup_ratio)
        train.samples = length * batch
        train.train_iter, train.warmup_iter = length * steps, warmup * steps
        train.scheduler.max_iter, train.scheduler.warmup_iter = train.train_iter, train.warmup_iter
        summary = (
            f"Auto-scaling the config to train.train_iter={train.train_iter}, train.warmup_iter={train.warmup_iter}"
        )
        if "milestones" in train.scheduler:
            wrong = [m for m in train.scheduler.milestones if not 0 <= m < 1]
            if wrong:
                raise ConfigError(
                    f"train.scheduler.milestones{where(cfg)} are parts of the run, from 0 on and below 1; got "
                    f"{wrong[0]!r}"
                )
            train.scheduler.milestones = [int(m * train.train_iter) for m in train.scheduler.milestones]
            summary += f", scheduler milestones={plain(train.scheduler.milestones)}"
        per_epoch = max(1, train.iter_per_epoch or samples // batch) * steps
        if train.evaluation.eval_after_n_epoch:
            train.evaluation.eval_period = max(1, int(train.evaluation.eval_after_n_epoch * per_epoch))
            summary += f", train.evaluation.eval_period={train.evaluation.eval_period}"
        if train.checkpointer.save_model_after_n_epoch:
            train.checkpointer.period = max(1, int(train.checkpointer.save_model_after_n_epoch * per_epoch))
            summary += f", train.checkpointer.period={train.checkpointer.period}"
        _log.info(summary)

    @classmethod
    def build_evaluator(cls, cfg: Any) -> Any:
        """Builds the evaluator from ``cfg.train.evaluation.evaluator``."""
        return instantiate(completed(cfg).train.evaluation.evaluator)

    @classmethod
    def test(cls, cfg: Any, test_loaders: Sequence[Any], model: Any, evaluator: Any = None) -> dict[str, Any]:
        """Evaluates a model on each loader.

        Returns:
            The results of a single loader; of several, a dictionary by the class name of the data set, numbered from
            the second of a name on.
        """
        cfg = resolved(cfg)
        device, batch = (
            cfg.train.input_placement_device,
            cfg.train.test_micro_batch_size * dist.get_data_parallel_size(),
        )
        evaluators = (
            [cls.build_evaluator(cfg) for _ in test_loaders]
            if evaluator is None
            else list(evaluator)
            if isinstance(evaluator, (list, tuple))
            else [evaluator]
        )
        if len(evaluators) != len(test_loaders):
            raise ArgumentError(
                f"test takes one evaluator for each loader, got {len(evaluators)} for {len(test_loaders)}"
            )
        results: dict[str, Any] = {}
        for loader, one in zip(test_loaders, evaluators):
            name = _unused(type(loader.dataset).__name__, results)
            results[name] = inference_on_dataset(
                model, loader, batch, cfg.train.evaluation.eval_iter, cls.get_batch, device, one
            )
            if dist.is_main_process():
                _log.info("Evaluation results for %s in csv format:", name)
                print_csv_format(results[name])
        return next(iter(results.values())) if len(results) == 1 else results


def _unused(name: str, taken: Mapping[str, Any]) -> str:
    number = 1
    while (found := name if number == 1 else f"{name}_{number}") in taken:
        number += 1
    return found


def _built_loader(described: Any, offered: Mapping[str, Any], seed: int, tokenizer: Any) -> Any:
    """Calls the builder of a loader with what it takes of the offered arguments. Data sets that ask for a seed or a
    tokenizer get it."""
    if not isinstance(described, Mapping) or "_target_" not in described:
        raise ConfigTypeError(
            f"a loader is written LazyCall(build_image_train_loader)(dataset=...), got {type(described).__name__}"
        )
    target = locate(described["_target_"]) if isinstance(described["_target_"], str) else described["_target_"]
    takes = inspect.signature(target).parameters
    given = {name: value for name, value in offered.items() if name in takes}
    if "dataset" in described:
        given["dataset"] = _with_seed(described["dataset"], seed, tokenizer)
    return instantiate(described, **given, _recursive_=False)


def _with_seed(dataset: Any, seed: int, tokenizer: Any) -> Any:
    """A described data set with the seed of the run, if it has one, and with the tokenizer, if its class takes one."""
    if isinstance(dataset, (ListConfig, list, tuple)):
        return [_with_seed(one, seed, tokenizer) for one in dataset]
    if not isinstance(dataset, DictConfig):
        return dataset
    given = {"seed": seed} if "seed" in dataset else {}
    if tokenizer is not None and ("tokenizer" in dataset or _takes(dataset.get("_target_"), "tokenizer")):
        given["tokenizer"] = tokenizer
    if not given:
        return dataset
    changed = OmegaConf.to_container(dataset, resolve=True)
    assert isinstance(changed, dict)
    return DictConfig(changed | given, flags={"allow_objects": True})


def _takes(target: Any, name: str) -> bool:
    found = locate(target) if isinstance(target, str) else target
    return callable(found) and name in inspect.signature(found).parameters
