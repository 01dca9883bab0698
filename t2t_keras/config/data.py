"""Options of the data (section 5.1): the corpus, its sub-words, and the filtering of parallel text."""

import dataclasses
import re

from t2t_keras.config import patterns
from t2t_keras.config.options import check_types, option, require

TEXTS = ("train_source", "train_target", "valid_source", "valid_target")  # Options that name text.
# Options of `DataConfig` that name files, whose contents count.
FILES = (*TEXTS, "subwords_file", "source_subwords_file")
STARTS = ("parent", "encoder_from")  # Options of `TrainConfig` that name a run whose weights a new run starts from.
OF_START = (*STARTS, "embeddings")  # Options of `TrainConfig` that name paths.
# Options of `DataConfig` for any corpus.
TEXT_OPTIONS = (
    "source_tag", "max_length", "subwords", "normalization", "character_coverage", "vocab_sample", "skip_bad_lines",
    "keep_patterns"
)  # fmt: skip
REPEATED = ("pair", "source", "target", "none")  # What filtering compares with earlier text.
_TAG = re.compile(r"[^\s▁]{2,64}")  # Of a source line.
_SPECIAL = r"<(pad|unk|s|/s|0x[0-9A-F]{2})>|｟\d+｠"  # Sub-words with a meaning of their own.


@dataclasses.dataclass(frozen=True)
class FilterConfig:
    """Options of filtering parallel text. 0 and the empty text turn a rule off."""

    max_characters: int = option(1000, "Reject pairs with more characters than this on either side; 0: none.")
    max_length_ratio: float = option(
        1.7,
        "Reject pairs with one side this many times as long as expected from the other, in characters, after adding 10 "
        "to each; 0: none.",
    )
    length_ratio: float = option(
        0.0, "Expected ratio of the characters of target and source; 0: the median of the first 20,000 pairs."
    )
    min_letters: float = option(
        0.5, "Reject pairs with a smaller share of letters among the characters of a side, spaces aside; 0: none."
    )
    source_script: str = option(
        "", "Scripts of the source, separated by commas, such as Latin or Han,Hiragana,Katakana; empty: any."
    )
    target_script: str = option("", "Scripts of the target, likewise.")
    min_script: float = option(
        0.8, "Reject pairs with a smaller share of the expected scripts among the letters of a side."
    )
    keep_copies: bool = option(
        False, "Keep pairs whose sides have the same words, ignoring case, digits and punctuation."
    )
    source_language: str = option(
        "", "Code of the language of the source, such as en, which py3langid identifies; empty: any."
    )
    target_language: str = option("", "Code of the language of the target, likewise.")
    min_language: float = option(
        0.05, "Reject pairs if py3langid gives the expected language of a side a smaller probability."
    )
    duplicates: str = option(
        "pair", "Reject what occurred before: pair, source (with any target), target (with any source), or none."
    )
    near_duplicates: str = option(
        "pair", "Reject what occurred before, likewise, ignoring case, digits and punctuation."
    )
    max_cross_entropy: float = option(
        5.0,
        "Reject pairs whose dual conditional cross-entropy by two runs (Junczys-Dowmunt 2018) is larger, in nats; 0: "
        "none.",
    )

    def __post_init__(self):
        check_types(self)
        for name in ("max_characters", "length_ratio", "max_cross_entropy"):
            require(self, getattr(self, name) >= 0, name, "0 or more")
        require(
            self,
            self.max_length_ratio > 1 or self.max_length_ratio == 0,
            "max_length_ratio",
            "more than 1, or 0 for none",
        )
        for name in ("min_letters", "min_script", "min_language"):
            require(self, 0 <= getattr(self, name) <= 1, name, "a share from 0 to 1")
        for name in ("duplicates", "near_duplicates"):
            require(self, getattr(self, name) in REPEATED, name, f"one of {', '.join(REPEATED)}")


