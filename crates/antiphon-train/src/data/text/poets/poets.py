#!/usr/bin/env python3
"""Makes poets.jsonl.gz from the poems of the npm package chinese-poetry, with the standard library alone.

    antiphon data fetch poetry --data data
    python3 poets.py data/poetry/poetry.jsonl.gz

A line of poets.jsonl.gz is one poet, as in the file of poems, with the first lines of the poet's poems: lines are taken
one after the other, in the order of the collection, while all of them together have at most 96 characters. A poet whose
first line is longer than that is left out. The content of the file of poems is checked.
"""

import gzip
import hashlib
import json
import pathlib
import sys

SHA256 = "c9694d152b4f663838677d8681c34de822cab215beb8d56fbaa1f211d7826b28"  # of the file of poems, unpacked
MOST = 96

text = gzip.decompress(pathlib.Path(sys.argv[1]).read_bytes())
found = hashlib.sha256(text).hexdigest()
if found != SHA256:
    sys.exit(f"{sys.argv[1]}: SHA-256 of the unpacked file must be {SHA256}, got {found}")

poets, full = {}, set()
for poem in map(json.loads, text.decode().splitlines()):
    user = poem["user"]
    lines = poets.setdefault(user, [])
    for line in poem["text"].split("\n"):
        if user not in full and sum(map(len, lines)) + len(line) <= MOST:
            lines.append(line)
        else:
            full.add(user)

content = "".join(
    json.dumps({"user": user, "text": "\n".join(lines)}, ensure_ascii=False, separators=(",", ":")) + "\n"
    for user, lines in poets.items()
    if lines
).encode()
output = pathlib.Path(__file__).with_name("poets.jsonl.gz")
output.write_bytes(gzip.compress(content, 9, mtime=0))
print(f"{output.name}: {content.count(10)} poets, {len(content)} bytes unpacked, SHA-256 of those {hashlib.sha256(content).hexdigest()}")
