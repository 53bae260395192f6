"""Lazy configs: calls that are written down, files, overrides, defaults, and what is said where they are wrong."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest
from hydra.errors import InstantiationException, OverrideParseException
from libai_runs import config
from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.errors import ConfigAttributeError, MissingMandatoryValue
from PIL import Image

from libai.config import (
    LazyCall,
    LazyConfig,
    configurable,
    default_argument_parser,
    get_config,
    instantiate,
    try_get_key,
)
from libai.config.batch import batch_sizes, iterations
from libai.config.complete import completed, require_fields
from libai.config.instantiate import dump_dataclass, instantiate_cfg
from libai.utils.logger import setup_logger


class Part:
    def __init__(self, size: int = 1, inner: Any = None, cfg: Any = None) -> None:
        self.size, self.inner, self.cfg = size, inner, cfg


@dataclasses.dataclass
class Box:
    width: int
    parts: list[Any] = dataclasses.field(default_factory=list)


# ------------------------------------------------------------------------------------------------------------- LazyCall


def test_a_lazy_call_is_a_config_that_can_be_changed_and_then_built():
    lazy = LazyCall(Part)(size=2, inner=LazyCall(Part)(size=3))
    lazy.size += 1
    lazy.inner["size"] = 5
    built = instantiate(lazy)
    assert (built.size, built.inner.size) == (3, 5)
    assert lazy.get("strange") is None and not hasattr(lazy, "strange")
    with pytest.raises(ConfigAttributeError, match="Missing key strange"):
        lazy.strange  # noqa: B018


def test_targets_are_callables_names_and_lazy_calls():
    assert instantiate(LazyCall("builtins.dict")(a=1)) == {"a": 1}
    with pytest.raises(TypeError, match="target of LazyCall must be a callable or defines a callable! Got 3 of int"):
        LazyCall(3)
    assert LazyCall(Box)(width=1)._target_.endswith("Box"), "OmegaConf cannot hold a dataclass"
    assert instantiate({"_target_": "collections.Counter", "a": 2}) == {"a": 2}, "a plain dictionary as well"
    assert [part.size for part in instantiate([{"_target_": Part, "size": 1}, LazyCall(Part)(size=2)])] == [1, 2]


def test_arguments_are_given_by_name_or_as_one_mapping():
    assert instantiate(LazyCall(Part)({"size": 7})).cfg == {"size": 7}
    with pytest.raises(TypeError, match="takes arguments by name, or one mapping; got 2 without names"):
        LazyCall(Part)({"a": 1}, {"b": 2})


def test_what_instantiate_leaves_alone():
    plain = OmegaConf.create({"a": {"_target_": "builtins.dict"}})
    assert instantiate(None) is None and instantiate(3) == 3 and instantiate(plain) is plain
    built = instantiate(ListConfig([LazyCall(Part)(size=2), 4], flags={"allow_objects": True}))
    assert isinstance(built, ListConfig) and built[0].size == 2 and built[1] == 4


def test_overrides_of_instantiate_are_merged_and_leave_the_config_alone():
    lazy = LazyCall(dict)(inner={"a": 1, "b": 2}, size=1)
    model = Part()
    built = instantiate(lazy, inner={"b": 3}, model=model)
    assert built["inner"] == {"a": 1, "b": 3} and built["model"] is model and built["size"] == 1
    assert lazy.inner.b == 2 and "model" not in lazy
    assert instantiate(lazy, inner=LazyCall(Part)(size=9))["inner"].size == 9


def test_arguments_may_stay_unbuilt():
    lazy = LazyCall(dict)(inner=LazyCall(Part)(size=2))
    assert isinstance(instantiate(lazy, _recursive_=False)["inner"], DictConfig)
    assert isinstance(instantiate_cfg(lazy, recursive=False)["inner"], DictConfig)
    assert isinstance(instantiate({**lazy, "_recursive_": False})["inner"], DictConfig)


def test_lists_come_as_lists_and_dictionaries_as_configs():
    built = instantiate(LazyCall(dict)(betas=(0.9, 0.99), cfg={"a": 1}))
    assert built["betas"] == [0.9, 0.99] and type(built["betas"]) is list
    assert built["cfg"].a == 1


def test_a_dataclass_is_dumped_and_built_again():
    dumped = dump_dataclass(Box(2, [Box(3), 4]))
    assert dumped["width"] == 2 and dumped["parts"][0]["width"] == 3 and dumped["parts"][1] == 4
    assert instantiate(dumped) == Box(2, [Box(3), 4])
    with pytest.raises(TypeError, match="takes an instance of a dataclass"):
        dump_dataclass(3)


@pytest.mark.parametrize(
    ("lazy", "message"),
    [
        (
            LazyCall(Part)(sise=1),
            r"Error in call to target '.*Part': TypeError: .*unexpected keyword argument 'sise'. It takes size, inner, cfg. Did you mean 'size'\?",
        ),
        (LazyCall(dict)(a=LazyCall(Part)(wrong=1)), "of 'a': TypeError"),
        (
            LazyCall("nosuchmodule.Thing")(),
            "Error locating target 'nosuchmodule.Thing': there is no module 'nosuchmodule'. Start from the project's "
            "folder",
        ),
        (LazyCall("math.squareroot")(), r"'math' has no 'squareroot'"),
        (LazyCall("math.sqrtt")(), r"Did you mean 'sqrt'\?"),
        (LazyCall("math.pi")(), "Expected a callable target, got 3.14"),
        (LazyCall("a b")(), "expected a dotted name"),
        (LazyCall(Box)({"x": 1}), "A config is given to a class whose __init__ is decorated with @configurable"),
    ],
)
def test_what_cannot_be_built_is_named(lazy, message):
    with pytest.raises(InstantiationException, match=message):
        instantiate(lazy)


# --------------------------------------------------------------------------------------------------------- configurable


def test_configurable_with_from_config():
    class Net:
        @configurable
        def __init__(self, width, depth=1):
            self.width, self.depth = width, depth

        @classmethod
        def from_config(cls, cfg, width=None):
            return {"width": width or cfg.width, "depth": cfg.depth}

    cfg = OmegaConf.create({"width": 2, "depth": 3})
    assert vars(Net(cfg)) == vars(Net(cfg=cfg)) == vars(instantiate(LazyCall(Net)(cfg=cfg))) == {"width": 2, "depth": 3}
    assert vars(Net(cfg, width=9)) == {"width": 9, "depth": 3}
    assert vars(Net(cfg, depth=8)) == {"width": 2, "depth": 8}, "what from_config does not take wins"
    assert vars(Net(5)) == {"width": 5, "depth": 1}


def test_the_tutorials_configurable_has_no_from_config():
    class NeuralNetwork:
        @configurable
        def __init__(self, num_classes=10):
            self.num_classes = num_classes

    assert instantiate(LazyCall(NeuralNetwork)({"num_classes": 7})).num_classes == 7
    assert NeuralNetwork(cfg={"num_classes": 6}).num_classes == 6
    with pytest.raises(TypeError, match="num_clases"):
        NeuralNetwork(OmegaConf.create({"num_clases": 1}))


def test_configurable_functions_and_misuse():
    @configurable(from_config=lambda cfg: {"a": cfg.a})
    def double(a):
        return 2 * a

    assert double(OmegaConf.create({"a": 4})) == double(4) == 8 and double.from_config is not None
    with pytest.raises(AssertionError, match="stands on __init__"):
        configurable(lambda: None)
    with pytest.raises(AssertionError, match="takes a function from a config"):
        configurable()
    with pytest.raises(TypeError, match="must be named 'cfg'"):
        configurable(from_config=lambda config: {})

    class Net:
        @configurable
        def __init__(self, a):
            pass

        def from_config(self, cfg):
            return {}

    with pytest.raises(TypeError, match="must be a classmethod"):
        Net(cfg={"a": 1})


def test_try_get_key():
    cfg = OmegaConf.create({"a": {"b": None, "c": 3}})
    assert (
        try_get_key(cfg, "a.x", "a.c") == 3
        and try_get_key(cfg, "a.b", default=5) is None
        and try_get_key(cfg, "a.c.d", default=5) == 5
    )


# ---------------------------------------------------------------------------------------------------------------- files


@pytest.fixture
def project(tmp_path) -> Path:
    (tmp_path / "common").mkdir()
    (tmp_path / "common" / "train.py").write_text("train = dict(a=1)\nnumbers = [1]\n")
    (tmp_path / "config.py").write_text(
        "from omegaconf import OmegaConf\nfrom .common.train import train\nfrom .common import train as module\n"
        "import collections\nfrom libai.config import LazyCall\n"
        "train.a += 1\nmodel = LazyCall(collections.OrderedDict)(b=train.a)\n_hidden = dict(a=1)\ntext = 'x'\nlisted = "
        "[1]\nalso = OmegaConf.create([1])\n"
    )
    return tmp_path


def test_a_python_file_gives_its_dictionaries(project):
    cfg = LazyConfig.load(str(project / "config.py"))
    assert set(cfg) == {"train", "model", "also"} and cfg.train.a == 2 and cfg.model.b == 2
    assert LazyConfig.load(str(project / "config.py")).train.a == 2, "files are executed anew: a change does not leak"
    assert LazyConfig.load(str(project / "config.py"), "text") == "x"
    assert LazyConfig.load(str(project / "config.py"), ("listed", "train")) == ([1], {"a": 2})


def test_files_that_cannot_be_read_are_named(project):
    with pytest.raises(ImportError, match=r"config file '.*confg.py' has to exist. Did you mean 'config.py'\?"):
        LazyConfig.load(str(project / "confg.py"))
    with pytest.raises(KeyError, match=r"config.py has no 'trian'. Did you mean 'train'\?"):
        LazyConfig.load(str(project / "config.py"), "trian")
    with pytest.raises(ValueError, match="a .py, .yaml or .yml file, got 'x.json'"):
        LazyConfig.load("x.json")
    (project / "broken.py").write_text("from .common.trains import train\n")
    with pytest.raises(
        ImportError, match=r"broken.py imports .*trains.py, which has to exist.*Did you mean 'train.py'\?"
    ):
        LazyConfig.load(str(project / "broken.py"))
    (project / "syntax.py").write_text("a = (\n")
    with pytest.raises(SyntaxError):
        LazyConfig.load(str(project / "syntax.py"))
    import os as still_works  # noqa: F401  the import of everybody else was never touched


def test_load_rel_is_relative_to_the_caller(project):
    (project / "caller.py").write_text(
        "from libai.config import LazyConfig\ntrain = LazyConfig.load_rel('common/train.py', 'train')\n"
    )
    assert LazyConfig.load(str(project / "caller.py")).train.a == 1
    with pytest.raises(ValueError, match="which is no file"):
        exec("from libai.config import LazyConfig\nLazyConfig.load_rel('x.py')")


def test_what_is_saved_is_loaded_again(tmp_path):
    cfg = DictConfig(
        {"model": LazyCall(dict)(a=(1, 2), b={"c": None, "d": 1e-5, "e": "中"}), "ref": "${model.b.d}"},
        flags={"allow_objects": True},
    )
    cfg.model.part = LazyCall(Box)(width=3)
    LazyConfig.save(cfg, str(tmp_path / "config.yaml"))
    again = LazyConfig.load(str(tmp_path / "config.yaml"))
    assert (
        again.ref == 1e-5
        and again.model.b == {"c": None, "d": 1e-5, "e": "中"}
        and again.model._target_ == "builtins.dict"
    )
    assert instantiate(again.model)["a"] == [1, 2]
    LazyConfig.save(again, str(tmp_path / "again.yaml"))
    assert (tmp_path / "again.yaml").read_text() == (tmp_path / "config.yaml").read_text()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["again.yaml", "config.yaml"], "nothing is left beside"


def test_what_yaml_cannot_hold_is_named_and_missed_when_it_is_read(tmp_path, caplog):
    setup_logger.cache_clear()
    with caplog.at_level("WARNING", logger="libai"):
        LazyConfig.save(
            DictConfig({"a": {"x": Part(), "y": 1}}, flags={"allow_objects": True}), str(tmp_path / "c.yaml")
        )
    again = LazyConfig.load(str(tmp_path / "c.yaml"))
    assert again.a.y == 1
    with pytest.raises(MissingMandatoryValue, match="a.x"):
        again.a.x  # noqa: B018


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "a: !!python/object/apply:os.system ['touch pwned']",
            r"c.yaml:1: could not determine a constructor.*executes nothing",
        ),
        ("a: !!python/name:os.system", "executes nothing"),
        ("a: 1\nb: 2\na: 3\n", "the key 'a' stands twice"),
        ("- 1\n", "holds list; a config is a dictionary"),
        ("a: [1\n", "is no YAML"),
    ],
)
def test_yaml_executes_nothing(tmp_path, monkeypatch, text, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "c.yaml").write_text(text)
    with pytest.raises(ValueError, match=message):
        LazyConfig.load("c.yaml")
    assert [path.name for path in tmp_path.iterdir()] == ["c.yaml"]


def test_tuples_that_libai_has_written_are_lists(tmp_path):
    (tmp_path / "c.yaml").write_text("a: !!python/tuple [1, 1e-4, 0x10, .5]\n")
    assert LazyConfig.load(str(tmp_path / "c.yaml")).a == [1, 1e-4, 16, 0.5]
    with pytest.raises(ImportError, match="cannot be read: No such file"):
        LazyConfig.load(str(tmp_path / "d.yaml"))


def test_to_py():
    cfg = OmegaConf.create({"b": {"y": 1, "x": "${a}"}, "a": [1]})
    assert LazyConfig.to_py(cfg) == "cfg.a=[1]\ncfg.b.x=[1]\ncfg.b.y=1\n"
    assert (
        LazyConfig.to_py(DictConfig({"m": LazyCall(dict)(z=1, a="t")}, flags={"allow_objects": True}))
        == "cfg.m=builtins.dict(a='t', z=1)\n"
    )


# ------------------------------------------------------------------------------------------------------------ overrides


def overridden(*overrides: str) -> DictConfig:
    cfg = OmegaConf.create({"a": {"b": 1, "l": [1, {"x": 2}], "d": {"x": 1, "y": 2}}, "k": 3})
    assert LazyConfig.apply_overrides(cfg, overrides) is cfg
    return cfg


@pytest.mark.parametrize(
    ("override", "key", "value"),
    [
        ("a.b=2", "a.b", 2), ("a.b=1e-3", "a.b", 1e-3), ("a.b=true", "a.b", True), ("a.b=null", "a.b", None), ("a.b=abc", "a.b", "abc"),
        ("a.b='x y'", "a.b", "x y"), ("a.b=", "a.b", ""), ("a.l=[3,4]", "a.l", [3, 4]), ("a.l.0=7", "a.l", [7, {"x": 2}]), ("a.l.1.x=7", "a.l", [1, {"x": 7}]),
        ("a.d={x:9}", "a.d", {"x": 9, "y": 2}), ("a.new.deep=3", "a.new", {"deep": 3}), ("+a.q=1", "a.q", 1), ("++a.q=1", "a.q", 1), ("fresh=1", "fresh", 1),
        ("a.b=${k}", "a.b", 3),
    ],
)  # fmt: skip
def test_overrides(override, key, value):
    assert OmegaConf.select(overridden(override), key) == value


@pytest.mark.parametrize(
    ("override", "kind", "message"),
    [
        ("~a.b", NotImplementedError, "deletion is not yet a supported override; set the key to null"),
        ("a.b.c=1", KeyError, "Trying to update key below 'a.b', which is not a config but 1"),
        ("a.b", OverrideParseException, "override 'a.b': .*Write key=value"),
        ("a.b=1,2", ValueError, r"gives several values; a list is written in brackets"),
        ("a.l.5=1", KeyError, "'5' is no element of a list of 2; its elements are 0 to 1"),
        ("--resume", ValueError, "flags come before them"),
    ],
)
def test_overrides_that_are_refused(override, kind, message):
    with pytest.raises(kind, match=message):
        overridden(override)


def test_the_command_line():
    args = default_argument_parser().parse_args(["--config-file", "c.py", "--resume", "a.b=1", "--eval-only"])
    assert (args.config_file, args.resume, args.eval_only, args.opts) == ("c.py", True, False, ["a.b=1", "--eval-only"])


# ------------------------------------------------------------------------------------------------------------- defaults


def test_packaged_configs_are_found():
    assert get_config("common/optim.py").optim.lr == 1e-4
    assert get_config("common/models/graph.py").graph.enabled is True
    assert get_config("common/train.py").train.seed == 1234
    for name in ("cifar100", "imagenet"):
        data = get_config(f"common/data/{name}.py")
        picture = instantiate(data.test_aug)(Image.new("RGB", (32, 40)))
        assert (
            picture.shape[0] == 3
            and instantiate(data.train_aug) is not None
            and data.dataloader.test[0].dataset.train is False
        )
    with pytest.raises(
        RuntimeError, match=r"common/trian.py not available in LiBai configs!.*Did you mean 'common/train.py'\?"
    ):
        get_config("common/trian.py")


def test_defaults_are_filled_in_at_every_depth_and_the_users_config_stays(tmp_path):
    given = OmegaConf.create({"train": {"evaluation": {"enabled": False}, "dist": {"tensor_parallel_size": 2}}})
    before = OmegaConf.to_yaml(given)
    full = completed(given)
    assert full.train.evaluation.eval_iter == 1e5 and full.train.evaluation.enabled is False
    assert (full.train.dist.tensor_parallel_size, full.train.dist.pipeline_parallel_size) == (2, 1)
    assert OmegaConf.to_yaml(given) == before
    assert completed(full) is full


def test_keys_of_older_versions():
    full = completed(
        {
            "train": {
                "recompute_grad": {"enabled": True},
                "eval_period": 7,
                "topk": (1, 3),
                "activation_checkpoint": {"enabled": False},
            }
        }
    ).train
    assert (
        full.activation_checkpoint.enabled
        and full.evaluation.eval_period == 7
        and full.evaluation.evaluator.topk == [1, 3]
    )
    assert "recompute_grad" not in full and "topk" not in full
    kept = completed({"train": {"eval_period": 7, "evaluation": {"eval_period": 9}}}).train
    assert kept.evaluation.eval_period == 9, "what was given by its present name counts"


@pytest.mark.parametrize(
    ("override", "kind", "message"),
    [
        ("train.ouput_dir=x", KeyError, r"train.ouput_dir in c.py is no key of train. Did you mean train.output_dir\?"),
        ("train.dist.tensor_parallel_sise=2", KeyError, r"Did you mean train.dist.tensor_parallel_size\?"),
        ("graph.enable=true", KeyError, r"Did you mean graph.enabled\?"),
        ("train.train_iter=many", TypeError, r"train.train_iter='many' in c.py: expected a whole number from 0 on"),
        ("train.train_iter=1.5", TypeError, "expected a whole number from 0 on"),
        ("train.warmup_ratio=1.5", TypeError, "expected a number from 0 on and below 1"),
        ("train.amp=true", TypeError, "train.amp=True in c.py: expected a dictionary with enabled"),
        ("train.amp.enabled=1", TypeError, "expected true or false"),
        ("train.evaluation.eval_mode=best", TypeError, "expected one of max, min"),
        ("train.evaluation.eval_iter=0", TypeError, "expected a number above 0"),
        ("train.load_weight=3", TypeError, "expected a string"),
        ("train.scheduler={a:1}", TypeError, r"expected LazyCall\(...\)\(...\)") ,
        ("train.dist.custom_pipeline_stage_id=3", TypeError, "expected a list with the stage of each layer, or null"),
        ("train.log_period=0", TypeError, "expected a whole number from 1 on"),
        ("train.dist.device_type=tpu", TypeError, "expected one of cuda, cpu, npu, xpu"),
    ],
)  # fmt: skip
def test_a_wrong_key_or_kind_names_the_key_the_file_and_what_is_right(tmp_path, override, kind, message):
    from libai.config.tree import note_file

    cfg = OmegaConf.create({"train": {}, "graph": {}})
    note_file(cfg, "c.py")
    if override.startswith("train.scheduler"):
        cfg.train.scheduler = {"a": 1}
    else:
        LazyConfig.apply_overrides(cfg, [override])
    with pytest.raises(kind, match=message):
        completed(cfg)


def test_a_key_like_no_other_is_kept():
    assert completed({"train": {"my_own_setting": 3}}).train.my_own_setting == 3


def test_missing_namespaces_are_named():
    with pytest.raises(
        KeyError,
        match=r"the config has no 'train'. Did you mean 'trian'\? A config defines model, graph, train, optim, dataloader",
    ):
        completed({"trian": {}})
    with pytest.raises(KeyError, match="has no 'optim'"):
        require_fields({"train": {}}, "train", "optim")


def test_the_test_config_is_plain(tmp_path):
    assert completed(config(tmp_path)).train.evaluation.evaluator.topk == [1]


# ----------------------------------------------------------------------------------------------------------- arithmetic


@pytest.mark.parametrize(
    ("micro", "total", "steps", "data", "found"),
    [
        (4, 32, None, 2, (4, 32, 4)), (4, 32, 4, 2, (4, 32, 4)), (4, None, None, 2, (4, 8, 1)), (4, None, 3, 2, (4, 24, 3)),
        (None, 32, None, 2, (16, 32, 1)), (None, 32, 4, 2, (4, 32, 4)),
    ],
)  # fmt: skip
def test_batch_sizes(micro, total, steps, data, found):
    sizes = batch_sizes(micro, total, steps, data)
    assert (sizes.micro, sizes.global_batch, sizes.steps) == found


@pytest.mark.parametrize(
    ("micro", "total", "steps", "message"),
    [
        (
            3,
            32,
            None,
            r"global_batch_size 32 must be divisible by train_micro_batch_size \* data_parallel_size (3 * 2); the next that is, is 36",
        ),
        (4, 32, 3, "must equal to train_micro_batch_size"),
        (None, 33, 4, "must be divisible by data_parallel_size"),
        (None, None, 2, "train_micro_batch_size and global_batch_size must be set either"),
    ],
)
def test_batch_sizes_that_do_not_fit(micro, total, steps, message):
    with pytest.raises(ValueError, match=message if "\\" not in message else re.escape(message.replace("\\", ""))):
        batch_sizes(micro, total, steps, 2)


def test_iterations_are_the_longer_of_both():
    assert iterations(0, 20, None, 60000, 128) == 9375 and iterations(10000, 20, None, 60000, 128) == 10000
    assert iterations(0, 1, None, 100, 32) == 4 and iterations(100, 5, 30, 1, 1) == 150
