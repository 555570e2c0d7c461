"""The BERT-Joint model: encoder and heads, checkpoints, profiles, prediction, training."""
