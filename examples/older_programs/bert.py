"""BERT as programs of 2020 trained it: masked words and the order of two sentences, then a classifier that begins with
those weights.

The data is made: a sentence is one word again and again, so what is masked can be told from what stands beside it.

    python examples/older_programs/bert.py --devices 2
"""

import argparse
import math

import numpy as np

import oneflow as flow
import oneflow.typing as tp

VOCABULARY, LENGTH, HIDDEN, HEADS, LAYERS, MASKED, BATCH = 12, 8, 32, 2, 1, 2, 32


def normal():
    return flow.truncated_normal(0.1)


def dense(x, units, name, activation=None):
    return flow.layers.dense(
        x,
        units,
        activation=activation,
        kernel_initializer=normal(),
        bias_initializer=flow.zeros_initializer(),
        name=name,
    )


def attention(x, name):
    with flow.scope.namespace(name):
        parts = [
            flow.reshape(dense(x, HIDDEN, part), [BATCH, LENGTH, HEADS, HIDDEN // HEADS])
            for part in ("query", "key", "value")
        ]
        query, key, value = [flow.transpose(part, perm=[0, 2, 1, 3]) for part in parts]
        scores = flow.math.multiply(flow.matmul(query, key, transpose_b=True), 1.0 / math.sqrt(HIDDEN / HEADS))
        mixed = flow.matmul(flow.nn.softmax(scores), value)
        return dense(flow.reshape(flow.transpose(mixed, perm=[0, 2, 1, 3]), [-1, HIDDEN]), HIDDEN, "output")


def encoder(words, sentence):
    with flow.scope.namespace("bert-embeddings"):
        table = flow.get_variable("word_embeddings", shape=[VOCABULARY, HIDDEN], initializer=normal())
        x = flow.gather(params=table, indices=words, axis=0)
        places = flow.get_variable("position_embeddings", shape=[1, LENGTH, HIDDEN], initializer=normal())
        kinds = flow.get_variable("token_type_embeddings", shape=[2, HIDDEN], initializer=normal())
        x = flow.layers.layer_norm(
            x + places + flow.gather(kinds, sentence), begin_norm_axis=-1, begin_params_axis=-1, name="LayerNorm"
        )
        x = flow.reshape(x, [-1, HIDDEN])
    for i in range(LAYERS):
        with flow.scope.namespace("bert-encoder-layer_%d" % i):
            x = flow.layers.layer_norm(
                x + attention(x, "attention"), begin_norm_axis=-1, begin_params_axis=-1, name="attention_norm"
            )
            inner = dense(x, 4 * HIDDEN, "intermediate", flow.math.gelu)
            x = flow.layers.layer_norm(
                x + dense(inner, HIDDEN, "output"), begin_norm_axis=-1, begin_params_axis=-1, name="output_norm"
            )
    return flow.reshape(x, [BATCH, LENGTH, HIDDEN])


def first(x):
    return dense(
        flow.reshape(flow.slice(x, [None, 0, 0], [None, 1, -1]), [-1, HIDDEN]), HIDDEN, "pooler", flow.math.tanh
    )


def optimizer(rate, kind):
    warmup = flow.optimizer.warmup.linear(10, 0)
    schedule = flow.optimizer.PolynomialSchduler(rate, 200, 0.0, warmup=warmup)
    if kind == "lamb":
        return flow.optimizer.LAMB(schedule)
    clip = flow.optimizer.grad_clipping.by_global_norm(5.0)
    return flow.optimizer.AdamW(
        schedule,
        epsilon=1e-6,
        weight_decay=0.01,
        weight_decay_excludes=["bias", "LayerNorm", "norm"],
        grad_clipping=clip,
    )


def define():
    """The two jobs; the classifier's encoder has the variables of the other's."""
    config = flow.function_config()
    config.indexed_slices_optimizer_conf(dict(include_op_names=dict(op_name=["bert-embeddings-word_embeddings"])))
    integers = dict(dtype=flow.int32)

    @flow.global_function("train", config)
    def pretrain(
        words: tp.Numpy.Placeholder((BATCH, LENGTH), **integers),
        sentence: tp.Numpy.Placeholder((BATCH, LENGTH), **integers),
        places: tp.Numpy.Placeholder((BATCH, MASKED), **integers),
        answers: tp.Numpy.Placeholder((BATCH, MASKED), **integers),
        follows: tp.Numpy.Placeholder((BATCH, 1), **integers),
    ) -> tp.Numpy:
        x = encoder(words, sentence)
        masked = flow.reshape(flow.gather(x, places, axis=2, batch_dims=2), [-1, HIDDEN])
        table = flow.get_variable("bert-embeddings-word_embeddings")
        scores = flow.matmul(dense(masked, HIDDEN, "cls-predictions", flow.math.gelu), table, transpose_b=True)
        word_loss = flow.nn.sparse_softmax_cross_entropy_with_logits(logits=scores, labels=flow.reshape(answers, [-1]))
        order_loss = flow.nn.sparse_softmax_cross_entropy_with_logits(
            logits=dense(first(x), 2, "cls-order"), labels=flow.reshape(follows, [-1])
        )
        loss = flow.math.reduce_mean(word_loss) + flow.math.reduce_mean(order_loss)
        optimizer(3e-3, "adamw").minimize(loss)
        return loss

    @flow.global_function(type="train")
    def classify(
        words: tp.Numpy.Placeholder((BATCH, LENGTH), **integers),
        sentence: tp.Numpy.Placeholder((BATCH, LENGTH), **integers),
        label: tp.Numpy.Placeholder((BATCH,), **integers),
    ) -> tp.Numpy:
        scores = dense(first(encoder(words, sentence)), 2, "classifier")
        loss = flow.math.reduce_mean(flow.nn.sparse_softmax_cross_entropy_with_logits(label, scores))
        optimizer(5e-3, "lamb").minimize(loss)
        return loss

    return pretrain, classify


def batch(random):
    """Two sentences, each of one word again and again, some of them masked by 0; the word of the second is that of the
    first plus 3, or not."""
    half = LENGTH // 2
    follows = random.integers(0, 2, BATCH)
    one = random.integers(1, VOCABULARY, BATCH)
    other = (one + np.where(follows, 3, random.integers(4, VOCABULARY, BATCH)) - 1) % (VOCABULARY - 1) + 1
    words = np.stack([one, other], 1).repeat(half, 1)
    places = np.stack([random.permutation(LENGTH)[:MASKED] for _ in range(BATCH)])
    answers = np.take_along_axis(words, places, 1)
    np.put_along_axis(words, places, 0, 1)
    sentence = np.tile(np.repeat([0, 1], half), (BATCH, 1))
    return [
        np.ascontiguousarray(value, np.int32)
        for value in (words, sentence, places, answers, follows[:, None], one > VOCABULARY // 2)
    ]


def train(devices, steps=90):
    """The losses of both trainings; the classifier tells in which half of the vocabulary the first word stands."""
    flow.clear_default_session()
    flow.config.cpu_device_num(devices)
    pretrain, classify = define()
    random = np.random.default_rng(0)
    words = [pretrain(*batch(random)[:5]).item() for _ in range(steps)]
    classes = []
    for _ in range(steps // 3):
        tokens, sentence, *_, kind = batch(random)
        classes.append(classify(tokens, sentence, kind).item())
    return words + classes


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--devices", type=int, default=1)
    parser.add_argument("--steps", type=int, default=90)
    args = parser.parse_args()
    for number, loss in enumerate(train(args.devices, args.steps)):
        if number % 10 == 0:
            print("step %d, loss %.4f" % (number, loss))
