"""Tensorboard imports TensorFlow where it is installed, which ends the process after some of the other libraries."""

import sys

sys.modules["tensorflow"] = None
