//! The hook of a program that carries flows: the differences between TCX and XDP.

use crate::bpf::assembler::{Assembler, Helper, Label, Register, Width};
use crate::bpf::window::{COMPLETED_AT, FENCED_AT, OVERRUNS_AT};
use Register::{R1, R7};

/// A hook with the queues of its port. The context is in R6; an entry, where one is mentioned, is in R9.
/// Unless noted, R0 to R5 change and R6 to R9 are kept.
pub(crate) trait Hook {
    /// Binary logarithm of the bytes of a queue's window words.
    const QUEUE_SHIFT: i32;
    /// Helper that writes into a packet: context, offset, source, bytes.
    const STORE: Helper;
    /// True if room for outer headers is made after the frame's Ethernet header, which then has to be
    /// rewritten.
    const MOVES_ETHERNET: bool;

    /// Jumps to `examined` for a frame of a test run, which no interface has received. R0 changes.
    fn if_examined(&self, program: &mut Assembler, examined: Label);

    /// Starts to read a frame; jumps to `rest` if the program cannot change it.
    fn begin(&self, program: &mut Assembler, rest: Label);

    /// Puts the start of the frame into R2 and the end of its readable bytes into R3.
    fn frame(&self, program: &mut Assembler);

    /// Like `frame`, and makes the headers readable, if the frame has them.
    fn headers(&self, program: &mut Assembler);

    /// True if frames arrive with their Ethernet header. Without one, packets are read as if the header stood
    /// before them: the start of a frame is a register that points before the packet, and no byte of the header
    /// may be loaded.
    fn has_ethernet(&self) -> bool {
        true
    }

    /// Puts the EtherType of the frame at `frame`, or behind its tag, into `to`. All other registers are kept.
    fn ether_type(&self, program: &mut Assembler, frame: Register, to: Register) {
        program.load(Width::Half, to, frame, 12);
    }

    /// Puts the first four bytes of the destination address of the frame at R7 into `first`, and its last two
    /// bytes into `last`. All other registers are kept.
    fn station(&self, program: &mut Assembler, [first, last]: [Register; 2]) {
        program.load(Width::Word, first, R7, 0);
        program.load(Width::Half, last, R7, 4);
    }

    /// Puts an Ethernet header before a packet that arrived without one; jumps to `lose` if the kernel refuses.
    /// [`length`](Self::length) is wrong from here on.
    fn add_ethernet(&self, _: &mut Assembler, _: Label) {}

    /// Puts the VLAN of the tag of the frame at R2 into R8 in the form of a key. Moves R2 so that the network
    /// header is [`ETHERNET`](crate::bpf::classify::ETHERNET) bytes after it; R7 has the start of the frame
    /// from here on. Jumps to `priority` for frames with a priority tag, with R8 0, and to `rest` for those
    /// with another kind of tag or a second tag. R3 is kept.
    fn tag(&self, program: &mut Assembler, priority: Label, rest: Label);

    /// Like [`headers`](Self::headers), with R2 moved as by [`tag`](Self::tag), which was called before.
    fn network(&self, program: &mut Assembler);

    /// Sets R5 to a value other than 0 if the frame arrived with a tag.
    fn has_tag(&self, program: &mut Assembler);

    /// Adds the bytes of a tag that is in the frame to an offset behind it.
    fn behind_tag(&self, program: &mut Assembler, offset: Register);

    /// Jumps to `rest` for a frame with a tag, or to another MAC address than the port's. The frame is at R2;
    /// R2 and R3 are kept.
    fn is_for_host(&self, program: &mut Assembler, rest: Label);

    /// Puts the received length of the frame, without its tag, into `to`. All other registers are kept.
    fn length(&self, program: &mut Assembler, to: Register);

    /// Puts the bytes per segment of a super-packet into `to`; 0 for another frame.
    fn segment(&self, program: &mut Assembler, to: Register);

    /// Jumps to `up` for a packet whose checksum may still have to be computed, where no metadata tells. R7
    /// and R8 change.
    fn has_checksum(&self, program: &mut Assembler, up: Label);

    /// Like `has_checksum`, for an inner packet; its network header is
    /// [`ETHERNET`](crate::bpf::classify::ETHERNET) bytes after R2. R2 and R3 are kept, R7 and R8 change.
    fn has_inner_checksum(&self, program: &mut Assembler, up: Label);

    /// Jumps to `rest` for a packet that does not fit the entry's link. Its length is in R8.
    fn fits(&self, program: &mut Assembler, rest: Label);

    /// Changes the packet's tag as on egress. Jumps to `lose` if the kernel refuses.
    fn change_tag(&self, program: &mut Assembler, lose: Label);

    /// Makes room for the entry's outer headers, and removes the frame's tag.
    fn make_room(&self, program: &mut Assembler, lose: Label);

    /// Removes outer headers; the two stack offsets hold their length, and the flags that undo the room for
    /// them.
    fn take_off(&self, program: &mut Assembler, stack: [i16; 2], lose: Label);

    /// Puts the queue of the packet's flow into R0, as the offset of its window; jumps to `drop` for no
    /// queue. R7 to R9 are kept.
    fn queue(&self, program: &mut Assembler, drop: Label);

    /// Puts the windows of all queues into R7.
    fn windows(&self, program: &mut Assembler);

    /// Puts the number of packets that the worker has completed in the window at R7 into `to`.
    fn completed(&self, program: &mut Assembler, to: Register) {
        program.load(Width::Double, to, R7, COMPLETED_AT);
    }

    /// Returns the bytes of a window.
    fn window_bytes(&self) -> u32;

    /// Puts the packet's charge in a window into `to`; all other registers are kept.
    fn charge(&self, program: &mut Assembler, to: Register);

    /// Puts the number of packets that user space will receive for this one into R1. R2 to R5 change.
    fn pieces(&self, program: &mut Assembler) {
        program.set(R1, 1);
    }

    /// Puts the number of packets that this one is on a link into R1. All other registers are kept.
    fn wire_packets(&self, program: &mut Assembler) {
        program.set(R1, 1);
    }

    /// Sends the packet to user space, and ends the program.
    fn up(&self, program: &mut Assembler);

    /// Drops the packet, counts it as `fence` in the window at R7, and ends the program.
    fn fence(&self, program: &mut Assembler) {
        self.wire_packets(program);
        program.count(R7, FENCED_AT, R1);
        self.discard(program);
    }

    /// Drops the packet, counts it as overrun in the window at R7, and ends the program.
    fn lose(&self, program: &mut Assembler) {
        self.wire_packets(program);
        program.count(R7, OVERRUNS_AT, R1);
        self.discard(program);
    }

    /// Drops the packet, and ends the program.
    fn discard(&self, program: &mut Assembler);
}
