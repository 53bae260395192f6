"""Modules and graphs as ONNX models: whole networks, names, batches, files, and what is refused."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
import torch_models as models
from torch import nn

import oneflow as flow
from oneflow import onnx as flow_onnx


def run(path: Any, *feeds: torch.Tensor) -> list[torch.Tensor]:
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    given = {value.name: tensor.numpy() for value, tensor in zip(session.get_inputs(), feeds, strict=True)}
    return [torch.from_numpy(array) for array in session.run(None, given)]


@pytest.fixture(autouse=True)
def seeded():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        yield


NETWORKS = {
    "mlp": (
        lambda: nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3), nn.Softmax(-1)),
        lambda n: torch.randn(n, 6),
    ),
    "lenet": (models.LeNet, lambda n: torch.randn(n, 1, 28, 28)),
    "resnet18": (models.ResNet18, lambda n: torch.randn(n, 3, 64, 64)),
    "gpt": (models.GPT, lambda n: torch.randint(0, 40, (n, 12))),
    "vit": (models.ViT, lambda n: torch.randn(n, 3, 16, 16)),
    "lstm": (models.Tagger, lambda n: torch.randint(0, 20, (n, 7))),
    "gru": (lambda: nn.GRU(4, 5, batch_first=True), lambda n: torch.randn(n, 3, 4)),
    "encoder": (
        lambda: nn.TransformerEncoder(
            nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2, enable_nested_tensor=False
        ),
        lambda n: torch.randn(n, 5, 8),
    ),
    "instance norm": (
        lambda: nn.Sequential(nn.Conv2d(2, 4, 3), nn.InstanceNorm2d(4, affine=True), nn.PReLU()),
        lambda n: torch.randn(n, 2, 6, 6),
    ),
}


def channels_last(n: int) -> torch.Tensor:
    return torch.randn(n, 4, 6, 6).to(memory_format=torch.channels_last)


NETWORKS["channels last"] = (
    lambda: nn.Sequential(nn.Conv2d(4, 8, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 2)),
    channels_last,
)


def expected(network: nn.Module, x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        found = network(x)
    return found[0] if isinstance(found, tuple) else found


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("opset", [None, 11])
def test_a_network_gives_the_same_in_onnx_runtime(name, opset, tmp_path):
    make, draw = NETWORKS[name]
    network, x = models.with_statistics(make()), draw(2)
    flow_onnx.export(network, x, tmp_path / "net.onnx", opset=opset)
    torch.testing.assert_close(run(tmp_path / "net.onnx", x)[0], expected(network, x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("traced", [1, 3])
def test_one_model_gives_the_same_for_any_batch(name, traced, tmp_path):
    make, draw = NETWORKS[name]
    network = models.with_statistics(make())
    flow_onnx.export(network, (draw(traced),), tmp_path / "net.onnx", dynamic_batch=True)
    for n in (1, 2, 5):
        x = draw(n)
        torch.testing.assert_close(run(tmp_path / "net.onnx", x)[0], expected(network, x), rtol=1e-4, atol=1e-5)


def hugging_face(name: str) -> tuple[nn.Module, dict[str, torch.Tensor]]:
    transformers = pytest.importorskip("transformers")
    small = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    tokens = torch.randint(0, 50, (2, 7))
    mask = torch.ones_like(tokens)
    mask[1, 5:] = 0
    text = {"input_ids": tokens, "attention_mask": mask}
    if name == "gpt2":
        config = transformers.GPT2Config(
            vocab_size=50,
            n_positions=16,
            n_embd=16,
            n_layer=2,
            n_head=2,
            use_cache=False,
            bos_token_id=0,
            eos_token_id=0,
        )
        return transformers.GPT2LMHeadModel(config).eval(), text
    if name == "bert":
        return transformers.BertModel(
            transformers.BertConfig(vocab_size=50, max_position_embeddings=16, **small)
        ).eval(), text
    config = transformers.ViTConfig(image_size=16, patch_size=4, **small)
    return transformers.ViTForImageClassification(config).eval(), {"pixel_values": torch.randn(2, 3, 16, 16)}


@pytest.mark.parametrize("dynamic_batch", [False, True])
@pytest.mark.parametrize("name", ["gpt2", "bert", "vit"])
def test_models_of_transformers_give_the_same(name, dynamic_batch, tmp_path):
    network, kwargs = hugging_face(name)
    flow_onnx.export(network, None, tmp_path / "net.onnx", kwargs=kwargs, dynamic_batch=dynamic_batch)
    for n in (1, 2) if dynamic_batch else (2,):
        given = {key: value[:n] for key, value in kwargs.items()}
        with torch.no_grad():
            want = list(network(**given).values())
        for got, value in zip(run(tmp_path / "net.onnx", *given.values()), want, strict=True):
            torch.testing.assert_close(got, value, rtol=1e-4, atol=1e-5)


class Named(nn.Module):
    """Doubles and adds."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(3, 3, bias=False)
        self.tied = self.fc
        self.register_buffer("offset", torch.ones(3))
        self.unused = nn.Parameter(torch.zeros(3))

    def forward(self, x, pair, scale=2.0, **more):
        total = self.tied(self.fc(x)) * scale + pair[0] + more["last"]
        return {"total": total, "both": (pair[1] + self.offset, x), "nothing": None}


