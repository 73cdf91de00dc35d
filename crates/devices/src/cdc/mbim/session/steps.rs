//! Steps of the dialogue: the request of each, and the next step after an answer or a refusal.

use super::*;

impl Session {
    /// Returns the request of the step, and its time limit; `None` if the step has none.
    pub(super) fn request(&self) -> Option<(Request, Nanos)> {
        let ask = |id: u32, information: Vec<u8>| {
            (Request::Command(Command { service: BASIC_CONNECT, id, sets: false, information }), DEADLINE)
        };
        let set = |id: u32, information: Vec<u8>| {
            let command = Command { service: BASIC_CONNECT, id, sets: true, information };
            (Request::Command(command), NETWORK_DEADLINE)
        };
        let session = |place: usize| self.wanted.sessions.get(place);
        Some(match self.state.step {
            Step::Open => (Request::Open(u32::try_from(self.limit).unwrap_or(u32::MAX)), DEADLINE),
            Step::Caps => ask(command::DEVICE_CAPS, Vec::new()),
            Step::Ready => ask(command::SUBSCRIBER_READY, Vec::new()),
            Step::Pin => {
                let pin = self.wanted.pin.as_deref()?;
                set(command::PIN, Writer::default().word(PIN_1).word(0).string(pin).string("").end())
            }
            Step::Radio => ask(command::RADIO_STATE, Vec::new()),
            Step::RadioOn => set(command::RADIO_STATE, Writer::default().word(1).end()),
            Step::Register => ask(command::REGISTER_STATE, Vec::new()),
            Step::Packet => ask(command::PACKET_SERVICE, Vec::new()),
            Step::Attach => set(command::PACKET_SERVICE, Writer::default().word(0).end()),
            Step::Signal | Step::Rest => ask(command::SIGNAL_STATE, Vec::new()),
            Step::Connect(place) => {
                let (number, access) = session(place)?;
                set(command::CONNECT, connect(u32::from(*number), true, access))
            }
            Step::Disconnect(place) => {
                let (number, access) = session(place)?;
                set(command::CONNECT, connect(u32::from(*number), false, access))
            }
            Step::Addresses(place) => {
                let (number, _) = session(place)?;
                // The request has the form of the answer (MBIM 1.0, 10.5.20).
                let words = [u32::from(*number)].into_iter().chain([0; 14]);
                let information = words.fold(Writer::default(), Writer::word).end();
                ask(command::IP_CONFIGURATION, information)
            }
            Step::Close => (Request::Close, DEADLINE),
            Step::Halted | Step::Closed => return None,
        })
    }

    pub(super) fn refused_by_modem(&mut self, status: u32, now: Nanos) {
        let step = self.state.step;
        self.fail(format!("{} failed: {} (status {status})", step.name(), status_name(status)), now);
        match step {
            Step::Pin => {
                self.pin_refused = true;
                self.enter(Step::Halted);
            }
            Step::Attach | Step::Connect(_) | Step::Addresses(_) => self.enter(Step::Ready),
            // The signal strength is optional.
            Step::Signal => self.signal_known(None, now),
            Step::Disconnect(place) => self.disconnected(place, now),
            Step::Open
            | Step::Caps
            | Step::Ready
            | Step::Radio
            | Step::RadioOn
            | Step::Register
            | Step::Packet
            | Step::Rest
            | Step::Halted
            | Step::Close
            | Step::Closed => {}
        }
    }

    /// Handles an answer, and goes to the next step; `None` if it is malformed.
    pub(super) fn advance(&mut self, information: &[u8], now: Nanos) -> Option<()> {
        match self.state.step {
            Step::Caps => {
                self.state.caps = Some(DeviceCaps::read(information)?);
                self.enter(Step::Ready);
            }
            Step::Ready => self.sim_known(Ready::read(information)?, now),
            Step::Pin => self.pin_known(PinState::read(information)?),
            Step::Radio | Step::RadioOn => self.radio_known(Radio::read(information)?, now),
            Step::Register => self.registration_known(Registration::read(information)?, now),
            Step::Packet | Step::Attach => self.service_known(PacketService::read(information)?, now),
            Step::Signal | Step::Rest => self.signal_known(signal(information), now),
            Step::Connect(place) => self.connection_known(place, Connection::read(information)?, now),
            Step::Disconnect(place) => {
                Connection::read(information)?;
                self.disconnected(place, now);
            }
            Step::Addresses(place) => {
                self.addresses_known(place, IpConfiguration::read(information)?, now)?
            }
            Step::Open | Step::Halted | Step::Close | Step::Closed => {}
        }
        Some(())
    }

