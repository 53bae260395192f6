"""Weights from torch and safetensors files: names, layouts, and all or nothing."""

import sys

import numpy as np
import pytest
import safetensors.torch
import torch
import torch.nn.functional as F

import oneflow as flow
import oneflow.typing as tp

RANDOM = flow.random_normal_initializer(0.0, 0.3)


class TorchNet(torch.nn.Module):
    """The reference: a convolution, a batch norm in use for a while, and a linear layer."""

    def __init__(self, kernel: int = 2) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv = torch.nn.Conv2d(3, 4, kernel)
        self.bn = torch.nn.BatchNorm2d(4)
        self.fc = torch.nn.Linear(4, 2)
        self.train()(torch.randn(8, 3, 5, 5))
        self.eval()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc(F.relu(self.bn(self.conv(x))).mean((2, 3)))


TABLE = {
    "conv-weight": "conv.weight",
    "conv-bias": "conv.bias",
    "bn-gamma": "bn.weight",
    "bn-beta": "bn.bias",
    "bn-moving_mean": "bn.running_mean",
    "bn-moving_variance": "bn.running_var",
    "fc-weight": "fc.weight",
    "fc-bias": "fc.bias",
}


def net_job(data_format: str = "NCHW", kernel: int = 2):
    first = data_format == "NCHW"

    @flow.global_function(type="predict")
    def net(x: tp.Numpy.Placeholder((2, 3, 5, 5) if first else (2, 5, 5, 3))) -> tp.Numpy:
        y = flow.layers.conv2d(x, 4, kernel, data_format=data_format, kernel_initializer=RANDOM, name="conv")
        y = flow.nn.relu(flow.layers.batch_normalization(y, 1 if first else 3, epsilon=1e-5, name="bn"))
        return flow.layers.dense(
            flow.math.reduce_mean(y, [2, 3] if first else [1, 2]), 2, kernel_initializer=RANDOM, name="fc"
        )

    return net


def dense_job(dtype=flow.float32):
    @flow.global_function(type="predict")
    def dense_net(x: tp.Numpy.Placeholder((4, 3), dtype)) -> tp.Numpy:
        return flow.layers.dense(x, 2, kernel_initializer=flow.ones_initializer(dtype), name="fc")

    return dense_net


def present() -> dict[str, np.ndarray]:
    return {name: value.numpy() for name, value in flow.get_all_variables().items()}


IMAGES = torch.randn(2, 3, 5, 5, generator=torch.Generator().manual_seed(3))


@pytest.mark.parametrize("data_format", ["NCHW", "NHWC"])
@pytest.mark.parametrize("form", ["dict", "pt", "safetensors"])
def test_a_torch_model_and_a_job_with_its_weights_compute_the_same(data_format, form, tmp_path):
    job, reference = net_job(data_format), TorchNet()
    state = reference.state_dict()
    source = state if form == "dict" else tmp_path / f"net.{form}"
    if form == "pt":
        torch.save(state, source)
    elif form == "safetensors":
        safetensors.torch.save_file(state, source)
    found = flow.checkpoint.from_torch(source, TABLE)
    assert (set(found.loaded), found.missing, found.unexpected) == (set(TABLE), (), ())
    images = IMAGES if data_format == "NCHW" else IMAGES.permute(0, 2, 3, 1).contiguous()
    np.testing.assert_allclose(job(images.numpy()), reference(IMAGES).detach().numpy(), 1e-4, 1e-5)


