"""Imported M2M-100 and NLLB-200 models: logits of a NumPy M2M-100, ids and languages, what a run does, and refusals in
one sentence.
"""

import dataclasses
import json
import pathlib
import shutil
import subprocess
import sys

import m2m_folder
import marian_folder
import numpy as np
import programs
import pytest
import safetensors.numpy
import tensorflow as tf
from test_marian import MEMORY, served
from test_shards import read_pairs

import t2t_keras
from t2t_keras.config import BOS, EOS, PAD, DataConfig
from t2t_keras.data import prepare, shards
from t2t_keras.decoding import loading
from t2t_keras.interop import huggingface_folder, m2m_vocabulary, marian_config
from t2t_keras.layers.masks import shift_right
from t2t_keras.reporting.word_alignment import word_alignment
from t2t_keras.runs import export_folder, run_folder, run_options
from t2t_keras.serving.line_translation import LineTranslation
from t2t_keras.text import piece_file

ROOT = pathlib.Path(__file__).parent.parent
SHAPES = {
    "nllb": {},
    "m2m": {"kind": "m2m", "codes_in": "tokenizer_config.json", "seed": 2},
    "other sizes": {
        "sizes": {"d_model": 24, "encoder_layers": 1, "decoder_layers": 3, "heads": 4, "ffn_dim": 40},
        "seed": 3,
    },
    "shards": {"codes_in": "tokenizer.json", "shards": 3, "seed": 4},
    "not scaled, swish, float16": {
        "kind": "m2m",
        "scaled": False,
        "activation": "swish",
        "dtype": np.float16,
        "seed": 5,
    },
    "another id of padding": {"options": {"pad_token_id": 1}, "dtype": np.float16, "seed": 6},
}
PAIRS = {"nllb": ("eng_Latn", "deu_Latn", "fra_Latn"), "m2m": ("en", "de", "fr")}
LINES = ["a dog runs", "two men play ball near the house", "猫 1 2024", "don't </s> ½ >>xx<<", "tree"]


def kind_of(folder) -> str:
    return "m2m" if (folder / "vocab.json").exists() else "nllb"


@pytest.fixture(scope="module", params=SHAPES)
def imported(request, tmp_path_factory):
    """A folder, the run that it becomes, and the model's id for each of ours."""
    folder = m2m_folder.make(tmp_path_factory.mktemp("m2m") / "model", **SHAPES[request.param])
    source, target, _ = PAIRS[kind_of(folder)]
    t2t_keras.import_huggingface(folder, folder.parent / "run", source_language=source, target_language=target)
    translator = loading.load(folder.parent / "run")
    return folder, translator, ids_of_ours(folder, translator.tokenizer.pieces)


@pytest.fixture(scope="module")
def nllb(tmp_path_factory):
    """A folder that tests may copy."""
    return m2m_folder.make(tmp_path_factory.mktemp("m2m") / "model")


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


def ids_of_ours(folder, pieces) -> list[int]:
    """The model's id for each of ours."""
    kind, ids = kind_of(folder), m2m_folder.pieces(folder)
    ids |= {f">>{code}<<": len(ids) + index for index, code in enumerate(m2m_folder.LANGUAGES[kind])}
    others = [ids[piece] if piece in ids else int(piece[1:-1]) for piece in pieces[EOS + 1 :]]
    return [1, 3, 2, 2, *others]


def test_logits_are_those_of_the_model(imported):
    folder, translator, theirs = imported
    ours = {index: own for own, index in enumerate(theirs) if own != BOS}
    draw, (language, *_) = np.random.default_rng(1), PAIRS[kind_of(folder)]
    for line in LINES:
        source, target = m2m_folder.ids_of(folder, line, language), draw.integers(2, len(theirs) - 1, 6).tolist()
        expected = marian_folder.logits(folder, source, [2, *target])
        own_source, own_target = [ours[index] for index in source], [ours[index] for index in target]
        found, _ = translator.model.decode(
            tf.constant([[BOS, *own_target]]), translator.model.encode(tf.constant([own_source]))
        )
        kept = [own for own in range(len(theirs)) if own not in (PAD, BOS)]
        np.testing.assert_allclose(found[0].numpy()[:, kept], expected[:, [theirs[own] for own in kept]], atol=1e-4)
        assert np.abs(expected).max() > 3 and expected.std() > 0.5
        assert np.all(found[0].numpy()[:, [PAD, BOS]] < expected.max() - 90)


