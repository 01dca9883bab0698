"""Options of the data (section 5.1): the corpus, its sub-words, and the filtering of parallel text."""

import dataclasses
import functools
import re

from t2t_keras.config import patterns
from t2t_keras.config.options import TEXT, check_fields, option, options_with, require

RULES = "Rules"  # Heading of the options of `FilterConfig`.
_rule, _text = (functools.partial(option, group=group) for group in (RULES, TEXT))
REPEATED = ("pair", "source", "target", "none")  # What filtering compares with earlier text.
_TAG = re.compile(r"[^\s▁]{2,64}")  # Of a source line.
_NOT_LEARNED = {  # Kinds of sub-words that only come with a file, and whose it is.
    "sentencepiece": "that of an imported model's sub-words",
    "tensor2tensor": "a vocabulary of tensor2tensor",
}
_GIVEN_SUBWORDS = "subwords_file&!source_vocab_size subwords_file&source_subwords_file"  # None are learned.
_HAVE_LANGUAGES = "dataset subwords_file train_source valid_source"  # Of text files, those in TMX.
TERM_MARKS = ("⟦", "⟧")  # Words around the translation of a term in the source.
_TWO_SIDED = re.compile(r".*\.(tmx|tsv)(\.gz)?(@[0-9]+)?\s*", re.IGNORECASE | re.DOTALL)  # Names of files.
_SPECIAL = r"<(pad|unk|s|/s|0x[0-9A-F]{2})>|｟\d+｠"  # Sub-words with a meaning of their own.


def text_format(name: str) -> str:
    """Returns the format of a text file, or a glob, with two sides by its name: "tmx" or "tsv"; "" for others."""
    end = _TWO_SIDED.fullmatch(name)
    return end[1].lower() if end else ""


def names_of_target(source: str, target: str) -> str:
    """Returns the names of the files of the target: those given, or those of the source if each has two sides."""
    return target or (source if all(map(text_format, source.split(","))) else "")


@dataclasses.dataclass(frozen=True)
class FilterConfig:
    """Options of filtering parallel text. 0 and the empty text turn a rule off."""

    # fmt: off
    max_characters: int = _rule(
        1000, "Reject pairs with more characters than this on either side; 0: none.", minimum=0)
    max_length_ratio: float = _rule(
        1.7, "Reject pairs with one side this many times as long as expected from the other, in characters, after "
        "adding 10 to each; 0: none.", minimum=0)
    length_ratio: float = _rule(
        0.0, "Expected ratio of the characters of target and source; 0: the median of the first 20,000 pairs.",
        minimum=0, needs="max_length_ratio")
    min_letters: float = _rule(
        0.5, "Reject pairs with a smaller share of letters among the characters of a side, spaces aside; 0: none.",
        minimum=0, maximum=1)
    source_script: str = _rule(
        "", "Scripts of the source, separated by commas, such as Latin or Han,Hiragana,Katakana; empty: any.")
    target_script: str = _rule("", "Scripts of the target, likewise.")
    min_script: float = _rule(
        0.8, "Reject pairs with a smaller share of the expected scripts among the letters of a side.",
        minimum=0, maximum=1, needs="source_script target_script")
    keep_copies: bool = _rule(
        False, "Keep pairs whose sides have the same words, ignoring case, digits and punctuation.")
    source_language: str = _rule(
        "", "Code of the expected language of the source, such as en, for py3langid to check; empty: any.")
    target_language: str = _rule("", "Code of the language of the target, likewise.")
    min_language: float = _rule(
        0.05, "Reject pairs if py3langid gives the expected language of a side a smaller probability.",
        minimum=0, maximum=1, needs="source_language target_language")
    duplicates: str = _rule(
        "pair", "Reject what occurred before: pair, source (with any target), target (with any source), or none.",
        choices=REPEATED)
    near_duplicates: str = _rule(
        "pair", "Reject what occurred before, likewise, ignoring case, digits and punctuation.", choices=REPEATED)
    max_cross_entropy: float = _rule(
        5.0, "Reject pairs whose dual conditional cross-entropy by two runs (Junczys-Dowmunt 2018) is larger, in "
        "nats; 0: none.", minimum=0, needs="forward_run")
    # fmt: on

    def __post_init__(self):
        check_fields(self)
        rule = "`max_length_ratio` must be more than 1, or 0 for none."
        require(self, self.max_length_ratio > 1 or self.max_length_ratio == 0, rule)


