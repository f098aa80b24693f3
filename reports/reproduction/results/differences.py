"""Sentences on where a search differs from the paper's setting; several figures share one."""

from __future__ import annotations

CNN = "A small CNN, batches of 256 and 150 steps in place of the paper's network, which two cores do not train in days."
FEATURES = (
    "A linear model of frozen public features, batches of 256 and 150 steps in place of the paper's network, which two "
    "cores do not train in days."
)
SAMPLER = (
    "Batches are drawn as in the paper, exactly so many records a step without replacement; the noise is solved anew "
    "for single runs of epsilon 2, 4 and 8 where a record is replaced."
)
OTHER_RATES = (
    "The paper's clip norms and regularizers; larger learning rates beside its own, since these models need them."
)
NO_CLAIMS = "The paper makes no claim on these maps: the claims are those of its Figure 4, for the other two methods."
OUR_VALUES = "The values of c and r, and the learning rates, are ours; the paper's text does not give them."
ADULT = "Adult and logistic regression alone; the paper has four data sets and two models."
DIGITS = (
    "MNIST's fours and nines with 784 pixels in the place of Gisette, which is made of these two digits and has 5000 "
    "features, half of them without meaning; logistic regression alone."
)
OUR_AXES = "The ranges of both axes are ours."
OUR_SETTING = (
    "Both axes, the noise multiplier and the number of steps are ours: the paper names none of them for ENRON."
)
OUR_LENGTHS = "The noise multipliers, and with them the numbers of steps that a budget allows, are ours."
OUR_FALL = (
    "The clip norm falls over the whole run; in the paper, over the steps that a constant clip norm would pay for."
)
COVERTYPE = (
    "A sixth of Covertype's records, a sample that a package carries, in batches of the paper's size; scores are noisy "
    "counts of held-out private records, since the data set has no test set."
)
EACH_LENGTH = "Each number of steps is a separate run, at the noise multiplier for which the budget allows these steps."
