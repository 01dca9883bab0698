"""The options of translating lines, and what becomes of a line: of an export that shouts, and of runs that are
described but not loaded.
"""

import dataclasses
import json
import pathlib
import re
import types
import zlib

import numpy as np
import pytest
import stand_in
import tensorflow as tf

from t2t_keras.config import SampleConfig
from t2t_keras.decoding import minimum_bayes_risk, reranking
from t2t_keras.decoding.trained_model import TrainedModel
from t2t_keras.runs import checkpoint, export_folder
from t2t_keras.runs.saved_run import SavedRun
from t2t_keras.serving import line_translation, loaded, output, requests
from t2t_keras.serving import terms as serving_terms
from t2t_keras.serving.line_translation import LineTranslation
from t2t_keras.serving.saved_export import SavedExport
from t2t_keras.system import files
from t2t_keras.text import lines, piece_file
from t2t_keras.text.sentencepiece_model import with_pattern


def run_of(folder: pathlib.Path, **groups) -> pathlib.Path:
    folder.mkdir()
    (folder / files.CONFIG).write_text(json.dumps({"version": 1, "model": {}, **groups}))
    (folder / files.SUBWORDS).touch()
    return folder


@pytest.fixture
def runs(tmp_path) -> list[pathlib.Path]:
    """The first has another search and another tag than the second."""
    of_data = {"train_source": "a", "train_target": "b"}
    first = run_of(tmp_path / "first", decode={"beam_size": 4, "alpha": 0.5}, data={**of_data, "source_tag": "<1>"})
    return [first, run_of(tmp_path / "second", decode={"beam_size": 1}, data={**of_data, "source_tag": "<2>"})]


def of_run(*folders, **options) -> TrainedModel:
    return TrainedModel.open(folders, **options)


@pytest.fixture
def export(tmp_path, monkeypatch):
    """An export of `stand_in.StandIn`, whose second translation lacks all phrases, and the first those that are not
    ordered and have a z.

    `seen` has the inputs of each request.
    """
    folder, model, seen = tmp_path / "export", stand_in.StandIn(), []
    (folder / export_folder.EXTRA).mkdir(parents=True)
    description = {"decode": {"beam_size": 2, "an_option_of_another_version": 3}}
    (folder / export_folder.EXTRA / export_folder.DESCRIPTION).write_text(json.dumps(description))

    def translate_with_options(**inputs):
        seen.append({name: value.numpy().tolist() for name, value in inputs.items()})
        met = ~tf.strings.regex_full_match(inputs["constraints"], ".*z.*") | inputs["ordered"]
        return {
            **model.translate_with_options(**inputs),
            "constraints_met": tf.stack([met, inputs["constraints"] == ""], axis=1),
        }

    others = {"translate": model.translate, "sample": model.sample, "score": model.score}
    signatures = types.SimpleNamespace(translate_with_options=translate_with_options, **others)
    monkeypatch.setattr(loaded, "read_signatures", lambda path: signatures if path == folder else None)
    return types.SimpleNamespace(folder=folder, model=SavedExport(folder), seen=seen)


def results(asked: LineTranslation, lines: list[str], first: int = 1, **loading) -> tuple[list[dict], list[str]]:
    """What becomes of lines, and the warnings."""
    warnings: list[str] = []
    return list(asked.load(asked.read_terms(), **loading).results(iter(lines), warnings.append, first)), warnings


def test_options_that_fit_together_are_accepted(runs):
    """Those that do not are refused; see `test_tools.py`."""
    two, greedy = of_run(runs[0], beam_size=2), of_run(runs[0], beam_size=1)
    sample = SampleConfig(draws=2)
    for model, options in (
        (two, {"n_best": 2, "mbr": "chrf"}),
        (two, {"mbr": "chrf", "rerank_with": str(runs[1])}),
        (greedy, {"n_best": 1}),
        (greedy, {"jsonl": True, "keep_patterns": "tags"}),
        (greedy, {"sample": sample, "mbr": "chrf"}),
        (greedy, {"sample": sample, "rerank_with": str(runs[1])}),
        (of_run(runs[0], diverse_groups=2), {"n_best": 4}),
    ):
        LineTranslation(model, **options)
    with pytest.raises(ValueError, match="`jsonl` needs one group of beams. Received: diverse_groups=2"):
        LineTranslation(of_run(runs[0], diverse_groups=2), jsonl=True)


