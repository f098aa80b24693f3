"""Models: functions of a record's shape and the number of classes, one architecture per file."""
