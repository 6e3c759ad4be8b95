"""The methods of the papers and their rivals: settings, server and agent of each. No Flower."""
