"""What is compared is alike: the peers have our weights, and the sources, lengths and ends are those it says.

`tests/peers.sh` installs PyTorch and transformers and runs these tests with them; elsewhere those that need them are
skipped.
"""

import dataclasses
import functools
import json
import os
import pathlib
import subprocess
import sys
import time
from importlib.util import find_spec

import loopback_server
import numpy as np
import programs
import pytest
import sacrebleu
import stand_in
import tensorflow as tf
import toy

from benchmarks import noisy_text, unseen_words
from t2t_keras.config import BOS, EOS, PAD, ModelConfig
from t2t_keras.model.transformer import Transformer

ROOT = pathlib.Path(__file__).parent.parent
PEERS = "PyTorch and transformers are not installed: tests/peers.sh installs them and runs this test"
SMALL = ModelConfig(60, encoder_layers=2, decoder_layers=3, d_model=16, d_ff=24, num_heads=2, d_k=8, d_v=8)


@pytest.mark.parametrize(
    "config", [SMALL, dataclasses.replace(SMALL, learned_positions=6)], ids=["sinusoids", "learned positions"]
)
def test_marian_with_our_weights_has_our_logits(config):
    torch = pytest.importorskip("torch", reason=PEERS)
    pytest.importorskip("transformers", reason=PEERS)
    from benchmarks import decode

    model = Transformer(config)
    toy.set_weights(model)
    peer = decode.to_marian(model, 20)
    draw = np.random.default_rng(2)
    source = toy.padded([[*draw.integers(4, 60, length), EOS] for length in (9, 3, 14)])
    target = np.concatenate([np.full([3, 1], BOS), draw.integers(4, 60, [3, 11])], axis=1).astype(np.int32)
    with torch.inference_mode():
        ids, written = (torch.from_numpy(each).long() for each in (source, target))
        logits = peer(input_ids=ids, attention_mask=(ids != PAD).long(), decoder_input_ids=written).logits
    np.testing.assert_allclose(logits.numpy(), model((source, target)).numpy(), rtol=0, atol=1e-4)


def test_heads_that_marian_has_not_are_refused():
    pytest.importorskip("transformers", reason=PEERS)
    from benchmarks import decode

    with pytest.raises(ValueError, match="Received: num_heads=2, d_k=6, d_v=8, d_model=16"):
        decode.to_marian(Transformer(dataclasses.replace(SMALL, d_k=6)), 20)
    with pytest.raises(ValueError, match="Expected attention=scaled, as Marian requires. Received: attention=unscaled"):
        decode.to_marian(Transformer(dataclasses.replace(SMALL, attention="unscaled")), 20)


def test_a_model_that_never_ends_gives_no_special_id_a_chance():
    from benchmarks import our_decoder

    model = our_decoder.never_ending(dataclasses.replace(SMALL, d_model=64))
    draw = np.random.default_rng(3)
    source, target = (draw.integers(0, 60, [5, 8]).astype(np.int32) for _ in range(2))
    log_p = tf.nn.log_softmax(model((source, target))).numpy()
    assert log_p[..., : EOS + 1].max() < log_p[..., EOS + 1 :].min() - 5


@pytest.mark.slow
def test_all_systems_write_equally_much_and_float32_writes_the_same():
    pytest.importorskip(
        "ctranslate2", reason="the extra 'ctranslate2' is not installed: pip install -e '.[ctranslate2]'"
    )
    arguments = [
        "--config=C256", "--vocab_size=100", "--target_length=6", "--sentences=6", "--single_sentences=3", "--rounds=1",
        "--json",
    ]  # fmt: skip
    program = [sys.executable, str(ROOT / "benchmarks/decode.py"), *arguments, "--batch_sizes=4,1", "--beam_sizes=2,1"]
    result = subprocess.run(program, capture_output=True, text=True, cwd=ROOT, check=True)
    measured = json.loads(result.stdout)
    assert measured["machine"]["cores"] >= 1
    systems = {row["system"] for row in measured["rows"]}
    assert {"t2t_keras float32", "CTranslate2 float32"} <= systems
    assert len(measured["rows"]) == 4 * len(systems)
    for row in measured["rows"]:
        assert row["mean_length"] == 6
        assert row["sub_words_per_second"] == pytest.approx(6 * row["sentences_per_second"])
        if row["system"].endswith("float32"):
            assert row["equal"] == 1


