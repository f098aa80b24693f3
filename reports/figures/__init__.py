"""Charts and heatmaps, as PNG and SVG, independent of the user's configuration of matplotlib."""

from dpsweep.reports.figures.drawing import import_matplotlib

import_matplotlib()
