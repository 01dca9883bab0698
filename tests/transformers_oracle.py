"""What PyTorch's models and tokenizers of transformers make of a folder, as JSON. They cannot share a process with
TensorFlow.

python tests/transformers_oracle.py FOLDER                  ids and logits
python tests/transformers_oracle.py FOLDER TRAINED STEPS    trains the model, saves it as transformers does, and translates
python tests/transformers_oracle.py FOLDER --search < LINES translations of a JSON list of lines, by the number of beams
"""  # noqa: E501

import json
import pathlib
import random
import shutil
import sys

import transformers_models as models

TAGGED = [">>de<< a dog", ">>xx<< two men", ">>en US<<a ball", ">><<", ">> a << b", "“a dog” – ‚it’s’ …"]
NASTY = models.nasty_lines(1000)
LINES = {"marian": NASTY + TAGGED, "nllb": NASTY, "m2m": NASTY}
SOURCES = ["a dog runs", "two men play ball near the house", "猫 1 2024"]
TARGETS = ["ein hund", "zwei männer spielen ball", "2024 猫 x"]
LONGEST = 60  # Sub-words of a translation.
SIDES = {"marian": (None, None), **models.LANGUAGES}  # The source, and one or two targets.


def pairs(number: int, seed: int) -> list[tuple[str, str]]:
    """Returns sentences of random words, and their translations word by word."""
    draw = random.Random(seed)
    rows = [[draw.randrange(len(models.TARGET_WORDS)) for _ in range(draw.randint(1, 6))] for _ in range(number)]
    sides = (models.SOURCE_WORDS, models.TARGET_WORDS)
    return [tuple(" ".join(words[index] for index in row) for words in sides) for row in rows]


TRANSLATED = {"marian": [source for source, _ in pairs(40, seed=2)]}
TRANSLATED |= dict.fromkeys(("nllb", "m2m"), [source for source, _ in pairs(20, seed=2)])


def model_of(folder: pathlib.Path):
    import torch
    import transformers

    kind = transformers.MarianMTModel
    if models.kind_of(folder) != "marian":
        kind = transformers.M2M100ForConditionalGeneration
    return kind.from_pretrained(folder, dtype=torch.float32).eval()


def tokenizer_of(folder: pathlib.Path, source: str | None, target: str | None, **options):
    """The tokenizer of a folder. That of NLLB-200 writes `tokenizer.json`, which has the ids of its languages."""
    import transformers

    kind = models.kind_of(folder)
    if kind == "marian":
        return transformers.MarianTokenizer.from_pretrained(folder, **options)
    if kind == "m2m":
        return transformers.M2M100Tokenizer.from_pretrained(folder, src_lang=source, tgt_lang=target)
    if not (folder / "tokenizer.json").exists():
        codes = models.CODES["nllb"]
        transformers.NllbTokenizer.from_pretrained(folder, extra_special_tokens=codes).save_pretrained(folder / "saved")
        shutil.move(folder / "saved" / "tokenizer.json", folder / "tokenizer.json")
        shutil.rmtree(folder / "saved")
    return transformers.NllbTokenizer.from_pretrained(folder, src_lang=source, tgt_lang=target)


def read(folder: pathlib.Path) -> dict:
    """The ids of `LINES` and the logits of some pairs."""
    import torch

    kind, model = models.kind_of(folder), model_of(folder)
    source, target, *_ = SIDES[kind]
    is_marian = kind == "marian"
    tokenizer = tokenizer_of(folder, source, target, split_special_tokens=True)
    options = {} if is_marian else {"split_special_tokens": True}
    lines, found = LINES[kind], {"logits": []}
    found["source"] = tokenizer(lines, **options).input_ids
    found["target"] = tokenizer(text_target=lines, **options).input_ids
    if is_marian:
        found["source by default"] = tokenizer_of(folder, source, target)(lines).input_ids
    for line, translation in zip(SOURCES, TARGETS, strict=True):
        line = line.replace("two", ">>de<< two") if is_marian else line
        read = torch.tensor([tokenizer(line).input_ids])
        written = torch.tensor([tokenizer(text_target=translation).input_ids])
        with torch.no_grad():
            if is_marian:
                shifted = model.prepare_decoder_input_ids_from_labels(written)
                logits = model(input_ids=read, decoder_input_ids=shifted).logits[0]
            else:
                logits = model(input_ids=read, labels=written).logits[0]
        found["logits"].append({"source": read[0].tolist(), "target": written[0].tolist(), "logits": logits.tolist()})
    return found