def test_names_are_those_of_parameters_keys_and_the_state_dict(tmp_path):
    network = Named().eval()
    x = torch.randn(2, 3)
    flow_onnx.export(network, (x, [x + 1, x + 2], 3.0), tmp_path / "net.onnx", kwargs={"last": x + 3})
    model = onnx.load(tmp_path / "net.onnx")
    assert [value.name for value in model.graph.input] == ["x", "pair[0]", "pair[1]", "last"]
    assert [value.name for value in model.graph.output] == ["total", "both[0]", "both[1]"]
    assert [tensor.name for tensor in model.graph.initializer if "/" not in tensor.name] == ["fc.weight", "offset"]
    assert {"fc/mm", "fc/mm_1"} <= {node.name for node in model.graph.node}
    assert (model.producer_name, model.graph.name, model.doc_string) == ("oneflow-torch", "Named", "Doubles and adds.")
    want = network(x, [x + 1, x + 2], 3.0, last=x + 3)
    for got, value in zip(
        run(tmp_path / "net.onnx", x, x + 1, x + 2, x + 3), [want["total"], *want["both"]], strict=True
    ):
        torch.testing.assert_close(got, value.detach())


def test_names_may_be_given(tmp_path):
    flow_onnx.export(
        nn.Linear(3, 2).eval(), torch.zeros(1, 3), tmp_path / "net.onnx", input_names=["pixels"], output_names="scores"
    )
    model = onnx.load(tmp_path / "net.onnx")
    assert ([v.name for v in model.graph.input], [v.name for v in model.graph.output]) == (["pixels"], ["scores"])
    assert [node.op_type for node in model.graph.node] == ["Gemm"]  # the weight as it is, without a copy or a transpose


def test_shapes_tell_what_follows_the_batch(tmp_path):
    flow_onnx.export(models.LeNet().eval(), torch.zeros(2, 1, 28, 28), tmp_path / "net.onnx", dynamic_batch=True)
    model = onnx.load(tmp_path / "net.onnx")
    dims = [
        [d.dim_param or d.dim_value for d in v.type.tensor_type.shape.dim]
        for v in (*model.graph.input, *model.graph.output)
    ]
    assert dims == [["batch", 1, 28, 28], ["batch", 10]]


class WritesInPlace(nn.Module):
    def forward(self, x):
        y = x * 2
        y[:, 0] = 5.0
        y[:, 1:].add_(1)
        x.zero_()  # the caller's tensor, not the model's
        return y.relu_(), x


def test_writes_into_tensors_of_the_forward_pass_are_values(tmp_path):
    x = torch.randn(3, 4)
    flow_onnx.export(WritesInPlace().eval(), x, tmp_path / "net.onnx", dynamic_batch=True)
    assert x.abs().sum() > 0  # nothing was computed
    want = x * 2
    want[:, 0] = 5.0
    want[:, 1:] += 1
    got, zeros = run(tmp_path / "net.onnx", x)
    torch.testing.assert_close(got, want.relu())
    assert not zeros.any()


def test_half_precision_is_kept(tmp_path):
    network, x = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), nn.GELU()).half().eval(), torch.randn(2, 4).half()
    flow_onnx.export(network, x, tmp_path / "net.onnx")
    got = run(tmp_path / "net.onnx", x)[0]
    assert got.dtype == torch.float16
    torch.testing.assert_close(got, expected(network, x), rtol=1e-2, atol=1e-2)


