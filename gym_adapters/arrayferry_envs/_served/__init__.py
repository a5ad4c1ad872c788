"""Functional environments as single environments and vector environments of Gymnasium."""
