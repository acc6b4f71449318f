"""What lessons measure with: one clock for all ranks, bytes sent, bytes kept, spans of work, latency and bandwidth."""
