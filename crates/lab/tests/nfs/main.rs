//! NFSv3: the service against a reference written from the RFCs, on any bytes; and a directory against
//! those who want out of it.

#![expect(clippy::unwrap_used, reason = "a failed set-up is a failed test")]

mod client;
mod directory;
mod judge;
mod oracle;
mod words;

use polder_testbed::services::nfs;
