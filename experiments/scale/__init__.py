"""What a corpus costs on a number of workers: measured for a page, predicted for the rest."""
