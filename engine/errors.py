"""Every error the engine raises on purpose.

Knows what went wrong and which request field it concerns. Knows no HTTP: the server maps these classes to
status codes.
"""


class EngineError(Exception):
    """Base of all errors a caller of the engine may want to catch."""


class InvalidRequestError(EngineError):
    """The request can never be served as it stands.

    `field` names the offending request field in the public API's words, or is None when no single field is at fault.
    """

    def __init__(self, message: str, *, field: str | None = None) -> None:
        super().__init__(message)
        self.field = field


class ContextLengthError(InvalidRequestError):
    """Prompt plus requested output do not fit the model's context."""


class ModelLoadError(EngineError):
    """The model could not be found, downloaded, read or understood. The message says which and what to do."""


class OverloadedError(EngineError):
    """The waiting queue is full. `retry_after_s` is an estimate of when a place will be free, in seconds."""

    def __init__(self, message: str, *, retry_after_s: float) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class EngineUnavailableError(EngineError):
    """The engine is still loading, is shutting down, or has failed."""


class TimedOutError(EngineError):
    """The request took longer than it may, or waited longer for its turn. The message says which and how long."""


class NonFiniteLogitsError(EngineError):
    """The model produced NaN or infinite logits; no token can be chosen from them."""


class CacheStateError(EngineError):
    """A cache operation was asked for that its state does not allow. Always a bug in the caller."""


class StageOrderError(EngineError):
    """A stage of a round was asked for out of order. The message says which comes first."""
