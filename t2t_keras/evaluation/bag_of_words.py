"""A bag of words to compare classifiers with: logistic regression on the counts of words, with scikit-learn."""

from collections.abc import Sequence

MISSING = (
    "The bag of words needs scikit-learn: pip install 't2t_keras[classifiers]', or -e '.[classifiers]' in a checkout."
)


def accuracy(train: Sequence[tuple[str, ...]], test: Sequence[tuple[str, ...]]) -> float:
    """Trains logistic regression on some texts, each a label and one or two sentences, and returns its accuracy on
    others. A word of a second sentence is another word. Without scikit-learn, or with one label, it raises
    `ValueError`.
    """
    try:
        from sklearn.feature_extraction.text import CountVectorizer
        from sklearn.linear_model import LogisticRegression
    except ModuleNotFoundError as error:
        raise ValueError(MISSING) from error

    def words(text: tuple[str, ...]) -> list[str]:
        _, *sentences = text
        return [f"{side} {word}" for side, sentence in enumerate(sentences) for word in sentence.lower().split()]

    labels = [label for label, *_ in train]
    if len(set(labels)) < 2:
        raise ValueError(f"`bag_of_words` must be text with two labels or more. Received: {labels[0]} only.")
    vectorizer, model = CountVectorizer(analyzer=words), LogisticRegression(max_iter=1000)
    model.fit(vectorizer.fit_transform(train), labels)
    return float(model.score(vectorizer.transform(test), [label for label, *_ in test]))
