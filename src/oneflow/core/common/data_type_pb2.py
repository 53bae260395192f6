"""The numbers that dtypes had; ``dtype=`` takes them everywhere. kOFRecord and kTensorBuffer are the types of no blob
here."""

from __future__ import annotations

kInvalidDataType = 0
kChar = 1
kFloat = 2
kDouble = 3
kInt8 = 4
kInt32 = 5
kInt64 = 6
kUInt8 = 7
kOFRecord = 8
kFloat16 = 9
kTensorBuffer = 10
