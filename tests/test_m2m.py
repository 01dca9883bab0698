"""Imported M2M-100 and NLLB-200 models: their languages, and what a run does. The rest is in `test_imports.py`."""

import dataclasses
import json
import pathlib
import shutil

import numpy as np
import programs
import pytest
import tensorflow as tf
import transformers_models as models
from test_shards import read_pairs

import t2t_keras
from t2t_keras.config import DataConfig
from t2t_keras.data import prepare, shards
from t2t_keras.decoding import loading
from t2t_keras.decoding.trained_model import TrainedModel
from t2t_keras.interop import huggingface_folder, m2m_vocabulary, marian_config
from t2t_keras.layers.masks import shift_right
from t2t_keras.reporting.attention import word_alignment
from t2t_keras.runs import run_options
from t2t_keras.runs.saved_run import SavedRun
from t2t_keras.serving import saved_export, served_models
from t2t_keras.serving.line_translation import LineTranslation
from t2t_keras.system import files
from t2t_keras.text import piece_file

LINES = ["a dog runs", "two men play ball near the house", "猫 1 2024", "don't </s> ½ >>xx<<", "tree"]


@pytest.fixture(scope="module")
def run(nllb):
    t2t_keras.import_huggingface(nllb, nllb.parent / "run", source_language="eng_Latn", target_language="deu_Latn")
    return nllb.parent / "run"


@pytest.fixture(scope="module")
def usual(run):
    return t2t_keras.load(run)


@pytest.fixture(scope="module")
def french(run):
    return t2t_keras.load(run, target_language="fra_Latn")


# What a run does.


@pytest.mark.medium
def test_a_blank_line_stays_blank_and_a_tag_alone_is_one(usual):
    assert usual.translate(["", "  ", ">>fra_Latn<<"]) == ["", "", ""]
    assert all(usual.translate(LINES))
    assert [each.text for each in usual.sample("")] == [""] and usual.n_best("", 1)[0].score == 0


@pytest.mark.medium
def test_a_language_may_be_chosen_for_a_call_and_for_a_line(run, usual, french):
    """As if the run had it."""
    expected = french.translate(LINES)
    assert expected != usual.translate(LINES) == usual.translate(LINES, target_language="deu_Latn")
    assert usual.translate(LINES, target_language="fra_Latn") == expected
    assert [each[0].text for each in usual.n_best(LINES, 1, target_language="fra_Latn")] == expected
    assert [each[0].text for each in usual.n_best(LINES, 1, prefix=">>fra_Latn<<")] == expected
    from_chinese = t2t_keras.load(run, source_language="zho_Hans").translate(LINES)
    assert from_chinese == usual.translate(LINES, source_language="zho_Hans") != usual.translate(LINES)
    assert from_chinese == usual.translate([f">>zho_Hans<<{line}" for line in LINES])


@pytest.mark.medium
def test_scores_and_samples_are_of_the_languages(usual, french):
    score = french.score("a dog", "ein hund")
    assert usual.score("a dog", "ein hund", target_language="fra_Latn") == pytest.approx(score, abs=1e-4)
    assert abs(usual.score("a dog", "ein hund") - score) > 1e-2
    options = {"draws": 6, "seed": 3}
    assert [each.text for each in usual.sample("a dog", **options)] != [
        each.text for each in french.sample("a dog", **options)
    ]


@pytest.mark.medium
def test_a_prefix_and_phrases_come_after_the_language(usual):
    phrases = {"prefix": "ein", "constraints": ["hund", "￭s"], "alignment": True}
    [found] = usual.n_best("a dog runs", 1, target_language="fra_Latn", **phrases)
    assert found.text.startswith("ein") and "hund" in found.text and found.constraints_met
    assert found.pieces[0] == ">>fra_Latn<<" and found.source_pieces[0] == ">>eng_Latn<<"
    [plain] = usual.n_best("a dog runs", 1, prefix="ein", alignment=True)
    assert plain.pieces[0] == ">>deu_Latn<<" and plain.alignment.shape == (len(plain.pieces), len(plain.source_pieces))