# The load of a model server. locust replaces Python's sockets, so it runs in a process of its own.


@pytest.fixture
def stand_in_server(tmp_path):
    """A model server whose answers take 50 ms, and the requests that it has got."""
    seen: list[dict] = []

    def before(inputs: dict) -> None:
        seen.append(inputs)
        time.sleep(0.05)
        if b"stop" in inputs["text"]:
            raise tf.errors.InternalError(None, None, "Told to stop.")

    servable = loopback_server.Servable(stand_in.write(tmp_path / "export"), before=before)
    with loopback_server.served(servable) as addresses:
        yield addresses, seen


def load_of(addresses: list[str], source: pathlib.Path, *flags: str) -> subprocess.CompletedProcess:
    if not find_spec("locust"):  # Importing it would replace the sockets of this process.
        pytest.skip("locust is not installed: tests/peers.sh installs it and runs this test")
    given = [f"--server={','.join(addresses)}", f"--source={source}", "--warm_up=1", "--seconds=2", *flags]
    command = [sys.executable, str(ROOT / "benchmarks/serving.py"), *given]
    return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=120)


def test_users_share_a_server_and_wait_for_their_own_answers(stand_in_server, tmp_path):
    """A user alone has 20 answers of 50 ms in a second, and four have 80, each still after 50 ms."""
    addresses, seen = stand_in_server
    (tmp_path / "source").write_text("one\n\ntwo\n")
    result = load_of(list(addresses.values()), tmp_path / "source", "--users=1,4")
    assert result.returncode == 0, result.stderr
    lines = [line for line in result.stdout.splitlines() if "://" in line]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    assert [(row[0], row[2]) for row in rows] == [(address, users) for address in addresses.values() for users in "14"]
    for row in rows:
        users, median, rate = float(row[2]), float(row[3]), float(row[6])
        assert 50 <= median < 200 and float(row[4]) <= float(row[5])
        assert 5 * users < rate <= 20.5 * users and row[7] == "0%"
    assert {text for inputs in seen for text in inputs["text"].tolist()} == {b"one", b"two"}


def test_requests_that_fail_are_counted_and_said(stand_in_server, tmp_path):
    addresses, _ = stand_in_server
    (tmp_path / "source").write_text("one\nstop\n")
    result = load_of([addresses["grpc"]], tmp_path / "source", "--users=1")
    [row] = [line.strip("|").split("|") for line in result.stdout.splitlines() if "://" in line]
    assert 40 <= int(row[7].strip().removesuffix("%")) <= 60 and 4 < float(row[6]) <= 10.5  # Every second one.
    assert "requests of 1 users failed: " in result.stderr and "Told to stop." in result.stderr


# Programs whose flags have the same names, so that each runs in a process of its own.


def printed(module: str, code: str, *arguments) -> str:
    """What some code prints with a module of the benchmarks as `program` and the arguments in `sys.argv`."""
    code = f"import pathlib, sys\nfrom benchmarks import {module} as program\n{code}"
    command = [sys.executable, "-c", code, *map(str, arguments)]
    result = programs.run(command, modules=programs.WITHOUT_TENSORFLOW, capture_output=True, text=True, cwd=ROOT)
    assert result.returncode == 0, result.stderr
    return result.stdout.strip()


@pytest.mark.medium
def test_the_last_line_of_a_text_is_translated_too(tmp_path):
    """Also where no line break ends it."""
    (tmp_path / "source").write_text("a dog\ntwo")
    code = f"""
import json, pathlib
from absl import flags
from t2t_keras.config import DecodeConfig
from t2t_keras.decoding import loading
import stand_in
from benchmarks import decode

loading.load = lambda folder: stand_in.translator(DecodeConfig(beam_size=1))
decode.installed = lambda *packages: {{}}
flags.FLAGS(["decode", "--model_dir=run", "--source={tmp_path}/source", "--batch_sizes=2"])
print(json.dumps(len(decode.prepare(pathlib.Path({str(tmp_path)!r}))["sources"]["2"])))
"""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests")])}
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, env=environment)
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout) == 2


