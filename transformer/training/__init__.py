"""Hidden states to loss to new weights: update.py is one update, the other files are its parts."""
