"""A default lives once, in a dataclass; flags are its face, and what a person gets wrong is told in a sentence."""

import dataclasses
import json
import os
import pathlib
import re
import subprocess
import sys
import types

import programs
import pytest
from test_configs import values_of

from t2t_keras import config
from t2t_keras.cli import flagfiles, flags, messages, training
from t2t_keras.data import corpora
from t2t_keras.runs import run_options
from t2t_keras.runs.run_start import Start
from t2t_keras.training import embeddings

GROUPS = (config.ModelConfig, config.TrainConfig, config.DecodeConfig, config.DataConfig)
FIELDS = [field for group in GROUPS for field in dataclasses.fields(group)]
ROOT = pathlib.Path(__file__).parent.parent

# absl's flags are one to a process, so programs that define them run in processes of their own, which need no
# TensorFlow.
PROGRAM = """
import dataclasses, json, sys
from t2t_keras.runs import run_options
from t2t_keras.cli import flags as options
from t2t_keras.cli import program
from absl import flags
GROUPS = tuple(run_options.groups_of(options.chosen_architecture()).values())
options.define_run()
options.define_table_3()

def main():
    {main}

program.run(main)
"""
TELL = """print(json.dumps({
        "read": [dataclasses.asdict(options.read(group)) for group in GROUPS],
        "given": [options.given(group) for group in GROUPS],
        "sources": options.sources(),
        "help": {name: flags.FLAGS[name].help for name in flags.FLAGS},
        "modules": sorted(name for name in sys.modules if name in ("tensorflow", "keras")),
    }))"""