def test_speeds_and_ratios_are_those_of_the_median_round():
    """Rounds of 1, 2 and 6 seconds beside some of 2, 3 and 10, in which two sentences become five sub-words."""
    code = """
import json
found = {
    (2, 4, name): [{"seconds": second, "written": [[5, 6], [7, 8, 9]]} for second in seconds]
    for name, seconds in (("t2t_keras float32", (6.0, 1.0, 2.0)), ("CTranslate2 int8", (2.0, 10.0, 3.0)))
}
for result in found[2, 4, "CTranslate2 int8"]:
    result |= {"inter_threads": 1, "intra_threads": 2, "environment": {}}
print(json.dumps(program.rows_of({"sources": {"2": ["a", "b"]}}, [2, 4], found)))
"""
    ours, other = json.loads(printed("decode", code))
    names = ("sub_words_per_second", "sentences_per_second", "slowest", "fastest", "ratio")
    assert [ours[name] for name in names] == pytest.approx([5 / 2, 2 / 2, 5 / 6, 5, 3 / 2])
    assert [other[name] for name in names] == pytest.approx([5 / 3, 2 / 3, 5 / 10, 5 / 2, 1])


# The rehearsal of WMT14.

rehearsal = functools.partial(printed, "wmt14_rehearsal")


def test_the_text_of_the_rehearsal_is_aligned_as_long_as_wmt14_s_and_the_same_each_time(tmp_path):
    code = "program.TYPES, program.PAIRS_AT_ONCE = 5000, 700\nprogram.generate(pathlib.Path(sys.argv[1]), 2000)"
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        rehearsal(code, tmp_path / name)
    for name, number in {"train.en": 2000, "train.de": 2000, "valid.en": 3000, "valid.de": 3000}.items():
        lines = (tmp_path / "one" / name).read_text(encoding="utf-8").split("\n")
        assert len(lines) == number + 1 and all(lines[:-1])
        assert 22 < np.mean([len(line.split()) for line in lines[:-1]]) < 28
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()


def test_the_rehearsal_compares_all_weights_and_not_the_duration(tmp_path):
    code = "print(program.difference(*map(pathlib.Path, sys.argv[1:])))"
    paths = [tmp_path / "whole.npz", tmp_path / "killed.npz"]
    for path, state in zip(paths, ("10 s", "20 s"), strict=True):
        np.savez(path, state=state, kernel=np.ones(3), bias=np.ones(2))
    assert rehearsal(code, *paths) == "weights and optimizer equal those of the run without a break"
    np.savez(paths[1], state="20 s", kernel=np.array([1, 1, 1.25]), bias=np.ones(2))
    assert rehearsal(code, *paths).startswith("1 of 2 arrays")


def test_the_rehearsal_counts_memory_in_gib_and_the_updates_between_two_times():
    """Update 4 ends 30 s after update 1."""
    code = """
import json
from types import SimpleNamespace
codes = iter([None, None, 0])
child = object.__new__(program.Child)
child.process, child._memory, child._started = SimpleNamespace(pid=1, poll=lambda: next(codes)), [], 0.0
kib = iter(["VmRSS:\\t 3145728 kB", "VmRSS:\\t 1048576 kB"])
program.pathlib = SimpleNamespace(Path=lambda name: SimpleNamespace(read_text=lambda: next(kib)))
program.time = SimpleNamespace(sleep=lambda seconds: None, monotonic=lambda: 20.0)
child._watch()
child.lines = [(10.0, " update 1 of 4: loss 3"), (40.0, " update 4 of 4: loss 2, time left 0")]
child.wait = lambda: 45.0
program.flags.FLAGS(["rehearsal", "--work_dir=x", "--steps=4"])
program.train = lambda folder, model_dir: child
print(json.dumps([child.peak(), [seconds for _, seconds, *_ in program.uninterrupted(pathlib.Path("nowhere"))]]))
"""
    assert json.loads(rehearsal(code)) == [3, [10, 30 / 3, 5]]


