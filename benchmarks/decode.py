"""Compares decoding speed with CTranslate2 and Hugging Face: on one machine, in one run, with the same weights and
source ids.

python benchmarks/decode.py --model_dir=runs/x --source=test.en    # a trained model
python benchmarks/decode.py --config=base # random weights; all translations have the same length

Each measurement runs in a process of its own, because thread pools and instruction sets are chosen once per process.
Rounds alternate between the systems. CTranslate2 runs with the instruction set, matrix library and threads that are
fastest in a short first round. To install the other systems: pip install -e '.[bench]'.
"""

import collections
import contextlib
import dataclasses
import importlib.metadata
import itertools
import json
import os
import pathlib
import shlex
import statistics
import subprocess
import sys
import tempfile
import time

from absl import flags

# `python benchmarks/decode.py` puts only this folder there.
sys.path.insert(0, str(pathlib.Path(__file__).parent.parent))

from benchmarks.passes.process import progress
from t2t_keras.cli import program
from t2t_keras.config import EOS, PAD, DecodeConfig, paper
from t2t_keras.data import text_files
from t2t_keras.decoding import process_environment
from t2t_keras.runs.saved_run import SavedRun
from t2t_keras.system import markdown
from t2t_keras.system.machine import cpu

_MODEL_DIR = flags.DEFINE_string("model_dir", "", "Folder of a training run.")
_SOURCE = flags.DEFINE_string("source", "", "With --model_dir: text to translate, one sentence per line.")
_CONFIG = flags.DEFINE_enum(
    "config", "base", sorted(paper.TABLE_3), "Without --model_dir: row of Table 3, with random weights."
)
_VOCAB_SIZE = flags.DEFINE_integer("vocab_size", 32_000, "With --config: vocabulary size.", lower_bound=5)
_TARGET_LENGTH = flags.DEFINE_integer(
    "target_length", 30, "With --config: length of all sources and translations, in sub-words.", lower_bound=2
)
_SYSTEMS = flags.DEFINE_list(
    "systems", [], "Systems to compare, by name or beginning of the name; empty: all that are installed."
)
_BATCH_SIZES = flags.DEFINE_list(
    "batch_sizes", ["64", "1"], "Batch sizes, in sentences; 1 translates one sentence after the other."
)
_BEAM_SIZES = flags.DEFINE_list("beam_sizes", ["4", "1"], "Beam sizes.")
_ALPHA = flags.DEFINE_float("alpha", 0.6, "Length penalty, as each system defines it.")
_SENTENCES = flags.DEFINE_integer(
    "sentences", 128, "Number of sentences per measurement; at least one batch for each core.", lower_bound=1
)
_SINGLE_SENTENCES = flags.DEFINE_integer(
    "single_sentences", 16, "Number of sentences per measurement with batch size 1.", lower_bound=1
)
_ROUNDS = flags.DEFINE_integer(
    "rounds", 3, "Number of measurements of each system; the table shows the median.", lower_bound=1
)
_THREADS = flags.DEFINE_integer(
    "threads", 0, "Number of CPU cores to use; 0: all that this process may use.", lower_bound=0
)
_LAUNCHER = flags.DEFINE_string("launcher", "", "Command to run measurements with, such as 'numactl --membind=0'.")
_JSON = flags.DEFINE_boolean("json", False, "Print one JSON object.")
_WORKER = flags.DEFINE_string("worker", "", "Internal: task file of a measurement.")

OURS = "t2t_keras float32"
EXTRA_LENGTH = DecodeConfig().extra_length


# The systems. Each loader reads what `prepare` wrote and returns a function:
# ([source ids], batch size, beam size) → [target ids without the end token].


def _chunks(rows: list, size: int) -> list[list]:
    return [rows[first : first + size] for first in range(0, len(rows), size)]


def _padded(rows: list[list[int]]):
    import numpy as np

    width = max(map(len, rows))
    return np.array([row + [PAD] * (width - len(row)) for row in rows], np.int32)


