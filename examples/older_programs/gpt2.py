"""GPT-2 as programs of 2020 and 2021 split it over devices: each layer's attention heads and the inner units of its
MLP.

python examples/older_programs/gpt2.py --devices 2
"""

import argparse
import math

import numpy as np

import oneflow as flow
import oneflow.typing as tp

VOCABULARY, LENGTH, HIDDEN, HEADS, LAYERS, BATCH = 24, 12, 32, 4, 2, 8


def weight(name, shape, axis):
    """A matrix of which every device has a part along ``axis``."""
    return flow.get_variable(
        name, shape, initializer=flow.random_normal_initializer(stddev=0.1), distribute=flow.distribute.split(axis)
    )


def bias(name, size, is_split):
    lies = flow.distribute.split(0) if is_split else flow.distribute.broadcast()
    return flow.get_variable(name, (size,), initializer=flow.zeros_initializer(), distribute=lies)


def norm(x, name):
    return flow.layers.layer_norm(x, begin_norm_axis=2, begin_params_axis=2, name=name)


def into_parts(x, units, name):
    """Each device makes its own units, out of the whole of x."""
    return flow.nn.bias_add(
        flow.matmul(x, weight(name + "-weight", (HIDDEN, units), 1)), bias(name + "-bias", units, True), "NTC"
    )


def out_of_parts(x, units, name):
    """Each device adds what its own units give; the sum is the result."""
    return flow.nn.bias_add(
        flow.matmul(x, weight(name + "-weight", (units, HIDDEN), 0)), bias(name + "-bias", HIDDEN, False), "NTC"
    )


def heads(x):
    return flow.transpose(flow.reshape(x, (BATCH, LENGTH, HEADS, HIDDEN // HEADS)), perm=(0, 2, 1, 3))


def attention(x):
    query, key, value = [heads(into_parts(x, HIDDEN, name)) for name in ("query", "key", "value")]
    scores = flow.matmul(query, key, transpose_b=True, alpha=1.0 / math.sqrt(HIDDEN // HEADS))
    seen = flow.nn.fused_scale_tril_softmax_dropout(scores, fill_value=-10000.0, rate=0.1)
    mixed = flow.transpose(flow.matmul(seen, value), perm=(0, 2, 1, 3))
    return out_of_parts(flow.reshape(mixed, (BATCH, LENGTH, HIDDEN)), HIDDEN, "projection")


def model(tokens):
    table = flow.get_variable(
        "wte",
        (VOCABULARY, HIDDEN),
        initializer=flow.random_normal_initializer(stddev=0.1),
        distribute=flow.distribute.split(0),
    )
    places = flow.get_variable("wpe", (LENGTH, HIDDEN), initializer=flow.random_normal_initializer(stddev=0.1))
    x = flow.gather(table, tokens) + places
    for i in range(LAYERS):
        with flow.scope.namespace("h%d" % i):
            with flow.experimental.scope.config(checkpointing=True):
                x = x + attention(norm(x, "layernorm_1"))
            x = x + out_of_parts(
                flow.math.gelu(into_parts(norm(x, "layernorm_2"), 4 * HIDDEN, "fc")), 4 * HIDDEN, "mlp"
            )
    return flow.matmul(flow.reshape(norm(x, "layernorm_f"), (-1, HIDDEN)), table, transpose_b=True)


def train(devices, steps=60):
    """The losses of sentences whose every word is the one before times 3 plus the sentence's own number."""
    flow.clear_default_session()
    flow.config.cpu_device_num(devices)

    @flow.global_function(type="train")
    def gpt2(tokens: tp.Numpy.Placeholder((BATCH, LENGTH + 1), dtype=flow.int32)) -> tp.Numpy:
        logits = model(flow.slice(tokens, [None, 0], [None, LENGTH]))
        labels = flow.reshape(flow.slice(tokens, [None, 1], [None, LENGTH]), (-1,))
        loss = flow.math.reduce_mean(flow.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))
        schedule = flow.optimizer.CosineScheduler(5e-3, 500, alpha=0.1, warmup=flow.optimizer.warmup.linear(5, 0.1))
        flow.optimizer.AdamW(
            schedule, do_bias_correction=True, weight_decay=0.01, weight_decay_excludes=["bias", "layernorm"]
        ).minimize(loss)
        return loss

    random, losses = np.random.default_rng(0), []
    for _ in range(steps):
        rows, number = [random.integers(0, VOCABULARY, BATCH)], random.integers(0, 3, BATCH)
        for _ in range(LENGTH):
            rows.append((3 * rows[-1] + number) % VOCABULARY)
        losses.append(gpt2(np.ascontiguousarray(np.stack(rows, 1), np.int32)).item())
    return losses


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--devices", type=int, default=1)
    parser.add_argument("--steps", type=int, default=60)
    args = parser.parse_args()
    for number, loss in enumerate(train(args.devices, args.steps)):
        if number % 10 == 0:
            print("step %d, loss %.4f" % (number, loss))