def program(
    *arguments: str, main: str = TELL, cwd: pathlib.Path = ROOT, modules: tuple[str, ...] = programs.WITHOUT_TENSORFLOW
) -> subprocess.CompletedProcess:
    command = [sys.executable, "-c", PROGRAM.format(main=main), *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return programs.run(command, modules=modules, capture_output=True, text=True, cwd=cwd, env=environment)


def told(*arguments: str, cwd: pathlib.Path = ROOT) -> dict:
    result = program(*arguments, cwd=cwd)
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def test_every_option_is_a_flag_with_the_default_and_the_help_of_its_field():
    nothing_given = told()
    assert nothing_given["read"] == [dataclasses.asdict(group()) for group in GROUPS]
    assert nothing_given["given"] == [{}, {}, {}, {}]
    assert nothing_given["modules"] == [], "So that --help and a mistyped flag answer at once."
    for field in FIELDS:
        choices = field.metadata["choices"]
        prefix = f"<{'|'.join(choices)}>: " if choices else ""
        assert nothing_given["help"][field.name] == prefix + field.metadata["help"]
        assert field.metadata["help"].endswith(".")


@pytest.mark.parametrize("name", ["wmt", "gone/quickstart.flags", "long" * 100])
def test_an_unknown_config_or_file_is_answered_with_the_configs_that_there_are(name):
    """Training another model than the one in that person's file would be worse than an error."""
    result = program(f"--flagfile={name}")
    names = ", ".join(sorted(path.stem for path in (ROOT / "configs").glob("*.flags")))
    expected = f"Error: No such flagfile: {name}. Give the path of one, or a config: {names}.\n"
    assert (result.returncode, result.stderr) == (1, expected)


@pytest.mark.parametrize(
    ("architecture", "metric"), [("transformer", "bleu"), ("bert", "loss"), ("classifier", "accuracy")]
)
def test_the_default_of_the_best_metric_is_that_of_the_task(architecture, metric):
    result = program(f"--architecture={architecture}", main='print(flags.FLAGS["best_metric"].default)')
    assert (result.stdout, result.returncode) == (f"{metric}\n", 0), result.stderr


def test_the_home_of_an_unknown_user_is_reported_without_a_traceback():
    result = program(main='import pathlib; pathlib.Path("~nobody of this name/run").expanduser()')
    expected = (
        "Error: Could not determine home directory. A path begins with ~, or with ~ and the name of an unknown user.\n"
    )
    assert (result.returncode, result.stderr) == (1, expected)
    result = program(
        "--parent=~nobody of this name/run",
        main='import pathlib; pathlib.Path(flags.FLAGS["parent"].value).expanduser()',
    )
    assert (result.returncode, result.stderr) == (1, expected)
    result = program(main='raise RuntimeError("another")')
    assert result.returncode == 1 and result.stderr.endswith("RuntimeError: another\n")


def test_a_flag_that_must_be_given_is_asked_for_in_a_sentence():
    result = programs.tool("translate", modules=programs.WITHOUT_TENSORFLOW)
    assert result.stderr.startswith(
        "Error: --model_dir must be given. Folder of a training run or an export; or several runs"
    )
    assert result.returncode == 1 and result.stderr.endswith(" See --helpfull.\n")


def test_no_two_groups_share_a_name():
    names = [field.name for field in FIELDS]
    assert len(set(names)) == len(names)


def test_flags_are_read_with_the_type_of_their_field():
    given = "--d_model=64 --dropout=0 --dtype=bfloat16 --deterministic --noskip_bad_lines --alpha 1 -beam_size=2"
    model, train, decode, data = told(*given.split())["read"]
    assert model == dataclasses.asdict(config.ModelConfig(d_model=64, dropout=0.0))
    assert train == dataclasses.asdict(config.TrainConfig(dtype="bfloat16", deterministic=True))
    assert decode == dataclasses.asdict(config.DecodeConfig(alpha=1.0, beam_size=2))
    assert data == dataclasses.asdict(config.DataConfig())


def test_what_was_given_differs_from_what_was_left_also_where_it_equals_the_default():
    """`translate` takes the model's own decoding options unless the command line says otherwise."""
    *_, decode, data = told("--beam_size=4", "--max_length=256")["given"]
    assert decode == {"beam_size": 4} and data == {"max_length": 256}


def test_where_a_value_was_set_last_is_known(tmp_path):
    (tmp_path / "inner.flags").write_text("--d_model=16\n--nodeterministic\n")
    (tmp_path / "outer.flags").write_text(
        f"# comment\n--flagfile={tmp_path}/inner.flags\n\n// too\n  --d_ff=32\n--learning_rate_factor=2\n"
    )
    arguments = ["--d_ff", "8", f"--flagfile={tmp_path}/outer.flags", "--noskip_bad_lines", "-d_model=4", "--d_k=1"]
    found = told(*arguments, "--flagfile", "quickstart")
    expected = dict.fromkeys(("d_ff", "d_model", "learning_rate_factor"), "flagfile quickstart")
    expected |= {"deterministic": "flagfile inner", "skip_bad_lines": "command line"}
    assert expected.items() <= found["sources"].items()
    assert found["sources"].keys() >= {name for group in found["given"] for name in group}
    earlier = told(*arguments)
    expected = {"d_ff": "flagfile outer", "d_model": "command line", "learning_rate_factor": "flagfile outer"}
    assert expected.items() <= earlier["sources"].items()
    assert (earlier["read"][0]["d_ff"], earlier["read"][0]["d_model"]) == (32, 4)


ROW = """given, sources = options.with_table_3(options.given(*GROUPS), options.sources())
    print(json.dumps({"given": given, "sources": sources}))"""


def row_of(*arguments: str, cwd: pathlib.Path = ROOT) -> subprocess.CompletedProcess:
    return program(*arguments, main=ROW, cwd=cwd)


def test_a_row_of_table_3_sets_its_options_between_a_flagfile_and_the_command_line(tmp_path):
    (tmp_path / "mine.flags").write_text("--dropout=0.4\n--num_heads=2\n--seed=9\n")
    result = row_of("--d_v=8", "--model=table3/A16", "--divide_widths=4", f"--flagfile={tmp_path}/mine.flags")
    assert result.returncode == 0, result.stderr
    found = json.loads(result.stdout)
    expected = {"d_v": 8, "num_heads": 16, "d_k": 8, "d_model": 128, "d_ff": 512}
    expected |= {"encoder_layers": 6, "decoder_layers": 6, "dropout": 0.1, "label_smoothing": 0.1}
    assert found["given"] == expected | {"seed": 9, "learned_positions": 0}
    sources = {"seed": "flagfile mine", "d_v": "command line"}
    sources |= dict.fromkeys(("num_heads", "dropout"), "--model=table3/A16")
    assert sources.items() <= found["sources"].items()


def test_the_value_of_a_flag_is_not_taken_for_a_flag():
    """Story: the only change of this row was lost, because a folder was named like the option."""
    result = row_of("--model", "table3/D0.0", "--seed", "7", "--vocab_size=300", "--train_source", "dropout")
    found = json.loads(result.stdout)
    assert found["given"]["dropout"] == 0.0 and found["sources"]["dropout"] == "--model=table3/D0.0"
    assert found["sources"] | {"seed": "command line", "vocab_size": "command line"} == found["sources"]


def test_divisors_without_a_row_are_refused_and_neither_changes_nothing():
    result = row_of("--divide_layers=3")
    assert result.returncode == 1 and "Expected --model=table3/NAME" in result.stderr
    assert json.loads(row_of("--d_k=8").stdout)["given"] == {"d_k": 8}


def test_the_big_row_trains_longer_unless_a_number_of_updates_is_given():
    """Story: with the flagfile for Multi30k it trained for 300,000 updates."""
    assert json.loads(row_of("--model=table3/big").stdout)["given"]["train_steps"] == 300_000
    found = json.loads(row_of("--flagfile=table3_multi30k", "--model=table3/big").stdout)
    assert found["given"]["train_steps"] == 2000 and found["given"]["d_model"] == 256


@pytest.mark.parametrize("name", ["table3/A2", "base", "table2/base", "table3/"])
def test_an_unknown_row_is_refused_with_those_that_there_are(name):
    result = row_of(f"--model={name}")
    assert result.returncode == 1 and "A16" in result.stderr and len(result.stderr.splitlines()) == 1


def test_messages_of_the_library_name_options_as_flags():
    """`option` and option=value; what is no flag here stays."""
    text = "Raise `batch_tokens`, or `d_ff=8`; {}. Received: alpha=0.5, loss=3, --d_model=4, `rows`."
    shown = "Raise --batch_tokens, or --d_ff=8; {}. Received: --alpha=0.5, loss=3, --d_model=4, `rows`."
    main = f"""from t2t_keras.system.log import logger
    logger.info({text.format("logged")!r})
    raise ValueError({text.format("raised")!r})"""
    assert program(main=main).stderr.splitlines() == [shown.format("logged"), f"Error: {shown.format('raised')}"]


@pytest.mark.parametrize(("argument", "expected"), [
    ("--d_modl=3", "Did you mean: d_model ?"),
    ("--d_model=x", "d_model=x"),
    ("--beam_size=1.5", "beam_size=1.5"),
    ("--deterministic=perhaps", "deterministic"),
    ("--nodeterministic=false", "--nodeterministic=false does not take an argument. See"),
    ("--d_model=3", "--d_model must be even"),
    ("--alpha=-5", "--alpha=-5: -5.0 is not a number in the range [0, 10]. See"),
    ("--alpha=nan", "alpha=nan"),
    ("--dropout=nan", "dropout=nan"),
    ("--learning_rate_factor=nan", "learning_rate_factor=nan"),
    ("--learning_rate_factor=inf", "learning_rate_factor=inf"),
    ("--clip_norm=nan", "clip_norm=nan"),
    ("--vocab_size=-5", "vocab_size=-5"),
])  # fmt: skip
def test_a_wrong_value_is_refused_in_words_that_name_it(argument, expected):
    result = program(argument)
    assert result.returncode == 1
    [said] = result.stderr.splitlines()
    assert said.startswith("Error: ") and expected in said
    assert result.stdout == ""


@pytest.mark.parametrize(
    ("error", "code"), [("ValueError", 1), ("FileNotFoundError", 1), ("interruption.OtherWorkerError", 69)]
)
def test_what_a_person_did_wrong_and_that_another_worker_has_ended_is_one_line_without_a_traceback(error, code):
    result = program(main=f'from t2t_keras.training import interruption; raise {error}("This and that. Do so.")')
    assert (result.returncode, result.stdout, result.stderr) == (code, "", "Error: This and that. Do so.\n")


@pytest.mark.parametrize(("error", "expected"), [
    ("ResourceExhausted", r"A device is out of memory: no room for 7 GB\. Give it less at a time, .*"),
    ("InvalidArgument", r"TensorFlow failed \(InvalidArgumentError\): no room for 7 GB\. Give --traceback .*"),
])  # fmt: skip
def test_an_error_of_a_tensorflow_operation_is_one_line(error, expected):
    """Story: memory that ran out in a validation ended in a traceback."""
    main = f'import tensorflow as tf; raise tf.errors.{error}Error(None, None, "no room for 7 GB\\n\\tin an op")'
    result, asked = (program(*given, main=main, modules=programs.WITH_TENSORFLOW) for given in ((), ("--traceback",)))
    assert (result.returncode, result.stdout) == (1, "")
    assert re.fullmatch(f"Error: {expected}", result.stderr.strip().splitlines()[-1])
    assert "Traceback" not in result.stderr and "Traceback" in asked.stderr


def test_an_error_that_says_nothing_is_named_on_one_line():
    """Such as a `TimeoutError` of the standard library."""
    result = program(main="raise TimeoutError")
    assert (result.returncode, result.stderr) == (1, "Error: TimeoutError. Give --traceback to see where.\n")


def test_what_the_program_did_wrong_keeps_its_traceback():
    result = program(main='{}["no such key"]')
    assert result.returncode == 1 and "Traceback" in result.stderr and "KeyError" in result.stderr


@pytest.mark.parametrize("number", [0, 3])
def test_what_main_returns_is_the_exit_code(number):
    assert program(main=f"return {number}").returncode == number


def test_a_word_that_is_no_flag_is_refused():
    """It would be `train runs/x`, with the flag's name forgotten, that trains somewhere else."""
    result = program("runs/x", "--d_model=8")
    assert result.returncode != 0
    assert "runs/x" in result.stderr and "--name=value" in result.stderr


WRITES = """import os
    noise = b"".join(line + b"\\n" for line in (
        b"WARNING: All log messages before absl::InitializeLog() is called are written to STDERR",
        b"I0000 00:00:1795302915.799832    8168 port.cc:153] oneDNN custom operations are on. You may see slightly different ...",
        b"I0000 00:00:1795302915.799832    8168 cudart_stub.cc:31] Could not find cuda drivers on your machine, GPU will not be used.",
    ))
    with program.without_noise():
        os.write(2, noise + b"I0000 00:00:1795302915.799832    8168 other.cc:1] oneDNN is off.\\n")
        print("Python's own", file=sys.stderr)
        os.write(2, noise + b"F the last words\\n")
        {}
    os.write(2, noise)"""  # noqa: E501
ON_EVERY_MACHINE = ("WARNING: All log", "oneDNN custom operations are on", "Could not find cuda drivers")


def said_by_native_code(end: str = "", **environment) -> list[str]:
    """What a program says whose native code says what TensorFlow's does, inside `without_noise` and once after it."""
    kept = {name: value for name, value in os.environ.items() if name != "TF_CPP_MIN_LOG_LEVEL"}
    command = [sys.executable, "-c", PROGRAM.format(main=WRITES.format(end))]
    result = subprocess.run(
        command, capture_output=True, text=True, cwd=ROOT, env={**kept, "PYTHONPATH": str(ROOT), **environment}
    )
    return result.stderr.splitlines()


@pytest.mark.parametrize("environment", [{}, {"TF_CPP_MIN_LOG_LEVEL": "1"}], ids=["unset", "1"])
def test_what_tensorflow_says_on_every_machine_is_held_back_and_nothing_else(environment):
    *said, warning, one_dnn, cuda = said_by_native_code(**environment)
    assert [line.rpartition("] ")[2] for line in said] == ["oneDNN is off.", "Python's own", "F the last words"]
    assert all(expected in line for expected, line in zip(ON_EVERY_MACHINE, (warning, one_dnn, cuda), strict=True))


def test_the_last_words_of_a_crash_are_not_held_back():
    assert "F the last words" in said_by_native_code("os.abort()")


def test_who_asks_for_all_that_tensorflow_says_gets_it():
    said = said_by_native_code(TF_CPP_MIN_LOG_LEVEL="0")
    assert all(sum(expected in line for line in said) == 3 for expected in ON_EVERY_MACHINE)


def test_what_the_locale_cannot_write_is_escaped():
    """Story: in a locale without UTF-8, evaluate.py translated, and then could not print the ± of its scores."""
    command = [sys.executable, "-c", PROGRAM.format(main=r'print("1 \u00b1 2, \udcfc")')]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "ascii"}
    result = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment)
    assert (result.returncode, result.stdout, result.stderr) == (0, "1 \\xb1 2, \\udcfc\n", "")


