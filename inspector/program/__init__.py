"""What is found out about one compiled program: text, memory, traffic, and the time modelled for it."""