def test_a_filter_that_fits_both_ways_round_is_asked_about():
    net_job("NHWC", kernel=3)
    reference = TorchNet(kernel=3)
    state = reference.state_dict()
    before = present()
    message = (
        r"variable 'conv-weight' is float32\(4, 3, 3, 3\), 'conv.weight' is float32\(4, 3, 3, 3\): its channels may come first or last; "
        r"say which in the table as \(key, \(0, 1, 2, 3\)\) or \(key, \(0, 2, 3, 1\)\)"
    )
    with pytest.raises(ValueError, match=message):
        flow.checkpoint.from_torch(state, TABLE)
    np.testing.assert_equal(present(), before)
    flow.checkpoint.from_torch(state, TABLE | {"conv-weight": ("conv.weight", (0, 2, 3, 1))})
    np.testing.assert_array_equal(present()["conv-weight"], state["conv.weight"].permute(0, 2, 3, 1))
    flow.checkpoint.from_torch(state, TABLE | {"conv-weight": ("conv.weight", (0, 1, 2, 3))})
    np.testing.assert_array_equal(present()["conv-weight"], state["conv.weight"])


def test_a_filter_whose_layouts_are_one_is_not_asked_about():
    @flow.global_function(type="predict")
    def net(x: tp.Numpy.Placeholder((1, 2, 2, 1))) -> tp.Numpy:
        return flow.layers.conv2d(x, 4, 1, data_format="NHWC", use_bias=False, name="conv")

    value = torch.arange(4.0).reshape(4, 1, 1, 1)
    flow.checkpoint.from_torch({"conv-weight": value})
    np.testing.assert_array_equal(present()["conv-weight"], value)


def test_without_a_table_the_names_are_the_same():
    dense_job()
    flow.checkpoint.from_torch({"fc-weight": torch.full((2, 3), 5.0), "fc-bias": torch.ones(2)})
    np.testing.assert_array_equal(present()["fc-weight"], np.full((2, 3), 5))


def test_a_table_may_be_a_function_and_leave_variables_as_they_are():
    dense_job()
    found = flow.checkpoint.from_torch(
        {"fc.weight": torch.zeros(2, 3)}, lambda name: None if name.endswith("bias") else name.replace("-", ".")
    )
    assert (found.loaded, found.missing) == (("fc-weight",), ())


def test_a_transposed_weight_is_asked_about_and_taken_with_its_order():
    dense_job()
    value = torch.arange(6.0).reshape(3, 2)
    state = {"fc-weight": value, "fc-bias": torch.zeros(2)}
    with pytest.raises(
        ValueError, match=r"the shapes differ; if it is the transpose, say so in the table as \(key, \(1, 0\)\)"
    ):
        flow.checkpoint.from_torch(state)
    flow.checkpoint.from_torch(state, {"fc-weight": ("fc-weight", (1, 0))})
    np.testing.assert_array_equal(present()["fc-weight"], value.T)


def test_everything_that_does_not_fit_is_told_at_once_and_nothing_is_loaded():
    net_job()
    before = present()
    state = {name: torch.from_numpy(value + 1) for name, value in before.items()}
    del state["fc-bias"]
    state |= {"head": torch.zeros(1), "bn-gamma": torch.zeros(5), "bn-beta": torch.zeros(4, dtype=torch.int64)}
    with pytest.raises(ValueError) as caught:
        flow.checkpoint.from_torch(state)
    for part in (
        "the state dict does not fit the variables, nothing was loaded",
        "variable 'bn-gamma' is float32(4), 'bn-gamma' is float32(5): the shapes differ",
        "variable 'bn-beta' is float32(4), 'bn-beta' is int64(4): the dtypes differ",
        "1 variables have no value (fc-bias)",
        "1 keys have no variable (head)",
        "strict=False",
    ):
        assert part in str(caught.value)
    np.testing.assert_equal(present(), before)


def test_what_is_not_paired_is_returned_when_not_strict():
    dense_job()
    found = flow.checkpoint.from_torch({"fc-bias": torch.ones(2), "head": torch.zeros(1)}, strict=False)
    assert (found.loaded, found.missing, found.unexpected) == (("fc-bias",), ("fc-weight",), ("head",))
    np.testing.assert_array_equal(present()["fc-bias"], np.ones(2))
    with pytest.raises(ValueError, match="the shapes differ"):
        flow.checkpoint.from_torch({"fc-bias": torch.ones(3)}, strict=False)