def test_streams_that_are_closed_are_empty_and_read_by_nobody():
    """Story: `translate.py 2>&-` wrote no translation, and the error of a wrong folder to stdout."""
    main = """print("a message of \\udcfc", file=sys.stderr)
    print(sys.stdin.read() + "text", open("/dev/null").fileno() > 2, flush=True)
    import subprocess
    subprocess.run([sys.executable, "-c", "print(open('/dev/null').fileno() > 2)"])"""
    command = ["sh", "-c", '"$0" "$@" <&- 2>&-', sys.executable, "-c", PROGRAM.format(main=main)]
    result = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert (result.returncode, result.stdout) == (0, "text True\nTrue\n"), "also in a process that it starts"


@pytest.mark.parametrize(
    ("main", "given"),
    [("print(1)", []), ("print(1)", ["--helpfull"]), ("print(1)", ["--version"]), ("print('x' * 10**5)", [])]
    + [("for _ in range(999): print('a line')", []), ("print(1); program.exit_now()", [])],
)
def test_a_full_disk_under_stdout_is_told_in_a_sentence(main, given):
    """Story: the output was lost with a traceback of absl, or of Python as it ended."""
    command = [sys.executable, "-c", PROGRAM.format(main=main), *given]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    with open("/dev/full", "w") as full:
        result = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, cwd=ROOT, env=environment)
    expected = r"Error: (Could not write to standard output \(|\[Errno 28\] )No space left on device\)?\.?\n"
    assert (result.returncode, bool(re.fullmatch(expected, result.stderr))) == (1, True), result.stderr


