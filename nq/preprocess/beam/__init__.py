"""The Apache Beam side of preprocessing."""
