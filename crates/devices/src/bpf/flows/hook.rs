//! The hook of a program that carries flows: what differs between TCX and XDP.

use crate::bpf::assembler::{Assembler, Helper, Label, Register, Width};
use crate::bpf::window::{COMPLETED_AT, FENCED_AT, OVERRUNS_AT};
use Register::{R1, R7};

/// A hook with the queues of its port. The context is in R6; R9 is an entry wherever one is named. Where nothing else is
/// said, R0 to R5 change and R6 to R9 stay.
pub(crate) trait Hook {
    /// The logarithm of a window's bytes.
    const QUEUE_SHIFT: i32;
    /// Function that writes into a packet: context, offset, source, bytes.
    const STORE: Helper;
    /// True if room for outer headers is behind the frame's Ethernet header, which is to be written anew then.
    const MOVES_ETHERNET: bool;

    /// Jumps to `examined` for a frame that nobody has sent: it does not come from the interface. R0 changes.
    fn if_examined(&self, program: &mut Assembler, examined: Label);

    /// Begins to look at a frame; jumps to `rest` for one that the program cannot change.
    fn begin(&self, program: &mut Assembler, rest: Label);

    /// Puts the beginning of the frame into R2 and the end of what may be read into R3.
    fn frame(&self, program: &mut Assembler);

    /// The same; headers are there, if the frame has them.
    fn headers(&self, program: &mut Assembler);

    /// Puts the VLAN of the tag of the frame at R2 into R8 as a key has it. R2 moves, so that the network header is
    /// [`ETHERNET`](crate::bpf::classify::ETHERNET) behind it, and the beginning of the frame is in R7 from then on. Jumps
    /// to `priority` for frames with a priority alone, R8 being 0, and to `rest` for those with a tag of another kind or a
    /// second one. R3 stays.
    fn tag(&self, program: &mut Assembler, priority: Label, rest: Label);

    /// The same as [`headers`](Self::headers), with R2 moved as by [`tag`](Self::tag), which was called before.
    fn network(&self, program: &mut Assembler);

    /// Puts a number that is not 0 into R5 if the frame came with a tag.
    fn has_tag(&self, program: &mut Assembler);

    /// Adds the bytes of a tag that stands in the frame to an offset behind it.
    fn behind_tag(&self, program: &mut Assembler, offset: Register);

    /// Jumps to `rest` for a frame with a tag, or one that is not for this station. The frame is at R2, which stays, as
    /// R3 does.
    fn is_for_host(&self, program: &mut Assembler, rest: Label);

    /// Puts the length of the frame without its tag into `to`, as it came in. All other registers stay.
    fn length(&self, program: &mut Assembler, to: Register);

    /// Puts the bytes of each segment of a frame that is to be cut into `to`, and 0 for one that is not.
    fn segment(&self, program: &mut Assembler, to: Register);

    /// Jumps to `up` for a packet whose checksum may not be computed yet although nothing but its bytes can say so.
    /// R7 and R8 change.
    fn has_checksum(&self, program: &mut Assembler, up: Label);

    /// The same of a packet in a tunnel; its network header is [`ETHERNET`](crate::bpf::classify::ETHERNET) behind R2. R2
    /// and R3 stay, R7 and R8 change.
    fn has_inner_checksum(&self, program: &mut Assembler, up: Label);

    /// Jumps to `rest` for a packet that does not fit the entry's link. Its length is in R8.
    fn fits(&self, program: &mut Assembler, rest: Label);

    /// Gives the packet the tag with which it leaves. Jumps to `lose` if the kernel refuses.
    fn change_tag(&self, program: &mut Assembler, lose: Label);

    /// Makes room for the entry's outer headers, and takes the tag off that the frame came with.
    fn make_room(&self, program: &mut Assembler, lose: Label);

    /// Takes off outer headers: their bytes and the flags that undo room for them are at these places of the stack.
    fn take_off(&self, program: &mut Assembler, stack: [i16; 2], lose: Label);

    /// Puts the queue that the packet's flow keeps into R0, as the offset of its window; jumps to `drop` for no queue.
    /// R7 to R9 stay.
    fn queue(&self, program: &mut Assembler, drop: Label);

    /// Puts the windows of all queues into R7.
    fn windows(&self, program: &mut Assembler);

    /// Puts the number of packets that the worker is through with, of the window at R7, into `to`.
    fn completed(&self, program: &mut Assembler, to: Register) {
        program.load(Width::Double, to, R7, COMPLETED_AT);
    }

    /// Bytes of a window.
    fn window_bytes(&self) -> u32;

    /// Puts the packet's charge in a window into `to`; all other registers stay.
    fn charge(&self, program: &mut Assembler, to: Register);

    /// Puts the number of packets that arrive in user space of this one into R1. R2 to R5 change.
    fn pieces(&self, program: &mut Assembler) {
        program.set(R1, 1);
    }

    /// Puts the number of packets that this one is on a link into R1. All other registers stay.
    fn wire_packets(&self, program: &mut Assembler) {
        program.set(R1, 1);
    }

    /// Sends the packet up, and ends the program.
    fn up(&self, program: &mut Assembler);

    /// Drops the packet, counted as `fence` in the window at R7, and ends the program.
    fn fence(&self, program: &mut Assembler) {
        self.wire_packets(program);
        program.count(R7, FENCED_AT, R1);
        self.discard(program);
    }

    /// Drops the packet, counted as overrun in the window at R7, and ends the program.
    fn lose(&self, program: &mut Assembler) {
        self.wire_packets(program);
        program.count(R7, OVERRUNS_AT, R1);
        self.discard(program);
    }

    /// Drops the packet, and ends the program.
    fn discard(&self, program: &mut Assembler);
}
