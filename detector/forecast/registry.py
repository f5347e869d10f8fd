"""The forecasters that there are; add one by writing its file and one line here."""

from collections.abc import Callable, Mapping

from detector.config import ForecastConfig
from detector.forecast.base import Forecaster
from detector.forecast.tail import TailForecaster

FORECASTERS: Mapping[str, Callable[[ForecastConfig], Forecaster]] = {
    "tail": TailForecaster,
}
