"""Ready callbacks for training frameworks: `perfci.callbacks.lightning` and `perfci.callbacks.transformers`.

Each needs its framework; this package and `perfci.callbacks.loop` need none.
"""