def test_weights_may_lie_beside_the_model(tmp_path):
    network, x = nn.Linear(64, 32).eval(), torch.randn(2, 64)
    flow_onnx.export(network, x, tmp_path / "net.onnx", external_data=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["net.onnx", "net.onnx.data"]
    torch.testing.assert_close(run(tmp_path / "net.onnx", x)[0], expected(network, x), rtol=1e-4, atol=1e-5)


def test_a_model_that_cannot_be_exported_leaves_the_old_one(tmp_path):
    flow_onnx.export(nn.Linear(3, 2).eval(), torch.zeros(1, 3), tmp_path / "net.onnx")
    before = (tmp_path / "net.onnx").read_bytes()
    with pytest.raises(NotImplementedError, match="gamma"):
        flow_onnx.export(Calls(torch.lgamma), torch.zeros(1, 3), tmp_path / "net.onnx")
    assert [path.name for path in tmp_path.iterdir()] == ["net.onnx"]
    assert (tmp_path / "net.onnx").read_bytes() == before


def test_the_module_stays_as_it_was(tmp_path):
    network = nn.ModuleDict({"first": nn.LSTM(3, 3), "again": nn.Sequential(nn.Linear(3, 3))})
    network["once more"] = network["again"]  # its parameters have two names
    network.forward = lambda x: network["once more"](network["first"](x)[0])
    network.eval()
    before, x = dict(network.named_parameters(remove_duplicate=False)), torch.randn(2, 4, 3)
    for function in (
        lambda: flow_onnx.export(network, x, tmp_path / "net.onnx"),
        lambda: flow_onnx.export(network, x[..., :2], tmp_path / "net.onnx"),
    ):
        try:
            function()
        except RuntimeError as error:
            assert "size" in str(error)  # torch's own, of the wrong shape
        after = dict(network.named_parameters(remove_duplicate=False))
        assert all(after[name] is before[name] for name in before) and len(after) == len(before)
        assert not any(part._forward_hooks or part._forward_pre_hooks for part in network.modules())
    torch.testing.assert_close(run(tmp_path / "net.onnx", x)[0], expected(network, x), rtol=1e-4, atol=1e-5)


# Graphs.


class Evaluate(flow.nn.Graph):
    """The network, scaled."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.network = module

    def build(self, x, scale=1.0):
        return {"scores": self.network(x) * scale}


@pytest.mark.parametrize("name", ["mlp", "lenet", "gpt", "lstm"])
@pytest.mark.parametrize("dynamic_batch", [False, True])
def test_a_graph_gives_the_same_in_onnx_runtime(name, dynamic_batch, tmp_path):
    make, draw = NETWORKS[name]
    network, x = models.with_statistics(make()), draw(2)
    flow_onnx.export(Evaluate(network), (x, 2.0), tmp_path / "net.onnx", dynamic_batch=dynamic_batch)
    for n in (2, 5) if dynamic_batch else (2,):
        x = draw(n)
        torch.testing.assert_close(run(tmp_path / "net.onnx", x)[0], 2 * expected(network, x), rtol=1e-4, atol=1e-5)


def test_names_of_a_graph_are_those_of_its_build_and_its_variables(tmp_path):
    graph = Evaluate(models.GPT().eval())
    flow_onnx.export(graph, torch.zeros(2, 12, dtype=torch.int64), tmp_path / "net.onnx")
    model = onnx.load(tmp_path / "net.onnx")
    assert ([v.name for v in model.graph.input], [v.name for v in model.graph.output]) == (["x"], ["scores"])
    weights = {tensor.name for tensor in model.graph.initializer}
    assert "network.tokens.weight" in weights and "network.head.weight" not in weights  # one tensor, once
    assert any(node.name.startswith("network.blocks.0.qkv/") for node in model.graph.node)
    assert (model.graph.name, model.doc_string) == (graph.name, "The network, scaled.")


@pytest.mark.parametrize("dynamic_batch", [False, True])
def test_a_graph_that_was_called_is_converted_and_checked(dynamic_batch, tmp_path):
    graph = Evaluate(models.ViT().eval())
    graph(torch.randn(2, 3, 16, 16), scale=3.0)
    path = flow_onnx.convert_to_onnx_and_check(graph, onnx_model_path=tmp_path, dynamic_batch_size=dynamic_batch)
    assert path == str(tmp_path / "model.onnx")
    x = torch.randn(2, 3, 16, 16)
    torch.testing.assert_close(run(path, x)[0], graph(x, scale=3.0)["scores"], rtol=1e-4, atol=1e-5)


def test_a_graph_that_was_not_called_or_trains_is_refused(tmp_path):
    network, x = nn.Linear(3, 2).eval(), torch.zeros(1, 3)
    with pytest.raises(
        AssertionError, match="Evaluate_.* was not called yet, so the shapes of its inputs are not known"
    ):
        flow_onnx.export(Evaluate(network), None, tmp_path / "net.onnx")
    graph = Evaluate(network)
    graph.add_optimizer(flow.optim.SGD(network.parameters(), lr=0.1))
    with pytest.raises(
        AssertionError, match="Evaluate_.* trains; export a graph of the same modules in evaluation mode"
    ):
        flow_onnx.export(graph, x, tmp_path / "net.onnx")
    with pytest.raises(ValueError, match=r"Evaluate_.* is in training mode \('network'\).*call .eval\(\)"):
        flow_onnx.export(Evaluate(nn.Linear(3, 2)), x, tmp_path / "net.onnx")
    with pytest.raises(ValueError, match="has no kwargs for a graph"):
        flow_onnx.export(Evaluate(network), None, tmp_path / "net.onnx", kwargs={"x": x})


# The check.


def test_a_module_is_converted_and_checked(tmp_path):
    draws: list[torch.Tensor] = []
    network = models.LeNet().eval()
    network.register_forward_pre_hook(lambda _, args: draws.append(args[0]) if type(args[0]) is torch.Tensor else None)
    path = flow_onnx.convert_to_onnx_and_check(
        network,
        torch.zeros(2, 1, 28, 28),
        onnx_model_path=tmp_path / "lenet.onnx",
        dynamic_batch_size=True,
        ort_optimize=False,
    )
    assert path == str(tmp_path / "lenet.onnx")
    assert [len(x) for x in draws] == [2, 1, 3] and all(x.std() > 0.5 for x in draws)


def test_without_a_path_the_model_lies_in_a_temporary_folder(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    path = flow_onnx.convert_to_onnx_and_check(nn.Linear(3, 2).eval(), torch.zeros(1, 3), input_tensor_range=(-1, 1))
    assert path.startswith(str(tmp_path)) and path.endswith("model.onnx")


class Changing(nn.Module):
    """Gives another value at every call, which a model cannot."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        return x * self.calls


def test_a_difference_is_an_error_that_names_its_place(tmp_path):
    with pytest.raises(
        RuntimeError,
        match=r"model '.*' and Changing differ in 1 of 1 outputs: the largest difference is .* in 'output' at \(\d, \d\)",
    ):
        flow_onnx.convert_to_onnx_and_check(Changing().eval(), torch.ones(2, 3), onnx_model_path=tmp_path)


def test_what_the_check_cannot_do_is_refused(tmp_path):
    network, x = nn.Linear(3, 2).eval(), torch.zeros(1, 3)
    with pytest.raises(
        NotImplementedError, match="takes the weights that the modules have; load those of 'weights' into them first"
    ):
        flow_onnx.convert_to_onnx_and_check(network, x, flow_weight_dir="weights")
    with pytest.raises(ValueError, match=r"device is one of \['cpu', 'cuda'\], got 'tpu'"):
        flow_onnx.convert_to_onnx_and_check(network, x, device="tpu")
    if "CUDAExecutionProvider" not in onnxruntime.get_available_providers():
        with pytest.raises(NotImplementedError, match="has no CUDAExecutionProvider for device 'cuda'"):
            flow_onnx.convert_to_onnx_and_check(network, x, device="cuda")
    with pytest.raises(NotImplementedError, match="numpy has no bfloat16"):
        flow_onnx.convert_to_onnx_and_check(Calls(torch.neg), x.bfloat16(), onnx_model_path=tmp_path)
    with pytest.raises(ValueError, match="a torch.nn.Module or an nn.Graph was expected, got 3"):
        flow_onnx.convert_to_onnx_and_check(3, x)


# What is refused.


class Calls(nn.Module):
    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function
        self.eval()

    def forward(self, *xs):
        return self.function(*xs)


class Inner(nn.Module):
    def forward(self, x):
        return torch.lgamma(x)


class Outer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.ReLU(), Inner())

    def forward(self, x):
        return self.body(x)


