"""perfci: did this change make training slower, by how much, where and why, and how sure are we?

Importing the package costs nothing: training scripts do ``from perfci import phases`` inside the measured process.
"""

__version__ = "0.1.0"
