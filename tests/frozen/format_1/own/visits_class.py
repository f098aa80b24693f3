import numpy as np


class Visits:
    def __len__(self):
        return 120

    def __getitem__(self, index):
        return np.full(3, index % 7 / 7, dtype=np.float32), index % 2
