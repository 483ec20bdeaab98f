"""Recipes: chains of trainings and translations that can be stopped and gone on with."""
