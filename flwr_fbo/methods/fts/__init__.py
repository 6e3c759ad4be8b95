"""FTS: agents follow one another's sampled functions."""
