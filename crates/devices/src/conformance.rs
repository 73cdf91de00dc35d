//! What every driver owes to the datapath, as one suite of checks.