@pytest.mark.parametrize(("options", "message"), [
    ({"n_best": 2}, "`n_best=2` has no effect on `sample`."),
    ({"jsonl": True, "terms": "x"}, "`jsonl` and `terms` has no effect on `sample`."),
    ({"mbr": "bleu"}, "`mbr` must be chrf, or empty. Received: 'bleu'."),
    ({"alignment": True}, "`alignment` cannot be combined with `sample`."),
], ids=str)  # fmt: skip
def test_options_that_a_pipeline_would_ignore_are_refused(runs, options, message):
    """`translate.py` refuses them itself. Story: `beam.Translate` left out `n_best`, and failed at every line with
    phrases.
    """
    with pytest.raises(ValueError, match=message):
        LineTranslation(of_run(runs[0]), sample=SampleConfig(draws=2), **options)


def test_search_and_tags_are_those_of_the_first_run_and_search_what_is_given(runs):
    asked = LineTranslation(of_run(*runs, alpha=0.75))
    search = asked.model.search
    assert (search.beam_size, search.alpha, asked.model.tags) == (4, 0.75, ["<1>"])


def test_search_of_an_export_is_the_one_that_it_describes_without_options_of_other_versions(export):
    assert (export.model.search.beam_size, export.model.tags) == (2, [])


def test_paths_that_hold_elsewhere_begin_at_the_root(export, runs, monkeypatch):
    monkeypatch.chdir(export.folder.parent)
    there = pathlib.Path(export.folder.name)
    found = LineTranslation(SavedExport(there), jsonl=True).absolute()
    assert (found.model, found.rerank_with, found.jsonl) == (export.model, "", True)
    model = of_run(*(pathlib.Path(run.name) for run in runs))
    found = LineTranslation(model, rerank_with=runs[1].name).absolute()
    assert (found.model, found.rerank_with) == (of_run(*runs), str(runs[1]))


@pytest.mark.parametrize(("given", "error", "message"), [
    ({"diversity": 2.0}, ValueError, "`diversity` has no effect without `diverse_groups`. Received: diversity=2.0."),
    ({"ensemble_mean": "logs"}, ValueError, "`ensemble_mean` needs several runs. Received: one, "),
    ({"beam": 3}, TypeError, "Unknown option beam. Did you mean beam_size"),
], ids=str)  # fmt: skip
def test_options_of_a_loaded_run_that_it_does_not_use_are_refused(runs, given, error, message):
    with pytest.raises(error, match=re.escape(message)):
        of_run(runs[0], **given)
    assert of_run(runs[0], diversity=2.0, diverse_groups=2).search.diversity == 2.0
    assert of_run(*runs, ensemble_mean="logs").ensemble_mean == "logs"


@pytest.mark.parametrize("asked", [{"checkpoint": "latest", "int8": True, "dtype": "bfloat16"}, {}])
def test_a_run_that_reranks_is_loaded_as_the_first_one_is(runs, monkeypatch, asked):
    loaded = []
    monkeypatch.setattr(TrainedModel, "load", lambda model: loaded.append(model))
    monkeypatch.setattr("t2t_keras.decoding.reranking.reranked", lambda *arguments, **options: None)
    translator = types.SimpleNamespace(n_best=None, config=types.SimpleNamespace(alpha=0.5))
    given = LineTranslation(of_run(runs[0], **asked), rerank_with=str(runs[1]))
    line_translation.LineTranslator(given, None, translator)
    [model] = loaded
    expected = {"checkpoint": "average", "int8": False, "dtype": "float32"} | asked
    assert [run.folder for run in model.runs] == [runs[1]]
    assert {name: getattr(model, name) for name in expected} == expected


