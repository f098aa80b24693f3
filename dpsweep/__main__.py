"""`python -m dpsweep VERB ...`: the same as `dpsweep VERB ...`."""

from dpsweep.sweeper.commands.cli import main

if __name__ == "__main__":
    main()