def test_floats_of_another_width_are_converted_only_when_asked():
    dense_job()
    state = {"fc-weight": torch.full((2, 3), 1.5, dtype=torch.bfloat16), "fc-bias": torch.ones(2, dtype=torch.float64)}
    with pytest.raises(ValueError, match=r"'fc-weight' is bfloat16\(2, 3\): the dtypes differ; cast=True converts it"):
        flow.checkpoint.from_torch(state)
    flow.checkpoint.from_torch(state, cast=True)
    np.testing.assert_array_equal(present()["fc-weight"], np.full((2, 3), 1.5))


def test_one_job_may_be_loaded_alone():
    job = dense_job()

    @flow.global_function(type="predict")
    def other(x: tp.Numpy.Placeholder((2,))) -> tp.Numpy:
        return x + flow.get_variable("w", (2,), initializer=flow.zeros_initializer())

    flow.checkpoint.from_torch({"fc-weight": torch.zeros(2, 3), "fc-bias": torch.zeros(2)}, job=job)
    with pytest.raises(ValueError, match="1 variables have no value"):
        flow.checkpoint.from_torch({"fc-weight": torch.zeros(2, 3), "fc-bias": torch.zeros(2)})
    with pytest.raises(
        ValueError, match="job is a function of this session decorated with @flow.global_function, got 'dense_net'"
    ):
        flow.checkpoint.from_torch({}, job="dense_net")


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ({"fc-wieght": "a"}, "the table names the variable 'fc-wieght', which there is not. Did you mean 'fc-weight'?"),
        ({"fc-weight": 3}, "the table's entry of 'fc-weight' is a key, a pair"),
        ({"fc-weight": ("fc-weight", "01")}, "the table's entry of 'fc-weight' is a key, a pair"),
        ({"fc-weight": ("fc-weight", (0, 0))}, r"the order \(0, 0\) does not name each of its 2 dims once"),
        (["fc-weight"], "table is a dictionary of keys by variable name, a function from one to the other or None"),
    ],
)
def test_a_table_that_says_nothing_sensible_is_refused(table, message):
    dense_job()
    with pytest.raises(ValueError, match=message):
        flow.checkpoint.from_torch({"fc-weight": torch.zeros(2, 3), "fc-bias": torch.zeros(2)}, table)


def test_files_that_hold_no_state_dict_are_refused(tmp_path):
    dense_job()
    torch.save({"state_dict": {"fc-bias": torch.zeros(2)}, "epoch": 3}, tmp_path / "more.pt")
    with pytest.raises(
        ValueError,
        match=r"'.*more.pt' holds more than tensors by name \(state_dict, epoch\); give the dictionary of weights alone",
    ):
        flow.checkpoint.from_torch(tmp_path / "more.pt")
    torch.save([torch.zeros(2)], tmp_path / "list.pt")
    with pytest.raises(ValueError, match="holds a list, expected a dictionary of tensors by name"):
        flow.checkpoint.from_torch(str(tmp_path / "list.pt"))
    (tmp_path / "text.pth").write_text("no tensors")
    with pytest.raises(ValueError, match="'.*text.pth' is not a file of torch tensors: "):
        flow.checkpoint.from_torch(tmp_path / "text.pth")
    (tmp_path / "text.safetensors").write_text("no tensors")
    with pytest.raises(ValueError, match="'.*text.safetensors' is not a safetensors file: "):
        flow.checkpoint.from_torch(tmp_path / "text.safetensors")
    with pytest.raises(ValueError, match="there is no file '.*none.pt' to load weights from"):
        flow.checkpoint.from_torch(tmp_path / "none.pt")
    with pytest.raises(ValueError, match="from_torch takes a state dict or the path of a file with one, got int"):
        flow.checkpoint.from_torch(3)