def test_what_translations_do_not_depend_on_is_not_in_their_description(runs, monkeypatch, tmp_path):
    monkeypatch.setattr(checkpoint, "identity", lambda folder, which: f"{which} of {folder.name}")
    asked = LineTranslation(of_run(*runs, checkpoint="latest"), rerank_with=str(runs[1]))
    found = asked.identity()
    assert dataclasses.replace(asked, batch_size=7).identity() == found == json.loads(json.dumps(found))
    second = {"weights": "latest of second", "config": json.loads((runs[1] / files.CONFIG).read_text())}
    assert found["rerank_with"] == second
    assert found["model_dir"] == [
        {"weights": f"latest of {run.name}", "config": json.loads((run / files.CONFIG).read_text())} for run in runs
    ]
    assert (found["checkpoint"], found["rerank_weight"], found["rerank_direction"]) == ("latest", 1.0, "forward")
    (tmp_path / "terms").write_text("a\tb\tc|d\n")
    assert LineTranslation(of_run(runs[0]), terms=str(tmp_path / "terms")).identity()["terms"] == {"a": ["b", "c", "d"]}


@pytest.mark.parametrize("direction", ["forward", "right_to_left", "backward"])
def test_the_languages_of_a_run_that_reranks_are_turned_around_where_its_direction_is(runs, monkeypatch, direction):
    given = {"source_language": "eng_Latn", "target_language": "fra_Latn"}
    monkeypatch.setattr(SavedRun, "subwords", lambda run: (piece_file.HEAD,))
    monkeypatch.setattr(piece_file, "unpack", lambda content: types.SimpleNamespace(language="deu_Latn"))
    monkeypatch.setattr(piece_file, "with_languages", lambda contents, *languages: contents)
    monkeypatch.setattr(TrainedModel, "needed_tags", [])
    asked = LineTranslation(of_run(runs[0], **given), rerank_with=str(runs[1]), rerank_direction=direction)
    expected = given if direction != "backward" else {"source_language": "fra_Latn", "target_language": "eng_Latn"}
    assert asked.languages_of_other == expected


def test_an_export_knows_its_tags_and_the_languages_that_a_run_is_to_score(export, runs, monkeypatch):
    described = {"source_language": "eng_Latn", "target_language": "deu_Latn"}
    described |= {"tags": ["<de>"], "languages": ["eng_Latn", "deu_Latn"]}
    (export.folder / export_folder.EXTRA / export_folder.DESCRIPTION).write_text(json.dumps(described))
    monkeypatch.setattr(SavedRun, "subwords", lambda run: (piece_file.HEAD,))
    monkeypatch.setattr(piece_file, "unpack", lambda content: types.SimpleNamespace(language=""))
    monkeypatch.setattr(piece_file, "with_languages", lambda contents, *languages: contents)
    monkeypatch.setattr(TrainedModel, "needed_tags", [])
    asked = LineTranslation(export.model, rerank_with=str(runs[1]), rerank_direction="backward")
    assert asked.model.tags == ["<de>"]
    assert asked.languages_of_other == {"source_language": "deu_Latn", "target_language": "eng_Latn"}


@pytest.mark.parametrize(("sample", "alpha", "weighted"), [(None, 0.5, True), (SampleConfig(draws=2), 0.0, False)])
def test_samples_have_no_length_penalty_and_count_alike(runs, monkeypatch, sample, alpha, weighted):
    """Samples come as often as they are likely."""
    seen = []

    def found(text, *numbers):
        texts, scores = tf.constant([["a", "b"]]), tf.constant([[-1.0, -2.0]])
        return {"text": texts, "score": scores, "truncated": tf.constant([False])}

    config, limits = types.SimpleNamespace(alpha=0.5), types.SimpleNamespace(batch_size=64)
    translator = types.SimpleNamespace(config=config, limits=limits, n_best=found)
    monkeypatch.setattr(loaded, "load", lambda model: translator)
    monkeypatch.setattr(requests, "sampler", lambda *given: found if given == (translator, sample) else None)
    monkeypatch.setattr(TrainedModel, "load", lambda model: "another model")
    monkeypatch.setattr(reranking, "reranked", lambda n_best, other, **options: seen.append(options) or n_best)
    monkeypatch.setattr(minimum_bayes_risk, "by_mbr", lambda result, weighted: seen.append(weighted) or result)
    results(LineTranslation(of_run(runs[0]), sample=sample, rerank_with=str(runs[1]), rerank_weight=0.25), ["x"])
    results(LineTranslation(of_run(runs[0]), sample=sample, mbr="chrf"), ["x"])
    of_other = {"weight": 0.25, "alpha": alpha, "direction": "forward", "unknown_tags": ["<1>"]}
    assert seen == [of_other, weighted]


