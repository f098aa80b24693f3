"""Charts and heatmaps, as PNG and SVG."""