@dataclasses.dataclass(frozen=True)
class DataConfig:
    """Options of the data (section 5.1): the corpus and how sub-words are made of it."""

    # fmt: off
    train_source: str = _text(
        "", "Training text, source side, one sentence per line: comma-separated files or globs, plain or gzip. Files "
        "named .tmx and .tsv (the first two columns) have both sides.", first=True, path="text")
    train_target: str = _text(
        "", "Training text, target side; line n translates line n of --train_source. Empty if all of these files have "
        "both sides.", first=True, path="text")
    valid_source: str = _text("", "Validation text, source side.", first=True, path="text")
    valid_target: str = _text("", "Validation text, target side.", first=True, path="text")
    valid_pairs: int = _text(
        0, "Number of pairs at the end of the training text to validate on, and not to train on, if there is no "
        "--valid_source.", minimum=0, first=True, fixed=True, unless="dataset valid_source")
    source_tag: str = _text(
        "", "Tag to begin each source line with, such as <2de>, which becomes a sub-word: one for all lines, or one "
        "for each file of --train_source and of --valid_source, separated by commas. Text to translate must begin "
        "with its tag too.", fixed=True, any_corpus=True)
    dataset: str = _text(
        "", "A TFDS translation dataset such as wmt14_translate/de-en; or 'builtin': numbers, dates and money, "
        "English to German.", fixed=True)
    source_language: str = _text(
        "", "Language code of the source in --dataset, in TMX files, or in the sub-words of a multilingual --parent.",
        fixed=True, needs=_HAVE_LANGUAGES)
    target_language: str = _text("", "Language code of the target, likewise.", fixed=True, needs=_HAVE_LANGUAGES)
    train_split: str = _text(
        "train", "Split of --dataset to train on, or a slice such as train[:99%].",
        fixed=True, needs="dataset", unless="dataset=builtin")
    valid_split: str = _text(
        "validation", "Split of --dataset to validate on, or a slice such as train[99%:].",
        fixed=True, needs="dataset", unless="dataset=builtin")
    builtin_pairs: int = _text(
        40_000, "Number of training pairs to generate for --dataset=builtin.",
        minimum=1, fixed=True, needs="dataset=builtin")
    max_length: int = _text(
        256, "Leave out pairs with more sub-words than this on either side, end token included.",
        minimum=2, below=2**15, fixed=True, any_corpus=True)
    subwords: str = _text(
        "bpe", "Kind of sub-words (section 5.1): bpe (byte-pair encoding, as for English-German), wordpiece (as for "
        "English-French), word (whole words); or, with --subwords_file, sentencepiece of an imported model, or "
        "tensor2tensor with its vocabulary.",
        choices=("bpe", "wordpiece", "word", *_NOT_LEARNED), fixed=True, any_corpus=True)
    subwords_file: str = _text(
        "", "File of sub-words to use, such as subwords.model of another run; empty learns them from the text.",
        path="file")
    source_subwords_file: str = _text(
        "", "File of sub-words of the source, beside those of the target in --subwords_file; empty: see "
        "--source_vocab_size.", path="file")
    normalization: str = _text(
        "identity", "SentencePiece normalization: identity (none), nmt_nfkc, nfkc, nmt_nfkc_cf or nfkc_cf.",
        choices=("identity", "nmt_nfkc", "nfkc", "nmt_nfkc_cf", "nfkc_cf"), fixed=True, any_corpus=True,
        unless=_GIVEN_SUBWORDS)
    character_coverage: float = _text(
        0.9995, "Share of the text's characters that become sub-words, at least 0.98 except for word pieces; rarer "
        "characters are spelled in bytes.",
        above=0, maximum=1, fixed=True, any_corpus=True, unless=_GIVEN_SUBWORDS)
    vocab_sample: int = _text(
        2_000_000, "Maximum number of sentences, both sides together, to learn sub-words from.",
        minimum=101, fixed=True, any_corpus=True, unless=_GIVEN_SUBWORDS)
    train_terms: str = _text(
        "", "File of terms, as for translate: in half of the training pairs with a term and its translation, inflected "
        "or not, the translation takes the place of the term in the source, between marks. With --terms, "
        "translations of terms are written into the source the same way, and the model copies and inflects them.",
        path="file", task="generates")
    keep_patterns: str = _text(
        "", f"Text to copy, each match as one placeholder. Give names among {', '.join(patterns.NAMED)}, and regular "
        "expressions between slashes that are valid in both Python and RE2, separated by commas.",
        fixed=True, any_corpus=True)
    skip_bad_lines: bool = _text(
        False, "Leave out and count lines that are not UTF-8 instead of stopping.",
        fixed=True, any_corpus=True, unless="dataset")
    # fmt: on

    def __post_init__(self):
        check_fields(self)
        for side in ("train", "valid"):
            source, target = f"{side}_source", f"{side}_target"
            given = getattr(self, source) or not getattr(self, target)
            require(self, given, f"`{target}` needs `{source}`.", f"{source} {target}")
        text = self.train_source or self.valid_source
        rule = "`dataset` and text files exclude each other."
        require(self, not (self.dataset and text), rule, "dataset train_source valid_source")
        rule = "`source_language` and `target_language` must be two different languages."
        require(self, self.languages == ("", "") or len(set(self.languages)) == 2, rule)
        fits = self.dataset != "builtin" or self.languages in (("", ""), ("en", "de"))
        rule = "`dataset=builtin` is English to German, en to de."
        require(self, fits, rule, "dataset source_language target_language")
        known = self.dataset in ("", "builtin") or all(self.languages)
        require(self, known, "A TFDS `dataset` needs `source_language` and `target_language`.")
        learned = self.subwords not in _NOT_LEARNED or self.subwords_file or not self.names_corpus
        rule = f"`subwords={self.subwords}` needs a `subwords_file`: {_NOT_LEARNED.get(self.subwords)}."
        require(self, learned, rule)
        rule = (
            "`character_coverage` must be at least 0.98, as SentencePiece requires, except with `subwords=wordpiece`."
        )
        covered = self.character_coverage >= 0.98 or self.subwords == "wordpiece"
        require(self, covered, rule, "character_coverage subwords")
        kept = patterns.parse(self.keep_patterns)
        for name, given in (("normalization", self.normalization != "identity"), ("keep_patterns", kept)):
            require(self, not given or self.subwords == "bpe", f"`{name}` needs `subwords=bpe`.", f"subwords {name}")
        self._check_tags()

    def _check_tags(self) -> None:
        """Raises `ValueError` for tags that are invalid, or that are not one for all or one for each name of a file."""
        for tag in self.tags:
            rule = "`source_tag` must be tags such as <2de>, of 2 to 64 characters without a space."
            require(self, not tag or _TAG.fullmatch(tag), rule)
            rule = "`source_tag` must not be the name of a special sub-word."
            require(self, not re.fullmatch(_SPECIAL, tag), rule)
        require(self, not self.dataset or len(self.tags) == 1, "A `dataset` has one `source_tag`.")
        for name in ("train_source", "valid_source"):
            if files := getattr(self, name):
                one_each = len(self.tags) in (1, files.count(",") + 1)
                rule = f"`source_tag` must be one tag, or one for each file of `{name}`."
                require(self, one_each, rule)

    def text(self, split: str, side: str) -> str:
        """Returns the names of the files of one side of a text; see `names_of_target`."""
        source, target = getattr(self, f"{split}_source"), getattr(self, f"{split}_target")
        return source if side == "source" else names_of_target(source, target)

    @property
    def languages(self) -> tuple[str, str]:
        """The codes of source and target."""
        return self.source_language, self.target_language

    @property
    def tags(self) -> list[str]:
        """The tag of each file, or the one of all; `[""]` if there is none."""
        return self.source_tag.split(",")

    @property
    def source_words(self) -> list[str]:
        """Words that are sub-words of the source in any case: the tags, and the marks around terms."""
        return [*sorted(set(filter(None, self.tags))), *(TERM_MARKS if self.train_terms else ())]

    @property
    def holds_out(self) -> bool:
        """Whether the last pairs of the training text are the validation set."""
        return bool(self.valid_pairs and self.train_source and not self.valid_source)

    @property
    def names_corpus(self) -> bool:
        """Whether the options name training text. If not, a run needs prepared data."""
        return bool(self.dataset or self.train_source)


TEXTS = options_with(DataConfig, "path", "text")  # Options that name text.
FILES = options_with(DataConfig, "path")  # Options that name files, whose contents count.