class _Planted:
    """An object whose unpickling would run a program."""

    def __reduce__(self):
        return print, ("this ran",)


def test_a_file_with_a_program_in_it_is_refused_and_not_run(tmp_path, capsys):
    dense_job()
    torch.save({"fc-bias": _Planted()}, tmp_path / "bad.pt")
    with pytest.raises(
        ValueError, match="'.*bad.pt' is not a file of torch tensors.*Only tensors are read, never objects"
    ):
        flow.checkpoint.from_torch(tmp_path / "bad.pt")
    assert "this ran" not in capsys.readouterr().out


def test_without_a_job_there_is_nothing_to_load():
    with pytest.raises(AssertionError, match="loading the state dict: no job is defined"):
        flow.checkpoint.from_torch({})


def test_a_safetensors_file_loads_back_bit_equal_whatever_the_layout(tmp_path):
    net_job("NHWC", kernel=3)  # its filter fits both ways round
    before = present()
    flow.checkpoint.to_safetensors(tmp_path / "deep" / "net.safetensors")
    flow.train.CheckPoint().init()
    assert (present()["conv-weight"] != before["conv-weight"]).any()
    assert set(flow.checkpoint.from_torch(tmp_path / "deep" / "net.safetensors").loaded) == set(before)
    np.testing.assert_equal(present(), before)
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["net.safetensors"]


def test_a_safetensors_file_has_the_model_without_the_optimizer(tmp_path):
    @flow.global_function(type="train")
    def train(x: tp.Numpy.Placeholder((2, 3))) -> tp.Numpy:
        loss = flow.layers.dense(x, 1, kernel_initializer=RANDOM, name="fc")
        flow.optimizer.SGD(flow.optimizer.PiecewiseConstantScheduler([], [0.1]), momentum=0.9).minimize(loss)
        return loss

    train(np.ones((2, 3), np.float32))
    flow.checkpoint.to_safetensors(tmp_path / "net.safetensors")
    assert "fc-weight-momentum" in present()
    found = safetensors.torch.load_file(tmp_path / "net.safetensors")
    assert set(found) == {"fc-weight", "fc-bias"}
    np.testing.assert_array_equal(found["fc-weight"], present()["fc-weight"])


def test_a_safetensors_file_is_never_written_over(tmp_path):
    dense_job()
    (tmp_path / "net.safetensors").write_text("kept")
    with pytest.raises(
        ValueError, match="cannot save to '.*net.safetensors': it exists; remove it or choose another path"
    ):
        flow.checkpoint.to_safetensors(tmp_path / "net.safetensors")
    with pytest.raises(ValueError, match="cannot save to '.*inside': File exists; choose another path"):
        flow.checkpoint.to_safetensors(tmp_path / "net.safetensors" / "inside")
    assert (tmp_path / "net.safetensors").read_text() == "kept"


def test_a_failed_write_leaves_nothing(tmp_path, monkeypatch):
    dense_job()

    def fail(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(safetensors.torch, "save_file", fail)
    with pytest.raises(ValueError, match="No space left on device; choose another path"):
        flow.checkpoint.to_safetensors(tmp_path / "net.safetensors")
    assert not list(tmp_path.iterdir())


def test_a_missing_package_is_told_with_the_command_that_installs_it(tmp_path, monkeypatch):
    dense_job()
    (tmp_path / "net.safetensors").write_text("")
    monkeypatch.setitem(sys.modules, "safetensors", None)
    monkeypatch.setitem(sys.modules, "safetensors.torch", None)
    message = r"needs the package 'safetensors', which is not installed: pip install 'oneflow-torch\[safetensors\]'"
    with pytest.raises(ImportError, match=message):
        flow.checkpoint.to_safetensors(tmp_path / "other.safetensors")
    with pytest.raises(ImportError, match=message):
        flow.checkpoint.from_torch(tmp_path / "net.safetensors")
