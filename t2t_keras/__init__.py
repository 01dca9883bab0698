"""The Transformer of \"Attention Is All You Need\" on TensorFlow and Keras. Import from its modules; README has the map."""

__version__ = "0.1.0"