def test_ids_of_nasty_lines_are_those_of_sentencepiece_after_the_language(imported):
    folder, translator, theirs = imported
    lines = [line for line in marian_folder.nasty_lines(300) if not line.startswith(">>de<<")]  # A language of M2M-100.
    ours = {index: own for own, index in enumerate(theirs) if own != BOS}
    for tokenizer, language in zip(
        (translator.source_tokenizer, translator.tokenizer), PAIRS[kind_of(folder)], strict=False
    ):
        expected = [[ours[index] for index in m2m_folder.ids_of(folder, line, language)] for line in lines]
        assert tokenizer.tokenize(tf.constant(lines)).to_list() == expected


def greedy(folder, line: str, source_language: str, target_language: str, length: int) -> list[int]:
    """The most likely ids one after another, without padding, after the language of the target."""
    source = m2m_folder.ids_of(folder, line, source_language)
    target = [2, m2m_folder.ids_of(folder, "", target_language)[0]]
    while len(target) <= length and target[-1] != 2:
        logits = marian_folder.logits(folder, source, target)[-1]
        logits[1] = -np.inf
        target.append(int(logits.argmax()))
    return target[1:]


def text_of(folder, ids: list[int]) -> str:
    names = {index: piece for piece, index in m2m_folder.pieces(folder).items()}
    return "".join(names.get(index, "") if index > 3 else "" for index in ids).replace("▁", " ").strip()


@pytest.mark.medium
def test_greedy_translations_are_those_of_the_model_in_the_chosen_language(imported):
    folder, _, theirs = imported
    source, *targets = PAIRS[kind_of(folder)]
    options = {"beam_size": 1, "alpha": 0.0, "extra_length": 3}
    for target in targets:
        translator = loading.load(folder.parent / "run", target_language=target, **options)
        rows = translator.source_tokenizer.tokenize(tf.constant(LINES))
        length = tf.cast(rows.row_lengths(), tf.int32) + 3
        found, _ = translator.search(rows, tf.zeros(len(LINES)), length, tf.ones(len(LINES), tf.int32))
        expected = [greedy(folder, line, source, target, int(most)) for line, most in zip(LINES, length, strict=True)]
        assert [[theirs[own] for own in row] for row in found.to_list()] == expected
    texts = [text.decode() for text in translator(tf.constant(LINES))["text"].numpy()]
    unknown = any(piece.startswith("<") for piece in "".join(texts))
    assert unknown or texts == [text_of(folder, ids) for ids in expected]


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
    [found] = usual.n_best("a dog runs", 1, prefix="ein", constraints=["hund", "￭s"], target_language="fra_Latn")
    assert found.text.startswith("ein") and "hund" in found.text and found.constraints_met
    assert found.pieces[0] == ">>fra_Latn<<" and found.source_pieces[0] == ">>eng_Latn<<"
    [plain] = usual.n_best("a dog runs", 1, prefix="ein", alignment=True)
    assert plain.pieces[0] == ">>deu_Latn<<" and plain.alignment.shape == (len(plain.pieces), len(plain.source_pieces))


@pytest.mark.parametrize("options", [{"source_language": "eng_Ltn"}, {"target_language": "eng_Ltn"}])
def test_an_unknown_language_is_refused_with_those_like_it(run, usual, options):
    message = "one of the 5 languages of the model. Received: 'eng_Ltn'. Did you mean eng_Latn"
    for call in (usual.translate, usual.n_best, lambda text, **options: usual.score(text, text, **options)):
        with pytest.raises(ValueError, match=message):
            call("a dog", **options)
    with pytest.raises(ValueError, match=f"`{next(iter(options))}`: Expected {message}"):
        t2t_keras.load(run, **options)
    with pytest.raises(ValueError, match="prefix: expected the tag of a language of the model. Received: >>eng_Ltn<<"):
        usual.n_best("a dog", 1, prefix=">>eng_Ltn<<a")


