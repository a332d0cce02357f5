"""Where keys and values live: one store a class, behind one protocol (`engine.kv.store`)."""
