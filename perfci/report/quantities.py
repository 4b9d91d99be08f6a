"""Numbers for people: every unit conversion of perfci happens here (rule 2 of the design: convert only in reports)."""

import math

from perfci.model.comparison import Effect
from perfci.model.metrics import Unit

NOT_COMPUTABLE = "not computable"
MISSING = "—"
_MOST_DECIMALS = 10

_SCALES: dict[Unit, tuple[tuple[float, str], ...]] = {
    Unit.NS: ((1e9, "s"), (1e6, "ms"), (1e3, "µs"), (1.0, "ns")),
    Unit.BYTES: ((2.0**30, "GiB"), (2.0**20, "MiB"), (2.0**10, "KiB"), (1.0, "B")),
    Unit.MICROJOULES: ((1e6, "J"), (1e3, "mJ"), (1.0, "µJ")),
    Unit.RATIO: ((0.01, "%"),),
    Unit.PER_SECOND: ((1.0, "/s"),),
    Unit.COUNT: ((1.0, ""),),
}


def _scale(unit: Unit, magnitude: float) -> tuple[float, str]:
    scales = _SCALES[unit]
    return next((scale for scale in scales if magnitude >= scale[0]), scales[-1])


def _decimals_for(value: float, significant: int) -> int:
    """Decimals that give ``value`` so many significant digits; none for a whole number."""
    if value == int(value) and abs(value) < 1e15:
        return 0
    return min(15, max(0, significant - 1 - math.floor(math.log10(abs(value)))))


def _number(value: float, decimals: int) -> str:
    text = f"{value:,.{decimals}f}"
    return "0" if float(text.replace(",", "")) == 0 else text


def _join(number: str, suffix: str) -> str:
    return number + suffix if suffix in ("", "%", "/s") else f"{number} {suffix}"


def _minus(text: str) -> str:
    return text.replace("-", "−")


def value_text(value: float, unit: Unit, *, significant: int = 4) -> str:
    """A stored number in a readable unit, for example ``31.41 ms``; ``not computable`` where that is not finite."""
    divisor, suffix = _scale(unit, abs(value))
    if not math.isfinite(value / divisor):
        return NOT_COMPUTABLE
    return _minus(_join(_number(value / divisor, _decimals_for(value / divisor, significant)), suffix))


def pair_texts(baseline: float | None, candidate: float | None, unit: Unit) -> tuple[str, str]:
    """Both sides in one unit with equal decimals: four significant digits of the larger, two of the smaller, or as
    many as it takes to tell two different numbers apart. A missing side is a dash."""
    known = [value for value in (baseline, candidate) if value is not None and math.isfinite(value)]
    divisor, suffix = _scale(unit, max(map(abs, known), default=0.0))
    known = [value for value in known if math.isfinite(value / divisor)]

    def text(value: float | None, decimals: int) -> str:
        if value is None:
            return MISSING
        if not math.isfinite(value / divisor):
            return NOT_COMPUTABLE
        return _minus(_join(_number(value / divisor, decimals), suffix))

    scaled = sorted(abs(value / divisor) for value in known)
    decimals = max((_decimals_for(scaled[-1], 4), _decimals_for(scaled[0], 2)), default=0) if scaled else 0
    while text(baseline, decimals) == text(candidate, decimals) and baseline != candidate and decimals < 15:
        decimals += 1
    return text(baseline, decimals), text(candidate, decimals)


def delta_text(baseline: float, candidate: float, unit: Unit) -> str:
    """The signed absolute change, ``+2.1 ms``."""
    delta = candidate - baseline
    if not math.isfinite(delta):
        return NOT_COMPUTABLE
    text = value_text(abs(delta), unit, significant=3)
    if text == _join("0", _scale(unit, 0.0)[1]):
        return text
    return ("+" if delta > 0 else "−") + text


def _decimals(percent: float) -> int:
    """Decimals that keep two significant digits, at least one, at most six."""
    if percent == 0 or not math.isfinite(percent):
        return 1
    return min(6, max(1, 1 - math.floor(math.log10(abs(percent)))))


def _signed(percent: float, decimals: int) -> str:
    if math.isinf(percent):
        return "+∞" if percent > 0 else "−∞"
    text = f"{percent:+,.{decimals}f}"
    if float(text.replace(",", "")) == 0:
        text = f"{0:.{decimals}f}" if decimals else "0"
    return _minus(text)


def _trimmed(text: str) -> str:
    return text.rstrip("0").rstrip(".") if "." in text else text


def ratio_text(ratio: float | None) -> str:
    """An unsigned share in percent, ``0.6%``; a dash when there is none."""
    if ratio is None:
        return MISSING
    if not math.isfinite(ratio):
        return NOT_COMPUTABLE
    percent = 100 * ratio
    return _minus(_trimmed(f"{percent:,.{_decimals(percent)}f}")) + "%"


def confidence_text(confidence: float) -> str:
    """The confidence of an interval, ``99.2%``: with as many decimals as keep it below 100 %, which none has."""
    decimals = 1
    while decimals < _MOST_DECIMALS and f"{100 * confidence:.{decimals}f}".startswith("100") and confidence < 1:
        decimals += 1
    return _trimmed(f"{100 * confidence:.{decimals}f}") + "%"


def change_text(effect: Effect) -> str:
    """The point of an effect, ``+12.3%``."""
    text = _signed(100 * effect.value_ratio, _effect_decimals(effect))
    return (_trimmed(text) if effect.low_ratio == effect.high_ratio else text) + "%"


def interval_text(effect: Effect) -> str:
    """The interval of an effect, ``+11.8 … +12.9%``; a bound that the launches do not give is ``∞``, both
    ``unbounded``. Empty for an exact effect."""
    if effect.low_ratio == effect.high_ratio:
        return ""
    if effect.low_ratio <= -1 and math.isinf(effect.high_ratio):  # nothing falls by more than 100 %
        return "unbounded"
    decimals = _effect_decimals(effect)
    return f"{_signed(100 * effect.low_ratio, decimals)} … {_signed(100 * effect.high_ratio, decimals)}%"


def _effect_decimals(effect: Effect) -> int:
    width = 100 * (effect.high_ratio - effect.low_ratio)
    if not math.isfinite(width):
        return 1
    return _decimals(width) if width > 0 else _decimals(100 * effect.value_ratio)
