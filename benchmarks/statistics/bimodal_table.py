"""Print the critical values of perfci.stats.shape.is_bimodal: the 0.5 % quantile, for normal samples of n launches, of
the share of the variance that is left inside the best two groups of at least two.

python benchmarks/statistics/bimodal_table.py
"""

import numpy as np

SEED = 1
SAMPLES = 100_000
SIZES = (4, 5, 6, 7, 8, 10, 12, 15, 20, 25, 30)


def share_inside(samples: np.ndarray) -> np.ndarray:
    """The share for each row."""
    ordered = np.sort(samples, axis=1)
    n = ordered.shape[1]
    sums, squares = np.cumsum(ordered, axis=1), np.cumsum(ordered**2, axis=1)
    best = np.full(len(ordered), np.inf)
    for k in range(2, n - 1):
        left = squares[:, k - 1] - sums[:, k - 1] ** 2 / k
        right = squares[:, -1] - squares[:, k - 1] - (sums[:, -1] - sums[:, k - 1]) ** 2 / (n - k)
        best = np.minimum(best, left + right)
    return best / (squares[:, -1] - sums[:, -1] ** 2 / n)


def main() -> None:
    """Print launches, critical share, and how often samples of Student's t with 3 degrees of freedom undercut it."""
    rng = np.random.default_rng(SEED)
    for n in SIZES:
        shares = share_inside(rng.standard_normal((SAMPLES, n)))
        critical = np.quantile(shares, 0.005)
        heavy = share_inside(rng.standard_t(3, (SAMPLES, n)))
        print(f"({n}, {critical:.4f}),  # heavy tails: {np.mean(heavy < critical):.2%}")


if __name__ == "__main__":
    main()
