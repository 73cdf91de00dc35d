//! Chains beside a plain vector of bytes, over random histories.

use polder_buffers::{FragmentMemory, FragmentOptions, NoRoom, Packet, Pool, Region, RegionOptions, Tail};
use proptest::prelude::*;

const SLOTS: u32 = 64;

#[derive(Clone, Debug)]
enum Step {
    Prepend(Vec<u8>),
    Append(Vec<u8>),
    Extend(Vec<u8>),
    TrimFront(u16),
    Truncate(usize),
    Gather(u16),
    Split(usize),
    Join,
    Attach,
    Duplicate,
    Share(u16),
    Write(u8),
    Other,
    Release,
    Drop,
}

fn bytes(most: usize) -> impl Strategy<Value = Vec<u8>> {
    proptest::collection::vec(any::<u8>(), 0..most)
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        bytes(80).prop_map(Step::Prepend),
        bytes(300).prop_map(Step::Append),
        bytes(1800).prop_map(Step::Extend),
        (0_u16..600).prop_map(Step::TrimFront),
        (0_usize..3000).prop_map(Step::Truncate),
        (0_u16..600).prop_map(Step::Gather),
        (0_usize..3000).prop_map(Step::Split),
        Just(Step::Join),
        Just(Step::Attach),
        Just(Step::Duplicate),
        (0_u16..300).prop_map(Step::Share),
        (0_u16..300).prop_map(Step::Share),
        any::<u8>().prop_map(Step::Write),
        Just(Step::Other),
        Just(Step::Release),
        Just(Step::Drop),
    ]
}

fn content(packet: &Packet) -> Vec<u8> {
    packet.segments().flatten().copied().collect()
}

fn length_of(bytes: &[u8]) -> u16 {
    u16::try_from(bytes.len()).expect("test data is short")
}

/// The packets under test and their expected content; the last one is worked on.
struct World {
    pool: Pool,
    packets: Vec<(Packet, Vec<u8>)>,
    /// Frames that were dropped instead of released.
    dropped: u64,
}

impl World {
    fn apply(&mut self, step: Step) {
        let (packet, model) = self.packets.last_mut().expect("there is always one");
        match step {
            Step::Prepend(new) => match packet.prepend(length_of(&new)) {
                Ok(room) => {
                    room.copy_from_slice(&new);
                    model.splice(0..0, new);
                }
                Err(error) => assert!(error == NoRoom::Front && usize::from(packet.headroom()) < new.len()),
            },
            Step::Append(new) => match packet.append(length_of(&new)) {
                Ok(room) => {
                    room.copy_from_slice(&new);
                    model.extend(new);
                }
                Err(_) => assert!(!packet.is_contiguous() || packet.tailroom() < new.len()),
            },
            Step::Extend(new) => match packet.extend_from(&new, &mut self.pool) {
                Ok(()) => model.extend(new),
                Err(_) => *model = content(packet),
            },
            Step::TrimFront(count) => match packet.trim_front(count) {
                Ok(()) => drop(model.drain(..usize::from(count))),
                Err(_) => assert!(packet.bytes().len() < usize::from(count)),
            },
            Step::Truncate(length) => match packet.truncate(length, &mut self.pool) {
                Ok(()) => model.truncate(length),
                Err(_) => assert!(model.len() < length),
            },
            Step::Gather(length) => {
                if packet.gather(length, &mut self.pool).is_ok() {
                    assert!(packet.bytes().len() >= usize::from(length));
                }
            }
            Step::Write(value) => {
                packet.bytes_mut().fill(value);
                let count = packet.bytes().len();
                model[..count].fill(value);
            }
            Step::Split(_)
            | Step::Join
            | Step::Attach
            | Step::Duplicate
            | Step::Share(_)
            | Step::Other
            | Step::Release
            | Step::Drop => self.apply_to_several(step),
        }
    }

