"""Data modules inside ``nn.Graph``: each step reads the next batch, as an eager loop does."""

from __future__ import annotations

import gc
import io
import struct
import threading
import weakref
from contextlib import ExitStack, closing

import numpy as np
import pytest
import torch
from pictures import photo, stored
from torch.fx.experimental.proxy_tensor import make_fx

import oneflow as flow
from oneflow import nn
from oneflow.data import write_records
from oneflow.engine.core.errors import ArgumentError, CheckpointError, DataError, GraphError, UnsupportedError
from oneflow.engine.core.record.messages import FeatureValue, encode_record

COUNT, WIDTH, CLASSES, BATCH = 22, 12, 3, 4
PIXELS = np.random.default_rng(5).random((COUNT, WIDTH)).astype(np.float32)
LABELS = np.arange(COUNT, dtype=np.int32) * 7 % CLASSES


@pytest.fixture(scope="module")
def digits(tmp_path_factory):
    """Records like those of MNIST, in two parts."""
    folder = tmp_path_factory.mktemp("digits")
    rows = [
        encode_record(
            {"images": FeatureValue("float_list", pixels.tolist()), "labels": FeatureValue("int32_list", [int(label)])}
        )
        for pixels, label in zip(PIXELS, LABELS)
    ]
    write_records(folder / "part-0", rows[:13])
    write_records(folder / "part-1", rows[13:])
    return folder


@pytest.fixture(scope="module")
def photos(tmp_path_factory):
    """Pictures of several sizes."""
    folder = tmp_path_factory.mktemp("photos")
    files = [stored(photo(40 + 3 * i, 30 + 2 * i, i)) for i in range(7)]
    write_records(folder / "part-0", [encode_record({"encoded": FeatureValue("bytes_list", [file])}) for file in files])
    return folder


@pytest.fixture(autouse=True)
def the_same_seed():
    """A reader without a seed has the process's: that of ``new_net``, whatever ran before."""
    torch.manual_seed(3)


@pytest.fixture
def kept():
    """Closes the readers of modules that it is given, when a test ends."""
    with ExitStack() as stack:

        def keep(module):
            for inner in module.modules():
                if hasattr(inner, "close"):
                    stack.enter_context(closing(inner))
            return module

        yield keep


class Digits(nn.Module):
    def __init__(self, folder, batch_size=BATCH, **how):
        super().__init__()
        self.reader = nn.OFRecordReader(folder, batch_size, 2, **how)
        self.images = nn.OFRecordRawDecoder("images", (WIDTH,), flow.float32)
        self.labels = nn.OFRecordRawDecoder("labels", (), flow.int32)

    def forward(self):
        records = self.reader()
        return self.images(records), self.labels(records)


class Give(nn.Graph):
    """Gives what its module reads."""

    def __init__(self, data):
        super().__init__()
        self.data = data

    def build(self, *args):
        return self.data(*args)


class Train(nn.Graph):
    def __init__(self, data, net, steps=1, **sgd):
        super().__init__()
        self.data, self.net = data, net
        self.add_optimizer(flow.optim.SGD(net.parameters(), lr=0.3, **sgd))
        self.config.set_gradient_accumulation_steps(steps)

    def build(self):
        images, labels = self.data()
        loss = nn.functional.cross_entropy(self.net(images), labels.to(flow.int64))
        loss.backward()
        return loss, labels


def new_net():
    torch.manual_seed(3)
    return torch.nn.Linear(WIDTH, CLASSES)


def rows_of(step, batch=BATCH):
    """The numbers of the records in a step's batch, as they lie in the files."""
    return np.arange(step * batch, (step + 1) * batch) % COUNT


