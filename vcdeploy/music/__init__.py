"""Music: tunes as symbols and as ABC notation; MIDI, scores and sound. Knows nothing about models."""
