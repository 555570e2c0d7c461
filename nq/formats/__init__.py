"""File formats: one module for each input dialect and each output, nothing else knows them."""
