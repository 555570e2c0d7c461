"""Our engines beside other people's, on the same weights and the same windows."""
