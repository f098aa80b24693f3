"""Prices of events and rules by a panel of accountants, and calibration to a target."""
