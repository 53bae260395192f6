"""Wide & Deep as it was trained in 2020: OFRecord files, a table split over devices by its features, and updates of the
rows that a batch used.

python examples/older_programs/wide_and_deep.py --devices 2
"""

import argparse
import os
import struct
import tempfile

import numpy as np

import oneflow as flow
import oneflow.typing as tp
from oneflow.core.record import record_pb2

WORDS, FIELDS, DENSE, EMBEDDING, BATCH = 500, 6, 4, 8, 32


def write_records(folder, parts=2, rows=256):
    """Made clicks: whether one comes depends on the words of the first two fields and on the first number."""
    random = np.random.default_rng(0)
    taste = random.normal(size=WORDS)
    for part in range(parts):
        with open(os.path.join(folder, "part-%d" % part), "wb") as file:
            for _ in range(rows):
                words, numbers = random.integers(0, WORDS, FIELDS), random.normal(size=DENSE)
                label = int(taste[words[0]] + taste[words[1]] + numbers[0] > 0)
                features = {
                    "deep_sparse_fields": record_pb2.Feature(int32_list=record_pb2.Int32List(value=words.tolist())),
                    "dense_fields": record_pb2.Feature(float_list=record_pb2.FloatList(value=numbers.tolist())),
                    "labels": record_pb2.Feature(int32_list=record_pb2.Int32List(value=[label])),
                }
                data = record_pb2.OFRecord(feature=features).SerializeToString()
                file.write(struct.pack("q", len(data)) + data)


def clicks(folder):
    records = flow.data.ofrecord_reader(
        folder, batch_size=BATCH, data_part_num=2, random_shuffle=True, shuffle_after_epoch=True, seed=7
    )

    def blob(name, shape, dtype):
        return flow.data.ofrecord_raw_decoder(records, name, shape=shape, dtype=dtype)

    return (
        blob("labels", (1,), flow.int32),
        blob("dense_fields", (DENSE,), flow.float),
        blob("deep_sparse_fields", (FIELDS,), flow.int32),
    )


def model(dense, words):
    wide_table = flow.get_variable(
        "wide_embedding",
        (WORDS, 1),
        initializer=flow.random_uniform_initializer(-0.05, 0.05),
        distribute=flow.distribute.split(0),
    )
    wide = flow.math.reduce_sum(flow.gather(wide_table, words), axis=[1])
    deep_table = flow.get_variable(
        "deep_embedding",
        (WORDS, EMBEDDING),
        initializer=flow.random_uniform_initializer(-0.05, 0.05),
        distribute=flow.distribute.split(1),
    )
    deep = flow.reshape(flow.gather(deep_table, words), (-1, FIELDS * EMBEDDING))
    x = flow.concat([deep, dense], axis=1)
    for i in range(2):
        x = flow.layers.dense(
            x, 32, flow.math.relu, kernel_initializer=flow.glorot_uniform_initializer(), name="fc%d" % (i + 1)
        )
    return wide + flow.layers.dense(x, 1, kernel_initializer=flow.glorot_uniform_initializer(), name="deep_scores")


def train(devices, steps=80, folder=None):
    """The mean losses, one a step."""
    if folder is None:
        with tempfile.TemporaryDirectory() as made:
            write_records(made)
            return train(devices, steps, made)
    flow.clear_default_session()
    flow.config.cpu_device_num(devices)
    config = flow.function_config()
    config.indexed_slices_optimizer_conf(dict(include_op_names=dict(op_name=["wide_embedding", "deep_embedding"])))

    @flow.global_function("train", config)
    def job() -> tp.Numpy:
        labels, dense, words = clicks(folder)
        loss = flow.nn.sigmoid_cross_entropy_with_logits(labels, model(dense, words))
        flow.optimizer.LazyAdam(flow.optimizer.PiecewiseConstantScheduler([], [0.01])).minimize(loss)
        return loss

    return [float(job().mean()) for _ in range(steps)]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--devices", type=int, default=1)
    parser.add_argument("--steps", type=int, default=80)
    args = parser.parse_args()
    for number, loss in enumerate(train(args.devices, args.steps)):
        if number % 10 == 0:
            print("step %d, loss %.4f" % (number, loss))
