#!/usr/bin/env python3
"""Where the SHA-256 sums in fashion_mnist.rs come from, and that they are those of the files which Zalando published.

    apt-get download dataset-fashion-mnist && dpkg-deb -x dataset-fashion-mnist_*.deb unpacked
    python3 fashion_mnist.py unpacked/usr/share/datasets/fashion-mnist

Zalando's README (also in the package) gives MD5 sums of the compressed files. Debian's build took the name and the time
out of the gzip headers. With both put back, the MD5 sums are Zalando's.
"""

import gzip
import hashlib
import pathlib
import struct
import sys

FILES = {  # MD5 in Zalando's README; time of compression, found by trying all seconds back from September 2017
    "train-images-idx3-ubyte": ("8d4fb7e6c68d591d4c3dfef9ec88bf0d", 1504176606),
    "train-labels-idx1-ubyte": ("25c81989df183df01b3e8a0aad5dffbe", 1504176606),
    "t10k-images-idx3-ubyte": ("bef4ecab320f06d8554ea6380940ec79", 1504176627),
    "t10k-labels-idx1-ubyte": ("bb300cfdad3c16e7a12a480ee83cd310", 1504176627),
}
HAS_NAME = b"\x08"

for name, (md5, time) in FILES.items():
    packed = (pathlib.Path(sys.argv[1]) / f"{name}.gz").read_bytes()
    head = packed[:3] + HAS_NAME + struct.pack("<I", time) + packed[8:10] + name.encode() + b"\0"
    found = hashlib.md5(head + packed[10:]).hexdigest()
    if found != md5:
        sys.exit(f"{name}.gz: MD5 with name and time put back must be {md5}, got {found}")
    print(name, hashlib.sha256(gzip.decompress(packed)).hexdigest())