    /// Applies a step that adds packets, removes packets, or works on another one.
    fn apply_to_several(&mut self, step: Step) {
        let is_only = self.packets.len() == 1;
        let (packet, model) = self.packets.last_mut().expect("there is always one");
        match step {
            Step::Split(at) => {
                if let Ok(after) = packet.split_off(at, &mut self.pool) {
                    let rest = model.split_off(at);
                    self.packets.push((after, rest));
                }
            }
            Step::Share(own) => {
                if let Some(other) = packet.share(own, &mut self.pool) {
                    assert!(packet.bytes().len() <= usize::from(own) && other.bytes() == packet.bytes());
                    let model = model.clone();
                    self.packets.push((other, model));
                }
            }
            Step::Other => self.packets.rotate_left(1),
            Step::Join => self.join(),
            Step::Attach => self.attach(),
            Step::Release | Step::Drop if is_only => {}
            Step::Release => {
                let (packet, _) = self.packets.pop().expect("more than one");
                self.pool.release_packet(packet);
            }
            Step::Drop => {
                let (packet, _) = self.packets.pop().expect("more than one");
                self.dropped += packet.segment_count() as u64;
            }
            Step::Duplicate => {
                if let Some(copy) = packet.duplicate(&mut self.pool) {
                    let model = model.clone();
                    self.packets.push((copy, model));
                }
            }
            Step::Prepend(_)
            | Step::Append(_)
            | Step::Extend(_)
            | Step::TrimFront(_)
            | Step::Truncate(_)
            | Step::Gather(_)
            | Step::Write(_) => unreachable!("works on one packet"),
        }
    }

    /// The last two packets become the end of the one before them.
    fn attach(&mut self) {
        if self.packets.len() < 3 {
            return;
        }
        let (mut tail, mut models) = (Tail::default(), Vec::new());
        assert!(tail.is_empty());
        for (packet, model) in self.packets.drain(self.packets.len() - 2..).rev() {
            tail.prepend(packet);
            models.insert(0, model);
        }
        let (packet, model) = self.packets.last_mut().expect("there were three");
        packet.attach(tail);
        model.extend(models.concat());
    }

    fn join(&mut self) {
        if self.packets.len() < 2 {
            return;
        }
        let (tail, tail_model) = self.packets.pop().expect("two packets");
        let (head, head_model) = self.packets.last_mut().expect("one packet");
        head.join(tail);
        head_model.extend(tail_model);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn a_chain_is_a_vector_of_bytes(
        steps in proptest::collection::vec(step(), 1..60),
        has_fragments in any::<bool>(),
    ) {
        let region = Region::new(RegionOptions { slots: SLOTS, slot_bytes: 512 }).expect("memory for a test");
        let options = FragmentOptions { blocks: 2, spare_pages: 1, ..FragmentOptions::default() };
        let memory = FragmentMemory::new(options).expect("memory for a test");
        let mut pool = region.pool();
        if has_fragments {
            pool = pool.with_fragments(memory.fragments());
        }
        let first = Packet::new(pool.take().expect("a slot is free"));
        let mut world = World { pool, packets: vec![(first, Vec::new())], dropped: 0 };
        for step in steps {
            world.apply(step);
            for (packet, model) in &world.packets {
                prop_assert_eq!(&content(packet), model);
                prop_assert_eq!(packet.len(), model.len());
                let mut copied = vec![0; 700];
                let count = packet.copy_out(100, &mut copied);
                prop_assert_eq!(&copied[..count], model.iter().skip(100).take(700).copied().collect::<Vec<_>>());
            }
        }
        let World { mut pool, packets, dropped } = world;
        for (packet, _) in packets {
            pool.release_packet(packet);
        }
        drop(pool);
        prop_assert_eq!((region.free_slots(), region.late_frees() + memory.late_frees()), (SLOTS, dropped));
        prop_assert!(memory.is_home(), "{:?}", memory);
    }
}
