//! A wrapper around any device that loses, delays, duplicates, reorders, damages and unplugs.