@pytest.mark.parametrize(
    ("main", "code", "said"),
    [
        ("raise OtherWorkerError('the other one')", 69, "the other one"),
        ("raise StoppedError('stopped')", 75, "Could not write"),
        ("raise RuntimeError('own')", 1, "RuntimeError: own"),
        ("sys.exit(5)", 5, "Could not write"),
    ],
)
def test_a_full_disk_under_stdout_hides_no_other_end(main, code, said):
    main = f"""from t2t_keras.training.interruption import OtherWorkerError, StoppedError
    print(1)
    {main}"""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    command = [sys.executable, "-c", PROGRAM.format(main=main)]
    with open("/dev/full", "w") as full:
        result = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, cwd=ROOT, env=environment)
    assert (result.returncode, said in result.stderr) == (code, True), result.stderr


def test_a_full_disk_elsewhere_is_not_taken_for_that_of_stdout():
    result = program(
        main="""print("written")
    raise OSError(28, "No space left on device")"""
    )
    assert (result.returncode, result.stdout) == (1, "written\n")
    assert result.stderr == "Error: [Errno 28] No space left on device\n"


CONFIGS = sorted((ROOT / "configs").glob("*.flags"))


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_a_config_is_found_by_its_name_from_anywhere(path, tmp_path):
    given = {}
    for group in told(f"--flagfile={path.stem}", cwd=tmp_path)["given"]:
        given |= group
    of_others = ("architecture", "divide_widths", "divide_layers")
    options = {name: value for name, value in values_of(path).items() if name not in of_others}
    assert {name: type(given[name])(value) for name, value in options.items()} == given


