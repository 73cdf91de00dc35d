//! NFSv3 over UDP, for reading: a service to measure with whose protocol is source B's.
//!
//! A request is bytes in, and its answer is bytes out; who carries them does not matter. It answers NULL,
//! GETATTR, LOOKUP and READ of NFS (RFC 1813), and NULL, MNT and UMNT of the mount protocol at the same
//! port; all other procedures are unavailable. XDR and the shapes of replies are those of `nfs3_types`.
//! Fields that a hostile request can make long (names, handles, credentials) are read here, where they
//! stay in the request's own bytes and no length is believed.
//!
//! A request that is wrong gets the error that RFC 5531 has for it; one that cannot be answered at all
//! is counted ([`Counters`]) and dropped.

mod arguments;
mod call;
mod directory;
mod reply;
mod store;

pub use call::Silence;
pub use directory::{Directory, SharedDirectory};
pub use store::{Found, Handle, Read, Store};

use arguments::Arguments;
use call::{Call, CallVerdict};
use nfs3_types::{mount, nfs3};
use reply::Reply;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes that a READ returns at most.
pub const MOST_READ: u32 = 8192;

/// NFS's procedures that are served.
const GETATTR: u32 = 1;
const LOOKUP: u32 = 3;
const READ: u32 = 6;
/// The mount protocol's.
const MNT: u32 = 1;
const UMNT: u32 = 3;
/// Does nothing, in every program.
const NULL: u32 = 0;

/// Counters of requests by result.
#[derive(Debug, Default)]
pub struct Counters {
    /// The procedure was carried out; its own result may be an error of the file system.
    pub served: AtomicU64,
    /// An RPC error was the answer.
    pub refused: AtomicU64,
    /// Dropped: shorter than a call's fixed part.
    pub short: AtomicU64,
    /// Dropped: a reply, or nothing known. An answer could go round for ever.
    pub not_calls: AtomicU64,
}

/// The service, over a store of files.
#[derive(Debug)]
pub struct Nfs<S> {
    store: S,
    counters: Arc<Counters>,
    /// Buffer for READ's data, before it is copied into an answer.
    data: Vec<u8>,
}

impl<S: Store> Nfs<S> {
    /// A service that adds to `counters`.
    pub fn new(store: S, counters: Arc<Counters>) -> Self {
        Self { store, counters, data: vec![0; MOST_READ as usize] }
    }

    /// Writes the answer to `request` to the end of `answer`; `false` when there is none.
    pub fn respond(&mut self, request: &[u8], answer: &mut Vec<u8>) -> bool {
        let begin = answer.len();
        let refused = match call::examine(request) {
            CallVerdict::Silent(silence) => {
                self.count(|counters| match silence {
                    Silence::Short => &counters.short,
                    Silence::NotACall => &counters.not_calls,
                });
                return false;
            }
            CallVerdict::Refuse(xid, refusal) => Some((xid, refusal)),
            CallVerdict::Serve(call) => {
                let served = self.serve(&call, &mut Reply::accept(call.xid, answer));
                served.err().map(|refusal| (call.xid, refusal))
            }
        };
        if let Some((xid, refusal)) = refused {
            answer.truncate(begin);
            reply::refuse(xid, refusal, answer);
        }
        self.count(|counters| if refused.is_some() { &counters.refused } else { &counters.served });
        true
    }

    fn count(&self, which: impl FnOnce(&Counters) -> &AtomicU64) {
        // Relaxed: numbers by themselves.
        which(&self.counters).fetch_add(1, Ordering::Relaxed);
    }

    fn serve(&mut self, call: &Call<'_>, reply: &mut Reply<'_>) -> Result<(), call::Refusal> {
        let mut arguments = Arguments::new(call.arguments);
        match (call.program, call.procedure) {
            (nfs3::PROGRAM | mount::PROGRAM, NULL) => arguments.end(),
            (nfs3::PROGRAM, GETATTR) => self.getattr(arguments, reply),
            (nfs3::PROGRAM, LOOKUP) => self.lookup(arguments, reply),
            (nfs3::PROGRAM, READ) => self.read(arguments, reply),
            (mount::PROGRAM, MNT) => self.mount(arguments, reply),
            (mount::PROGRAM, UMNT) => {
                arguments.path()?;
                arguments.end()
            }
            (_, _) => Err(call::Refusal::Procedure),
        }
    }

    fn getattr(&mut self, mut arguments: Arguments<'_>, reply: &mut Reply<'_>) -> Result<(), call::Refusal> {
        let object = arguments.handle()?;
        arguments.end()?;
        match self.store.attributes(object) {
            Ok(obj_attributes) => reply.found(&nfs3::GETATTR3resok { obj_attributes }),
            Err(status) => reply.failed(status, &nfs3_types::xdr_codec::Void),
        }
        Ok(())
    }

    fn lookup(&mut self, mut arguments: Arguments<'_>, reply: &mut Reply<'_>) -> Result<(), call::Refusal> {
        let (directory, name) = (arguments.handle()?, arguments.name()?);
        arguments.end()?;
        match self.store.lookup(directory, name) {
            Ok(Found { handle, attributes, directory }) => reply.found(&nfs3::LOOKUP3resok {
                object: handle.to_nfs(),
                obj_attributes: nfs3::Nfs3Option::Some(attributes),
                dir_attributes: nfs3::Nfs3Option::Some(directory),
            }),
            Err(status) => reply.failed(status, &nfs3::LOOKUP3resfail::default()),
        }
        Ok(())
    }

    fn read(&mut self, mut arguments: Arguments<'_>, reply: &mut Reply<'_>) -> Result<(), call::Refusal> {
        let (file, offset, count) = (arguments.handle()?, arguments.long()?, arguments.word()?);
        arguments.end()?;
        let wanted = count.min(MOST_READ) as usize;
        match self.store.read(file, offset, &mut self.data[..wanted]) {
            Ok(Read { bytes, at_end, attributes }) => {
                let data = &self.data[..bytes.min(wanted)];
                reply.found(&nfs3::READ3resok {
                    file_attributes: nfs3::Nfs3Option::Some(attributes),
                    count: u32::try_from(data.len()).unwrap_or(MOST_READ),
                    eof: at_end,
                    data: nfs3_types::xdr_codec::Opaque::borrowed(data),
                });
            }
            Err(status) => reply.failed(status, &nfs3::READ3resfail::default()),
        }
        Ok(())
    }

    /// The root alone can be mounted: what is served is one directory.
    fn mount(&mut self, mut arguments: Arguments<'_>, reply: &mut Reply<'_>) -> Result<(), call::Refusal> {
        let path = arguments.path()?;
        arguments.end()?;
        if path != b"/" {
            reply.mount(&mount::mountres3::Err(mount::mountstat3::MNT3ERR_NOENT));
            return Ok(());
        }
        let root = self.store.root();
        reply.mount(&mount::mountres3::Ok(mount::mountres3_ok {
            fhandle: mount::fhandle3(root.to_nfs().data),
            auth_flavors: vec![call::AUTH_SYS, call::AUTH_NONE],
        }));
        Ok(())
    }
}
