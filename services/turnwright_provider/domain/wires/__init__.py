"""How vendors are spoken to: for each wire what is sent, and the fold of what comes back. Pure; HTTP is at the edge."""
