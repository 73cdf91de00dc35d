//! Segments of TCP: how a connection begins and ends, and what no end would send.

use super::super::connection::opposite;
use super::super::packet::{ACK, FIN, Odd, PSH, SHIFT, SYN, Segment, Transport, WINDOW_BYTES};
use super::super::steps::{Forged, Sender};
use super::Run;

impl Run<'_> {
    /// SYN, and the rest of the handshake.
    pub(super) fn syn(&mut self, of: usize, is_answered: bool) -> anyhow::Result<()> {
        let Some(index) = self.index(of) else { return Ok(()) };
        let connection = &mut self.connections[index];
        if connection.transport == Transport::Udp {
            return Ok(());
        }
        if connection.has_ended.iter().all(|&has| has) {
            connection.next = connection.next.map(|next| next.wrapping_add(0x0200_0000));
        }
        let options = vec![2, 4, 5, 0xb4, 1, 3, 3, SHIFT];
        // A kernel may choose another port for a connection that begins anew.
        connection.far = None;
        let handshake = [(Sender::Client, SYN), (Sender::Server, SYN | ACK), (Sender::Client, ACK)];
        let count = if is_answered { 3 } else { 1 };
        if is_answered {
            let near = connection.near;
            // Both ends have forgotten a connection with the same addresses and ports.
            for other in self.connections.iter_mut().filter(|other| other.near == near) {
                other.has_ended = [true; 2];
            }
            self.connections[index].has_ended = [false; 2];
        }
        for (from, flags) in handshake.into_iter().take(count) {
            let begins = flags & SYN != 0;
            self.of_tcp((index, from), |own, other| Segment {
                sequence: own,
                acknowledgement: if flags & ACK == 0 { 0 } else { other },
                flags,
                // A SYN has no shift.
                window: if begins { WINDOW_BYTES } else { Segment::default().window },
                options: if begins { options.clone() } else { Vec::new() },
            })?;
            if !is_answered {
                continue;
            }
            let connection = &mut self.connections[index];
            if begins && !self.has_arrived {
                connection.has_ended = [true; 2];
                return Ok(());
            }
            let next = &mut connection.next[from as usize];
            *next = next.wrapping_add(u32::from(begins));
            connection.acknowledged = connection.next;
        }
        Ok(())
    }

    /// An end acknowledges all that has come.
    pub(super) fn acknowledge(&mut self, (index, from): (usize, Sender)) -> anyhow::Result<()> {
        self.of_tcp((index, from), |own, other| Segment {
            sequence: own,
            acknowledgement: other,
            flags: ACK,
            ..Segment::default()
        })?;
        let connection = &mut self.connections[index];
        if self.has_arrived {
            connection.acknowledged[1 - from as usize] = connection.next[1 - from as usize];
        }
        Ok(())
    }

    pub(super) fn fin(&mut self, of: usize, from: Sender) -> anyhow::Result<()> {
        let Some(index) = self.index(of) else { return Ok(()) };
        if self.connections[index].has_ended[from as usize] {
            return Ok(());
        }
        self.of_tcp((index, from), |own, other| Segment {
            sequence: own,
            acknowledgement: other,
            flags: FIN | ACK,
            ..Segment::default()
        })?;
        if !self.has_arrived {
            return Ok(());
        }
        let connection = &mut self.connections[index];
        connection.next[from as usize] = connection.next[from as usize].wrapping_add(1);
        self.end((index, from), false);
        self.acknowledge((index, opposite(from)))
    }

    pub(super) fn end(&mut self, (of, from): (usize, Sender), is_whole: bool) {
        let Some(index) = self.index(of) else { return };
        let connection = &mut self.connections[index];
        connection.has_ended[from as usize] = true;
        connection.has_ended[1 - from as usize] |= is_whole;
    }

    pub(super) fn forge(&mut self, (of, from): (usize, Sender), forged: Forged) -> anyhow::Result<()> {
        let Some(index) = self.index(of) else { return Ok(()) };
        let connection = &self.connections[index];
        if connection.transport == Transport::Udp {
            return Ok(());
        }
        let (segment, bytes, name) = connection.forge(from, forged);
        self.send((index, from), Some(&segment), (bytes, Odd::Plain), name)
    }

    /// The other end advertises the largest window, and this end sends a segment far within it.
    pub(super) fn leap(&mut self, (of, from): (usize, Sender)) -> anyhow::Result<()> {
        let Some(index) = self.index(of) else { return Ok(()) };
        self.of_tcp((index, opposite(from)), |own, other| Segment {
            sequence: own,
            acknowledgement: other,
            flags: ACK,
            window: u16::MAX,
            ..Segment::default()
        })?;
        let connection = &mut self.connections[index];
        let next = &mut connection.next[from as usize];
        *next = next.wrapping_add(LEAP);
        // The judge counts the data in between as acknowledged: the window has room for it.
        connection.acknowledged[from as usize] = *next;
        self.data((index, from), 10, Odd::Plain)
    }

    /// Sends a segment although its end has ended.
    pub(super) fn late(&mut self, of: (usize, Sender)) -> anyhow::Result<()> {
        self.of_tcp(of, |own, other| Segment {
            sequence: own,
            acknowledgement: other,
            flags: ACK | PSH,
            ..Segment::default()
        })
    }

    /// Sends a segment, unless the connection is of another protocol.
    pub(super) fn of_tcp(
        &mut self,
        (of, from): (usize, Sender),
        segment: impl FnOnce(u32, u32) -> Segment,
    ) -> anyhow::Result<()> {
        let Some(index) = self.index(of) else { return Ok(()) };
        let connection = &self.connections[index];
        if connection.transport == Transport::Udp {
            return Ok(());
        }
        let segment = segment(connection.next[from as usize], connection.next[1 - from as usize]);
        self.send((index, from), Some(&segment), (0, Odd::Plain), None)
    }
}

/// Distance of a leap: less than the largest window, 2^30 bytes; three leaps are more than half of the sequence space.
const LEAP: u32 = 0x3000_0000;