@pytest.mark.medium
def test_without_a_default_the_languages_must_be_given(nllb, tmp_path):
    t2t_keras.import_huggingface(nllb, tmp_path / "run")
    with pytest.raises(
        ValueError, match="Expected `target_language`, one of the 5 languages of the model, such as ace_Latn"
    ):
        t2t_keras.load(tmp_path / "run")
    with pytest.raises(ValueError, match="Expected `source_language`"):
        t2t_keras.load(tmp_path / "run", target_language="deu_Latn")
    assert all(
        t2t_keras.load(tmp_path / "run", source_language="eng_Latn", target_language="deu_Latn").translate(LINES)
    )


def test_the_files_may_name_the_languages(nllb, tmp_path):
    folder = shutil.copytree(nllb, tmp_path / "model")
    changed(folder, "tokenizer_config.json", src_lang="fra_Latn", tgt_lang="ace_Latn")
    t2t_keras.import_huggingface(folder, tmp_path / "run")
    assert languages_of(tmp_path / "run") == ("fra_Latn", "ace_Latn")
    changed(folder, "generation_config.json", forced_bos_token_id=m2m_folder.ids_of(folder, "", "deu_Latn")[0])
    t2t_keras.import_huggingface(folder, tmp_path / "forced", source_language="eng_Latn")
    assert languages_of(tmp_path / "forced") == ("eng_Latn", "deu_Latn")
    # The last two are Marian's.
    changed(folder, "tokenizer_config.json", src_lang="xx", source_lang="en", target_lang="de")
    t2t_keras.import_huggingface(folder, tmp_path / "unknown")
    assert languages_of(tmp_path / "unknown") == ("", "deu_Latn")
    assert run_folder.read(tmp_path / "unknown").data.source_language == ""


def test_what_config_json_does_not_say_is_as_in_transformers(nllb, tmp_path):
    folder = shutil.copytree(nllb, tmp_path / "model")
    changed(folder, "config.json", scale_embedding=..., attention_dropout=...)
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
    ] == [
        [">>eng_Latn<<", "▁a"],
        [">>deu_Latn<<", "▁two"],
    ]
    with translator.weights():
        whole = np.array(
            translator.model.align(shift_right(target.to_tensor()), translator.encode(translator.sources(source)))
        )[0]
    assert whole.shape == (4, 5)
    np.testing.assert_allclose(word_alignment(translator, *texts), whole[1:-1, 1:-1], atol=1e-6)


def languages_of(model_dir) -> tuple[str, str]:
    names = run_folder.SOURCE_SUBWORDS, run_folder.SUBWORDS
    return tuple(piece_file.unpack((model_dir / name).read_bytes()).language for name in names)


def changed(folder, name: str, **values) -> None:
    path = folder / name
    path.write_text(
        json.dumps({key: value for key, value in (json.loads(path.read_text()) | values).items() if value is not ...})
    )


LOAD = """
import sys
import tensorflow as tf, tensorflow_text
model = tf.saved_model.load(sys.argv[1])
lines = tf.constant(sys.argv[3:])
found = model.signatures["serving_default"](text=lines)["text"]
inputs = {"alpha": -1.0, "max_length": 0, "n_best": 1, "prefix": sys.argv[2], "alignment": False, "ordered": False}
inputs |= {"constraints": "", "avoid": ""}
other = model.signatures["translate_with_options"](text=lines, **{name: tf.fill([len(lines)], value) for name, value in inputs.items()})
assert "t2t_keras" not in sys.modules
print("\\n".join(text.decode() for text in [*found.numpy(), *other["text"][:, 0].numpy()]))
"""  # noqa: E501


@pytest.mark.medium
def test_an_export_translates_alike_in_a_process_without_this_package(run, usual, tmp_path):
    lines = [*LINES, ">>zho_Hans<<a dog"]
    expected = usual.translate(lines) + usual.translate(lines, target_language="fra_Latn")
    export = t2t_keras.Run(run).export(tmp_path / "export")
    described = export_folder.description(export)
    assert (described["source_language"], described["target_language"]) == ("eng_Latn", "deu_Latn")
    command = [sys.executable, "-c", LOAD, str(export), ">>fra_Latn<<", *lines]
    result = programs.run(
        command, capture_output=True, text=True, cwd=tmp_path, env=programs.without_this_package(), check=True
    )
    assert result.stdout.splitlines() == expected
    loaded = t2t_keras.load(tmp_path / "export")
    assert loaded.translate(lines) + loaded.translate(lines, target_language="fra_Latn") == expected
    with pytest.raises(ValueError, match="Did you mean fra_Latn"):
        loaded.translate("a dog", target_language="fra")


