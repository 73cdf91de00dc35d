//! The e1000 controllers: our driver on the model of one.
#![cfg(test)]
#![cfg(feature = "e1000")]

#[cfg(test)]
mod costs;
#[cfg(test)]
#[path = "../../../datapath/tests/allocation/counting_allocator.rs"]
mod counting_allocator;
#[cfg(test)]
mod driver;
#[cfg(test)]
mod faults;
#[cfg(test)]
mod histories;
#[cfg(test)]
mod offloads;
#[cfg(test)]
mod stand;