def plain_losses(net, batches, **sgd):
    """The losses of a loop of plain torch; each element has the batches of one step."""
    optimizer = torch.optim.SGD(net.parameters(), lr=0.3, **sgd)
    found = []
    for step in batches:
        losses = [
            torch.nn.functional.cross_entropy(
                net(torch.from_numpy(PIXELS[rows])), torch.from_numpy(LABELS[rows]).long()
            )
            for rows in step
        ]
        optimizer.zero_grad()
        (sum(losses) / len(losses)).backward()
        optimizer.step()
        found.append([loss.item() for loss in losses])
    return found


def equal(left, right):
    return all(torch.equal(a, b) for a, b in zip(left, right, strict=True))


# ------------------------------------------------------------------ steps


def test_a_graph_that_reads_trains_as_a_plain_loop_over_the_same_records(digits, kept):
    graph, net = Train(kept(Digits(digits)), new_net(), momentum=0.5), new_net()
    expected = plain_losses(net, [[rows_of(step)] for step in range(10)], momentum=0.5)
    for step in range(10):
        loss, labels = graph()
        assert labels.tolist() == LABELS[rows_of(step)].tolist(), (
            "the first batch is that of the first step, and none is left out"
        )
        torch.testing.assert_close(loss, torch.tensor(expected[step][0]))
    torch.testing.assert_close(graph.net.weight, net.weight)


def test_a_shuffled_reader_gives_a_graph_the_batches_of_eager_calls(digits, kept):
    how = {"random_shuffle": True, "shuffle_buffer_size": 9, "shuffle_after_epoch": True, "random_seed": 11}
    graph, eager = Give(kept(Digits(digits, **how))), kept(Digits(digits, **how))
    batches = [graph() for _ in range(12)]
    assert all(equal(batch, eager()) for batch in batches)
    assert torch.cat([labels for _, labels in batches]).tolist() != LABELS[np.arange(48) % COUNT].tolist()


class Photos(nn.Module):
    def __init__(self, folder, seed=4):
        super().__init__()
        self.reader = nn.OFRecordReader(folder, 3, random_shuffle=True, shuffle_buffer_size=5, random_seed=2)
        self.decode = nn.OFRecordImageDecoderRandomCrop("encoded", "RGB", random_seed=9)
        self.resize = nn.image.Resize(target_size=(16, 20))
        self.flip = nn.CoinFlip(3, random_seed=seed)
        self.normal = nn.CropMirrorNormalize("RGB", crop_h=18, crop_w=16, mean=(10.0, 20.0, 30.0), std=(2.0, 3.0, 4.0))

    def forward(self):
        coins = self.flip()
        pixels, scale, none = self.resize(self.decode(self.reader()))
        assert none is None
        return self.normal(pixels, coins), scale, coins


@pytest.mark.parametrize("seed", [4, None])
def test_random_parts_of_pictures_and_flips_are_those_of_eager_calls(photos, kept, seed):
    graph, eager = Give(kept(Photos(photos, seed))), kept(Photos(photos, seed))
    torch.manual_seed(8)  # a CoinFlip without a seed draws from the default generator
    batches = [graph() for _ in range(6)]
    torch.manual_seed(8)
    assert all(equal(batch, eager()) for batch in batches)
    assert 0 < sum(int(coins.sum()) for _, _, coins in batches) < 18


class Uncut(nn.Module):
    """From bytes to pictures of their own sizes, which the last module cuts."""

    def __init__(self, folder):
        super().__init__()
        self.reader = nn.OFRecordReader(folder, 2)
        self.bytes = nn.OFRecordBytesDecoder("encoded")
        self.decode = nn.image.decode(color_space="BGR")
        self.shorter = nn.image.Resize(color_space="BGR", resize_shorter=18)
        self.normal = nn.CropMirrorNormalize("BGR", crop_h=12, crop_w=14)

    def forward(self, change=None):
        pictures = self.shorter(self.decode(self.bytes(self.reader())))
        mirror = None if change is None else change * 2
        return self.normal(pictures, mirror)


def test_pictures_of_their_own_sizes_go_from_module_to_module(photos, kept):
    graph, eager = Give(kept(Uncut(photos))), kept(Uncut(photos))
    for _ in range(5):
        assert torch.equal(graph(), eager())