def _until_end(ids: list[int]) -> list[int]:
    return ids[: ids.index(EOS)] if EOS in ids else ids


def _max_length(task: dict, sources: list[list[int]]) -> int:
    """Returns the maximum length of the translations of these sources."""
    return task["target_length"] or max(map(len, sources)) + EXTRA_LENGTH


def load_model(folder: pathlib.Path, dtype: str):
    """Loads the `Transformer` that `prepare` wrote."""
    import numpy as np

    from t2t_keras.model.transformer import Transformer

    config = SavedRun.open(folder).model
    model = Transformer(config, dtype=dtype)
    with np.load(folder / "weights.npz") as weights:
        for index, variable in enumerate(model.variables):
            variable.assign(weights[str(index)])
    return model


def load_ours(task: dict, system: dict):
    import tensorflow as tf

    from benchmarks.our_decoder import translate_function

    tf.config.threading.set_inter_op_parallelism_threads(task["threads"])
    model = load_model(pathlib.Path(task["folder"]), system["dtype"])
    translate_batch = translate_function(model, task["alpha"], task["threads"])

    def translate(sources, batch_size, beam_size):
        written = []
        for rows in _chunks(sources, batch_size):
            max_lengths = [task["target_length"] or len(row) + EXTRA_LENGTH for row in rows]
            written += [_until_end(ids) for ids in translate_batch(rows, max_lengths, beam_size)]
        return written

    return translate


def load_ctranslate2(task: dict, system: dict):
    import ctranslate2

    folder = pathlib.Path(task["folder"])
    pieces = json.loads((folder / "ctranslate2/shared_vocabulary.json").read_text(encoding="utf-8"))
    ids = {piece: index for index, piece in enumerate(pieces)}
    threads = {name: system[name] for name in ("inter_threads", "intra_threads")}
    translator = ctranslate2.Translator(str(folder / "ctranslate2"), compute_type=system["dtype"], **threads)

    def translate(sources, batch_size, beam_size):
        options = {
            "beam_size": beam_size,
            "length_penalty": task["alpha"],
            "max_batch_size": batch_size,
            "max_decoding_length": _max_length(task, sources),
            "min_decoding_length": 0,
        }
        # CTranslate2 adds the end token to the source, and may run several batches of one call in parallel.
        rows = [[pieces[index] for index in source[:-1]] for source in sources]
        calls = [[row] for row in rows] if batch_size == 1 else [rows]
        return [
            [ids[piece] for piece in result.hypotheses[0]]
            for call in calls
            for result in translator.translate_batch(call, **options)
        ]

    return translate


def to_marian(model, positions: int):
    """Converts a `Transformer` to a Hugging Face `MarianMTModel`; see `marian_config`.

    Marian's attention has biases, which are set to zero. Its sinusoids have another order and its ε is 1e-5; both are
    replaced.
    """
    import keras
    import numpy as np
    import torch
    from transformers import MarianMTModel

    from benchmarks.hugging_face import marian_config
    from t2t_keras.serving.ctranslate2_format import positions_of

    peer = MarianMTModel(marian_config(model.config, positions, dropout=0.0)).eval()

    def tensor(weight):
        return torch.from_numpy(np.array(keras.ops.convert_to_numpy(weight), np.float32))

    def copy_linear(linear, dense):
        linear.weight.copy_(tensor(dense.kernel).T)
        linear.bias.copy_(tensor(dense.bias)) if dense.use_bias else linear.bias.zero_()

    def copy_norm(norm, layer):
        norm.weight.copy_(tensor(layer.norm.gamma))
        norm.bias.copy_(tensor(layer.norm.beta))
        norm.eps = layer.norm.epsilon

    def copy_attention(attention, layer):
        for name, ours in (("q_proj", "query"), ("k_proj", "key"), ("v_proj", "value"), ("out_proj", "output")):
            copy_linear(getattr(attention, name), getattr(layer, f"{ours}_projection"))

    with torch.no_grad():
        peer.model.shared.weight.copy_(tensor(model.embedding.matrix))
        for stack, layers in ((peer.model.encoder, model.encoder.stack), (peer.model.decoder, model.decoder)):
            stack.embed_positions.weight.copy_(tensor(positions_of(model, positions)))
            for copy, layer in zip(stack.layers, layers, strict=True):
                copy_attention(copy.self_attn, layer.self_attention)
                copy_norm(copy.self_attn_layer_norm, layer.self_attention_norm)
                if hasattr(copy, "encoder_attn"):
                    copy_attention(copy.encoder_attn, layer.cross_attention)
                    copy_norm(copy.encoder_attn_layer_norm, layer.cross_attention_norm)
                copy_linear(copy.fc1, layer.feed_forward.inner)
                copy_linear(copy.fc2, layer.feed_forward.outer)
                copy_norm(copy.final_layer_norm, layer.feed_forward_norm)
    return peer


