"""What the command line can do besides training and evaluation, one file each."""