@pytest.mark.parametrize("form", ["-flagfile={stem}", "--flagfile={name}", "--flagfile={path}"])
def test_a_config_is_found_with_its_ending_and_by_its_path(form, tmp_path):
    path = CONFIGS[0]
    argument = form.format(stem=path.stem, name=path.name, path=path)
    assert told(argument, cwd=tmp_path)["given"] == told(f"--flagfile={path}")["given"]


def test_a_flagfile_may_be_in_the_home_folder(tmp_path, monkeypatch):
    """A shell leaves the ~ after the = to the program."""
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "mine.flags").write_text("--d_model=8\n")
    found = told("--flagfile=~/mine.flags")
    assert (found["given"][0], found["sources"]) == ({"d_model": 8}, {"d_model": "flagfile mine"})


def test_a_flagfile_that_is_not_text_is_reported(tmp_path):
    """Story: that of a model ended the program with a traceback."""
    (tmp_path / "subwords.model").write_bytes(b"\n\xf2\xff")
    result = program("--flagfile=subwords.model", cwd=tmp_path)
    expected = "Error: The flagfile subwords.model cannot be read: 'utf-8' codec can't decode"
    assert (result.returncode, result.stderr.startswith(expected)) == (1, True), result.stderr


@pytest.mark.parametrize("line", ["--train_source=a.en --train_target=a.de", "--nodeterministic  --d_ff=8"])
def test_two_flags_on_a_line_of_a_flagfile_are_refused(tmp_path, line):
    """Story: the second one was a part of the first one's value, without a word."""
    (tmp_path / "mine.flags").write_text(f"# --d_k=1 --d_v=1\n--train_source=a --b --no.en\n{line}\n")
    result = program("--flagfile=mine.flags", cwd=tmp_path)
    expected = "Error: The flagfile mine.flags must have each flag on a line of its own; if this "
    expected += f"is one value, give it on the command line. Received: {line}\n"
    assert (result.returncode, result.stderr) == (1, expected)