def load_marian(task: dict, system: dict):
    import torch

    torch.set_num_threads(task["threads"])
    model = load_model(pathlib.Path(task["folder"]), "float32")
    peer = to_marian(model, task["positions"]).to(getattr(torch, system["dtype"]))

    @torch.inference_mode()
    def translate(sources, batch_size, beam_size):
        written = []
        for rows in _chunks(sources, batch_size):
            ids = torch.from_numpy(_padded(rows)).long()
            options = {"num_beams": beam_size, "max_new_tokens": _max_length(task, rows), "do_sample": False}
            if beam_size > 1:
                options["length_penalty"] = task["alpha"]
            sequences = peer.generate(ids, attention_mask=(ids != PAD).long(), **options)
            for row in sequences[:, 1:].tolist():  # The start token comes first.
                row = _until_end(row)
                written.append(row[: row.index(PAD)] if PAD in row else row)
        return written

    return translate


LOADERS = {"t2t_keras": load_ours, "CTranslate2": load_ctranslate2, "Marian": load_marian}


def work(file: pathlib.Path) -> None:
    """Makes the measurements of one process: translates all sentences, after a warm-up batch."""
    task = json.loads(file.read_text(encoding="utf-8"))
    results = []
    for system in task["systems"]:
        translate = LOADERS[system["engine"]](task, system)
        for batch_size, beam_size in system["settings"]:
            sources = task["sources"][str(batch_size)]
            size = min(batch_size, task["largest_batch"])
            translate(sources[-size:], size, beam_size)
            seconds = []
            for _ in range(task["repeats"]):
                start = time.perf_counter()
                written = translate(sources, size, beam_size)
                seconds.append(time.perf_counter() - start)
            results.append({**system, "settings": [batch_size, beam_size], "seconds": min(seconds), "written": written})
            speed = sum(map(len, written)) / min(seconds)
            print(f"  batch {batch_size}, beam {beam_size}: {speed:,.0f} sub-words/s", flush=True)
    file.with_suffix(".done").write_text(json.dumps(results), encoding="utf-8")


# The measurements.