def test_an_op_that_onnx_cannot_express_is_named_with_line_and_module(tmp_path):
    message = r"test_onnx_modules.py:\d+: aten.lgamma.default \(in module 'body.1'\): ONNX cannot express it: ONNX has no gamma"
    with pytest.raises(NotImplementedError, match=message) as caught:
        flow_onnx.export(Outer().eval(), torch.ones(2), tmp_path / "net.onnx")
    assert f":{inspect.getsourcelines(Inner.forward)[1] + 1}: " in str(caught.value)


def test_reading_memory_by_strides_is_refused(tmp_path):
    with pytest.raises(NotImplementedError, match="aten.as_strided.default.*it reads memory by strides"):
        flow_onnx.export(Calls(lambda x: x.as_strided((2, 2), (1, 1))), torch.ones(2, 2), tmp_path / "net.onnx")


def test_an_op_without_an_emitter_is_named(tmp_path):
    with pytest.raises(
        NotImplementedError,
        match=r"test_onnx_modules.py:\d+: aten._linalg_det.default.*: ONNX cannot express it: there is no emitter of aten._linalg_det",
    ):
        flow_onnx.export(Calls(torch.det), torch.eye(3), tmp_path / "net.onnx")


@pytest.mark.parametrize(
    "function",
    [lambda x: x * x.sum().item(), lambda x: x if x.sum() > 0 else -x, lambda x: x[x > 0], lambda x: x.nonzero()],
    ids=["item", "branch", "mask", "nonzero"],
)
def test_looking_at_values_is_an_error_at_the_users_line(function, tmp_path):
    with pytest.raises(
        NotImplementedError,
        match=r"test_onnx_modules.py:\d+: the forward pass needs the values of a tensor here .*torch.where",
    ):
        flow_onnx.export(Calls(function), torch.ones(2), tmp_path / "net.onnx")


