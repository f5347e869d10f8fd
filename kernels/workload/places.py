"""Places for the requests that are being answered."""


class Place:
    """One place; given back once, by whoever comes first: the last token, or the end of the request."""

    def __init__(self, places: "Places") -> None:
        self._places = places
        self._held = True

    def give_back(self) -> None:
        """Free the place; harmless when that has been done."""
        if self._held:
            self._held = False
            self._places.taken -= 1


class Places:
    """A bounded number of places; for one event loop."""

    def __init__(self, count: int) -> None:
        self._count = count
        self.taken = 0

    def take(self) -> Place | None:
        """Take a place; None when there is none."""
        if self.taken >= self._count:
            return None
        self.taken += 1
        return Place(self)