def prepare(folder: pathlib.Path) -> dict:
    """Writes the model for each system, and returns the task that all measurements share."""
    import numpy as np
    import tensorflow as tf

    from benchmarks.our_decoder import never_ending
    from t2t_keras.decoding.loading import load

    threads, largest = _THREADS.value or len(os.sched_getaffinity(0)), max(map(int, _BATCH_SIZES.value))
    number = max(_SENTENCES.value, largest * threads)  # Otherwise some cores of CTranslate2 would be idle.
    if _MODEL_DIR.value:
        if not _SOURCE.value:
            raise ValueError("Expected --source, a text to translate, with --model_dir. Received none.")
        lines = text_files.text(_SOURCE.value)
        translator = load(pathlib.Path(_MODEL_DIR.value).expanduser())
        model, pieces, target_length = translator.model, list(translator.tokenizer.pieces), 0
        sources = translator.tokenizer.tokenize(tf.constant(lines), max_length=translator.config.max_input).to_list()
    else:
        model = never_ending(paper.model(_CONFIG.value, vocab_size=_VOCAB_SIZE.value))
        target_length = _TARGET_LENGTH.value
        pieces = ["<pad>", "<unk>", "<s>", "</s>", *(f"p{index}" for index in range(EOS + 1, _VOCAB_SIZE.value))]
        draw = np.random.default_rng(1).integers(EOS + 1, _VOCAB_SIZE.value, [number, target_length - 1])
        sources = [[*row, EOS] for row in draw.tolist()]
    chosen = {size: sources[: _SINGLE_SENTENCES.value if size == "1" else number] for size in _BATCH_SIZES.value}
    positions = max(map(len, sources)) + EXTRA_LENGTH
    np.savez(folder / "weights.npz", **{str(index): variable.numpy() for index, variable in enumerate(model.variables)})
    (folder / "config.json").write_text(json.dumps({"model": dataclasses.asdict(model.config)}), encoding="utf-8")
    if installed("ctranslate2"):
        from t2t_keras.serving import ctranslate2_format

        spec = ctranslate2_format.specification(model, pieces, positions)
        spec.validate()
        spec.optimize()
        (folder / "ctranslate2").mkdir()
        spec.save(str(folder / "ctranslate2"))
    return {
        "folder": str(folder),
        "sources": {size: sorted(rows, key=len) for size, rows in chosen.items()},
        "target_length": target_length,
        "positions": positions,
        "alpha": _ALPHA.value,
        "largest_batch": largest,
        "repeats": 1,
        "threads": threads,
    }


def installed(*packages: str) -> dict:
    """Returns the versions of the given packages that are installed."""
    versions = {}
    for package in packages:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            versions[package] = importlib.metadata.version(package)
    return versions


def launch(task: dict, systems: list[dict], environment: dict) -> list[dict]:
    """Runs a process, shows its results as they come, and returns them.

    If it fails, as on a processor that lacks an instruction set, it prints why and returns none.
    """
    file = pathlib.Path(task["folder"]) / "task.json"
    file.write_text(json.dumps({**task, "systems": systems}), encoding="utf-8")
    done = file.with_suffix(".done")
    done.unlink(missing_ok=True)
    variables = {
        "OMP_NUM_THREADS": str(task["threads"]),
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        **environment,
    }
    command = [*shlex.split(_LAUNCHER.value), sys.executable, __file__, f"--worker={file}"]
    names = ", ".join(sorted({f"{system['engine']} {system['dtype']}" for system in systems}))
    settings = sum(len(system["settings"]) for system in systems)
    chosen = " ".join(f"{name}={value}" for name, value in environment.items())
    progress(f"{names} {chosen}: {settings} measurement{'s' * (settings > 1)} …")
    with tempfile.TemporaryFile("w+") as errors:
        with subprocess.Popen(
            command, env={**os.environ, **variables}, stdout=subprocess.PIPE, stderr=errors, text=True, errors="replace"
        ) as process:
            for line in process.stdout:
                progress(line.rstrip())
        errors.seek(0)
        why = errors.read().strip()[-300:]
    if process.returncode or not done.exists():
        progress(f"{names} with {environment} failed: {why}")
        return []
    return json.loads(done.read_text(encoding="utf-8"))


