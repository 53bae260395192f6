"""Run by an interpreter that has TensorFlow. ``write FOLDER`` made the files beside this one; ``read PREFIX`` prints
what TensorFlow finds, as JSON."""

from __future__ import annotations

import json
import os
import sys

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"

import numpy as np
import tensorflow

tf = tensorflow.compat.v1
NOT_IN_V1 = ("brain", "text", "half")  # dtypes that the older saver does not take


def write(folder: str) -> None:
    tf.disable_eager_execution()

    def variable(name: str, value: np.ndarray) -> None:
        tf.get_variable(name, initializer=tf.constant(value))

    variable("LeNet/conv1/weights", (np.arange(72) % 7 - 3).astype(np.float32).reshape(3, 3, 2, 4) / 4)
    variable("LeNet/conv1/biases", np.zeros(4, np.float32))
    variable("LeNet/fc/weights", np.repeat(np.arange(64, dtype=np.float32), 16).reshape(16, 64))
    variable("half", np.array([1.5, -2.25], np.float16))
    variable("double", np.array([[1.0 / 3]]))
    variable("flags", np.array([True, False, True]))
    variable("small", np.array([-128, 127], np.int8))
    variable("count32", np.array([-5, 70000], np.int32))
    tf.get_variable("brain", initializer=tf.cast(tf.constant([1.5, -3.0]), tf.bfloat16))
    tf.get_variable("global_step", initializer=np.int64(123456789012))
    tf.get_variable("text", initializer="hello")

    def rows(shape, dtype=None, partition_info=None):
        return tf.reshape(tf.range(float(shape[0] * shape[1])), shape) + partition_info.var_offset[0] * 3.0

    tf.get_variable("table", [200, 3], initializer=rows, partitioner=tf.fixed_size_partitioner(3, axis=0))
    with tf.Session() as session:
        session.run(tf.global_variables_initializer())
        for version, name in ((1, "old.ckpt"), (2, "new.ckpt")):
            chosen = [v for v in tf.global_variables() if version == 2 or v.op.name not in NOT_IN_V1]
            tf.train.Saver(chosen, write_version=version).save(
                session, os.path.join(folder, name), write_meta_graph=False
            )


def read(prefix: str) -> None:
    found = tensorflow.train.load_checkpoint(prefix)
    names = found.get_variable_to_shape_map()
    print(json.dumps({name: [found.get_tensor(name).dtype.name, found.get_tensor(name).tolist()] for name in names}))


if __name__ == "__main__":
    {"write": write, "read": read}[sys.argv[1]](sys.argv[2])
