"""Descriptions of exports, for people who do not have this framework."""