def test_a_run_that_reranks_backward_needs_no_tags(runs):
    """Story: it scored translations that had none, and read the tags of sources as text."""
    with pytest.raises(ValueError, match="must not need tags. Received: .*second, whose sources .* <2>."):
        LineTranslation(of_run(runs[0]), rerank_with=str(runs[1]), rerank_direction="backward")


def test_a_line_that_is_not_reranked_is_named(runs, monkeypatch):
    def found(text):
        rows = [len(text), 2]
        return {
            "text": tf.fill(rows, "a"), "score": tf.fill(rows, -1.0), "truncated": tf.fill(rows[:1], False),
            "unranked": text == "x y",
        }  # fmt: skip

    translator = types.SimpleNamespace(
        config=types.SimpleNamespace(alpha=0.5), limits=types.SimpleNamespace(batch_size=64), n_best=found
    )
    monkeypatch.setattr(loaded, "load", lambda model: translator)
    monkeypatch.setattr(TrainedModel, "load", lambda model: "another model")
    monkeypatch.setattr(reranking, "reranked", lambda n_best, other, **options: n_best)
    answers, warnings = results(LineTranslation(of_run(runs[0]), rerank_with=str(runs[1])), ["<1> x", "x y"])
    assert [list(answer) for answer in answers] == [["text", "score", "truncated"]] * 2
    [warning] = [warning for warning in warnings if "tag" not in warning]
    assert warning == (
        f"Line 2: not reranked. It or a translation is longer than `max_input` of `rerank_with={runs[1]}`, "
        f"{LineTranslation(of_run(runs[1])).model.search.max_input:,} sub-words."
    )


def test_an_export_is_asked_for_no_more_translations_than_are_written(export):
    found, _ = results(LineTranslation(export.model), ["aB"])
    assert found == [{"text": "AB", "score": pytest.approx(-0.8), "truncated": False}]
    found, _ = results(LineTranslation(export.model, jsonl=True), ['{"text": "aB", "avoid": []}'])
    assert (found[0]["text"], found[0]["constraints_met"]) == ("AB", True)
    found, _ = results(LineTranslation(export.model, n_best=1), ["aB"])
    assert found[0]["text"] == ["AB", "ab"]  # Of which one is written.
    found, _ = results(LineTranslation(export.model, n_best=1, jsonl=True), ['{"text": "aB"}'])
    assert found[0]["text"] == ["AB"]
    assert [inputs["n_best"] for inputs in export.seen] == [[1], [1], [2], [1]]


def test_samples_of_an_export_have_the_seeds_of_their_lines_or_of_their_text(export):
    """Each is the text, the seed, top_k, the maximum length and its own number."""
    asked = LineTranslation(export.model, sample=SampleConfig(draws=2, seed=3, temperature=0.5, top_k=7, top_p=0.25))
    found, _ = results(asked, ["one", "two"], first=5)
    seeds = [3 * 2**32 + 4, 3 * 2**32 + 5]
    assert [each["text"] for each in found] == [
        [f"{text} {seed} 7 0 {draw}" for draw in range(2)] for text, seed in zip(("one", "two"), seeds, strict=True)
    ]
    assert [each["score"] for each in found] == [pytest.approx([-0.5, -0.75])] * 2
    found, _ = results(asked, ["one"], by_text=True)
    assert found[0]["text"][0] == f"one {3 * 2**32 + zlib.crc32(b'one')} 7 0 0"