@pytest.mark.parametrize("options", [{"source_language": "eng_Ltn"}, {"target_language": "eng_Ltn"}])
def test_an_unknown_language_is_refused_with_those_like_it(run, usual, options):
    message = "'eng_Ltn' is none of the 5 languages of the model. Did you mean eng_Latn"
    for call in (usual.translate, usual.n_best, lambda text, **options: usual.score(text, text, **options)):
        with pytest.raises(ValueError, match=message):
            call("a dog", **options)
    with pytest.raises(ValueError, match=f"`{next(iter(options))}`: {message}"):
        t2t_keras.load(run, **options)
    with pytest.raises(ValueError, match="prefix: expected the tag of a language of the model. Received: >>eng_Ltn<<"):
        usual.n_best("a dog", 1, prefix=">>eng_Ltn<<a")


@pytest.mark.medium
def test_without_a_default_the_languages_must_be_given(nllb, tmp_path):
    t2t_keras.import_huggingface(nllb, tmp_path / "run")
    message = "multilingual. Choose `target_language` among its 5 languages, such as ace_Latn"
    with pytest.raises(ValueError, match=message):
        t2t_keras.load(tmp_path / "run")
    with pytest.raises(ValueError, match="Choose `source_language`"):
        t2t_keras.load(tmp_path / "run", target_language="deu_Latn")
    assert all(
        t2t_keras.load(tmp_path / "run", source_language="eng_Latn", target_language="deu_Latn").translate(LINES)
    )
    # Requests to a server name theirs.
    opened = saved_export.open_for_requests([tmp_path / "run"])
    assert len(set(opened.languages.values())) == 2
    assert len(served_models.local("x", opened).beginnings) == 5 * 4


def test_the_files_may_name_the_languages(nllb, tmp_path):
    folder = shutil.copytree(nllb, tmp_path / "model")
    models.rewrite(folder, "tokenizer_config.json", src_lang="fra_Latn", tgt_lang="ace_Latn")
    t2t_keras.import_huggingface(folder, tmp_path / "run")
    assert languages_of(tmp_path / "run") == ("fra_Latn", "ace_Latn")
    models.rewrite(folder, "generation_config.json", forced_bos_token_id=models.ids_of(folder, "", "deu_Latn")[0])
    t2t_keras.import_huggingface(folder, tmp_path / "forced", source_language="eng_Latn")
    assert languages_of(tmp_path / "forced") == ("eng_Latn", "deu_Latn")
    # The last two are Marian's.
    models.rewrite(folder, "tokenizer_config.json", src_lang="xx", source_lang="en", target_lang="de")
    t2t_keras.import_huggingface(folder, tmp_path / "unknown")
    assert languages_of(tmp_path / "unknown") == ("", "deu_Latn")
    assert saved_export.open_for_requests([tmp_path / "unknown"]).languages["target_language"] == "deu_Latn"
    assert SavedRun.open(tmp_path / "unknown").options.data.source_language == ""


def test_what_config_json_does_not_say_is_as_in_transformers(nllb, tmp_path):
    folder = shutil.copytree(nllb, tmp_path / "model")
    models.rewrite(folder, "config.json", scale_embedding=..., attention_dropout=...)
    config = marian_config.read(huggingface_folder.Folder(folder))
    assert config.scaled and config.model.attention_dropout == 0.1


def test_words_align_without_the_languages(run):
    """Each of these words is one sub-word."""
    translator, texts = loading.load(run), ("a dog runs", "two men")
    tokenizers = translator.source_tokenizer, translator.tokenizer
    source, target = (side.tokenize(tf.constant([text])) for side, text in zip(tokenizers, texts, strict=True))
    assert [
        [side.pieces[index] for index in ids[0].numpy()][:2]
        for side, ids in zip(tokenizers, (source, target), strict=True)
    ] == [[">>eng_Latn<<", "▁a"], [">>deu_Latn<<", "▁two"]]
    with translator.scope():
        whole = np.array(
            translator.model.align(shift_right(target.to_tensor()), translator.encode(translator.sources(source)))
        )[0]
    assert whole.shape == (4, 5)
    np.testing.assert_allclose(word_alignment(translator, *texts), whole[1:-1, 1:-1], atol=1e-6)