def text_of_pairs(folder: pathlib.Path, tag: str = "") -> dict[str, str]:
    """Files of pairs of words, as options."""
    found = {}
    for split in ("train", "valid"):
        for side, words in (("source", marian_folder.SOURCE_WORDS), ("target", marian_folder.TARGET_WORDS)):
            path = folder / f"{split}.{side}"
            path.write_text("".join(f"{tag}{first} {second}\n" for first in words[:9] for second in words[:9]))
            found[f"{split}_{side}"] = str(path)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("languages", [{}, {"source_language": "fra_Latn", "target_language": "zho_Hans"}])
def test_a_new_run_starts_from_an_import_with_its_languages_or_others(run, tmp_path, languages):
    sizes = {
        "batch_tokens": 200,
        "buckets_per_update": 1,
        "train_steps": 2,
        "warmup_steps": 1,
        "learning_rate_factor": 0.1,
    }
    others = {"valid_sentences": 0, "attention_images": 0, "best_metric": "loss"}
    t2t_keras.train(tmp_path / "run", parent=run, **text_of_pairs(tmp_path), **languages, **sizes, **others)
    source, target = tuple(languages.values()) or ("eng_Latn", "deu_Latn")
    assert languages_of(tmp_path / "run") == (source, target)
    child, parent = loading.load(tmp_path / "run"), loading.load(run)
    for before, after in zip(parent.model.weights, child.model.weights, strict=True):
        moved = np.abs(after.numpy() - before.numpy())
        assert 0 < moved.max() < 0.2, before.path
    folder = tmp_path / "run/data/valid"
    pairs, tags = (
        read_pairs(folder, shards.read_info(folder)),
        [child.tokenizer.pieces.index(f">>{code}<<") for code in (source, target)],
    )
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
    files = {
        "subwords_file": str(run / run_folder.SUBWORDS),
        "source_subwords_file": str(run / run_folder.SOURCE_SUBWORDS),
    }
    size = loading.load(run).tokenizer.vocab_size
    data = DataConfig(**text, **files, subwords="sentencepiece", source_language="fra_Latn")
    prepare.Preparation(data, size, 1, tmp_path / "data", run_options.Options().task).run()
    found = [
        piece_file.unpack((tmp_path / "data" / name).read_bytes()).language
        for name in (run_folder.SOURCE_SUBWORDS, run_folder.SUBWORDS)
    ]
    assert found == ["fra_Latn", "deu_Latn"]
    with pytest.raises(ValueError, match="`source_language` was fra_Latn, and is now ace_Latn"):
        prepare.Preparation(
            dataclasses.replace(data, source_language="ace_Latn"),
            size,
            1,
            tmp_path / "data",
            run_options.Options().task,
        ).run()
    with pytest.raises(ValueError, match="`target_language`: Expected one of the 5 languages.*Did you mean deu_Latn"):
        prepare.Preparation(
            dataclasses.replace(data, target_language="deu"), size, 1, tmp_path / "other", run_options.Options().task
        ).run()


# The program.


def tool(name: str, *arguments, text: str = "") -> subprocess.CompletedProcess:
    command = [sys.executable, ROOT / "tools" / f"{name}.py", *map(str, arguments)]
    return programs.run(command, capture_output=True, text=True, input=text)


@pytest.mark.medium
def test_the_programs_translate_between_the_chosen_languages(nllb, usual, tmp_path):
    languages = ("--source_language=eng_Latn", "--target_language=fra_Latn")
    result = tool("import_marian", f"--from={nllb}", f"--model_dir={tmp_path}/run", *languages)
    assert result.returncode == 0, result.stderr
    assert languages_of(tmp_path / "run") == ("eng_Latn", "fra_Latn")
    expected = usual.translate(LINES)
    result = tool(
        "translate",
        f"--model_dir={tmp_path}/run",
        "--target_language=deu_Latn",
        text="".join(f"{line}\n" for line in LINES),
    )
    assert result.returncode == 0 and result.stdout.splitlines() == expected, result.stderr


