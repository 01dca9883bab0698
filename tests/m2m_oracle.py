"""What PyTorch's M2M-100 and the tokenizers of transformers make of a folder, as JSON; see `marian_oracle.py`.

python tests/m2m_oracle.py FOLDER                  ids and logits
python tests/m2m_oracle.py FOLDER TRAINED STEPS    trains the model, saves it as transformers does, and translates
"""

import json
import pathlib
import shutil
import sys

import m2m_folder
import marian_folder
from marian_oracle import LONGEST, pairs

SOURCES = ["a dog runs", "two men play ball near the house", "猫 1 2024"]
TARGETS = ["ein hund", "zwei männer spielen ball", "2024 猫 x"]
TRANSLATED = [source for source, _ in pairs(20, seed=2)]
LINES = marian_folder.nasty_lines(1000)
LANGUAGES = {"nllb": ("eng_Latn", "deu_Latn", "fra_Latn"), "m2m": ("en", "de", "fr")}


def tokenizer_of(folder: pathlib.Path, source: str, target: str):
    """The tokenizer of a folder. That of NLLB-200 writes `tokenizer.json`, which has the ids of its languages."""
    import transformers

    if (folder / "vocab.json").exists():
        return transformers.M2M100Tokenizer.from_pretrained(folder, src_lang=source, tgt_lang=target)
    if not (folder / "tokenizer.json").exists():
        codes = m2m_folder.LANGUAGES["nllb"]
        transformers.NllbTokenizer.from_pretrained(folder, extra_special_tokens=codes).save_pretrained(folder / "saved")
        shutil.move(folder / "saved" / "tokenizer.json", folder / "tokenizer.json")
        shutil.rmtree(folder / "saved")
    return transformers.NllbTokenizer.from_pretrained(folder, src_lang=source, tgt_lang=target)


def read(folder: pathlib.Path) -> dict:
    """The ids of `LINES` and the logits of some pairs."""
    import torch
    import transformers

    source, target, _ = LANGUAGES["m2m" if (folder / "vocab.json").exists() else "nllb"]
    tokenizer = tokenizer_of(folder, source, target)
    model = transformers.M2M100ForConditionalGeneration.from_pretrained(folder, dtype=torch.float32).eval()
    options = {"split_special_tokens": True}
    found = {
        "source": tokenizer(LINES, **options).input_ids,
        "target": tokenizer(text_target=LINES, **options).input_ids,
        "logits": [],
    }
    for line, translation in zip(SOURCES, TARGETS, strict=True):
        read, written = (
            torch.tensor([tokenizer(line).input_ids]),
            torch.tensor([tokenizer(text_target=translation).input_ids]),
        )
        with torch.no_grad():
            logits = model(input_ids=read, labels=written).logits[0]
        found["logits"].append({"source": read[0].tolist(), "target": written[0].tolist(), "logits": logits.tolist()})
    return found


def translate(folder: pathlib.Path, trained: pathlib.Path, steps: int) -> dict:
    """Translations of `TRANSLATED` into two languages, by the number of beams, of a model that is trained on `pairs`
    and on copies.
    """
    import torch
    import transformers

    torch.manual_seed(1)
    source, *targets = LANGUAGES["m2m" if (folder / "vocab.json").exists() else "nllb"]
    model = transformers.M2M100ForConditionalGeneration.from_pretrained(folder, dtype=torch.float32).train()
    tokenizers = {target: tokenizer_of(folder, source, target) for target in targets}
    adam = torch.optim.Adam(model.parameters(), 3e-3)
    for step in range(steps):
        target = targets[step % 2]
        read, written = map(list, zip(*pairs(32, seed=1000 + step), strict=True))
        batch = tokenizers[target](read, return_tensors="pt", padding=True)
        labels = tokenizers[target](text_target=written if target == targets[0] else read).input_ids
        longest = max(map(len, labels))
        batch["labels"] = torch.tensor([ids + [-100] * (longest - len(ids)) for ids in labels])
        model(**batch).loss.backward()
        adam.step()
        adam.zero_grad()
    model.eval().save_pretrained(trained)
    for name in ("vocab.json", "sentencepiece.bpe.model", "tokenizer_config.json", "tokenizer.json"):
        if (folder / name).exists():
            shutil.copyfile(folder / name, trained / name)
    found = {}
    for beams in (1, 4):
        for target in targets:
            tokenizer = tokenizers[target]
            options = {"num_beams": beams, "max_new_tokens": LONGEST, "length_penalty": 0.0, "renormalize_logits": True}
            options |= {
                "bad_words_ids": [[1]],
                "do_sample": False,
                "forced_bos_token_id": tokenizer(text_target="").input_ids[0],
            }
            rows = [model.generate(**tokenizer(line, return_tensors="pt"), **options)[0, 1:] for line in TRANSLATED]
            found[f"{beams} {target}"] = [
                {"text": tokenizer.decode(row, skip_special_tokens=True), "length": len(row)} for row in rows
            ]
    return found


def main() -> None:
    import torch

    torch.set_num_threads(1)
    folder, *training = sys.argv[1:]
    path = pathlib.Path(folder)
    json.dump(translate(path, pathlib.Path(training[0]), int(training[1])) if training else read(path), sys.stdout)


if __name__ == "__main__":
    main()
