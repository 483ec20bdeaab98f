"""Exports for other runtimes: ONNX, the page for the browser, and packages of Argos."""
