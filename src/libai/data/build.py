"""Loaders from configs: data sets are instantiated here, joined, and read by samplers that know their rank."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from omegaconf import ListConfig

from libai.config import LazyCall, instantiate
from libai.data.data_utils import get_train_valid_test_split_
from libai.data.loader import BatchLoader
from libai.data.samplers import CyclicSampler, SingleRoundSampler
from libai.data.structures import Instance
from libai.utils import distributed as dist
from oneflow.engine.core.errors import ArgumentError, DTypeError
from oneflow.utils.data import ConcatDataset, Dataset

__all__ = [
    "build_image_test_loader",
    "build_image_train_loader",
    "build_nlp_test_loader",
    "build_nlp_train_loader",
    "build_nlp_train_val_test_loader",
    "trivial_batch_collator",
]

Loaders = tuple[BatchLoader, BatchLoader | None, BatchLoader | None]


def build_image_train_loader(
    dataset: Any,
    train_batch_size: int,
    test_batch_size: int | None = None,
    sampler: Any = LazyCall(CyclicSampler)(shuffle=True),
    num_workers: int = 4,
    consumed_samples: int = 0,
    seed: int = 0,
    collate_fn: Callable[[Any], Any] | None = None,
    dataset_mixer: Any = ConcatDataset,
    mixup_func: Any = None,
    **kwargs: Any,
) -> Loaders:
    """The loader of training pictures, as ``(loader, None, None)``; its attribute ``mixup_func`` is what mixes its
    batches, or None.

    ``dataset`` is a data set, a lazy description of one, or a list of either, which ``dataset_mixer`` joins.
    ``train_batch_size`` is the micro batch of a rank. ``consumed_samples`` counts those of all ranks that a resumed run
    has used. Further arguments are those of ``oneflow.utils.data.DataLoader``.
    """
    joined = _joined(dataset, dataset_mixer)
    made = _sampler(sampler, joined, train_batch_size, seed, consumed_samples=consumed_samples)
    loader = _loader(joined, made, num_workers, seed, collate_fn, **kwargs)
    loader.mixup_func = instantiate(mixup_func)
    return loader, None, None


def build_image_test_loader(
    dataset: Any,
    test_batch_size: int,
    sampler: Any = LazyCall(SingleRoundSampler)(shuffle=True, drop_last=False),
    num_workers: int = 4,
    seed: int = 0,
    collate_fn: Callable[[Any], Any] | None = None,
    **kwargs: Any,
) -> BatchLoader:
    """The loader of pictures to evaluate on: each once. ``dataset`` and further arguments are as for training."""
    joined = _joined(dataset, ConcatDataset)
    return _loader(joined, _sampler(sampler, joined, test_batch_size, seed), num_workers, seed, collate_fn, **kwargs)


def build_nlp_train_loader(
    dataset: Any,
    train_batch_size: int,
    test_batch_size: int | None = None,
    sampler: Any = LazyCall(CyclicSampler)(shuffle=True),
    num_workers: int = 4,
    consumed_samples: int = 0,
    seed: int = 0,
    collate_fn: Callable[[Any], Any] | None = None,
    dataset_mixer: Any = ConcatDataset,
    **kwargs: Any,
) -> Loaders:
    """The loader of training texts, as ``(loader, None, None)``; see ``build_image_train_loader``."""
    joined = _joined(dataset, dataset_mixer)
    made = _sampler(sampler, joined, train_batch_size, seed, consumed_samples=consumed_samples)
    return _loader(joined, made, num_workers, seed, collate_fn, **kwargs), None, None


def build_nlp_test_loader(
    dataset: Any,
    test_batch_size: int,
    sampler: Any = LazyCall(SingleRoundSampler)(shuffle=False, drop_last=False),
    num_workers: int = 4,
    seed: int = 0,
    collate_fn: Callable[[Any], Any] | None = None,
) -> BatchLoader:
    """The loader of texts to evaluate on: each once."""
    joined = _joined(dataset, ConcatDataset)
    return _loader(joined, _sampler(sampler, joined, test_batch_size, seed), num_workers, seed, collate_fn)


def build_nlp_train_val_test_loader(
    dataset: Any,
    splits: Any,
    weights: Any,
    train_val_test_num_samples: Sequence[int],
    train_batch_size: int,
    test_batch_size: int,
    train_sampler: Any = LazyCall(CyclicSampler)(shuffle=True),
    test_sampler: Any = LazyCall(SingleRoundSampler)(shuffle=False, drop_last=False),
    num_workers: int = 4,
    consumed_samples: int = 0,
    seed: int = 0,
    collate_fn: Callable[[Any], Any] | None = None,
    dataset_mixer: Any = ConcatDataset,
) -> Loaders:
    """Loaders for training, validation and test of the same texts: the documents of each data set are cut by the ratios
    of its ``splits``. A part for validation or test that no document falls into has no loader.

    A data set is a lazy description that takes ``name``, ``max_num_samples`` and an ``indexed_dataset`` of its part of
    the documents. ``train_val_test_num_samples`` says how many samples each loader needs. ``weights``, one number for
    each data set, has no effect yet.
    """
    described, splits, weights = _listed(dataset), _listed_ratios(splits), _listed(weights)
    if not len(described) == len(splits) == len(weights):
        raise ArgumentError(
            f"dataset, splits and weights have one entry each for every data set, got {len(described)}, {len(splits)} "
            f"and {len(weights)}"
        )
    parts: tuple[list[Any], list[Any], list[Any]] = ([], [], [])
    for one, ratios in zip(described, splits):
        _cut(one, ratios, train_val_test_num_samples, parts)
    train = _mixed(parts[0], dataset_mixer)
    made = _sampler(train_sampler, train, train_batch_size, seed, consumed_samples=consumed_samples)

    def held_out(part: list[Any]) -> BatchLoader | None:
        if not part:
            return None
        mixed = _mixed(part, dataset_mixer)
        return _loader(mixed, _sampler(test_sampler, mixed, test_batch_size, seed), num_workers, seed, collate_fn)

    return _loader(train, made, num_workers, seed, collate_fn), held_out(parts[1]), held_out(parts[2])


def trivial_batch_collator(batch: Any) -> Instance:
    """The batch of a list of Instances. An Instance is a batch already, made by the data set at once."""
    if isinstance(batch, Instance):
        return batch
    if not isinstance(batch[0], Instance):
        raise DTypeError(
            f"a data set of libai returns an Instance from __getitem__, such as "
            f"Instance(images=DistTensorData(tensor)), got {type(batch[0]).__name__}; "
            "or give the loader a collate_fn of your own"
        )
    return Instance.stack(batch)


def _loader(
    dataset: Any, sampler: Any, num_workers: int, seed: int, collate_fn: Callable[[Any], Any] | None, **kwargs: Any
) -> BatchLoader:
    collate = collate_fn or trivial_batch_collator
    settings = {"persistent_workers": num_workers > 0, "is_stacked": collate is trivial_batch_collator, **kwargs}
    return BatchLoader(dataset, sampler, collate, seed, num_workers, **settings)


def _sampler(sampler: Any, dataset: Any, batch_size: int, seed: int, **counted: int) -> Any:
    """The sampler of a config for this rank. Those of libai share out global batches, so that a run has the same
    samples on any number of ranks, unless the config asks for ``rank_buckets``. One that was made already is taken as
    it is."""
    if not isinstance(sampler, Mapping):
        return sampler
    arguments: dict[str, Any] = (
        {"rank_buckets": False} if _takes(sampler["_target_"], "rank_buckets") and "rank_buckets" not in sampler else {}
    )
    return instantiate(
        sampler,
        dataset=dataset,
        micro_batch_size=batch_size,
        data_parallel_rank=dist.get_data_parallel_rank(),
        data_parallel_size=dist.get_data_parallel_size(),
        seed=seed,
        **counted,
        **arguments,
    )


def _takes(target: Any, name: str) -> bool:
    if isinstance(target, str):
        return target.rsplit(".", 1)[-1] in ("CyclicSampler", "SingleRoundSampler")
    return name in inspect.signature(target).parameters


def _joined(dataset: Any, mixer: Any) -> Dataset[Any]:
    return _mixed([instantiate(one) for one in _listed(dataset)], mixer)


def _mixed(datasets: list[Any], mixer: Any) -> Dataset[Any]:
    if not datasets:
        raise ArgumentError("dataset is a data set or a list of one or more, got an empty list")
    for one in datasets:
        if isinstance(one, type) or not hasattr(one, "__getitem__") or not hasattr(one, "__len__"):
            raise DTypeError(
                f"a data set has __getitem__ and __len__, got {one!r}; a lazy one is written LazyCall(Class)(arguments)"
            )
    if len(datasets) == 1:
        return datasets[0]
    return instantiate(mixer, datasets=datasets) if isinstance(mixer, Mapping) else mixer(datasets)


def _listed(value: Any) -> list[Any]:
    return list(value) if isinstance(value, (list, tuple, ListConfig)) else [value]


def _listed_ratios(splits: Any) -> list[list[float]]:
    """One list of three ratios for each data set; a single one may be given bare."""
    listed = _listed(splits)
    return (
        [list(map(float, one)) for one in listed]
        if listed and isinstance(listed[0], (list, tuple, ListConfig))
        else [list(map(float, listed))]
    )


def _cut(described: Any, ratios: list[float], counts: Sequence[int], parts: Sequence[list[Any]]) -> None:
    """Adds the three parts of a data set to ``parts``, those that have documents."""
    indexed = instantiate(described["indexed_dataset"])
    documents = indexed.get_doc_idx()
    bounds = get_train_valid_test_split_(len(documents) - 1, ratios)
    for name, begin, end, count, part in zip(("train", "valid", "test"), bounds, bounds[1:], counts, parts):
        if end > begin:
            indexed.set_doc_idx(documents[begin : end + 1])  # a data set looks at the documents while it is made
            part.append(instantiate(described, name=name, max_num_samples=count, indexed_dataset=indexed))
    indexed.set_doc_idx(documents)