def test_lines_go_to_the_model_so_many_at_once_as_asked_for_or_as_it_has_room_for(export, monkeypatch):
    for batch_size, room, expected in ((2, 64, [2, 2, 1]), (0, 64, [5]), (0, 3, [3, 2])):
        monkeypatch.setattr(loaded, "Limits", lambda room=room: types.SimpleNamespace(batch_size=room))
        export.seen.clear()
        results(LineTranslation(export.model, batch_size=batch_size), list("abcde"))
        assert [len(inputs["text"]) for inputs in export.seen] == expected


@pytest.mark.parametrize(("n_best", "lacking"), [(0, [6]), (1, [6]), (2, [5, 6])])
def test_a_translation_that_lacks_a_phrase_is_reported_with_its_line(export, tmp_path, n_best, lacking):
    """The second one lacks it, and the first where it has a z; JSON says so itself."""
    (tmp_path / "terms").write_text("two\tdeux\n")
    asked = LineTranslation(export.model, n_best=n_best, keep_patterns="/[a-z]\\d/", terms=str(tmp_path / "terms"))
    _, warnings = results(asked, ["two x1", "z1", "one"], first=5)
    assert warnings == [
        f"Line {number}: a translation lacks a phrase (`terms` and `keep_patterns`)." for number in lacking
    ]
    assert export.seen[0]["constraints"] == [b"x1"]  # What the line with a term is without it.
    assert export.seen[1]["constraints"] == [b"", b"z1", b"x1\tdeux"]  # By their lengths.
    found, warnings = results(
        dataclasses.replace(asked, jsonl=True), ['{"text": "z1"}', '{"text": "z1", "ordered": true}']
    )
    assert warnings == []
    assert [each["constraints_met"] for each in found] == (
        [met[:n_best] for met in ([False] * 2, [True, False])] if n_best else [False, True]
    )


def test_a_doubtful_translation_is_reported_with_its_line(export, tmp_path, monkeypatch):
    """Where all translations with terms are; JSON says so itself, of all translations of a list."""
    monkeypatch.setattr(serving_terms, "least_outside", lambda scored, target, phrases: -4.0 if phrases else 0.0)
    (tmp_path / "terms").write_text("two\tdeux\nONE\tONE\n")
    asked = LineTranslation(export.model, terms=str(tmp_path / "terms"))
    found, warnings = results(asked, ["one", "two", "ONE"], first=5)
    assert [warning for warning in warnings if "lacks" not in warning] == [
        "Line 6: doubtful: its terms make another word very unlikely. Check it."
    ]
    assert [each["doubtful"] for each in found] == [False, True, False]
    found, warnings = results(dataclasses.replace(asked, n_best=2, jsonl=True), ['{"text": "two"}'])
    assert (found[0]["doubtful"], warnings) == ([True, True], []) and "doubtful" in output.json_line(1, found[0])
    found, _ = results(LineTranslation(export.model, jsonl=True), ['{"text": "two"}'])
    assert "doubtful" not in found[0]


def test_a_tag_of_the_run_is_no_text_to_keep(runs, monkeypatch):
    asked, seen = LineTranslation(of_run(*runs), keep_patterns="/<\\d+>/"), []
    long = f"<{2**200}>"

    class Model:
        limits = types.SimpleNamespace(batch_size=64)

        def fits(self, phrase, text):
            return False

        def reads(self, text):
            return True

        def translate_with_options(self, text, constraints, **options):
            seen.extend(zip(text.numpy().tolist(), constraints.numpy().tolist(), strict=True))
            rows = [len(text), 1]
            found = {"text": tf.fill(rows, ""), "score": tf.zeros(rows), "constraints_met": tf.fill(rows, True)}
            return {**found, "truncated": tf.fill(rows[:1], False), "error": tf.fill(rows[:1], "")}

    monkeypatch.setattr(loaded, "load", lambda model: Model())
    _, warnings = results(asked, ["<1> a <3>", f"<2> a {long}"], first=5)
    assert warnings == [
        "Line 6: expected a tag at the beginning, <1>, as in the text that the model was trained on.",
        f"Line 6: expected at most 32 phrases of at most 32 sub-words. Left out: {long}",
    ]
    assert seen == [(b"<1> a <3>", b"<3>"), (f"<2> a {long}".encode(), b"<2>")]


