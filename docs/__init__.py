"""Scripts that write and build the documentation."""
