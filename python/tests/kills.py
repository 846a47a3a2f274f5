"""Trainings that are killed with kill -9 and started again."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import antiphon


def check_kills(tmp_path: Path, script: str, *arguments: str, kills: int, steps: int) -> None:
    """Kills `script FOLDER ARGUMENTS` at random moments, ANTIPHON_KILLS times or as often as is said; what is started again ends with the
    parameters of a run that nobody killed, and with one line per step in its log. The script says when it begins to train, and from which step."""
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    whole.mkdir()
    # The same key for both: a seed would do, but a run on disk has a key file.
    antiphon.Key.fresh(whole / "run.key")
    shutil.copytree(whole, killed)

    def start(folder: Path) -> subprocess.Popen[str]:
        command = [sys.executable, str(Path(__file__).with_name(script)), str(folder), *arguments]
        child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
        assert child.stdout is not None and child.stdout.readline().startswith("begun")
        return child

    def end(child: subprocess.Popen[str]) -> str:
        digest = child.communicate()[0].split()[-1]
        assert child.returncode == 0
        return digest

    child, begin = start(whole), time.monotonic()
    expected = end(child)
    kills = int(os.environ.get("ANTIPHON_KILLS", kills))
    # Together they are shorter than the run, on a machine of any speed.
    longest = (time.monotonic() - begin) / (kills + 1)
    rng = random.Random(11)
    for _ in range(kills):
        child = start(killed)
        time.sleep(rng.uniform(0.0, longest))
        child.kill()
        child.communicate()
        assert child.returncode == -signal.SIGKILL, "the run ended before it was killed"
    assert end(start(killed)) == expected
    assert [json.loads(line)["step"] for line in (killed / "log").read_text().splitlines()] == list(range(steps))