class Counts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(1))

    def forward(self, x):
        self.count += 1
        return x + self.count


def test_writing_a_buffer_is_refused(tmp_path):
    with pytest.raises(
        NotImplementedError, match=r"writes 'count', and an ONNX model has no variables that a call could write"
    ):
        flow_onnx.export(Counts().eval(), torch.ones(2), tmp_path / "net.onnx")


def test_training_mode_is_refused(tmp_path):
    with pytest.raises(
        ValueError, match=r"Sequential is in training mode \('the module itself'\).*call .eval\(\) on it first"
    ):
        flow_onnx.export(nn.Sequential(nn.Dropout()), torch.ones(2), tmp_path / "net.onnx")
    network = nn.Sequential(nn.Dropout()).eval()
    network[0].train()
    with pytest.raises(ValueError, match=r"in training mode \('0'\)"):
        flow_onnx.export(network, torch.ones(2), tmp_path / "net.onnx")


def test_active_dropout_and_random_numbers_are_refused(tmp_path):
    with pytest.raises(NotImplementedError, match="its random bits are torch's"):
        flow_onnx.export(Calls(lambda x: x + torch.rand_like(x)), torch.ones(2), tmp_path / "net.onnx")


def test_wrong_arguments_are_named(tmp_path):
    path, network, x = tmp_path / "net.onnx", nn.Linear(3, 2).eval(), torch.zeros(1, 3)
    with pytest.raises(
        ValueError, match=r"Linear\(.*\).* does not take the example arguments: too many positional arguments"
    ):
        flow_onnx.export(network, (x, x), path)
    with pytest.raises(ValueError, match="takes the path of the model as its third argument"):
        flow_onnx.export(network, x)
    with pytest.raises(ValueError, match=r"input_names has a name for each of \['input'\], got \['a', 'b'\]"):
        flow_onnx.export(network, x, path, input_names=["a", "b"])
    with pytest.raises(ValueError, match=r"output_names has a name for each of \['output'\], got \[\]"):
        flow_onnx.export(network, x, path, output_names=[])
    with pytest.raises(ValueError, match="two inputs or parameters called 'weight'.*give input_names"):
        flow_onnx.export(network, x, path, input_names=["weight"])
    with pytest.raises(ValueError, match="the output 'x' has the name of an input.*give output_names"):
        flow_onnx.export(network, x, path, input_names=["x"], output_names=["x"])
    with pytest.raises(ValueError, match="has no shape_override for a module or graph"):
        flow_onnx.export(network, x, path, shape_override={"x": (1, 3)})
    with pytest.raises(ValueError, match="opset is an int from 11 to 21"):
        flow_onnx.export(network, x, path, opset=3)


