"""What is measured over HTTP: two servers on the loopback address, the same clients, in turns (see `engine.bench`)."""
