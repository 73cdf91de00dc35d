//! The call's header (RFC 5531, sections 9 and 10): who asks for what, or what is wrong with it.

use super::arguments::Arguments;
use nfs3_types::rpc::auth_stat;
use nfs3_types::{mount, nfs3, rpc};

/// Accepted flavors of credentials; no identity grants more than read access for everybody.
pub(super) const AUTH_NONE: u32 = 0;
pub(super) const AUTH_SYS: u32 = 1;
/// Bytes of a credential or a verifier (RFC 5531, 8.2).
const MOST_AUTH: usize = 400;
/// Bytes of a machine's name, and groups, in a credential (RFC 5531, appendix A).
const MOST_MACHINE: usize = 255;
const MOST_GROUPS: u32 = 16;
/// The message's kind.
const CALL: u32 = 0;
/// Both programs are served in this version.
const VERSION: u32 = 3;
const _: () = assert!(nfs3::VERSION == VERSION && mount::VERSION == VERSION);

/// Reason why a request has no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Silence {
    /// The request ends before the procedure's number.
    Short,
    /// The message is a reply, or of no known kind.
    NotACall,
}

/// Reason why a procedure is not carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// Another version of RPC than 2.
    RpcVersion,
    /// Credentials or verifier.
    Auth(auth_stat),
    /// Neither NFS nor mount.
    Program,
    /// Another version of the program than this.
    ProgramVersion(u32),
    /// A procedure that is not served.
    Procedure,
    /// Arguments that cannot be read.
    Arguments,
}

/// A call whose header is in order.
#[derive(Clone, Copy, Debug)]
pub(super) struct Call<'a> {
    pub(super) xid: u32,
    pub(super) program: u32,
    pub(super) procedure: u32,
    pub(super) arguments: &'a [u8],
}

/// Verdict on a request.
#[derive(Clone, Copy, Debug)]
pub(super) enum CallVerdict<'a> {
    Serve(Call<'a>),
    Refuse(u32, Refusal),
    Silent(Silence),
}

/// Parses a request, with the errors in the order of RFC 5531.
pub(super) fn examine(request: &[u8]) -> CallVerdict<'_> {
    let mut rest = Arguments::new(request);
    let (Ok(xid), Ok(kind)) = (rest.word(), rest.word()) else { return CallVerdict::Silent(Silence::Short) };
    if kind != CALL {
        return CallVerdict::Silent(Silence::NotACall);
    }
    let Ok(version) = rest.word() else { return CallVerdict::Silent(Silence::Short) };
    if version != rpc::RPC_VERSION_2 {
        return CallVerdict::Refuse(xid, Refusal::RpcVersion);
    }
    let (Ok(program), Ok(version), Ok(procedure)) = (rest.word(), rest.word(), rest.word()) else {
        return CallVerdict::Silent(Silence::Short);
    };
    let served = authenticate(&mut rest).and_then(|()| available(program, version));
    match served {
        Ok(()) => CallVerdict::Serve(Call { xid, program, procedure, arguments: rest.rest() }),
        Err(refusal) => CallVerdict::Refuse(xid, refusal),
    }
}

fn available(program: u32, version: u32) -> Result<(), Refusal> {
    match (program, version) {
        (nfs3::PROGRAM | mount::PROGRAM, VERSION) => Ok(()),
        (nfs3::PROGRAM | mount::PROGRAM, _) => Err(Refusal::ProgramVersion(VERSION)),
        (_, _) => Err(Refusal::Program),
    }
}

/// Credentials of no kind or of AUTH_SYS, well formed, and a verifier that is none.
fn authenticate(rest: &mut Arguments<'_>) -> Result<(), Refusal> {
    let bad = Refusal::Auth(auth_stat::AUTH_BADCRED);
    let flavor = rest.word().map_err(|_| bad)?;
    let credential = rest.opaque(MOST_AUTH).map_err(|_| bad)?;
    match flavor {
        AUTH_NONE => {}
        AUTH_SYS => system(Arguments::new(credential)).map_err(|_| bad)?,
        _ => return Err(Refusal::Auth(auth_stat::AUTH_REJECTEDCRED)),
    }
    let bad = Refusal::Auth(auth_stat::AUTH_BADVERF);
    let flavor = rest.word().map_err(|_| bad)?;
    let verifier = rest.opaque(MOST_AUTH).map_err(|_| bad)?;
    if flavor == AUTH_NONE && verifier.is_empty() { Ok(()) } else { Err(bad) }
}

/// Reads the credential of AUTH_SYS for its form alone.
fn system(mut credential: Arguments<'_>) -> Result<(), Refusal> {
    let _stamp = credential.word()?;
    credential.opaque(MOST_MACHINE)?;
    let _user_and_group = (credential.word()?, credential.word()?);
    let groups = credential.word()?;
    if groups > MOST_GROUPS {
        return Err(Refusal::Arguments);
    }
    for _ in 0..groups {
        credential.word()?;
    }
    credential.end()
}
