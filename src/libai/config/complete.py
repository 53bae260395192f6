"""A config with everything that it leaves out: older names of keys, and defaults. What a user wrote is never written
to."""

from __future__ import annotations

import difflib
import logging
from collections.abc import Mapping
from typing import Any

from omegaconf import DictConfig

from libai.config.errors import ConfigKeyError, ConfigTypeError
from libai.config.instantiate import TARGET
from libai.config.keys import KEYS, defaults
from libai.config.names import told
from libai.config.tree import as_tree, copied, file_of, note_file, plain, where
from libai.utils.logger import log_first_n
from oneflow.engine.core.errors import nearest

FIELDS = ("model", "graph", "train", "optim", "dataloader")
DERIVED = "derived"  # in saved files: what a run made of the other keys. It is made anew, so it is not read
_NEAR = 0.8  # how alike an unknown key is to a known one that it is taken for a slip
_ALIASES = ("recompute_grad", "eval_period", "topk")


def require_fields(cfg: Mapping[str, Any], *names: str) -> None:
    """Refuses a config that lacks one of the namespaces."""
    for name in names:
        if name not in cfg or cfg[name] is None:
            raise ConfigKeyError(
                f"the config{where(cfg)} has no {name!r}.{nearest(name, [key for key in cfg if key not in FIELDS])} "
                f"A config defines {', '.join(FIELDS)}; defaults of graph, train and optim come from get_config, as in "
                'optim = get_config("common/optim.py").optim'
            )


def completed(cfg: Any) -> DictConfig:
    """``cfg`` itself if nothing is missing in it, else a copy with the defaults of ``train`` and ``graph`` filled in,
    at every depth.

    Refuses unknown keys that look like known ones, and values of the wrong kind. Keys that older versions had are
    understood: ``recompute_grad``, and ``eval_period`` and ``topk`` of ``train``.
    """
    tree = as_tree(cfg)
    require_fields(tree, "train")
    if _is_complete(tree):
        _check(tree)
        return tree
    copy = copied(tree)
    copy.pop(DERIVED, None)
    _rename(copy.train, defaults("train"))
    for name in KEYS:
        if name in copy:
            _fill(copy[name], defaults(name))
    _check(copy)
    note_file(copy, file_of(tree))
    return copy


def _is_complete(cfg: DictConfig) -> bool:
    if DERIVED in cfg or any(key in cfg.train for key in _ALIASES):
        return False
    return not any(_lacks(cfg[name], defaults(name)) for name in KEYS if name in cfg)


def _is_node(value: Any) -> bool:
    return isinstance(value, Mapping) and TARGET not in value


def _lacks(node: Any, tree: Mapping[str, Any]) -> bool:
    return any(
        key not in node or (_is_node(value) and _is_node(node[key]) and _lacks(node[key], value))
        for key, value in tree.items()
    )


def _fill(node: Any, tree: Mapping[str, Any]) -> None:
    for key, value in tree.items():
        if key not in node:
            node[key] = value
        elif _is_node(value) and _is_node(node[key]):
            _fill(node[key], value)


def _rename(train: DictConfig, default: Mapping[str, Any]) -> None:
    """Keys as they were called before. They count where the present one is missing, or is what it is by default."""
    if "recompute_grad" in train:
        old = plain(train.pop("recompute_grad"))
        if _is_default(train, default, "activation_checkpoint"):
            train.activation_checkpoint = old if isinstance(old, dict) else {"enabled": old}
            _tell("recompute_grad", "activation_checkpoint", old)
    if "evaluation" not in train:
        train.evaluation = {}
    evaluation: Any = train.evaluation
    if "eval_period" in train:
        period = train.pop("eval_period")
        if _is_default(evaluation, default["evaluation"], "eval_period"):
            evaluation.eval_period = period
            _tell("eval_period", "evaluation.eval_period", period)
    if "topk" in train:
        topk = plain(train.pop("topk"))
        if _is_default(evaluation, default["evaluation"], "evaluator"):
            evaluation.evaluator = {**default["evaluation"]["evaluator"], "topk": topk}
            _tell("topk", "evaluation.evaluator.topk", topk)


def _tell(old: str, new: str, value: Any) -> None:
    """Once is enough: a config is completed wherever it is used."""
    log_first_n(logging.INFO, f"train.{old} is called train.{new} now: {value}", name=__name__, key="message")


def _is_default(node: Any, tree: Mapping[str, Any], key: str) -> bool:
    return key not in node or _comparable(plain(node[key])) == _comparable(tree[key])


def _comparable(value: Any) -> Any:
    """Targets by their names, as a file may have either, and tuples as lists."""
    if isinstance(value, dict):
        return {key: told(inner) if key == TARGET else _comparable(inner) for key, inner in value.items()}
    return list(value) if isinstance(value, tuple) else value


def _check(cfg: DictConfig) -> None:
    strange: list[str] = []
    for name, known in KEYS.items():
        if name in cfg:
            _check_node(cfg, name, cfg[name], known, strange)
    if strange:
        log_first_n(
            logging.INFO, f"nothing here reads the keys {', '.join(strange)}{where(cfg)}", name=__name__, key="message"
        )


def _check_node(cfg: DictConfig, path: str, node: Any, known: Mapping[str, Any], strange: list[str]) -> None:
    if not isinstance(node, Mapping):
        raise ConfigTypeError(f"{path}={node!r}{where(cfg)}: expected a dictionary with {', '.join(known)}")
    for key in node:
        full = f"{path}.{key}"
        if key not in known:
            match = difflib.get_close_matches(str(key), list(known), n=1, cutoff=_NEAR)
            if match:
                raise ConfigKeyError(f"{full}{where(cfg)} is no key of {path}. Did you mean {path}.{match[0]}?")
            strange.append(full)
        elif isinstance(known[key], Mapping):
            _check_node(cfg, full, node[key], known[key], strange)
        else:
            expected = known[key].check(node[key])
            if expected is not None:
                raise ConfigTypeError(f"{full}={plain(node[key])!r}{where(cfg)}: expected {expected}")
