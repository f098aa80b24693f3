"""Hyperparameter sweeps over private training, priced as a whole.

`dpsweep.accounting` is a library of its own: events, accountants, selection rules, the ledger. `dpsweep.models` makes a
torch model trainable with privacy. The folders here are links to those beside it, so that a checkout and an installed
package are imported by the same names.
"""
