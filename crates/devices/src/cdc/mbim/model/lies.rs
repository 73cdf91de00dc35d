//! Answers that are wrong on purpose.

use super::answers::Answer;
use super::message::{COMMAND, DONE, bytes_of, narrow};
use super::{Modem, ModemFault};

impl ModemFault {
    /// All faults.
    pub const ALL: [Self; 23] = [
        Self::OpenFails,
        Self::Forgets,
        Self::Silent,
        Self::NoNotification,
        Self::OtherTransaction,
        Self::OtherService,
        Self::OtherCommand,
        Self::LongerThanItIs,
        Self::Cut,
        Self::InformationBeyond,
        Self::FragmentMissing,
        Self::FragmentsSwapped,
        Self::FragmentCount,
        Self::Twice,
        Self::Outside,
        Self::NotText,
        Self::ManyAddresses,
        Self::LongPrefix,
        Self::OtherSession,
        Self::NoConnection,
        Self::NotActive,
        Self::Denied,
        Self::TinyMtu,
    ];
}

impl Modem {
    /// Queues the answer to a command, with the active faults applied.
    pub(super) fn answer(&mut self, transaction: u32, (service, id): ([u8; 16], u32), answer: Answer) {
        if self.lies(ModemFault::Silent) {
            return;
        }
        let Answer { mut status, mut information } = answer;
        self.bend_information(id, &mut status, &mut information);
        let mut service = service;
        if self.lies(ModemFault::OtherService) {
            service[0] ^= 0xff;
        }
        let id = id + u32::from(self.lies(ModemFault::OtherCommand));
        let claimed = information.len() + 4 * usize::from(self.lies(ModemFault::InformationBeyond));
        let mut body = service.to_vec();
        body.extend(bytes_of(&[id, status, narrow(claimed)]));
        body.extend(information);
        let transaction = transaction.wrapping_add(u32::from(self.lies(ModemFault::OtherTransaction)));
        for _ in 0..if self.lies(ModemFault::Twice) { 2 } else { 1 } {
            self.push_fragments(COMMAND + DONE, transaction, &body);
        }
    }

    /// Applies faults to the information of an answer.
    fn bend_information(&self, id: u32, status: &mut u32, information: &mut [u8]) {
        let mut set = |at: usize, value: u32| {
            if let Some(four) = information.get_mut(at..at + 4) {
                four.copy_from_slice(&value.to_le_bytes());
            }
        };
        if self.lies(ModemFault::Outside) {
            match id {
                1 => set(40, 0xffff_fff0),
                9 => set(28, 0xffff_fff0),
                15 => set(16, 0xffff_fff0),
                _ => {}
            }
        }
        match id {
            12 if self.lies(ModemFault::NoConnection) => *status = 2,
            12 if self.lies(ModemFault::OtherSession) => set(0, 9),
            12 if self.lies(ModemFault::NotActive) => set(4, 3),
            9 if self.lies(ModemFault::Denied) => set(4, 6),
            15 if self.lies(ModemFault::ManyAddresses) => set(12, 100_000),
            15 if self.lies(ModemFault::LongPrefix) => set(60, 99),
            15 if self.lies(ModemFault::TinyMtu) => set(52, 1),
            _ => {}
        }
        if self.lies(ModemFault::NotText) && matches!(id, 1 | 9) {
            // An unpaired surrogate.
            let from = information.len().min(if id == 1 { 64 } else { 48 });
            information[from..].fill(0xd8);
        }
    }

    /// Applies faults to the fragments of a message.
    pub(super) fn bend_fragments(&self, mut all: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
        let count = all.len();
        if self.lies(ModemFault::FragmentMissing) {
            all.pop();
        }
        if self.lies(ModemFault::FragmentsSwapped) && count > 1 {
            all.swap(0, 1);
        }
        for message in &mut all {
            if self.lies(ModemFault::FragmentCount) {
                message[12] = message[12].wrapping_add(1);
            }
            if self.lies(ModemFault::LongerThanItIs) {
                message[4] = message[4].wrapping_add(4);
            }
            if self.lies(ModemFault::Cut) {
                message.truncate(message.len() / 2);
            }
        }
        all
    }
}
