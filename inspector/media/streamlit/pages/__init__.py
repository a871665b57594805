"""The navigation, and one module for each of its entries."""
