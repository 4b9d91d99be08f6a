"""Where in the user's code a wait, a copy or an operator was asked for (docs/locations.md).

`collector` runs inside a launch of its own whose times nobody uses, and writes a file of places; `locations` sets that
launch up and reads the file; `attach` gives findings and changed kernels their place. The first, with `frames` and
`recorder`, is loaded by the measured program: it needs torch and Python 3.9, nothing else of perfci but the marks.
"""
