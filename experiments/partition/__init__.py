"""One model over several devices: pipeline and tensor split, predicted and measured."""