def test_read_pictures_meet_a_mirror_that_the_step_computes(photos, kept):
    graph, eager = Give(kept(Uncut(photos))), kept(Uncut(photos))
    for mirror in ([0, 1], [1, 1], [1, 0]):
        pictures = eager()
        expected = torch.stack([picture.flip(-1) if flag else picture for picture, flag in zip(pictures, mirror)])
        assert torch.equal(graph(torch.tensor(mirror, dtype=torch.int8)), expected)


@pytest.mark.parametrize(
    "change", [lambda coins: coins * 0, lambda coins: coins.zero_()], ids=["another tensor", "in place"]
)
def test_flips_that_the_step_has_changed_count_as_changed(photos, kept, change):
    class Changed(Photos):
        def forward(self):
            pixels, _, _ = self.resize(self.decode(self.reader()))
            return self.normal(pixels, change(self.flip()))

    class Unflipped(Photos):
        def forward(self):
            return self.normal(self.resize(self.decode(self.reader()))[0])

    graph, eager = Give(kept(Changed(photos))), kept(Unflipped(photos))
    for _ in range(4):
        assert torch.equal(graph(), eager())


def test_two_readers_and_one_that_is_called_twice_keep_their_orders(digits, kept):
    class Pairs(nn.Module):
        def __init__(self):
            super().__init__()
            self.fast, self.slow = Digits(digits, 2), Digits(digits, 3)

        def forward(self):
            return self.fast()[1], self.slow()[1], self.fast()[1]

    graph = Give(kept(Pairs()))
    for step in range(8):
        found = [labels.tolist() for labels in graph()]
        rows = rows_of(2 * step, 2), rows_of(step, 3), rows_of(2 * step + 1, 2)
        assert found == [LABELS[own].tolist() for own in rows]


def test_rows_and_tokens_are_read_at_every_step(tmp_path, kept):
    np.arange(30, dtype=np.int32).tofile(tmp_path / "rows")
    tokens = np.arange(100, 120, dtype="<u2")
    tokens.tofile(tmp_path / "text.bin")
    head = b"MMIDIDX\0\0" + struct.pack("<QBQQ", 1, 8, 1, 2)
    (tmp_path / "text.idx").write_bytes(head + struct.pack("<iqqq", 20, 0, 0, 1))

    class Both(nn.Module):
        def __init__(self):
            super().__init__()
            self.rows = nn.RawReader([tmp_path / "rows"], (3,), flow.int32, 2, random_shuffle=False)
            self.tokens = nn.GPTIndexedBinDataReader(tmp_path / "text", 4, 4, 2, shuffle=False)

        def forward(self):
            return self.rows() + 0, self.tokens()

    graph = Give(kept(Both()))
    for step in range(7):
        rows, found = graph()
        assert rows.tolist() == [[3 * (r % 10) + i for i in range(3)] for r in (2 * step, 2 * step + 1)]
        assert found.tolist() == [tokens[4 * (s % 4) : 4 * (s % 4) + 5].tolist() for s in (2 * step, 2 * step + 1)]


def test_a_graph_may_take_inputs_and_read(digits, kept):
    class Shifted(Digits):
        def forward(self, shift, *, scale):
            images, _ = super().forward()
            return {"shifted": images * scale + shift, "shift": shift}

    class Graph(Give):
        def build(self, shift, scale):
            return self.data(shift, scale=scale)

    graph = Graph(kept(Shifted(digits)))
    for step in range(7):
        found = graph(torch.tensor(float(step)), 2.0)
        torch.testing.assert_close(found["shifted"], torch.from_numpy(PIXELS[rows_of(step)]) * 2.0 + step)
        assert found["shift"] == step


