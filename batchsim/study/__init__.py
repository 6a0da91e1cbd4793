"""Many scenarios: sweeps over a grid of knobs, in a folder that loses nothing."""