def fastest_ctranslate2(task: dict, types: list[str], settings: list[list[int]]) -> dict:
    """Finds the fastest instruction set, matrix library and threads with short batches of at most 16 sentences, one for
    each core. Returns {(dtype, batch size, beam size): (environment, system)}.
    """
    known = cpu()["flags"]
    sets = [name for name, flag in (("AVX", "avx"), ("AVX2", "avx2"), ("AVX512", "avx512f")) if flag in known] or [
        "GENERIC"
    ]
    cores, best, largest = task["threads"], {}, 16
    progress("Looking for CTranslate2's fastest instruction set, matrix library and threads.")
    short = {size: rows[-2 if size == "1" else -largest * cores :] for size, rows in task["sources"].items()}
    task = {**task, "sources": short, "largest_batch": largest, "repeats": 2}
    for instructions in sets:
        for library in ("0", "1"):
            environment = {"CT2_FORCE_CPU_ISA": instructions, "CT2_USE_MKL": library}
            systems = []
            for dtype, (inter, intra) in itertools.product(types, sorted({(1, cores), (cores, 1), (1, 1)})):
                # One sentence after the other keeps one worker busy; larger batches keep all cores busy.
                alone, together = inter == 1, inter * intra == cores
                if chosen := [setting for setting in settings if (alone if setting[0] == 1 else together)]:
                    threads = {"inter_threads": inter, "intra_threads": intra}
                    systems.append({"engine": "CTranslate2", "dtype": dtype, **threads, "settings": chosen})
            for result in launch(task, systems, environment):
                key = (result["dtype"], *result["settings"])
                if key not in best or result["seconds"] < best[key][0]:
                    system = {name: result[name] for name in ("engine", "dtype", "inter_threads", "intra_threads")}
                    best[key] = (result["seconds"], environment, system)
    return {key: (environment, system) for key, (_, environment, system) in best.items()}


def kernels_of(task: dict, dtype: str) -> dict:
    """Returns the environment variables with which programs such as `translate.py` decode in a dtype."""
    config = SavedRun.open(pathlib.Path(task["folder"])).model
    names = (process_environment.ONEDNN, process_environment.THREADS)
    chosen = {name: os.environ[name] for name in names if name in os.environ}
    process_environment.choose([config], dtype, False, chosen)
    return chosen


def ctranslate2_types() -> list[str]:
    """Returns the compute types that CTranslate2 supports here; none if it is not installed. int8 means
    int8_float32.
    """
    if not installed("ctranslate2"):
        return []
    import ctranslate2

    supported = ctranslate2.get_supported_compute_types("cpu")
    return [name for name in ("float32", "int8", "bfloat16", "int8_bfloat16") if name in supported]


def measure(task: dict) -> list[dict]:
    """Measures all systems and returns the rows of the table, one for each setting and system."""
    settings = [[int(batch), int(beam)] for batch in _BATCH_SIZES.value for beam in _BEAM_SIZES.value]
    versions = installed("ctranslate2", "torch", "transformers")
    plain = [("t2t_keras", "float32"), ("t2t_keras", "bfloat16")]
    if {"torch", "transformers"} <= versions.keys():
        plain += [("Marian", "float32"), ("Marian", "bfloat16")]
    names = [f"{engine} {dtype}" for engine, dtype in plain]
    types = ctranslate2_types()
    known = [*names, *(f"CTranslate2 {dtype}" for dtype in types)]
    wanted = [name for name in known if name.startswith(tuple(_SYSTEMS.value) or "")]
    if not wanted:
        raise ValueError(
            f"Expected --systems among {', '.join(names)}, CTranslate2 …. Received: {', '.join(_SYSTEMS.value)}."
        )
    alone = [setting for setting in settings if setting[0] == 1]
    together, processes = [setting for setting in settings if setting not in alone], []
    for engine, dtype in plain:
        for chosen in filter(None, (alone, together) if f"{engine} {dtype}" in wanted else ()):
            environment = kernels_of(task, dtype) if engine == "t2t_keras" else {}
            processes.append((environment, [{"engine": engine, "dtype": dtype, "settings": chosen}]))
    types = [dtype for dtype in types if f"CTranslate2 {dtype}" in wanted]
    by_process, fastest = collections.defaultdict(list), fastest_ctranslate2(task, types, settings) if types else {}
    for (_, batch_size, beam_size), (environment, system) in fastest.items():
        by_process[json.dumps([environment, system])].append([batch_size, beam_size])
    for key, chosen in by_process.items():
        environment, system = json.loads(key)
        processes.append((environment, [{**system, "settings": chosen}]))
    found = collections.defaultdict(list)
    for number in range(_ROUNDS.value):
        progress(f"Round {number + 1} of {_ROUNDS.value}: {len(processes)} processes.")
        for environment, systems in processes[number % len(processes) :] + processes[: number % len(processes)]:
            for result in launch(task, systems, environment):
                key = *result["settings"], f"{result['engine']} {result['dtype']}"
                found[key].append({**result, "environment": environment})
    return [row for setting in settings for row in rows_of(task, setting, found)]