def test_a_row_of_a_grid_in_a_flagfile_has_flags(tmp_path):
    (tmp_path / "mine.flags").write_text("--row=a --num_heads=1 --d_k=8\n--row\nb --num_heads=2 --d_k=4\n")
    given = [f"--flagfile={tmp_path}/mine.flags", f"--output_dir={tmp_path}"]
    result = programs.tool("grid", *given, modules=programs.WITHOUT_TENSORFLOW)
    assert result.stderr.startswith("Error: There is no prepared data"), result.stderr


def test_a_flagfile_may_include_a_config_and_change_it(tmp_path):
    """Story: a config was not found by its name in a flagfile."""
    (tmp_path / "mine.flags").write_text("--flagfile=quickstart\n--d_ff=8\n")
    found = told("--flagfile=mine.flags", cwd=tmp_path)
    [config, *_] = told("--flagfile=quickstart")["read"]
    assert found["read"][0] == config | {"d_ff": 8}
    assert (found["sources"]["d_ff"], found["sources"]["d_model"]) == ("flagfile mine", "flagfile quickstart")


def test_a_flagfile_may_be_included_twice_but_not_in_itself(tmp_path):
    (tmp_path / "a.flags").write_text("--d_ff=8\n")
    (tmp_path / "b.flags").write_text("--flagfile=a.flags\n--d_ff=16\n--flagfile=a.flags\n")
    assert told("--flagfile=b.flags", cwd=tmp_path)["given"][0] == {"d_ff": 8}
    (tmp_path / "a.flags").write_text("--flagfile=b.flags\n")
    result = program("--flagfile=b.flags", cwd=tmp_path)
    expected = "Error: A flagfile must not include itself. Received: b.flags includes a.flags includes b.flags.\n"
    assert (result.returncode, result.stderr) == (1, expected)


@pytest.mark.parametrize(("files", "times"), [(16, 2), (501, 1)])
def test_flagfiles_that_include_very_many_are_refused(tmp_path, files, times):
    """Story: of files that each include the next one twice, each more doubled the time; 40 would take for ever."""
    for number in range(files):
        (tmp_path / f"{number}.flags").write_text(f"--flagfile={tmp_path}/{number + 1}.flags\n" * times)
    (tmp_path / f"{files}.flags").write_text("--d_ff=8\n")
    with pytest.raises(SystemExit, match="^Error: Expected at most 500 flagfiles, each counted as often as it is"):
        flagfiles.expand([f"--flagfile={tmp_path}/0.flags"])
    assert flagfiles.expand([f"--flagfile={tmp_path}/{files - 5}.flags"]) == ["--d_ff=8"] * times**5


def test_a_file_comes_before_a_config_of_the_same_name(tmp_path):
    (tmp_path / CONFIGS[0].stem).write_text("--d_model=8\n")
    assert told(f"--flagfile={CONFIGS[0].stem}", cwd=tmp_path)["given"][0] == {"d_model": 8}


def test_a_folder_of_that_name_does_not_hide_a_config(tmp_path):
    """`--flagfile=quickstart --model_dir=quickstart` is to run a second time too."""
    (tmp_path / CONFIGS[0].stem).mkdir()
    result = program(f"--flagfile={CONFIGS[0].stem}", cwd=tmp_path)
    assert result.returncode == 0, result.stderr


def test_a_message_that_advises_a_flagfile_has_its_dashes():
    """Story: "see `flagfile=small`" stood on the screen."""
    assert messages.name_flags("See `flagfile=small`, not `nothing=3`.") == "See --flagfile=small, not `nothing=3`."


def test_a_module_of_the_installed_package_advises_installed_programs(monkeypatch):
    """Story: `python -m t2t_keras_tools.train` advised tools/translate.py, which is not installed."""
    monkeypatch.setattr(sys, "argv", ["/lib/site-packages/t2t_keras_tools/train.py"])
    assert messages.command("import_marian") == "t2t-import-marian"


@pytest.mark.parametrize(
    ("started", "shown"),
    [("tools/train.py", "`python tools/data_service.py --port`"), ("bin/t2t-train", "`t2t-data-service --port`")],
)
def test_messages_and_help_name_the_programs_as_they_are_run_here(monkeypatch, started, shown):
    """Story: `t2t-translate --input=memory.tmx` advised train.py, which was not there."""
    monkeypatch.setattr(sys, "argv", [started])
    text = "Run `t2t-data-service --port`. Received: t2t-train, 't2t-train', a/t2t-train.py."
    assert messages.name_flags(text) == messages.name_programs(text) == text.replace("`t2t-data-service --port`", shown)