def languages_of(model_dir) -> tuple[str, str]:
    names = files.SOURCE_SUBWORDS, files.SUBWORDS
    return tuple(piece_file.unpack((model_dir / name).read_bytes()).language for name in names)


def text_of_pairs(folder: pathlib.Path, tag: str = "") -> dict[str, str]:
    """Files of pairs of words, as options."""
    found = {}
    for split in ("train", "valid"):
        for side, words in (("source", models.SOURCE_WORDS), ("target", models.TARGET_WORDS)):
            path = folder / f"{split}.{side}"
            path.write_text("".join(f"{tag}{first} {second}\n" for first in words[:9] for second in words[:9]))
            found[f"{split}_{side}"] = str(path)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("languages", [{}, {"source_language": "fra_Latn", "target_language": "zho_Hans"}])
def test_a_new_run_starts_from_an_import_with_its_languages_or_others(run, tmp_path, languages):
    sizes = {
        "batch_tokens": 200, "buckets_per_update": 1, "train_steps": 2, "warmup_steps": 1, "learning_rate_factor": 0.1,
    }  # fmt: skip
    others = {"valid_sentences": 0, "attention_images": 0, "best_metric": "loss"}
    t2t_keras.train(tmp_path / "run", parent=run, **text_of_pairs(tmp_path), **languages, **sizes, **others)
    source, target = tuple(languages.values()) or ("eng_Latn", "deu_Latn")
    assert languages_of(tmp_path / "run") == (source, target)
    child, parent = loading.load(tmp_path / "run"), loading.load(run)
    for before, after in zip(parent.model.weights, child.model.weights, strict=True):
        moved = np.abs(after.numpy() - before.numpy())
        assert 0 < moved.max() < 0.2, before.path
    folder = tmp_path / "run/data/valid"
    pairs = read_pairs(folder, shards.read_info(folder))
    tags = [child.tokenizer.pieces.index(f">>{code}<<") for code in (source, target)]
    assert len(pairs) == 81 and all([ids[0] for ids in pair] == tags for pair in pairs)


def test_text_may_bring_the_languages_of_its_lines(run, tmp_path):
    """Where a corpus has several."""
    tokenizer = loading.load(run).source_tokenizer
    lines = [">>fra_Latn<< a dog", "a dog", ">>xxx_Xxxx<< a dog", "a >>fra_Latn<<"]
    french, english, unknown, inside = tokenizer.tokenize(tf.constant(lines)).to_list()
    own, other = (tokenizer.pieces.index(f">>{code}<<") for code in ("eng_Latn", "fra_Latn"))
    assert french == [other, *english[1:]] and english[0] == unknown[0] == inside[0] == own
    assert other not in [*english, *unknown, *inside] and len(unknown) > len(english)


def test_languages_of_a_data_folder_are_those_that_it_was_prepared_with(run, tmp_path):
    """Other ones ask for another folder."""
    text = text_of_pairs(tmp_path)
    of_run = {"subwords_file": str(run / files.SUBWORDS), "source_subwords_file": str(run / files.SOURCE_SUBWORDS)}
    size = loading.load(run).tokenizer.vocab_size
    data = DataConfig(**text, **of_run, subwords="sentencepiece", source_language="fra_Latn")
    prepare.Preparation(data, size, 1, tmp_path / "data", run_options.Options().task).run()
    found = [
        piece_file.unpack((tmp_path / "data" / name).read_bytes()).language
        for name in (files.SOURCE_SUBWORDS, files.SUBWORDS)
    ]
    assert found == ["fra_Latn", "deu_Latn"]
    with pytest.raises(ValueError, match="`source_language` was fra_Latn, and is now ace_Latn"):
        changed = dataclasses.replace(data, source_language="ace_Latn")
        prepare.Preparation(changed, size, 1, tmp_path / "data", run_options.Options().task).run()
    with pytest.raises(ValueError, match="`target_language`: .* is none of the 5 languages.*Did you mean deu_Latn"):
        prepare.Preparation(
            dataclasses.replace(data, target_language="deu"), size, 1, tmp_path / "other", run_options.Options().task
        ).run()


