"""What PyTorch's Marian of transformers makes of a folder, as JSON. It cannot share a process with TensorFlow.

python tests/marian_oracle.py FOLDER                  ids and logits
python tests/marian_oracle.py FOLDER TRAINED STEPS    trains the model, saves it as transformers does, and translates
python tests/marian_oracle.py FOLDER --search < LINES translations of a JSON list of lines, by the number of beams
"""

import json
import pathlib
import random
import shutil
import sys

import marian_folder

SOURCES = ["a dog runs", ">>de<< two men play ball near the house", "猫 1 2024"]
TARGETS = ["ein hund", "zwei männer spielen ball", "2024 猫 x"]
TAGGED = [">>de<< a dog", ">>xx<< two men", ">>en US<<a ball", ">><<", ">> a << b", "“a dog” – ‚it’s’ …"]
LINES = [*marian_folder.nasty_lines(1000), *TAGGED]
LONGEST = 60  # Sub-words of a translation.


def pairs(number: int, seed: int) -> list[tuple[str, str]]:
    """Returns sentences of random words, and their translations word by word."""
    draw = random.Random(seed)
    rows = [[draw.randrange(len(marian_folder.TARGET_WORDS)) for _ in range(draw.randint(1, 6))] for _ in range(number)]
    sides = (marian_folder.SOURCE_WORDS, marian_folder.TARGET_WORDS)
    return [tuple(" ".join(words[index] for index in row) for words in sides) for row in rows]


TRANSLATED = [source for source, _ in pairs(40, seed=2)]


def read(folder: str) -> dict:
    """The ids of `LINES` and the logits of some pairs."""
    import torch
    import transformers

    model = transformers.MarianMTModel.from_pretrained(folder, dtype=torch.float32).eval()
    tokenizer = transformers.MarianTokenizer.from_pretrained(folder, split_special_tokens=True)
    found = {"source": tokenizer(LINES).input_ids, "target": tokenizer(text_target=LINES).input_ids, "logits": []}
    found["source by default"] = transformers.MarianTokenizer.from_pretrained(folder)(LINES).input_ids
    for source, target in zip(SOURCES, TARGETS, strict=True):
        source, target = (
            torch.tensor([ids]) for ids in (tokenizer(source).input_ids, tokenizer(text_target=target).input_ids)
        )
        with torch.no_grad():
            logits = model(
                input_ids=source, decoder_input_ids=model.prepare_decoder_input_ids_from_labels(target)
            ).logits[0]
        found["logits"].append({"source": source[0].tolist(), "target": target[0].tolist(), "logits": logits.tolist()})
    return found


def translate(folder: str, trained: str, steps: int) -> dict:
    """Translations of `TRANSLATED`, by the number of beams, of a model that is trained on `pairs`."""
    import torch
    import transformers

    torch.manual_seed(1)
    model = transformers.MarianMTModel.from_pretrained(folder, dtype=torch.float32).train()
    tokenizer = transformers.MarianTokenizer.from_pretrained(folder)
    adam = torch.optim.Adam(model.parameters(), 3e-3)
    for step in range(steps):
        sources, targets = map(list, zip(*pairs(32, seed=1000 + step), strict=True))
        batch, labels = tokenizer(sources, return_tensors="pt", padding=True), tokenizer(text_target=targets).input_ids
        longest = max(map(len, labels))
        batch["labels"] = torch.tensor([ids + [-100] * (longest - len(ids)) for ids in labels])
        model(**batch).loss.backward()
        adam.step()
        adam.zero_grad()
    model.eval().save_pretrained(trained)
    for name in ("vocab.json", "target_vocab.json", "source.spm", "target.spm", "tokenizer_config.json"):
        if (pathlib.Path(folder) / name).exists():
            shutil.copyfile(pathlib.Path(folder) / name, pathlib.Path(trained) / name)
    found = {}
    for beams in (1, 4):
        # With an exponent of 0, which both length penalties agree on, and normalized probabilities.
        options = {"num_beams": beams, "max_new_tokens": LONGEST, "length_penalty": 0.0, "renormalize_logits": True}
        options |= {"bad_words_ids": [[model.config.pad_token_id]], "do_sample": False}
        rows = [model.generate(**tokenizer(line, return_tensors="pt"), **options)[0, 1:] for line in TRANSLATED]
        found[beams] = [{"text": tokenizer.decode(row, skip_special_tokens=True), "length": len(row)} for row in rows]
    return found


def search(folder: str, lines: list[str]) -> dict:
    """Translations with the options of the folder, but for the number of beams and a length penalty that both searches
    agree on.
    """
    import torch
    import transformers

    model = transformers.MarianMTModel.from_pretrained(folder, dtype=torch.float32).eval()
    tokenizer, found = transformers.MarianTokenizer.from_pretrained(folder), {}
    for beams in (1, 4):
        options = {"num_beams": beams, "max_new_tokens": LONGEST, "length_penalty": 0.0}
        rows = [model.generate(**tokenizer(line, return_tensors="pt"), **options)[0] for line in lines]
        found[beams] = tokenizer.batch_decode(rows, skip_special_tokens=True)
    return found


def main() -> None:
    folder, *others = sys.argv[1:]
    if others == ["--search"]:
        found = search(folder, json.load(sys.stdin))
    else:
        found = translate(folder, others[0], int(others[1])) if others else read(folder)
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
