"""A mixture of members, weighted and scored by imitated gaps."""
