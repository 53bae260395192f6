"""Features of one format as features of the other."""

import numpy as np
import pytest

from oneflow.engine.core.errors import DataError
from oneflow.engine.core.record.messages import FeatureValue
from oneflow.engine.data.formats.convert import as_example, as_record


def feature(kind, values):
    dtypes = {"int32_list": np.int32, "int64_list": np.int64, "double_list": np.float64, "float_list": np.float32}
    return FeatureValue(kind, np.array(values, dtypes[kind]))


def test_int32_becomes_int64_and_exact_doubles_become_floats():
    features = {
        "i": feature("int32_list", [-(2**31), 5]),
        "d": feature("double_list", [0.5, np.inf, np.nan]),
        "f": feature("float_list", [0.1]),
        "b": FeatureValue("bytes_list", [b"x"]),
        "n": FeatureValue(None, []),
    }
    example = as_example(features)
    assert {key: value.kind for key, value in example.items()} == {
        "i": "int64_list", "d": "float_list", "f": "float_list", "b": "bytes_list", "n": None,
    }  # fmt: skip
    assert example["i"].values.tolist() == [-(2**31), 5]
    np.testing.assert_array_equal(example["d"].values, np.array([0.5, np.inf, np.nan], np.float32))


@pytest.mark.parametrize("value", [0.1, 1e300, 2.0**24 + 1])
def test_a_double_that_would_change_is_an_error(value):
    with pytest.raises(DataError, match="feature 'd' has the value .*a float_list cannot hold"):
        as_example({"d": feature("double_list", [0.5, value])})


def test_int64_stays_unless_it_is_named():
    features = {"label": feature("int64_list", [7]), "id": feature("int64_list", [2**40])}
    record = as_record(features, {"label"})
    assert (record["label"].kind, record["id"].kind) == ("int32_list", "int64_list")
    with pytest.raises(DataError, match="feature 'id' has the value .*1099511627776.*int32_list cannot hold"):
        as_record(features, {"id"})
    with pytest.raises(DataError, match="is a bytes_list and cannot become"):
        as_record({"b": FeatureValue("bytes_list", [b"x"])}, {"b"})
