"""The commands: ``cli.exit`` prints an ``InputError``, which any function here may raise."""