def translate(folder: pathlib.Path, trained: pathlib.Path, steps: int) -> dict:
    """Translations of `TRANSLATED`, by the number of beams and the target, of a model that is trained on `pairs`; into
    the second target on copies.
    """
    import torch

    torch.manual_seed(1)
    kind, model = models.kind_of(folder), model_of(folder).train()
    source, *targets = SIDES[kind]
    tokenizers = {target: tokenizer_of(folder, source, target) for target in targets}
    for name, weight in model.named_parameters():
        if "embed_positions" in name:  # Transformers 5 trains those of Marian, but does not save them.
            weight.requires_grad_(False)
    adam = torch.optim.Adam(model.parameters(), 3e-3)
    for step in range(steps):
        target = targets[step % len(targets)]
        read, written = map(list, zip(*pairs(32, seed=1000 + step), strict=True))
        batch = tokenizers[target](read, return_tensors="pt", padding=True)
        labels = tokenizers[target](text_target=written if target == targets[0] else read).input_ids
        longest = max(map(len, labels))
        batch["labels"] = torch.tensor([ids + [-100] * (longest - len(ids)) for ids in labels])
        model(**batch).loss.backward()
        adam.step()
        adam.zero_grad()
    model.eval().save_pretrained(trained)
    for name in (
        *("vocab.json", "target_vocab.json", "source.spm", "target.spm"),
        *(models.ONE_MODEL, "tokenizer_config.json", "tokenizer.json"),
    ):
        if (folder / name).exists():
            shutil.copyfile(folder / name, trained / name)
    found = {}
    for beams in (1, 4):
        for target in targets:
            tokenizer = tokenizers[target]
            # With an exponent of 0, which both length penalties agree on, and normalized probabilities.
            options = {"num_beams": beams, "max_new_tokens": LONGEST, "length_penalty": 0.0, "renormalize_logits": True}
            options |= {"bad_words_ids": [[model.config.pad_token_id]], "do_sample": False}
            if target:
                options["forced_bos_token_id"] = tokenizer(text_target="").input_ids[0]
            lines = TRANSLATED[kind]
            rows = [model.generate(**tokenizer(line, return_tensors="pt"), **options)[0, 1:] for line in lines]
            found[f"{beams} {target or ''}".strip()] = [
                {"text": tokenizer.decode(row, skip_special_tokens=True), "length": len(row)} for row in rows
            ]
    return found


def search(folder: pathlib.Path, lines: list[str]) -> dict:
    """Translations of Marian with the options of the folder, but for the number of beams and a length penalty that both
    searches agree on.
    """
    model, tokenizer, found = model_of(folder), tokenizer_of(folder, None, None), {}
    for beams in (1, 4):
        options = {"num_beams": beams, "max_new_tokens": LONGEST, "length_penalty": 0.0}
        rows = [model.generate(**tokenizer(line, return_tensors="pt"), **options)[0] for line in lines]
        found[beams] = tokenizer.batch_decode(rows, skip_special_tokens=True)
    return found


def main() -> None:
    import torch

    torch.set_num_threads(1)
    folder, *others = sys.argv[1:]
    folder = pathlib.Path(folder)
    if others == ["--search"]:
        found = search(folder, json.load(sys.stdin))
    else:
        found = translate(folder, pathlib.Path(others[0]), int(others[1])) if others else read(folder)
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
