//! Replies (RFC 5531, section 9), in the shapes of `nfs3_types`.

use super::call::Refusal;
use nfs3_types::mount::mountres3;
use nfs3_types::nfs3::nfsstat3;
use nfs3_types::rpc::{
    RPC_VERSION_2, accept_stat_data, accepted_reply, msg_body, opaque_auth, rejected_reply, reply_body,
    rpc_msg,
};
use nfs3_types::xdr_codec::Pack;

/// An accepted call's reply, to be continued with the procedure's result.
#[derive(Debug)]
pub(super) struct Reply<'a>(&'a mut Vec<u8>);

impl<'a> Reply<'a> {
    /// Begins a reply that says that the procedure was carried out.
    pub(super) fn accept(xid: u32, answer: &'a mut Vec<u8>) -> Self {
        write(&accepted(xid, accept_stat_data::SUCCESS), answer);
        Self(answer)
    }

    /// The procedure's result.
    pub(super) fn found(&mut self, result: &impl Pack) {
        self.failed(nfsstat3::NFS3_OK, result);
    }

    /// Error status of the file system, with the attributes of its reply.
    pub(super) fn failed(&mut self, status: nfsstat3, rest: &impl Pack) {
        write(&status, self.0);
        write(rest, self.0);
    }

    /// Writes the result of MNT.
    pub(super) fn mount(&mut self, result: &mountres3<'_>) {
        write(result, self.0);
    }
}

/// Says why a call was not carried out.
pub(super) fn refuse(xid: u32, refusal: Refusal, answer: &mut Vec<u8>) {
    let denied = |reply| rpc_msg { xid, body: msg_body::REPLY(reply_body::MSG_DENIED(reply)) };
    let message = match refusal {
        Refusal::RpcVersion => denied(rejected_reply::rpc_mismatch(RPC_VERSION_2, RPC_VERSION_2)),
        Refusal::Auth(status) => denied(rejected_reply::auth_error(status)),
        Refusal::Program => accepted(xid, accept_stat_data::PROG_UNAVAIL),
        Refusal::ProgramVersion(version) => {
            accepted(xid, accept_stat_data::PROG_MISMATCH { low: version, high: version })
        }
        Refusal::Procedure => accepted(xid, accept_stat_data::PROC_UNAVAIL),
        Refusal::Arguments => accepted(xid, accept_stat_data::GARBAGE_ARGS),
    };
    write(&message, answer);
}

fn accepted(xid: u32, reply_data: accept_stat_data) -> rpc_msg<'static, 'static> {
    let reply = accepted_reply { verf: opaque_auth::default(), reply_data };
    rpc_msg { xid, body: msg_body::REPLY(reply_body::MSG_ACCEPTED(reply)) }
}

fn write(item: &impl Pack, answer: &mut Vec<u8>) {
    item.pack(answer).expect("memory takes all that is written, and lengths are below 2^32");
}