@pytest.mark.medium
def test_a_language_is_no_term_of_the_text(run, tmp_path):
    (tmp_path / "terms").write_text("fra_Latn\thund\ndog\tfrau\n")
    result = tool("translate", f"--model_dir={run}", f"--terms={tmp_path}/terms", text=">>fra_Latn<< a dog runs\n")
    assert result.returncode == 0 and "frau" in result.stdout and "hund" not in result.stdout, result.stderr


@pytest.mark.medium
def test_a_run_that_reranks_scores_the_chosen_languages(run, usual):
    """Story: French translations were scored as German ones."""
    given = (f"--model_dir={run}", "--target_language=fra_Latn", "--alpha=0", "--n_best=2", "--beam_size=2")
    lists = []
    for more in ((), (f"--rerank_with={run}",)):
        result = tool("translate", *given, *more, text="a dog runs\n")
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
    model = {"model_dir": [run], "which": "average", "dtype": "float32", "int8": False}
    found = LineTranslation(model, rerank_with=str(run), rerank_direction=direction).languages_of_other
    languages = ("eng_Latn", "deu_Latn") if direction == "forward" else ("deu_Latn", "eng_Latn")
    assert (found["source_language"], found["target_language"]) == languages


def test_a_phrase_that_the_model_cannot_spell_is_not_met(usual):
    """Story: <unk> was forced, the text left it out, and the phrase counted as met."""
    [missing] = usual.n_best("a dog", n=1, constraints=["☃"])
    [there] = usual.n_best("a dog", n=1, constraints=["frau"])
    assert (missing.constraints_met, there.constraints_met) == (False, True)


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        (
            "import_huggingface",
            ("--source_language=eng",),
            "Expected one of the 5 languages of the model. Received: 'eng'. Did you mean eng_Latn",
        ),
        ("import_huggingface", ("--native_positions",), "Expected a Marian model with --native_positions."),
        ("translate", ("--target_language=deu",), "--target_language: Expected one of the 5 languages"),
    ],
)
def test_the_programs_refuse_other_languages_before_tensorflow(nllb, run, tmp_path, name, arguments, message):
    where = (f"--from={nllb}", f"--model_dir={tmp_path}/new") if name != "translate" else (f"--model_dir={run}",)
    command = [sys.executable, ROOT / "tools" / f"{name}.py", *where, *arguments]
    result = programs.run(command, modules=programs.WITHOUT_TENSORFLOW, capture_output=True, text=True)
    *_, last = result.stderr.splitlines()
    assert result.returncode == 1 and last.startswith("Error: ") and message in last, result.stderr
    assert not (tmp_path / "new").exists()


def test_a_model_of_the_hub_may_have_its_weights_in_several_files(tmp_path):
    folder = m2m_folder.make(tmp_path / "model", shards=3)
    with served(folder, tmp_path / "hf") as (environment, requests):
        command = [
            sys.executable,
            ROOT / "tools/import_huggingface.py",
            "--from=some/opus",
            f"--model_dir={tmp_path}/run",
        ]
        result = programs.run(
            command, modules=programs.WITHOUT_TENSORFLOW, capture_output=True, text=True, env=environment
        )
    assert result.returncode == 0, result.stderr
    t2t_keras.import_huggingface(folder, tmp_path / "local")
    step = "checkpoints/step-000000000.npz"
    with np.load(tmp_path / "run" / step) as found, np.load(tmp_path / "local" / step) as expected:
        assert found.files == expected.files and all(
            np.array_equal(found[name], expected[name]) for name in found.files
        )
    assert {path.split("/")[4] for path in requests if "config.json" not in path} == {"c" * 40}


# Folders that do not fit.


def renamed(folder, old: str, new: str) -> None:
    (folder / old).rename(folder / new)


def with_weights(folder, change) -> None:
    arrays = safetensors.numpy.load_file(folder / "model.safetensors")
    change(arrays)
    safetensors.numpy.save_file(arrays, folder / "model.safetensors")


def other_spm(folder) -> None:
    (folder / "sentencepiece.bpe.model").write_bytes(marian_folder.spm(marian_folder.SOURCE_WORDS))


def index_of(folder, places) -> None:
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))


