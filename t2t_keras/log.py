"""The logger of the library. Programs show its messages as plain lines; in Python, `logging` decides."""

import logging

logger = logging.getLogger("t2t_keras")