def test_options_of_modules_are_refused_for_jobs(tmp_path):
    @flow.global_function(type="predict")
    def job(x=flow.FixedTensorDef((2,))):
        return x

    with pytest.raises(ValueError, match="has no input_names for a job"):
        flow_onnx.export(job, None, tmp_path / "net.onnx", input_names=["y"])


def test_outputs_that_are_no_tensors_are_named(tmp_path):
    with pytest.raises(ValueError, match=r"Calls returns a int as 'output_1', a model gives tensors"):
        flow_onnx.export(Calls(lambda x: (x, x.shape[0])), torch.ones(2), tmp_path / "net.onnx")
    with pytest.raises(ValueError, match="Calls returns no tensor"):
        flow_onnx.export(Calls(lambda x: None), torch.ones(2), tmp_path / "net.onnx")


def test_dtypes_without_a_form_are_named(tmp_path):
    with pytest.raises(NotImplementedError, match=r"is of torch.int16, which the ONNX export does not have"):
        flow_onnx.export(Calls(lambda x: x + 1), torch.ones(2, dtype=torch.int16), tmp_path / "net.onnx")


# Any batch: what cannot be.


def test_inputs_without_a_batch_are_left_out_by_name(tmp_path):
    network = Calls(lambda x, table: x @ table)
    x, table = torch.randn(2, 3), torch.randn(3, 5)
    with pytest.raises(
        ValueError,
        match=r"the first dims of the inputs differ: .*name those that have the batch, as dynamic_batch=\['xs\[0\]'\]",
    ):
        flow_onnx.export(network, (x, table), tmp_path / "net.onnx", dynamic_batch=True)
    flow_onnx.export(network, (x, table), tmp_path / "net.onnx", dynamic_batch=["xs[0]"])
    many = torch.randn(7, 3)
    torch.testing.assert_close(run(tmp_path / "net.onnx", many, table)[0], many @ table)
    with pytest.raises(
        ValueError,
        match=r"dynamic_batch names inputs whose first dim is the batch, of \['xs\[0\]', 'xs\[1\]'\]; got \['y'\]",
    ):
        flow_onnx.export(network, (x, table), tmp_path / "net.onnx", dynamic_batch=["y"])
    with pytest.raises(NotImplementedError, match="cannot be traced with batches of 4"):
        flow_onnx.export(
            Calls(lambda x: x + torch.zeros(2, 2)), torch.ones(2, 2), tmp_path / "net.onnx", dynamic_batch=True
        )


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (
            lambda x: x / len(x),
            r"test_onnx_modules.py:\d+: aten.div.Tensor.*its argument 'y' is computed from the batch size",
        ),
        (lambda x: x * len(x) ** 0.5, "an argument goes from 1.41.* to 2.0"),
        (
            lambda x: x.unsqueeze(0).expand(len(x), -1, -1).reshape(-1),
            "aten.*: dynamic_batch: .* the shape of its result goes from .* only as a whole multiple",
        ),
        (lambda x: sum(x[i] for i in range(len(x))), "takes other steps with 2 times the batch"),
        (lambda x: x[: (len(x) + 1) // 2], "goes from .* only as a whole multiple"),
        (lambda x: x.chunk(2)[0], "goes from .* only as a whole multiple"),
        (lambda x: x.unbind(0)[0], "dynamic_batch|follows the batch"),
        (lambda x: x + torch.tensor([float(len(x))]), "a tensor made from numbers .* changes with the batch"),
    ],
)
def test_what_no_model_for_every_batch_can_hold_is_refused(function, message, tmp_path):
    with pytest.raises(NotImplementedError, match=message):
        flow_onnx.export(Calls(function), torch.ones(2, 3), tmp_path / "net.onnx", dynamic_batch=True)


def test_numbers_of_the_batch_that_shape_tensors_are_computed(tmp_path):
    def function(x):
        n = x.shape[0]
        rows = torch.arange(n)
        pairs = x.view(n, 1, -1) - x.view(1, n, -1)
        return pairs.abs().sum(-1), x[rows, rows % 3], torch.zeros(n, 2) + x[:, :1], x.repeat(1, 2).view(2 * n, -1)

    flow_onnx.export(Calls(function), torch.randn(2, 3), tmp_path / "net.onnx", dynamic_batch=True)
    for n in (1, 4):
        x = torch.randn(n, 3)
        for got, want in zip(run(tmp_path / "net.onnx", x), function(x), strict=True):
            np.testing.assert_allclose(got, want, 1e-5, 1e-6)