def test_each_micro_batch_reads_a_batch_of_its_own(digits, kept):
    graph, net = Train(kept(Digits(digits)), new_net(), steps=3), new_net()
    expected = plain_losses(net, [[rows_of(3 * step + micro) for micro in range(3)] for step in range(4)])
    for step in range(4):
        losses, labels = graph()
        assert labels.tolist() == LABELS[np.arange(12 * step, 12 * step + 12) % COUNT].tolist()
        torch.testing.assert_close(losses, torch.tensor(expected[step]))
    torch.testing.assert_close(graph.net.weight, net.weight)


def test_batches_that_a_graph_returns_stay_as_they_are(digits, kept):
    graph = Give(kept(Digits(digits)))
    batches = [graph() for _ in range(6)]
    for step, (images, labels) in enumerate(batches):
        assert np.array_equal(images.numpy(), PIXELS[rows_of(step)]) and np.array_equal(
            labels.numpy(), LABELS[rows_of(step)]
        )


def test_eager_calls_between_steps_take_batches_of_the_same_reader(digits, kept):
    data = kept(Digits(digits))
    graph = Give(data)
    found = [graph()[1], data()[1], graph()[1], data()[1]]
    assert torch.cat(found).tolist() == LABELS[:16].tolist()


def test_mixed_precision_is_not_a_matter_of_the_reading(photos, kept):
    class Mixed(Give):
        def __init__(self, data):
            super().__init__(data)
            self.config.enable_amp(True, dtype=flow.bfloat16)

    graph, eager = Mixed(kept(Photos(photos))), kept(Photos(photos))
    assert equal(graph(), eager()) and equal(graph(), eager())


def test_the_threads_of_a_forgotten_graph_end(digits):
    before = set(threading.enumerate())
    graph = Train(Digits(digits), new_net())
    graph()
    threads, known = set(threading.enumerate()) - before, weakref.ref(graph.data.reader.origin)
    assert threads
    del graph
    gc.collect()
    assert known() is None
    for thread in threads:
        thread.join(10)
        assert not thread.is_alive()


# ------------------------------------------------------------------ state


def through_a_file(state):
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


@pytest.mark.parametrize("steps", [1, 2])
def test_a_resumed_graph_goes_on_as_one_that_was_never_stopped(digits, kept, steps):
    how = {"random_shuffle": True, "shuffle_buffer_size": 9, "random_seed": 11}

    def new():
        return Train(kept(Digits(digits, **how)), new_net(), steps, momentum=0.9)

    whole, stopped, resumed = new(), new(), new()
    expected = [whole() for _ in range(9)]
    assert all(equal(stopped(), batch) for batch in expected[:4])
    resumed.load_state_dict(through_a_file(stopped.state_dict()))
    assert all(equal(resumed(), batch) for batch in expected[4:])


def test_crops_flips_and_rows_go_on_too(photos, tmp_path, kept):
    np.arange(7, dtype=np.int64).tofile(tmp_path / "rows")

    class More(Photos):
        def __init__(self):
            super().__init__(photos)
            self.rows = nn.RawReader([tmp_path / "rows"], (), flow.int64, 2, random_seed=1)

        def forward(self):
            return *super().forward(), self.rows()

    whole, stopped, resumed = (Give(kept(More())) for _ in range(3))
    expected = [whole() for _ in range(9)]
    for _ in range(5):
        stopped()
    resumed.load_state_dict(through_a_file(stopped.state_dict()))
    assert all(equal(resumed(), batch) for batch in expected[5:])


def test_a_graph_that_is_built_but_has_not_run_has_read_nothing(digits, kept):
    graph, other = Train(kept(Digits(digits)), new_net()), Train(kept(Digits(digits)), new_net())
    graph.build_graph()
    other.load_state_dict(through_a_file(graph.state_dict()))
    assert graph()[1].tolist() == other()[1].tolist() == LABELS[rows_of(0)].tolist()
    assert graph()[1].tolist() == LABELS[rows_of(1)].tolist()


