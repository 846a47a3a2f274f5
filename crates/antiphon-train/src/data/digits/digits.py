#!/usr/bin/env python3
"""Makes digits.bin from the PyPI package scikit-learn, with the standard library alone.

    pip download --no-deps scikit-learn==1.9.1
    python3 digits.py scikit_learn-1.9.1-*.whl

A record of digits.bin is one byte for the label and 64 for the pixels (0..16, row by row), in the order of the file
in the package. The content of that file is checked: other versions of the package do as well while it stays the same.
"""

import gzip
import hashlib
import pathlib
import sys
import zipfile

INSIDE = "sklearn/datasets/data/digits.csv.gz"
SHA256 = "6ebb3d2fee246a4e99363262ddf8a00a3c41bee6014c373ed9d9216ba7f651b8"  # of the CSV file, unpacked

with zipfile.ZipFile(sys.argv[1]) as wheel:
    text = gzip.decompress(wheel.read(INSIDE))
found = hashlib.sha256(text).hexdigest()
if found != SHA256:
    sys.exit(f"{INSIDE}: SHA-256 of the unpacked file must be {SHA256}, got {found}")

records = bytearray()
for line in text.decode("ascii").splitlines():
    *pixels, label = (int(word) for word in line.split(","))
    if len(pixels) != 64 or not all(0 <= x <= 16 for x in pixels) or not 0 <= label <= 9:
        sys.exit(f"{INSIDE}: not 64 pixels in 0..16 and a label in 0..9: {line}")
    records += bytes([label, *pixels])

output = pathlib.Path(__file__).with_name("digits.bin")
output.write_bytes(records)
print(f"{output.name}: {len(records) // 65} records, SHA-256 {hashlib.sha256(records).hexdigest()}")
