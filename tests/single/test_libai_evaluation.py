"""Evaluators by hand-made numbers, and the loop that feeds them."""

from __future__ import annotations

import logging
import math

import pytest
import torch

import oneflow as flow
from libai.data import DistTensorData, Instance, build_image_test_loader
from libai.data.samplers import SingleRoundSampler
from libai.evaluation import (
    BLEUEvaluator,
    ClsEvaluator,
    DatasetEvaluator,
    DatasetEvaluators,
    PPLEvaluator,
    RegEvaluator,
    flatten_results_dict,
    inference_on_dataset,
    print_csv_format,
)
from libai.evaluation.cls_evaluator import accuracy
from libai.evaluation.utils import pad_batch
from libai.utils import distributed as dist
from oneflow import nn


class Numbers(flow.utils.data.Dataset):
    """Sample i is the number i, of class i % 3."""

    def __init__(self, count):
        self.count = count

    def __len__(self):
        return self.count

    def __getitem__(self, index):
        return Instance(
            images=DistTensorData(torch.tensor([float(index)])),
            labels=DistTensorData(torch.tensor(index % 3), placement_idx=-1),
        )


class Always(nn.Module):
    """Says class 0 of every number; counts rows and modes."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def forward(self, images, labels):
        self.seen.append((len(images), self.training, torch.is_grad_enabled()))
        return {"prediction_scores": torch.eye(3)[torch.zeros(len(images), dtype=torch.long)], "loss": images.sum()}


class Keeps(DatasetEvaluator):
    def __init__(self):
        self.rows = []

    def process(self, inputs, outputs):
        self.rows += inputs["images"][:, 0].tolist()
        assert len(outputs["prediction_scores"]) == len(inputs["labels"]) and outputs["loss"].ndim == 0

    def evaluate(self):
        return None


@pytest.fixture(autouse=True)
def one_rank():
    dist.setup_dist_util({})


def get_batch(data, device):
    return {name: field.tensor for name, field in data.get_fields().items()}


def run(model, evaluator, count=11, batch=4, eval_iter=1e9):
    loader = build_image_test_loader(Numbers(count), batch, num_workers=0)
    return inference_on_dataset(model, loader, batch, eval_iter, get_batch, "cpu", evaluator)


def test_every_sample_counts_once_and_all_batches_have_one_size():
    model, keeps = Always(), Keeps()
    assert run(model, [keeps, ClsEvaluator((1, 2, 5))]) == {
        "Acc@1": 100 * 4 / 11,
        "Acc@2": pytest.approx(100 * 8 / 11),
        "Acc@5": 100.0,
    }
    assert sorted(keeps.rows) == list(range(11))
    assert model.seen == [(4, False, False)] * 3 and model.training


def test_eval_iter_limits_the_batches(caplog):
    caplog.set_level(logging.INFO, "libai")
    model, keeps = Always(), Keeps()
    assert run(model, keeps, eval_iter=2.0) == {}
    assert len(keeps.rows) == 8
    assert "with eval_iter 2.0, reset total samples 11 to 8" in caplog.text and "Total valid samples: 8" in caplog.text
    assert run(model, None, eval_iter=1) == {}
    with pytest.raises(ValueError, match="eval_iter is the number of batches .* got 0"):
        run(model, None, eval_iter=0)


class EvalGraph(nn.Graph):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def build(self, images, labels):
        return self.model(images, labels)


class Linear(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(1, 3)

    def forward(self, images, labels):
        return {"losses": images.sum()} if self.training else {"prediction_scores": self.layer(images)}


def test_the_model_of_a_graph_is_in_eval_mode():
    model = Linear()
    result = run(EvalGraph(model), ClsEvaluator((1,)))
    assert 0 <= result["Acc@1"] <= 100 and model.training


def test_a_model_that_gives_no_dictionary_is_refused():
    with pytest.raises(TypeError, match="returns a dictionary such as .* Identity returned Tensor"):
        loader = build_image_test_loader(Numbers(4), 4, num_workers=0)
        inference_on_dataset(
            nn.Identity(), loader, 4, 1, lambda data, device: {"input": data.images.tensor}, "cpu", None
        )


def test_padding_fills_up_with_zeros():
    padded, valid = pad_batch({"x": torch.ones(3, 2), "scalar": torch.tensor(5.0), "words": ["a"]}, 5, 1, True)
    assert (
        padded["x"].tolist() == [[1, 1]] * 3 + [[0, 0]] * 2
        and valid == 2
        and padded["words"] == ["a"]
        and padded["scalar"] == 5
    )
    assert pad_batch({"x": torch.ones(3)}, 3, 1, False)[1] == 3
    with pytest.raises(ValueError, match="a batch has 6 rows, more than batch_size=5"):
        pad_batch({"x": torch.ones(6)}, 5, 0, False)
    with pytest.raises(ValueError, match="no tensor with rows"):
        pad_batch({"x": 1}, 5, 0, False)


def test_padding_of_a_global_tensor():
    x = torch.ones(3, 2).to_global(placement=flow.placement("cpu", [0]), sbp=flow.sbp.split(0))
    padded, valid = pad_batch({"x": x}, 4, 0, True)
    assert padded["x"].is_global and padded["x"].numpy().tolist() == [[1, 1]] * 3 + [[0, 0]] and valid == 3


def test_counts_are_whole_numbers():
    # 52 of 56: by way of a percentage, and cut off, it would be 51.
    evaluator = ClsEvaluator((1,))
    scores = torch.zeros(56, 10)
    scores[:, 3] = 1
    labels = torch.full((56,), 3)
    labels[:4] = 5
    evaluator.process({"labels": labels}, {"prediction_scores": scores})
    evaluator.process({"labels": labels[:1]}, {"prediction_scores": scores[:1]})
    assert evaluator.evaluate() == {"Acc@1": 100 * 52 / 57}
    assert [float(value) for value in accuracy(scores, labels, (1, 100))] == [pytest.approx(100 * 52 / 56), 100.0]
    evaluator.reset()
    with pytest.raises(ValueError, match="has seen no samples"):
        evaluator.evaluate()


def test_missing_outputs_are_named():
    with pytest.raises(
        ValueError,
        match=r"needs the output of the model 'prediction_scores', there are \['prediction_score'\]. Did you mean 'prediction_score'",
    ):
        ClsEvaluator().process({"labels": torch.ones(1)}, {"prediction_score": torch.ones(1, 2)})
    with pytest.raises(ValueError, match=r"needs the field of the data set 'labels', there are \['label'\]"):
        ClsEvaluator().process({"label": torch.ones(1)}, {"prediction_scores": torch.ones(1, 2)})


def test_perplexity_is_the_mean_over_batches_of_each_output():
    evaluator = PPLEvaluator()
    for first, second in ((0.0, 1.0), (math.log(3), 50.0)):
        evaluator.process({}, {"lm": torch.tensor(first), "nsp": torch.tensor(second)})
    assert evaluator.evaluate() == {"lm_PPL": pytest.approx(2.0), "nsp_PPL": pytest.approx((math.e + math.exp(20)) / 2)}


def test_correlations_by_hand():
    evaluator = RegEvaluator()
    evaluator.process(
        {"labels": torch.tensor([1.0, 2, 3, 4, 5])}, {"prediction_scores": torch.tensor([[2.0], [1], [4], [3], [5]])}
    )
    assert evaluator.evaluate() == {
        "pearson": pytest.approx(0.8),
        "spearman": pytest.approx(0.8),
        "corr": pytest.approx(0.8),
    }
    evaluator.reset()
    scores = torch.eye(3)[[0, 1, 1, 2]]  # predicts 0, 1, 1, 2; ranks 1, 2.5, 2.5, 4 against 1, 2, 3, 4
    evaluator.process({"labels": torch.tensor([0, 1, 5, 9])}, {"prediction_scores": scores})
    found = evaluator.evaluate()
    assert found["spearman"] == pytest.approx(4.5 / math.sqrt(4.5 * 5)) and found["pearson"] == pytest.approx(
        9 / math.sqrt(2 * 50.75)
    )


def test_bleu_by_hand():
    evaluator = BLEUEvaluator()
    evaluator.process({"reference": ["the cat is on the mat".split()]}, {"candidate": "the cat is on the mat".split()})
    assert evaluator.evaluate() == {"bleu_score": pytest.approx(1.0)}
    evaluator.reset()
    # unigrams 4 of 5, bigrams 3 of 4, trigrams 2 of 3, fours 1 of 2; six words expected, five said
    evaluator.process({"reference": ["a b c d e f".split()]}, {"candidate": "a b c d x".split()})
    assert evaluator.evaluate()["bleu_score"] == pytest.approx(
        (4 / 5 * 3 / 4 * 2 / 3 * 1 / 2) ** 0.25 * math.exp(1 - 6 / 5)
    )
    evaluator.process({"reference": [[7, 8]]}, {"candidate": torch.tensor([1, 2])})
    assert evaluator.evaluate()["bleu_score"] < 0.7
    evaluator.reset()
    evaluator.process({"reference": [["x"]]}, {"candidate": ["y"]})
    assert evaluator.evaluate() == {"bleu_score": 0.0}


class Gives(DatasetEvaluator):
    def __init__(self, **results):
        self.results = results

    def evaluate(self):
        return self.results


def test_two_evaluators_give_different_names():
    assert DatasetEvaluators([Gives(a=1), Gives(b=2)]).evaluate() == {"a": 1, "b": 2}
    with pytest.raises(ValueError, match="two evaluators give a result 'a'"):
        DatasetEvaluators([Gives(a=1), Gives(a=2)]).evaluate()


def test_results_are_flattened_and_logged(caplog):
    caplog.set_level(logging.INFO, "libai")
    results = {"Acc@1": 98.5, "box": {"AP": 1.0, "AP-cat": 2.0}}
    assert flatten_results_dict(results) == {"Acc@1": 98.5, "box/AP": 1.0, "box/AP-cat": 2.0}
    print_csv_format(results)
    assert [record.message for record in caplog.records] == [
        "copypaste: Acc@1=98.5",
        "copypaste: Task: box",
        "copypaste: AP",
        "copypaste: 1.0000",
    ]


def test_rows_of_a_sampler_with_buckets_are_found_in_a_padded_batch():
    # Three ranks of 4 with 8 samples: shares of 3, of which rank 2 has one that only fills up.
    assert SingleRoundSampler(range(8), 4, data_parallel_size=3).rows_that_count(0) == [0, 1, 2, 3, 4, 5, 6, 7]
