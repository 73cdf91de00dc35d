//! A service over a socket of the kernel: one thread that receives, answers and sends.

use super::{ASK, END, Options, READY, say};
use crate::topology::pin_here;
use anyhow::Context as _;
use std::net::UdpSocket;

pub(super) fn serve(options: &Options) -> anyhow::Result<()> {
    let socket = UdpSocket::bind(options.address).context("cannot bind a socket")?;
    let (core, mut maker) = (options.core, options.maker()?);
    std::thread::Builder::new().name("worker-0".to_owned()).spawn(move || {
        if pin_here(core).is_err() {
            return;
        }
        let mut service = maker();
        say(READY);
        let (mut request, mut answer) = ([0; 65_536], Vec::new());
        while let Ok((length, peer)) = socket.recv_from(&mut request) {
            answer.clear();
            if service.answer(&request[..length], &mut answer) {
                // What the kernel does not take is lost, as on any socket.
                let _ = socket.send_to(&answer, peer);
            }
        }
    })?;
    for line in std::io::stdin().lines() {
        if line? == ASK {
            say(END);
        }
    }
    Ok(())
}