def test_a_graph_that_is_built_anew_loses_no_batch(digits, kept):
    graph = Train(kept(Digits(digits)), new_net())
    graph()
    optimizer = graph._graph.added[0].optimizer
    optimizer.load_state_dict(optimizer.state_dict())
    assert graph()[1].tolist() == LABELS[rows_of(1)].tolist()
    other = Train(kept(Digits(digits)), new_net())
    other.build_graph()
    other._graph.added[0].optimizer.load_state_dict(optimizer.state_dict())
    assert other()[1].tolist() == LABELS[rows_of(0)].tolist()


def test_a_build_that_fails_gives_its_batch_back(digits, kept):
    class Fails(Give):
        fails = True

        def build(self):
            images, labels = self.data()
            return labels + images.reshape(-1, 5) if self.fails else labels + 0

    graph = Fails(kept(Digits(digits)))
    with pytest.raises(GraphError, match="reshape"):
        graph()
    graph.fails = False
    assert graph().tolist() == LABELS[rows_of(0)].tolist()


def test_a_plan_of_a_graph_that_reads_costs_no_batch(digits, kept):
    graph = Train(kept(Digits(digits)), new_net())
    assert "net.weight" in str(flow.plan(graph))
    assert graph()[1].tolist() == LABELS[rows_of(0)].tolist()
    flow.plan(graph)
    assert graph()[1].tolist() == LABELS[rows_of(1)].tolist()


def test_arguments_that_a_graph_refuses_cost_no_batch(digits, kept):
    class Added(Digits):
        def forward(self, x):
            return super().forward()[1] + x

    graph = Give(kept(Added(digits)))
    zero = torch.zeros(BATCH, dtype=torch.int32)
    graph(zero)
    with pytest.raises(GraphError, match="they are nested otherwise"):
        graph([zero])
    with pytest.raises(GraphError, match=r"input 0 was int32\(4\) on cpu at the first call and is int32\(1\)"):
        graph(zero[:1])
    assert graph(zero).tolist() == LABELS[rows_of(1)].tolist()


def test_a_state_without_positions_or_of_other_data_is_refused_or_left_out(digits, kept):
    state = Give(kept(Digits(digits))).state_dict()
    assert set(state) == {"data", "System-DataState-Give"}
    graph = Give(kept(Digits(digits, random_seed=5)))
    with pytest.raises(
        GraphError,
        match="has no 'System-DataState-Give', the positions of data.reader; strict=False leaves them where they are",
    ):
        graph.load_state_dict({"data": {}})
    graph.load_state_dict({"data": {}}, strict=False)
    with pytest.raises(
        GraphError,
        match=r"'data.reader' cannot go on where it was: the saved position has seed .*strict=False leaves it where it is",
    ):
        graph.load_state_dict(state)
    with pytest.warns(UserWarning, match="'data.reader' stays where it is: the saved position has seed"):
        graph.load_state_dict(state, strict=False)
    with pytest.raises(CheckpointError, match="'System-DataState-Give' of the checkpoint is damaged"):
        graph.load_state_dict({"data": {}, "System-DataState-Give": torch.tensor([1, 2], dtype=torch.uint8)})
    assert graph()[1].tolist() == LABELS[rows_of(0)].tolist()


def test_a_graph_without_readers_has_no_positions():
    assert list(Give(torch.nn.ReLU()).state_dict()) == ["data"]