NORM, SHARED = "model.decoder.layer_norm.weight", "model.shared.weight"
BROKEN = {
    "experts": (
        lambda folder: changed(folder, "config.json", model_type="nllb-moe"), "model_type=marian or m2m_100.*'nllb-moe'"
    ),
    "no sub-words": (
        lambda folder: renamed(folder, "sentencepiece.bpe.model", "spm"), "sentencepiece.bpe.model.*missing"
    ),
    "sub-words of another toolkit": (
        other_spm, "Expected <unk>, <s>, </s> as the first pieces.*Received: </s>, <unk>, "
    ),
    "sub-words that are cut": (
        lambda folder: (folder / "sentencepiece.bpe.model").write_bytes(b"\n"),
        "first pieces|Expected a SentencePiece model"
    ),
    "no languages": (
        lambda folder: renamed(folder, "special_tokens_map.json", "x"), "codes of languages.*Received none"
    ),
    "languages without an id": (
        lambda folder: changed(folder, "config.json", vocab_size=160), "different ids below 160"
    ),
    "languages on pieces": (
        lambda folder: (folder / "added_tokens.json").write_text('{"eng_Latn": 9}'), "an id twice"
    ),
    "ids that are text": (
        lambda folder: (folder / "added_tokens.json").write_text('{"eng_Latn": "9"}'), "ids of added tokens"
    ),
    "added tokens are a list": (
        lambda folder: changed(folder, "tokenizer_config.json", added_tokens_decoder=[1]), "ids of added tokens"
    ),
    "the source's language behind": (
        lambda folder: changed(folder, "tokenizer_config.json", legacy_behaviour=True),
        "legacy_behaviour=False.*Received: True"
    ),
    "untied": (
        lambda folder: changed(folder, "config.json", tie_word_embeddings=False), "tie_word_embeddings=True.*False"
    ),
    "other padding": (lambda folder: changed(folder, "config.json", pad_token_id=4), "ids of padding and end"),
    "no last norm": (
        lambda folder: with_weights(folder, lambda arrays: arrays.pop(NORM)),
        f"Expected the weight {NORM}. It is missing"
    ),
    "unknown": (
        lambda folder: with_weights(folder, lambda arrays: arrays.update(x=np.ones(2))),
        "m2m_100 with pre-norm.*x besides"
    ),
    "an index of no files": (
        lambda folder: index_of(folder, {SHARED: "../model.safetensors"}), "names of safetensors.*Received: ../model"
    ),
    "an index of a file elsewhere too": (
        lambda folder: index_of(folder, {SHARED: "a.safetensors", NORM: "../b.safetensors"}),
        "names of safetensors files"
    ),
    "an index of nothing": (lambda folder: index_of(folder, {}), "names of safetensors files"),
    "an index without places": (lambda folder: index_of(folder, []), "names of safetensors files"),
    "a file that is missing": (
        lambda folder: index_of(folder, {SHARED: "a.safetensors"}), "Expected a.safetensors in .*missing"
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        (
            {"special_tokens_map.json": {"additional_special_tokens": ["__aa__", {"content": "__bb__"}, "<x>"]}},
            {"aa": 9, "bb": 10},
        ),
        ({"tokenizer_config.json": {"additional_special_tokens": ["__aa__", "__bb__"]}}, {"aa": 9, "bb": 10}),
        ({"tokenizer_config.json": {"extra_special_tokens": ["<x>", "eng_Latn", "__bb__"]}}, {"eng_Latn": 9, "bb": 10}),
        (
            {
                "tokenizer_config.json": {"extra_special_tokens": ["__aa__", 3]},
                "added_tokens.json": {"__aa__": 4, "<y>": 7},
            },
            {"aa": 4},
        ),
        (
            {
                "tokenizer_config.json": {
                    "added_tokens_decoder": {"5": {"content": "__aa__"}, "6": "__bb__", "7": {"content": "<x>"}}
                },
                "tokenizer.json": {"added_tokens": [{"id": 8, "content": "__cc__"}]},
            },
            {"aa": 5, "bb": 6, "cc": 8},
        ),
        (
            {"tokenizer_config.json": {"extra_special_tokens": {"a": "__aa__"}}, "added_tokens.json": {"__bb__": 4}},
            {"bb": 4},
        ),
        ({"vocab.json": {"</s>": 0}, "added_tokens.json": {"<x>": 3, "__bb__": 4}}, {"bb": 4}),
        (
            {"vocab.json": {"</s>": 0}, "tokenizer_config.json": {"language_codes": "wmt21"}},
            dict(zip("en ha is ja cs ru zh de".split(), range(9, 17), strict=True)),
        ),
    ],
)
def test_the_ids_of_languages_are_those_of_the_files_or_follow_the_pieces(tmp_path, files, expected):
    """In whatever files the versions of transformers have written them."""
    for name, values in files.items():
        (tmp_path / name).write_text(json.dumps(values))
    assert m2m_vocabulary.languages_of(huggingface_folder.Folder(tmp_path), 9) == expected


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
    with pytest.raises(
        ValueError, match=r"Expected runs with the same .* language of the source. Received: .*eng_Latn.*fra_Latn"
    ):
        loading.load([run, tmp_path / "other"])
    assert len(loading.load([run, tmp_path / "other"], source_language="ace_Latn").model.models) == 2


