"""The only byte layouts: the dialects of the input, TFRecords, predictions; one a file."""