def test_positions_of_rows_and_coins_that_do_not_fit_are_refused(tmp_path):
    np.arange(6, dtype=np.int64).tofile(tmp_path / "rows")

    def rows(**how):
        return nn.RawReader([tmp_path / "rows"], (), flow.int64, 2, **how)

    with pytest.raises(
        DataError, match="the saved position has seed 1, this reader 2; go on with the same files and arguments"
    ):
        rows(random_seed=2).load_state(rows(random_seed=1).state())
    with pytest.raises(DataError, match="is not a position of a RawReader"):
        rows(random_seed=2).load_state({**rows(random_seed=2).state(), "sample": -1})
    with pytest.raises(
        DataError,
        match="the saved CoinFlip had no generator of its own, this one has a generator of its own; go on with the same random_seed",
    ):
        nn.CoinFlip(2, random_seed=1).load_state(nn.CoinFlip(2).state())
    with pytest.raises(
        DataError, match="the saved CoinFlip had a generator of its own, this one has no generator of its own"
    ):
        nn.CoinFlip(2).load_state(nn.CoinFlip(2, random_seed=1).state())
    with pytest.raises(DataError, match="'zz' is not the state of a CoinFlip"):
        nn.CoinFlip(2, random_seed=1).load_state({"generator": "zz"})


# ------------------------------------------------------------------ what is refused


@pytest.mark.parametrize(
    "use",
    [lambda records: records[0], len, list, lambda records: records.values, lambda records: records],
    ids=["index", "len", "iter", "attribute", "returned"],
)
def test_records_go_to_data_modules_alone(digits, kept, use):
    class Looks(nn.Graph):
        def __init__(self):
            super().__init__()
            self.reader = kept(nn.OFRecordReader(digits, 2, 2))

        def build(self):
            return use(self.reader())

    with pytest.raises(
        GraphError,
        match=r"Records in build\(\) are another batch's at every step, and no tensors: they go to data modules alone",
    ):
        Looks()()


def test_records_that_were_read_outside_are_refused(digits, kept):
    data = kept(Digits(digits))
    records = data.reader()

    class Outside(Give):
        def build(self):
            return self.data.labels(records)

    with pytest.raises(
        GraphError,
        match=r"OFRecordRawDecoder was given <4 records, .* read outside it and would be the batch of every step; call their reader",
    ):
        Outside(data)()


def test_records_that_another_build_has_kept_are_refused(digits, kept):
    seen = []

    class Keeps(Give):
        def build(self):
            seen.append(self.data.reader())
            return self.data.labels(seen[0])

    data = kept(Digits(digits))
    Keeps(data)()
    with pytest.raises(
        GraphError,
        match=r"OFRecordRawDecoder was given <Records of a graph> that was kept from another build\(\); call its reader in this one",
    ):
        Keeps(data)()
    with pytest.raises(
        ArgumentError, match="OFRecordRawDecoder takes what flow.nn.OFRecordReader gave, got <Records of a graph>"
    ):
        data.labels(seen[0])


def test_a_wrong_input_of_a_data_module_is_told_in_a_graph_as_elsewhere(digits, kept):
    class Wrong(Give):
        def build(self):
            return nn.image.Resize(target_size=(4, 4))(self.data.reader())

    with pytest.raises(
        ArgumentError, match=r"flow.nn.image.Resize takes what flow.nn.OFRecordImageDecoder .* gave, got <4 records"
    ):
        Wrong(kept(Digits(digits)))()


@pytest.mark.parametrize("batch", [1, 2])
def test_the_values_of_a_batch_cannot_be_looked_at(digits, kept, batch):
    class Looks(Give):
        def build(self):
            _, labels = self.data()
            return labels + labels[0].item()

    with pytest.raises(GraphError, match="looks at values, which are not there while a graph is built"):
        Looks(kept(Digits(digits, batch)))()


def test_batches_keep_their_shapes():
    coins = nn.CoinFlip(3)
    graph = Give(coins)
    graph()
    coins.batch_size = 2
    with pytest.raises(
        GraphError,
        match=r"gave the graph int8\(3\) on cpu at its first step and now give int8\(2\) on cpu.*make another graph of the changed modules",
    ):
        graph()


def test_data_modules_refuse_other_tracers(digits, kept):
    data = kept(Digits(digits))
    with pytest.raises(
        UnsupportedError,
        match="OFRecordReader was called while tensors without data are traced, but not by an nn.Graph",
    ):
        make_fx(lambda x: x + data()[1], tracing_mode="fake")(torch.ones(BATCH))
