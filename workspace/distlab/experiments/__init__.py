"""Small programs for the ranks, each behind one or two claims of a lesson. Run by name: `run("ddp_shards")`."""