@pytest.mark.parametrize("started", ["tools/train.py", "bin/t2t-train"])
def test_the_command_that_a_message_advises_is_one_word_for_its_folder_in_a_shell(monkeypatch, started):
    """Story: the folder `my runs/a` was two words of the command that train.py ended with."""
    monkeypatch.setattr(sys, "argv", [started])
    words = ["bash", "-c", f"printf '%s\\n' {messages.command('translate', pathlib.Path('my runs/$a'))}"]
    *_, last = subprocess.run(words, capture_output=True, text=True).stdout.splitlines()
    assert last == "--model_dir=my runs/$a"
    assert (
        messages.command("translate", pathlib.Path("runs/a")) == f"{messages.command('translate')} --model_dir=runs/a"
    )


def test_other_arguments_that_name_a_config_stay_what_they_are(tmp_path):
    name = CONFIGS[0].stem
    *_, data = told(f"--train_source={name}", f"--train_target=flagfile={name}", cwd=tmp_path)["given"]
    assert data == {"train_source": name, "train_target": f"flagfile={name}"}


def test_paths_that_hold_an_option_stay_as_they_are():
    """Story: in `tensorboard --logdir runs/seed=2/logs` the folder got dashes."""
    main = """from t2t_keras.system.log import logger
    logger.info("In runs/seed=2/d_ff=8,alpha=1/logs: seed=2.")"""
    assert program(main=main).stderr == "In runs/seed=2/d_ff=8,alpha=1/logs: --seed=2.\n"


