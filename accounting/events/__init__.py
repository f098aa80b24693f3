"""Events: what touches the data, as frozen values of the field's vocabulary."""
