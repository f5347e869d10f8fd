"""How many requests may be sent twice: a share of all, so that retries never double an overload."""

_SHARE = 0.2
_BURST = 10.0


class RetryBudget:
    """Every request earns a fifth of a retry, and at most ten are saved up."""

    def __init__(self) -> None:
        self._saved = _BURST

    def earn(self) -> None:
        """Note a request."""
        self._saved = min(_BURST, self._saved + _SHARE)

    def spend(self) -> bool:
        """Take one retry; False when there is none left."""
        if self._saved < 1:
            return False
        self._saved -= 1
        return True