def rows_of(task: dict, setting: list[int], found: dict) -> list[dict]:
    """Returns the rows of one setting, fastest system first."""
    batch_size, beam_size = setting
    measured = {key[2]: results for key, results in found.items() if key[:2] == (batch_size, beam_size)}
    number, rows = len(task["sources"][str(batch_size)]), []
    for name, results in measured.items():
        seconds = [result["seconds"] for result in results]
        written = results[0]["written"]
        sub_words = sum(map(len, written))
        row = {
            "batch_size": batch_size,
            "beam_size": beam_size,
            "system": name,
            "sentences_per_second": number / statistics.median(seconds),
            "sub_words_per_second": sub_words / statistics.median(seconds),
            "slowest": sub_words / max(seconds),
            "fastest": sub_words / min(seconds),
            "mean_length": sub_words / number,
        }
        if OURS in measured:
            row["equal"] = sum(map(list.__eq__, written, measured[OURS][0]["written"])) / number
        if "inter_threads" in results[0]:
            row |= {key: results[0][key] for key in ("inter_threads", "intra_threads", "environment")}
        rows.append(row)
    best = max((row["sub_words_per_second"] for row in rows if row["system"].startswith("CTranslate2")), default=None)
    if best:
        for row in rows:
            row["ratio"] = row["sub_words_per_second"] / best
    return sorted(rows, key=lambda row: -row["sub_words_per_second"])


def table(rows: list[dict]) -> str:
    """Formats the rows as a Markdown table."""
    head = ["batch", "beam", "system", "sentences/s", "sub-words/s (slowest to fastest)", "to CTranslate2's best"]
    head += ["mean length", "equal to ours"]
    lines = []
    for row in rows:
        speeds = f"{row['sub_words_per_second']:.0f} ({row['slowest']:.0f} to {row['fastest']:.0f})"
        name = row["system"]
        if "environment" in row:
            library = "MKL" if row["environment"]["CT2_USE_MKL"] == "1" else "oneDNN"
            threads = f"{row['inter_threads']} × {row['intra_threads']} threads"
            name += f", {row['environment']['CT2_FORCE_CPU_ISA']}, {library}, {threads}"
        ratio, equal = (f"{row[key]:.2f}" if key in row else "" for key in ("ratio", "equal"))
        numbers = [f"{row['sentences_per_second']:.2f}", speeds, ratio, f"{row['mean_length']:.1f}", equal]
        lines.append([f"{row['batch_size']}", f"{row['beam_size']}", name, *numbers])
    return markdown.table(head, lines, right={*head} - {"system"})


def benchmark() -> None:
    if _WORKER.value:
        return work(pathlib.Path(_WORKER.value))
    with tempfile.TemporaryDirectory() as name:
        task = prepare(pathlib.Path(name))
        rows = measure(task)
    machine = {**cpu(), "threads": task["threads"]}
    versions = installed("tensorflow", "keras", "ctranslate2", "torch", "transformers")
    if _JSON.value:
        print(json.dumps({"machine": machine, "versions": versions, "rows": rows}))
    else:
        print(f"{machine['cpu']}, {machine['threads']} of {machine['cores']} cores, {' '.join(machine['flags'])}")
        print(", ".join(f"{package} {version}" for package, version in versions.items()))
        print(table(rows))


if __name__ == "__main__":
    program.run(benchmark)