@dataclasses.dataclass(frozen=True)
class DataConfig:
    """Options of the data (section 5.1): the corpus and how sub-words are made of it."""

    train_source: str = option(
        "", "Training text, source side, one sentence per line: comma-separated files or globs, plain or gzip."
    )
    train_target: str = option("", "Training text, target side; line n translates line n of --train_source.")
    valid_source: str = option("", "Validation text, source side.")
    valid_target: str = option("", "Validation text, target side.")
    source_tag: str = option(
        "",
        "Tag to begin each source line with, such as <2de>, which becomes a sub-word: one for all lines, or one for "
        "each file of --train_source and of --valid_source, separated by commas. Text to translate must begin with its "
        "tag too.",
    )
    dataset: str = option(
        "",
        "A TFDS translation dataset such as wmt14_translate/de-en; or 'builtin': numbers, dates and money, English to "
        "German.",
    )
    source_language: str = option(
        "", "Language code of the source in --dataset, or in the sub-words of a multilingual --parent."
    )
    target_language: str = option("", "Language code of the target, likewise.")
    train_split: str = option("train", "Split of --dataset to train on, or a slice such as train[:99%].")
    valid_split: str = option("validation", "Split of --dataset to validate on, or a slice such as train[99%:].")
    builtin_pairs: int = option(40_000, "Number of training pairs to generate for --dataset=builtin.")
    max_length: int = option(256, "Leave out pairs with more sub-words than this on either side, end token included.")
    subwords: str = option(
        "bpe",
        "Kind of sub-words (section 5.1): bpe (byte-pair encoding, as for English-German), wordpiece (as for "
        "English-French), word (whole words) or sentencepiece, of an imported model, with --subwords_file.",
    )
    subwords_file: str = option(
        "", "File of sub-words to use, such as subwords.model of another run; empty learns them from the text."
    )
    source_subwords_file: str = option(
        "",
        "File of sub-words of the source, beside those of the target in --subwords_file; empty: see "
        "--source_vocab_size.",
    )
    normalization: str = option(
        "identity", "SentencePiece normalization: identity (none), nmt_nfkc, nfkc, nmt_nfkc_cf or nfkc_cf."
    )
    character_coverage: float = option(
        0.9995, "Share of the text's characters that become sub-words; rarer characters are spelled in bytes."
    )
    vocab_sample: int = option(2_000_000, "Maximum number of sentences, both sides together, to learn sub-words from.")
    keep_patterns: str = option(
        "",
        f"What to copy by placeholders that are sub-words: names among {', '.join(patterns.NAMED)}, and regular "
        "expressions between slashes, of what Python and RE2 have in common, separated by commas.",
    )
    skip_bad_lines: bool = option(False, "Leave out and count lines that are not UTF-8 instead of stopping.")

    def __post_init__(self):
        check_types(self)
        for source, target in (("train_source", "train_target"), ("valid_source", "valid_target")):
            both = f"both of `{source}` and `{target}`, or neither"
            require(self, getattr(self, source) or not getattr(self, target), f"{source} {target}", both)
        require(
            self,
            not (self.dataset and (self.train_source or self.valid_source)),
            "dataset train_source valid_source",
            "text files or `dataset`, not both",
        )
        languages = (self.source_language, self.target_language)
        require(
            self,
            languages == ("", "") or len(set(languages)) == 2,
            "source_language target_language",
            "two different languages",
        )
        require(
            self,
            self.dataset != "builtin" or languages in (("", ""), ("en", "de")),
            "dataset source_language target_language",
            "English to German for the built-in corpus",
        )
        require(
            self,
            not self.dataset or self.dataset == "builtin" or (self.source_language and self.target_language),
            "dataset source_language target_language",
            "`source_language` and `target_language` with a TFDS dataset",
        )
        require(
            self,
            2 <= self.max_length < 2**15,
            "max_length",
            "room for one sub-word and the end token, and less than 32,768",
        )
        names = ("identity", "nmt_nfkc", "nfkc", "nmt_nfkc_cf", "nfkc_cf")
        require(self, self.normalization in names, "normalization", f"one of {', '.join(names)}")
        require(
            self,
            self.subwords in ("bpe", "wordpiece", "word", "sentencepiece"),
            "subwords",
            "bpe, wordpiece, word or sentencepiece",
        )
        given = self.subwords != "sentencepiece" or self.subwords_file or not self.names_corpus
        require(
            self,
            given,
            "subwords subwords_file",
            "`subwords=bpe`, `wordpiece` or `word`, or the file of an imported model's sub-words",
        )
        require(
            self,
            self.subwords == "bpe" or self.normalization == "identity",
            "subwords normalization",
            "`normalization=identity` with other sub-words than bpe",
        )
        self._check_tags()
        kept = patterns.parse(self.keep_patterns)
        require(
            self,
            not kept or self.subwords == "bpe",
            "subwords keep_patterns",
            "`subwords=bpe` with patterns of text to keep",
        )
        require(self, 0 < self.character_coverage <= 1, "character_coverage", "a share in (0, 1]")
        require(self, self.builtin_pairs >= 1, "builtin_pairs", "a positive number of pairs")
        require(self, self.vocab_sample > 100, "vocab_sample", "more than 100 sentences")

    def _check_tags(self) -> None:
        """Raises `ValueError` for tags that are invalid, or that are not one for all or one for each name of a file."""
        for tag in self.tags:
            require(
                self,
                not tag or _TAG.fullmatch(tag),
                "source_tag",
                "tags such as <2de>, 2 to 64 characters without a space",
            )
            require(
                self, not re.fullmatch(_SPECIAL, tag), "source_tag", "tags that are not the name of a special sub-word"
            )
        require(self, not self.dataset or len(self.tags) == 1, "dataset source_tag", "one tag for a dataset")
        for name in ("train_source", "valid_source"):
            if files := getattr(self, name):
                one_each = len(self.tags) in (1, files.count(",") + 1)
                require(self, one_each, f"source_tag {name}", f"one tag for all, or one for each file of `{name}`")

    @property
    def tags(self) -> list[str]:
        """The tag of each file, or the one of all; `[""]` if there is none."""
        return self.source_tag.split(",")

    @property
    def names_corpus(self) -> bool:
        """Whether the options name training text. If not, a run needs prepared data."""
        return bool(self.dataset or self.train_source)