def test_terms_of_a_line_are_those_that_the_model_reads_and_does_not_copy(runs, monkeypatch):
    (runs[0] / files.SUBWORDS).write_bytes(with_pattern(b"", r"\{\w+\}"))
    (terms := runs[0] / "terms.tsv").write_text("name\tnom\n")
    model = types.SimpleNamespace(limits=types.SimpleNamespace(batch_size=64), n_best=None, fits=None)
    model.config, model.reads, seen = types.SimpleNamespace(max_input=7), lambda text: len(text.split(" ")) <= 4, {}

    def translate_requests(model, asked, *options):
        seen.update((request.text, request.required) for request in asked)
        return {"text": tf.fill([len(asked)], ""), "truncated": tf.fill([len(asked)], False)}

    monkeypatch.setattr(loaded, "load", lambda opened: model)
    monkeypatch.setattr(requests, "translate_requests", translate_requests)
    asked = LineTranslation(of_run(runs[0]), keep_patterns="/<\\d+>/", terms=str(terms))
    results(asked, ["<1> a {name} <3> <4>", "<1> a name"])
    assert seen == {"<1> a {name} <3> <4>": ["<3>"], "<1> a name": ["nom"]}


@pytest.mark.parametrize("n_best", [0, 2])
def test_lines_are_written_with_their_alignments_and_other_keys(runs, monkeypatch, n_best):
    """Shorter lines go to the model first, whatever keys are beside them."""
    asked = LineTranslation(of_run(runs[0]), n_best=n_best, alignment=True)

    class Model:
        languages, limits, config = (), types.SimpleNamespace(batch_size=64), types.SimpleNamespace(max_input=7)

        n_best, fits, reads, seen = None, None, None, []

        def translate_with_options(self, text, alignment, **options):
            assert alignment.numpy().all()
            self.seen.append(text.numpy().tolist())
            rows = len(text)
            sources = [[*(f"▁{word}" for word in line.decode().split()), "</s>"] for line in self.seen[-1]]
            weights = np.tile(np.arange(1.0, 5.0), (rows, 4, 4, 1)) * (np.array(text) != b"")[:, None, None, None]
            pieces = [["▁a", "</s>", "", ""], ["▁b", "▁c", "</s>", ""], ["▁a", "</s>", "", ""], [""] * 4]
            return {
                "text": tf.constant([["a", "b c", "a", ""]] * rows), "pieces": tf.constant([pieces] * rows),
                "alignment": tf.constant(weights),
                "source_pieces": tf.constant([[*source, *[""] * (4 - len(source))] for source in sources]),
                "score": tf.constant([[-1.0, -2.0, -3.0, 0.0]] * rows), "error": tf.constant([b""] * rows),
                "constraints_met": tf.fill([rows, 4], True), "truncated": tf.fill([rows], False),
            }  # fmt: skip

    monkeypatch.setattr(loaded, "load", lambda model: Model())

    def written(asked: LineTranslation, lines: list[str]) -> tuple[str, list[str]]:
        translator, warnings = asked.load(asked.read_terms()), []
        found = translator.results(lines, warnings.append)
        return b"".join(translator.written(number, result) for number, result in enumerate(found, 1)).decode(), warnings

    text, warnings = written(asked, ["x y z", "x y", "x\u3000y"])
    assert text.splitlines() == (
        [*("1\t-1.0000\ta\t2-0", "1\t-2.0000\tb c\t2-0 2-1", "2\t-1.0000\ta\t1-0", "2\t-2.0000\tb c\t1-0 1-1")]
        + ["3\t-1.0000\ta\t", "3\t-2.0000\tb c\t"]
        if n_best
        else ["a\t2-0", "a\t1-0", "a\t"]
    )
    assert warnings[1:] == [
        "Line 3: no alignment: the source has more than 256 sub-words, or its sub-words do not spell the words of the "
        "text."
    ]
    lines = [{"text": "x y z", "id": 5, "list": [1, 2, 3], "truncated": True}]
    lines.append({"score": "old", "text": "x", "long": "x" * 1000})
    text, warnings = written(dataclasses.replace(asked, jsonl=True), map(json.dumps, lines))
    assert Model.seen[-1] == [b"x", b"x y z"] and len(warnings) == 1
    found = {"text": ["a", "b c"], "score": [-1.0, -2.0], "constraints_met": [True] * 2}
    alignments = ["2-0", "2-0 2-1"], ["0-0", "0-0 0-1"]
    expected = [line | found | {"alignment": own} for line, own in zip(lines, alignments, strict=True)]
    if not n_best:
        expected = [{**own, **{name: own[name][0] for name in (*found, "alignment")}} for own in expected]
    assert [json.loads(line) for line in text.splitlines()] == expected


