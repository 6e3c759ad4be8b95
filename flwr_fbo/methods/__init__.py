"""The methods of the papers and the methods to compare with: settings, server, agent. No Flower."""
