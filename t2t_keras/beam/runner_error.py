"""What a runner of Apache Beam says when it fails, as one sentence."""

import re


class RunnerError(OSError):
    """A pipeline did not run to its end on the named runner: an `OSError` whose message is a sentence about `error`."""

    def __init__(self, runner: str, error: Exception):
        super().__init__(
            f"Expected the runner {runner} to run the pipeline to its end. Received: {reason(error)}. Check the "
            "options of the pipeline, the runner and its workers, and run the same command again."
        )


def reason(error: Exception) -> str:
    """Returns the last line that says why, without a final period: of a traceback of Python or Java, of a remote call,
    or of a message.
    """
    text = str(error)
    remote = re.findall(r'^\s*details = "(.*)"$', text, re.MULTILINE)  # gRPC.
    said = [line for line in text.splitlines() if re.match(r"[^\s>~^]", line)]
    own = said[-1] if said else ""
    if not own or (len(said) == 1 and not isinstance(error, RuntimeError)):
        own = f"{type(error).__name__}: {own}".removesuffix(": ")
    return (remote[-1] if remote else own)[:1000].rstrip(". ")
