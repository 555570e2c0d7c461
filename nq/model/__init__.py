"""The BERT-Joint model: encoder and heads, families, checkpoints, conversion and export."""