REFERENCES = ["a b c a b", "b New New c", "c b a c", "Old b c a"]
TRANSLATIONS = ["a b c b b", "b c New c", "c b a c", "b c a a"]


def bleu(*lines: int) -> tuple[int, float]:
    """Of some sentences: their number, and sacreBLEU's BLEU."""
    hypotheses, references = ([texts[line] for line in lines] for texts in (TRANSLATIONS, REFERENCES))
    return len(lines), pytest.approx(sacrebleu.corpus_bleu(hypotheses, [references], tokenize="none", force=True).score)


def test_noise_of_a_kind_is_in_each_sentence_and_capitals_in_its_reference_too():
    sources, references = ["<2de> two Dogs play .", "<2de> A cat"], ["zwei Hunde spielen .", "Eine Katze"]
    upper = noisy_text.noisy(sources, references, "upper", 1, ["<2de>"])
    assert upper == (["<2de> TWO DOGS PLAY .", "<2de> A CAT"], ["ZWEI HUNDE SPIELEN .", "EINE KATZE"])
    assert noisy_text.noisy(sources, references, "clean", 1) == (sources, references)
    near = {"a": "s", "c": "xv", "d": "sf", "g": "fh", "l": "k", "o": "ip", "p": "o", "s": "ad", "t": "ry"}
    near |= {"w": "qe", "y": "tu"}
    for seed in range(50):
        typed, same = noisy_text.noisy(["two dogs play", "cat"], references, "keyboard", seed)
        assert same == references
        for old, new in zip(["two dogs play", "cat"], typed, strict=True):
            differing = [(one, other) for one, other in zip(old, new, strict=True) if one != other]
            assert differing and all(other in near[one] for one, other in differing)


def test_sentences_with_words_that_the_training_text_lacks_are_scored_by_themselves():
    """A word that comes twice is counted twice."""
    assert unseen_words.measure(["a b", "c"], REFERENCES, TRANSLATIONS, tokenize="none") == {
        "words": 17, "unseen": 3, "found": 2, "all": bleu(0, 1, 2, 3), "seen": bleu(0, 2), "with_unseen": bleu(1, 3)
    }  # fmt: skip
    known = unseen_words.measure(["a b c New Old"], REFERENCES, TRANSLATIONS, tokenize="none")
    assert (known["unseen"], known["seen"], known["with_unseen"]) == (0, bleu(0, 1, 2, 3), (0, 0.0))


@pytest.mark.parametrize(
    ("flags", "unseen", "sentences"),
    [([], "3 of them (17.6%)", ["4", "2", "2"]), (["--lowercase"], "1 of them (5.9%)", ["4", "3", "1"])],
)
def test_the_program_shows_what_unseen_words_cost(tmp_path, flags, unseen, sentences):
    texts = {"train": ["a b", "c new", "A"], "reference": ["A b c a b", *REFERENCES[1:]], "hypothesis": TRANSLATIONS}
    for name, lines in texts.items():
        (tmp_path / name).write_text("".join(f"{line}\n" for line in lines))
    files = [f"--{path.name}={path}" for path in tmp_path.iterdir()]
    command = [sys.executable, str(ROOT / "benchmarks/unseen_words.py"), *files, "--tokenize=none", *flags]
    result = programs.run(command, modules=programs.WITHOUT_TENSORFLOW, capture_output=True, text=True)
    words, every, seen, others = result.stdout.splitlines()
    assert words.startswith(f"17 words, {unseen} not in the training text; translations have ")
    assert every.split()[:3] == ["all", "4", "sentences"]
    assert seen.startswith("without unseen words")
    assert others.startswith("with unseen words")
    assert [line.split()[-4] for line in (every, seen, others)] == sentences