# The program.


@pytest.mark.medium
def test_the_programs_translate_between_the_chosen_languages(nllb, usual, tmp_path):
    languages = ("--source_language=eng_Latn", "--target_language=fra_Latn")
    result = programs.tool("import_marian", f"--from={nllb}", f"--model_dir={tmp_path}/run", *languages)
    assert result.returncode == 0, result.stderr
    assert languages_of(tmp_path / "run") == ("eng_Latn", "fra_Latn")
    expected = usual.translate(LINES)
    result = programs.tool(
        "translate", f"--model_dir={tmp_path}/run", "--target_language=deu_Latn",
        input="".join(f"{line}\n" for line in LINES),
    )  # fmt: skip
    assert result.returncode == 0 and result.stdout.splitlines() == expected, result.stderr


@pytest.mark.medium
def test_a_language_is_no_term_of_the_text(run, tmp_path):
    (tmp_path / "terms").write_text("fra_Latn\thund\ndog\tfrau\n")
    result = programs.tool(
        "translate", f"--model_dir={run}", f"--terms={tmp_path}/terms", input=">>fra_Latn<< a dog runs\n"
    )
    assert result.returncode == 0 and "frau" in result.stdout and "hund" not in result.stdout, result.stderr


@pytest.mark.medium
def test_a_run_that_reranks_scores_the_chosen_languages(run, usual):
    """Story: French translations were scored as German ones."""
    given = (f"--model_dir={run}", "--target_language=fra_Latn", "--alpha=0", "--n_best=2", "--beam_size=2")
    lists = []
    for more in ((), (f"--rerank_with={run}",)):
        result = programs.tool("translate", *given, *more, input="a dog runs\n")
        assert result.returncode == 0, result.stderr
        lists.append(
            {text: float(score) for _, score, text in (line.split("\t") for line in result.stdout.splitlines())}
        )
    first, reranked = lists
    others = {text: usual.score("a dog runs", text, target_language="fra_Latn") for text in first}
    assert reranked == {text: pytest.approx(score + others[text], abs=1e-3) for text, score in first.items()}


@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_without_given_languages_those_of_the_run_are_scored(run, direction):
    """Story: the run of `backward` scored German text as English."""
    found = LineTranslation(TrainedModel.open(run), rerank_with=str(run), rerank_direction=direction).languages_of_other
    languages = ("eng_Latn", "deu_Latn") if direction == "forward" else ("deu_Latn", "eng_Latn")
    assert (found["source_language"], found["target_language"]) == languages


def test_a_phrase_that_the_model_cannot_spell_is_not_met(usual):
    """Story: <unk> was forced, the text left it out, and the phrase counted as met."""
    [missing] = usual.n_best("a dog", n=1, constraints=["☃"])
    [there] = usual.n_best("a dog", n=1, constraints=["frau"])
    assert (missing.constraints_met, there.constraints_met) == (False, True)


@pytest.mark.parametrize(("name", "arguments", "message"), [
    ("import_huggingface", ("--source_language=eng",),
     "'eng' is none of the 5 languages of the model. Did you mean eng_Latn"),
    ("import_huggingface", ("--native_positions",), "--native_positions is for Marian models."),
    ("translate", ("--target_language=deu",), "--target_language: 'deu' is none of the 5 languages"),
])  # fmt: skip
def test_the_programs_refuse_other_languages_before_tensorflow(nllb, run, tmp_path, name, arguments, message):
    where = (f"--from={nllb}", f"--model_dir={tmp_path}/new") if name != "translate" else (f"--model_dir={run}",)
    result = programs.tool(name, *where, *arguments, modules=programs.WITHOUT_TENSORFLOW)
    *_, last = result.stderr.splitlines()
    assert result.returncode == 1 and last.startswith("Error: ") and message in last, result.stderr
    assert not (tmp_path / "new").exists()


