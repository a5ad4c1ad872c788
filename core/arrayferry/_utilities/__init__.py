"""Tools without any knowledge of arrays, for the packages of this distribution. They are no API, and may change at any time."""
