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
    parameters of a run that nobody killed, and with one line per step in its log. The script prints the step that it begins with, a line for
    every step that is done, and a digest of its parameters."""
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    whole.mkdir()
    # The same key for both: a seed would do, but a run on disk has a key file.
    antiphon.Key.fresh(whole / "run.key")
    shutil.copytree(whole, killed)

    def start(folder: Path) -> subprocess.Popen[str]:
        command = [sys.executable, str(Path(__file__).with_name(script)), str(folder), *arguments]
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})

    def end(child: subprocess.Popen[str]) -> tuple[int, str]:
        """The step that it began with, and the digest."""
        words = child.communicate()[0].split()
        assert child.returncode == 0
        return int(words[0]), words[-1]

    begun, expected = end(start(whole))
    assert begun == 0
    kills = int(os.environ.get("ANTIPHON_KILLS", kills))
    rng = random.Random(11)
    for _ in range(kills):
        child = start(killed)
        assert child.stdout is not None
        begun, before = int(child.stdout.readline()), begun
        assert begun >= before
        # Steps, not seconds: together they are fewer than the run has, on a machine of any speed. Then up to two steps more.
        assert child.stdout.readline()
        start_of_steps, count = time.monotonic(), rng.randrange(1, steps // (kills + 1) - 4)
        for _ in range(count):
            assert child.stdout.readline()
        time.sleep(rng.uniform(0.0, 2.0) * (time.monotonic() - start_of_steps) / count)
        child.kill()
        child.communicate()
        assert child.returncode == -signal.SIGKILL
    begun, digest = end(start(killed))
    assert 0 < begun < steps, "nothing was resumed"
    assert digest == expected
    assert [json.loads(line)["step"] for line in (killed / "log").read_text().splitlines()] == list(range(steps))
