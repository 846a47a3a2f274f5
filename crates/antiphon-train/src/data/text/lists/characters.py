#!/usr/bin/env python3
"""Makes characters.txt: the marks of the poems, then frequent Chinese characters, the most frequent first.

    npm pack --ignore-scripts chinese-poetry@2.0.1
    pip install opencc-python-reimplemented==0.1.7
    python3 characters.py chinese-poetry-2.0.1.tgz

The characters are counted in the books of the Ming and the Qing in the package: none of them is by a poet of the Tang or
the Song. Two of the books are printed there with simplified characters; OpenCC turns them into traditional ones, which
the poems have.
"""

import collections
import hashlib
import json
import pathlib
import re
import sys
import tarfile

from opencc import OpenCC

SHA256 = "25b549e46919c3a0569db6b68ddc96956b04a484ea4518ad2bbd4f137e307e86"  # of the archive
MARKS = "，。？！；：、"
MOST = 2000
TRADITIONAL = [
    "mengxue/shenglvqimeng.json",  # 聲律啓蒙, Che Wanyu, Qing
    "mengxue/youxueqionglin.json",  # 幼學瓊林, Cheng Dengji, Ming
    "mengxue/dizigui.json",  # 弟子規, Li Yuxiu, Qing
    "mengxue/zhuzijiaxun.json",  # 朱子家訓, Zhu Bolu, Qing
]
SIMPLIFIED = [
    "youmengying/youmengying.json",  # 幽夢影, Zhang Chao, Qing
    "nalanxingde/纳兰性德诗集.json",  # poems of Nalan Xingde, Qing
]


def text(value):
    """The text in a book, without titles, authors and descriptions."""
    if isinstance(value, dict):
        return "".join(text(v) for k, v in value.items() if k not in ("title", "author", "abstract", "chapter"))
    return "".join(map(text, value)) if isinstance(value, list) else value


archive = pathlib.Path(sys.argv[1])
found = hashlib.sha256(archive.read_bytes()).hexdigest()
if found != SHA256:
    sys.exit(f"{archive}: SHA-256 must be {SHA256}, got {found}")
with tarfile.open(archive) as tar:
    read = lambda name: text(json.load(tar.extractfile("package/dist/" + name)))
    books = "".join(map(read, TRADITIONAL)) + OpenCC("s2t").convert("".join(map(read, SIMPLIFIED)))

counts = collections.Counter(re.findall("[\u3400-\u9fff]", books))
ranked = sorted(counts, key=lambda c: (-counts[c], c))
output = pathlib.Path(__file__).with_name("characters.txt")
output.write_text("".join(c + "\n" for c in [*MARKS, *ranked[: MOST - len(MARKS)]]), encoding="utf-8")
print(f"{output.name}: {sum(counts.values())} characters read, SHA-256 {hashlib.sha256(output.read_bytes()).hexdigest()}")
