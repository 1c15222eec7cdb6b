"""Networks that hold samples or saw other pictures, and their training."""
