"""Kernels: attention as `eager` computes it, faster or in less memory."""
