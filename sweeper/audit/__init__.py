"""Audits: attacks on what a plan would run, with canaries among records that nobody's privacy depends on."""
