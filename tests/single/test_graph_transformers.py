"""Models of Hugging Face's ``transformers``, made from small configs and put into a graph as they are: they train with
the losses of their eager runs."""

from __future__ import annotations

import warnings

import pytest
import torch

import oneflow as flow
import oneflow.nn as nn

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of importing it
    transformers = pytest.importorskip("transformers")

STEPS = 5
SMALL = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
WORDS = {"vocab_size": 32, **SMALL}
KEPT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}


def gpt2():
    t = transformers
    return t.GPT2LMHeadModel(
        t.GPT2Config(
            vocab_size=32,
            n_positions=8,
            n_embd=16,
            n_layer=2,
            n_head=2,
            resid_pdrop=0.0,
            embd_pdrop=0.0,
            attn_pdrop=0.0,
            use_cache=False,
        )
    )


def bert():
    return transformers.BertForSequenceClassification(
        transformers.BertConfig(**WORDS, **KEPT, max_position_embeddings=8, num_labels=4)
    )


def vit():
    return transformers.ViTForImageClassification(
        transformers.ViTConfig(**SMALL, **KEPT, image_size=8, patch_size=4, num_labels=4)
    )


def llama():
    return transformers.LlamaForCausalLM(
        transformers.LlamaConfig(
            **WORDS, max_position_embeddings=8, use_cache=False, pad_token_id=0, bos_token_id=1, eos_token_id=2
        )
    )


def t5():
    t = transformers
    return t.T5ForConditionalGeneration(
        t.T5Config(
            vocab_size=32,
            d_model=16,
            d_kv=8,
            d_ff=32,
            num_layers=1,
            num_heads=2,
            dropout_rate=0.0,
            decoder_start_token_id=0,
            use_cache=False,
        )
    )


def ids(draw):
    return torch.randint(3, 32, (2, 8), generator=draw)


def words(draw):
    given = ids(draw)
    return {"input_ids": given, "labels": given.clone()}


CASES = {
    "GPT-2": (gpt2, words),
    "BERT": (
        bert,
        lambda draw: {
            "input_ids": ids(draw),
            "attention_mask": torch.ones(2, 8, dtype=torch.int64),
            "labels": torch.tensor([1, 3]),
        },
    ),
    "ViT": (
        vit,
        lambda draw: {"pixel_values": torch.randn(2, 3, 8, 8, generator=draw), "labels": torch.tensor([1, 3])},
    ),
    "Llama": (llama, words),
    "T5": (t5, words),
}


class Training(nn.Graph):
    def __init__(self, model, optimizer):
        super().__init__()
        self.model = model
        self.add_optimizer(optimizer)

    def build(self, **batch):
        made = self.model(**batch)
        made.loss.backward()
        return made


@pytest.fixture(autouse=True)
def without_notices():
    """Of configs that are smaller than those of trained models."""
    before = transformers.logging.get_verbosity()
    transformers.logging.set_verbosity_error()
    yield
    transformers.logging.set_verbosity(before)


@pytest.mark.parametrize("name", CASES)
def test_a_model_trains_with_the_losses_of_its_eager_run(name):
    make, batch = CASES[name]
    pair, batches = [], [batch(torch.Generator().manual_seed(i)) for i in range(STEPS)]
    for _ in range(2):
        torch.manual_seed(0)
        model = make().train()
        pair.append((model, flow.optim.AdamW(model.parameters(), lr=0.01)))
    (eager, loop), (model, optimizer) = pair
    expected = []
    for given in batches:
        loop.zero_grad()
        loss = eager(**given).loss
        loss.backward()
        loop.step()
        expected.append(loss.item())
    graph = Training(model, optimizer)
    made = [graph(**given) for given in batches]
    torch.testing.assert_close([one.loss.item() for one in made], expected, rtol=1e-5, atol=1e-5)
    assert type(made[0]) is type(eager(**batches[0])) and made[0].logits.shape == eager(**batches[0]).logits.shape
    assert expected[-1] != expected[0]


def test_a_model_trains_with_dropout_a_mask_and_checkpoints_of_its_own():
    """Its config as it is: the cache that it gives back is no tensor, so the graph gives the loss alone."""

    class Loss(Training):
        def build(self, **batch):
            return super().build(**batch).loss

    def run():
        torch.manual_seed(0)
        model = transformers.GPT2LMHeadModel(
            transformers.GPT2Config(vocab_size=32, n_positions=8, n_embd=16, n_layer=2, n_head=2)
        )
        getattr(
            model.train(), "activation_checkpointing_enable", model.gradient_checkpointing_enable
        )()  # the name in newer versions
        graph = Loss(model, flow.optim.AdamW(model.parameters(), lr=0.01))
        mask = torch.ones(2, 8, dtype=torch.int64)
        mask[0, 5:] = 0
        return [graph(**words(torch.Generator().manual_seed(0)), attention_mask=mask).item() for _ in range(STEPS)]

    losses = run()
    assert losses == run() and losses[-1] < losses[0]
