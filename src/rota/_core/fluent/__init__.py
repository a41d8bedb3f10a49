"""What a schedule says, verb by verb: read strictly, kept with its line, and frozen into tasks."""