def test_a_program_can_end_without_the_clean_up_but_not_without_its_output():
    code = (
        "import atexit; from t2t_keras.cli import program; atexit.register(print, 'clean-up'); print('done', end=''); "
        "program.exit_now()"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    assert (result.returncode, result.stdout) == (0, "done")


@pytest.mark.parametrize("names", [",", " , ", ""])
def test_no_folder_at_all_is_refused(names, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    if names.strip():
        with pytest.raises(ValueError, match=f"^`model_dir` must be the folder of a run. Received: '{names}'"):
            flags.run_folders(names)
    else:
        assert flags.run_folders(names) == [pathlib.Path()]  # The working directory.


def test_the_names_of_several_runs_may_be_longer_than_the_name_of_a_folder():
    names = [f"run_of_a_long_name_{number}" for number in range(20)]
    assert flags.run_folders(",".join(names)) == [pathlib.Path(name) for name in names]


def test_before_several_runs_each_folder_is_checked_and_text_that_they_share_is_read_once(tmp_path, monkeypatch):
    checked = {"folders": [], "text": [], "embeddings": []}
    monkeypatch.setattr(Start, "check", lambda start: checked["folders"].append(start.folder.name))
    monkeypatch.setattr(corpora, "check_files", lambda data, sides: checked["text"].append((data.train_source, sides)))
    monkeypatch.setattr(embeddings, "check", lambda options: checked["embeddings"].append(options.train.embeddings))
    texts = {"a": "one", "b": "one", "c": "two", "d": "", "e": ""}
    (tmp_path / "e/checkpoints").mkdir(parents=True)
    (tmp_path / "e/config.json").write_text('{"model": {}}')
    (tmp_path / "e/checkpoints/step-000000003.json").write_text("{}")  # A resumed run does not need the vectors.
    options = {
        name: run_options.Options(
            train=config.TrainConfig(embeddings="vectors" * (name in "be")),
            data=config.DataConfig(train_source=text, train_target=text),
        )
        for name, text in texts.items()
    }
    training.check(*(Start.of(tmp_path / name, chosen) for name, chosen in options.items()))
    sides = ("source", "target")
    assert checked == {
        "folders": ["a", "b", "c", "d", "e"],
        "text": [("one", sides), ("two", sides)],
        "embeddings": ["vectors"],
    }


def test_short_help_shows_at_most_17_flags_and_full_help_every_option_once_under_its_heading():
    short, full = (program(flag) for flag in ("--help", "--helpfull"))
    assert program("--helpshort").stdout == short.stdout
    assert (short.returncode, full.returncode, short.stderr, full.stderr) == (0, 0, "", "")
    assert 10 <= len(re.findall(r"^  --", short.stdout, re.MULTILINE)) <= 17
    shown, heading = {}, ""
    for line in full.stdout.splitlines():
        if line.endswith(":") and not line.startswith(" "):
            heading = line[:-1]
        elif flag := re.match(r"  --(?:\[no\])?(\w+): ", line):
            assert flag[1] not in shown
            shown[flag[1]] = heading
    assert {field.name: field.metadata["group"] for field in FIELDS}.items() <= shown.items()
    assert {field.metadata["group"] for field in FIELDS} <= {*config.GROUPS}
    assert "absl" not in full.stdout and "pdb" not in full.stdout
    assert all(len(line) <= 80 for line in full.stdout.splitlines())


def test_the_table_of_options_has_the_order_of_the_groups():
    rows = [line.split("|")[1].strip() for line in run_options.Options().table().splitlines()[2:]]
    groups = {field.name: field.metadata["group"] for field in FIELDS}
    order = [config.GROUPS.index(groups[row]) for row in rows if row in groups]
    assert order == sorted(order) and {*groups} <= {*rows}


def test_a_run_shows_the_options_that_differ_from_the_defaults_of_its_architecture_under_their_headings():
    options = run_options.Options.default("bert")
    assert options.differing() == {"Model": {"architecture": "bert"}}, "What the task has by default is no difference."
    assert options.summary() == "Model\n  architecture  bert  default"
    sources = {"train_source": "command line", "dropout": "flagfile small", "beam_size": "command line"}
    data = config.DataConfig(train_source="a\nb.en", train_target="b")
    groups = config.ModelConfig(dropout=0.3), config.TrainConfig(), config.DecodeConfig(beam_size=12), data
    chosen = run_options.Options(*groups, data_dir="/data", sources=sources)
    assert chosen.summary().splitlines() == [
        "Where things lie",
        "  data_dir      /data    default",
        "Text and sub-words",
        "  train_source  a\\nb.en  command line",
        "  train_target  b        default",
        "Regularisation",
        "  dropout       0.3      flagfile small",
        "Search",
        "  beam_size     12       command line",
    ]


@dataclasses.dataclass(frozen=True)
class ToyConfig(config.TrainConfig):
    """Options with new ones, which stand in no list."""

    share: float = config.option(0.5, "A share.", minimum=0, below=1, fixed=True)
    colour: str = config.option("red", "A colour.", choices=("red", "green"))
    file: str = config.option("", "A file.", path="file", affects="nothing")


def test_an_option_with_its_facts_has_its_checks_and_stands_in_every_list(tmp_path):
    for wrong, expected in (
        ({"share": 1.0}, "Expected at least 0 and less than 1. Received: share=1.0."),
        ({"share": -0.1}, "Expected at least 0 and less than 1. Received: share=-0.1."),
        ({"colour": "blue"}, "Expected one of red, green. Received: colour='blue'."),
    ):
        with pytest.raises(ValueError, match=f"^{re.escape(expected)}$"):
            ToyConfig(**wrong)
    assert config.options_with(ToyConfig, "path", "file") == ("embeddings", "file")
    assert "file" in config.options_with(ToyConfig, "affects", "nothing")
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints/step-000000003.json").write_text("{}")
    before, colour, share = (
        run_options.Options(train=ToyConfig(**changed)) for changed in ({}, {"colour": "green"}, {"share": 0.1})
    )
    run = types.SimpleNamespace(options=before)
    assert Start(tmp_path, colour, run).changes() == "`colour` red → green"
    with pytest.raises(ValueError, match=r"share=0\.1 \(the run: 0\.5\)"):
        Start(tmp_path, share, run).changes()


@pytest.mark.parametrize(
    ("argument", "expected"),
    [("--share=-1", "-1.0 is not a non-negative number"), ("--colour=blue", "should be one of <red|green>")],
)
def test_flags_have_the_bounds_and_choices_of_their_options(argument, expected):
    main = f"""toy = dataclasses.make_dataclass("Toy", [
        ("share", float, config.option(0.5, "A share.", minimum=0, below=1)),
        ("colour", str, config.option("red", "A colour.", choices=("red", "green")))])
    options.define(toy)
    try:
        flags.FLAGS(["program", {argument!r}])
    except flags.Error as error:
        raise ValueError(str(error)) from error"""
    result = program(main="from t2t_keras import config\n    " + main)
    assert result.returncode == 1 and argument[2:] in result.stderr and expected in result.stderr
