#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| polder_fuzz::run("conntrack", bytes));