    fn sim_known(&mut self, ready: Ready, now: Nanos) {
        self.state.ready = Some(ready);
        match ready {
            Ready::Initialized => self.enter(Step::Radio),
            Ready::Locked if self.wanted.pin.is_some() && !self.pin_refused => self.enter(Step::Pin),
            Ready::Locked => {
                self.state.error = Some("the SIM is locked: set `pin_file` of the port's modem".to_owned());
                self.enter(Step::Halted);
            }
            Ready::NotInitialized => self.next = now + LOOK,
            Ready::NoSim | Ready::BadSim | Ready::Failure | Ready::NotActivated => {
                self.fail(format!("the SIM cannot be used: {}", ready.name()), now);
            }
        }
    }

    fn pin_known(&mut self, pin: PinState) {
        self.state.pin_attempts = Some(pin.attempts).filter(|&attempts| attempts != u32::MAX);
        if pin.locked {
            self.pin_refused = true;
            self.state.error = Some("the SIM refuses the PIN".to_owned());
            self.enter(Step::Halted);
        } else {
            self.enter(Step::Ready);
        }
    }

    fn radio_known(&mut self, radio: Radio, now: Nanos) {
        self.state.radio = Some(radio);
        match (radio.hardware, radio.software) {
            (true, true) => self.enter(Step::Register),
            (true, false) if self.state.step == Step::Radio => self.enter(Step::RadioOn),
            (true, false) => self.fail("the radio stays off".to_owned(), now),
            (false, _) => self.fail("the radio is switched off at the device".to_owned(), now),
        }
    }

    fn registration_known(&mut self, registration: Registration, now: Nanos) {
        let is_registered = registration.is_registered();
        self.state.registration = Some(registration);
        if is_registered {
            self.enter(Step::Packet);
        } else {
            self.next = now + LOOK;
        }
    }

    fn service_known(&mut self, service: PacketService, now: Nanos) {
        self.state.packet_service = Some(service);
        match (service.attached, self.state.step) {
            (true, _) => self.enter(Step::Signal),
            (false, Step::Packet) => self.enter(Step::Attach),
            (false, _) => self.next = now + LOOK,
        }
    }

    fn signal_known(&mut self, signal: Option<i16>, now: Nanos) {
        self.state.signal = signal;
        self.go_on(now);
    }

    /// Goes to the next session that is wanted and not active, or rests.
    fn go_on(&mut self, now: Nanos) {
        let differs = |session: &SessionState| session.active != self.connects;
        match self.state.sessions.iter().position(differs) {
            Some(place) if self.connects => self.enter(Step::Connect(place)),
            Some(place) => self.enter(Step::Disconnect(place)),
            None => {
                self.enter(Step::Rest);
                (self.next, self.pause) = (now + SIGNAL, PAUSES.0);
                self.state.error = None;
            }
        }
    }

    fn connection_known(&mut self, place: usize, connection: Connection, now: Nanos) {
        let Some(session) = self.state.sessions.get_mut(place) else { return };
        if connection.session != u32::from(session.number) {
            self.state.refused += 1;
            return self.fail("the modem connects another session".to_owned(), now);
        }
        if connection.active {
            self.enter(Step::Addresses(place));
        } else {
            self.fail(format!("the network refuses the session (cause {})", connection.error), now);
            self.enter(Step::Ready);
        }
    }

    fn addresses_known(&mut self, place: usize, configuration: IpConfiguration, now: Nanos) -> Option<()> {
        let session = self.state.sessions.get_mut(place)?;
        if configuration.session != u32::from(session.number) || configuration.addresses.is_empty() {
            return None;
        }
        (session.active, session.configuration) = (true, configuration);
        self.go_on(now);
        Some(())
    }

    fn disconnected(&mut self, place: usize, now: Nanos) {
        if let Some(session) = self.state.sessions.get_mut(place) {
            (session.active, session.configuration) = (false, IpConfiguration::default());
        }
        self.go_on(now);
    }
}