def test_tokens_that_were_added_to_a_model_are_refused(nllb, tmp_path):
    """Story: they became sub-words without text, whose numbers stood in translations."""
    folder = shutil.copytree(nllb, tmp_path / "model")
    (folder / "added_tokens.json").write_text(json.dumps({"<mask>": 900, "wombat": 901}))
    with pytest.raises(ValueError, match="Expected no added tokens beside those of .*Received: wombat."):
        t2t_keras.import_huggingface(folder, tmp_path / "run")


@pytest.mark.parametrize(("files", "expected"), [
    ({"special_tokens_map.json": {"additional_special_tokens": ["__aa__", {"content": "__bb__"}, "<x>"]}},
     {"aa": 9, "bb": 10}),
    ({"tokenizer_config.json": {"additional_special_tokens": ["__aa__", "__bb__"]}}, {"aa": 9, "bb": 10}),
    ({"tokenizer_config.json": {"extra_special_tokens": ["<x>", "eng_Latn", "__bb__"]}}, {"eng_Latn": 9, "bb": 10}),
    ({"tokenizer_config.json": {"extra_special_tokens": ["__aa__", 3]}, "added_tokens.json": {"__aa__": 4, "<y>": 7}},
     {"aa": 4}),
    ({"tokenizer_config.json": {"added_tokens_decoder": {"5": {"content": "__aa__"}, "6": "__bb__",
                                                         "7": {"content": "<x>"}}},
      "tokenizer.json": {"added_tokens": [{"id": 8, "content": "__cc__"}]}}, {"aa": 5, "bb": 6, "cc": 8}),
    ({"tokenizer_config.json": {"extra_special_tokens": {"a": "__aa__"}}, "added_tokens.json": {"__bb__": 4}},
     {"bb": 4}),
    ({"vocab.json": {"</s>": 0}, "added_tokens.json": {"<x>": 3, "__bb__": 4}}, {"bb": 4}),
    ({"vocab.json": {"</s>": 0}, "tokenizer_config.json": {"language_codes": "wmt21"}},
     dict(zip("en ha is ja cs ru zh de".split(), range(9, 17), strict=True))),
])  # fmt: skip
def test_the_ids_of_languages_are_those_of_the_files_or_follow_the_pieces(tmp_path, files, expected):
    """In whatever files the versions of transformers have written them."""
    for name, values in ({"vocab.json": {}} | files).items():
        (tmp_path / name).write_text(json.dumps(values))
    assert m2m_vocabulary.languages_of(huggingface_folder.Folder(tmp_path), 9) == expected


def test_m2m_100_without_its_list_is_refused(tmp_path):
    """Story: it had the ids of the SentencePiece model, which are others, and translated into nonsense."""
    folder = models.make(tmp_path / "model", "m2m", options={"vocab_size": 400})
    (folder / "vocab.json").unlink()
    with pytest.raises(FileNotFoundError, match=f"Expected vocab.json in {folder}. It is missing.$"):
        t2t_keras.import_huggingface(folder, tmp_path / "run")


def test_m2m_100_has_its_languages_where_no_file_has_them(tmp_path):
    (tmp_path / "vocab.json").write_text("{}")
    found = m2m_vocabulary.languages_of(huggingface_folder.Folder(tmp_path), 128_004)
    assert len(found) == 100
    some = "af ar cs da de el en es fr hi ja zh zu".split()
    assert [found[code] - 128_004 for code in some] == [0, 2, 13, 15, 16, 17, 18, 19, 24, 32, 42, 98, 99]
    (tmp_path / "vocab.json").unlink()  # As of NLLB-200.
    with pytest.raises(ValueError, match="Expected the codes of languages"):
        m2m_vocabulary.languages_of(huggingface_folder.Folder(tmp_path), 128_004)


def test_runs_that_read_other_languages_by_default_translate_together_only_from_one(run, nllb, tmp_path):
    t2t_keras.import_huggingface(nllb, tmp_path / "other", source_language="fra_Latn", target_language="deu_Latn")
    message = r"Expected runs with the same .* language of the source. Received: .*eng_Latn.*fra_Latn"
    with pytest.raises(ValueError, match=message):
        loading.load([run, tmp_path / "other"])
    assert len(loading.load([run, tmp_path / "other"], source_language="ace_Latn").model.models) == 2