def test_text_to_keep_that_is_too_long_for_an_export_is_left_out_and_named(export):
    """Story: one long URL ended the whole job."""
    asked = LineTranslation(export.model, keep_patterns="/x+/")
    found, warnings = results(asked, [f"a {40 * 'x'}", f"{30 * 'x'}"])
    assert export.seen[0]["constraints"] == [b"", 30 * b"x"] and len(found) == 2  # By their lengths.
    assert warnings[0] == f"Line 1: expected at most 32 phrases of at most 32 sub-words. Left out: {40 * 'x'}"


def test_sub_words_of_lines_are_counted_but_for_an_export(export, runs, monkeypatch):
    tokenizer = types.SimpleNamespace(
        tokenize=lambda lines: tf.strings.split(lines) if lines else pytest.fail("No lines have no type.")
    )
    translator = types.SimpleNamespace(source_tokenizer=tokenizer, search_scope=None)
    monkeypatch.setattr(TrainedModel, "load", lambda model: translator)
    plain = LineTranslation(of_run(runs[0]))
    assert plain.load(plain.read_terms()).source_subwords(["a b c", "", "d"]) == 4
    assert plain.load(plain.read_terms()).source_subwords([]) == 0
    of_json = dataclasses.replace(plain, jsonl=True)
    assert of_json.load(of_json.read_terms()).source_subwords(['{"text": "a b c", "avoid": ["d"]}']) == 3
    exported = LineTranslation(export.model)
    assert exported.load(exported.read_terms()).source_subwords(["a b c"]) == 0


def test_a_line_that_an_export_refuses_is_named(export):
    asked = LineTranslation(export.model, jsonl=True)
    lines = [json.dumps({"text": text, "avoid": avoid}) for text, avoid in (("one", []), ("three", ["x"]))]
    with pytest.raises(ValueError, match="^avoid: expected nothing. The sentence is: 'three'.$"):
        results(asked, lines)


def test_a_list_has_each_text_once_with_its_best_score():
    """Story: 29 of 300 lists had the same text in other sub-words."""
    result = {"text": ["a", "b", "a", "", "b", ""], "score": [-1, -2, -3, -4, -5, -6], "truncated": False}
    found = output.merged(result | {"constraints_met": [True, False, False, True, True, False]})
    assert found == {
        "text": ["a", "b", ""], "score": [-1, -2, -4], "truncated": False, "constraints_met": [True, False, True]
    }  # fmt: skip


def test_a_translation_with_a_tab_or_a_line_end_stays_in_its_line_and_column():
    """From a vocabulary with bytes."""
    result = {"score": [-1.0, -2.5], "text": ["a\tb", "c"], "alignment": ["0-0", "1-0"]}
    assert output.numbered_lines(7, result, 2) == "7\t-1.0000\ta b\t0-0\n7\t-2.5000\tc\t1-0\n"
    assert output.numbered_lines(7, {"score": [-1.0], "text": ["a\tb"]}, 1) == "7\t-1.0000\ta b\n"
    assert output.text_line(1, {"text": "a\tb", "alignment": "0-0"}) == "a b\t0-0\n"
    assert output.text_line(1, {"text": "a\tb"}) == "a\tb\n"  # As in the source: nothing follows.
    assert lines.one_line("a\rb\r\nc\nd") == "a b c d"
