"""The solvers behind the policies: exact linear programs by prices, by columns, and by a general solver.

`market.py` is the program they share. `prices.py` solves it while few limits tie the rows together, `lp.py` otherwise
(`exact.py` chooses); `columns.py` solves it over pairs of jobs, `choice.py` with one option per row, `nash.py` for the
product of rates, `water.py` level by level. `aggregate.py` makes large problems small.
"""