@pytest.mark.parametrize("name", BROKEN)
def test_a_folder_that_does_not_fit_is_refused_in_one_sentence_and_nothing_is_written(nllb, tmp_path, name):
    break_it, message = BROKEN[name]
    folder = shutil.copytree(nllb, tmp_path / "model")
    break_it(folder)
    with pytest.raises((ValueError, FileNotFoundError), match=message) as raised:
        t2t_keras.import_huggingface(folder, tmp_path / "run")
    assert len(str(raised.value)) < 600 and "\n" not in str(raised.value)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model"]


def test_a_weight_in_two_files_is_refused(nllb, tmp_path):
    folder = shutil.copytree(nllb, tmp_path / "model")
    for name in ("a", "b"):
        shutil.copyfile(folder / "model.safetensors", folder / f"{name}.safetensors")
    index_of(folder, {SHARED: "a.safetensors", NORM: "b.safetensors"})
    with pytest.raises(ValueError, match="each weight in one of the files.*one of them twice"):
        t2t_keras.import_huggingface(folder, tmp_path / "run")


@pytest.mark.parametrize("name", ["sentencepiece.bpe.model", "special_tokens_map.json"])
def test_links_are_not_followed(nllb, tmp_path, name):
    folder = shutil.copytree(nllb, tmp_path / "model")
    (folder / name).unlink()
    (folder / name).symlink_to(nllb / name)
    with pytest.raises(ValueError, match=f"no links.*{name}"):
        t2t_keras.import_huggingface(folder, tmp_path / "run")


def test_position_encodings_in_the_file_are_checked(nllb, tmp_path):
    """As in files of early versions of transformers."""
    name = "model.encoder.embed_positions.weights"
    angles = np.arange(66)[:, None] / 10000 ** (np.arange(8) / 7)
    table = np.concatenate([np.sin(angles), np.cos(angles)], axis=1, dtype=np.float32)
    table[1] = 0
    for place, fits in ((table, True), (table + 0.1, False)):
        folder = shutil.copytree(nllb, tmp_path / f"model {fits}")
        with_weights(folder, lambda arrays: arrays.update({name: place}))  # noqa: B023
        if fits:
            t2t_keras.import_huggingface(folder, tmp_path / "run")
        else:
            with pytest.raises(ValueError, match=f"Expected the sinusoids of transformers as {name}"):
                t2t_keras.import_huggingface(folder, tmp_path / "other")


@pytest.mark.medium
def test_an_import_takes_less_memory_than_twice_the_model_and_no_tensorflow(tmp_path):
    """With a vocabulary as large a part of it as in NLLB-200 of 600 million weights."""
    sizes = {"d_model": 512, "ffn_dim": 2048, "encoder_layers": 6, "decoder_layers": 6}
    folder = m2m_folder.make(tmp_path / "model", sizes=sizes, options={"vocab_size": 64_000}, dtype=np.float16)
    size = (folder / "model.safetensors").stat().st_size
    assert size > 150e6
    command = [sys.executable, "-c", MEMORY, str(folder), str(tmp_path / "run")]
    result = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert result.returncode == 0, result.stderr
    assert int(result.stdout) < 2 * size
