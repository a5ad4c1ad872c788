"""Tools that know no array library, for the packages of this distribution. They are not public, and may change."""
