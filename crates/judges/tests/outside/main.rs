//! Judges from outside that need no guest: each examines Polder, and finds faults that were put into it.
#![cfg(test)]

mod differential;
mod e1000_qtest;
mod hosts;
mod judged;
mod pages;
mod replay;
