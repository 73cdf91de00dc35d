//! The command `polder`.

fn main() {}
