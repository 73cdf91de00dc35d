//! Reaction of ports to kernel hooks, and the events of hooks that appear or go.

use super::hold::Turn;
use crate::events::EventKind;
use crate::kernel::hooks::{self, Answer, Bypassed, Port};
use polder_devices::af_xdp::Families;

/// Reaction of a port, and the address families that the kernel currently forwards.
pub(super) fn answer(port: &Port) -> (Answer, Families) {
    let families = match port.answer {
        Answer::Yield => hooks::forwarded(&port.interface),
        Answer::Decided | Answer::Bypass | Answer::GoOn(_) | Answer::Stop(_) => Families::default(),
    };
    match port.answer {
        Answer::Yield if families.is_empty() => (Answer::GoOn("the kernel does not forward"), families),
        answer @ (Answer::Yield | Answer::Decided | Answer::Bypass | Answer::GoOn(_) | Answer::Stop(_)) => {
            (answer, families)
        }
    }
}

/// Ports, each with the handling of its packets.
pub(super) type Answers<'a> = [(&'a Port, (Answer, Families))];

/// True if a port must yield to a hook: its packets meet the hook at ingress, or at the egress of another
/// yielding port.
pub(super) fn concerns(bypassed: &Bypassed, port: &str, answers: &Answers<'_>) -> bool {
    let yields =
        |of: &str| answers.iter().any(|(port, (answer, _))| port.name == of && *answer == Answer::Yield);
    bypassed.port == port || bypassed.name.contains(" at egress") && yields(&bypassed.port)
}

/// Logs a port that begins or ends to yield.
pub(super) fn event(port: &str, turn: Turn, hooks: Vec<String>) -> Option<EventKind> {
    let port = port.to_owned();
    let event = match turn {
        Turn::Stays => return None,
        Turn::Begins => EventKind::Yielded { port, hooks },
        Turn::Ends(nanos) => EventKind::TakenBack { port, nanos: nanos.0 },
    };
    let text = event.text();
    match turn {
        Turn::Begins => tracing::warn!("{text}"),
        Turn::Ends(_) | Turn::Stays => tracing::info!("{text}"),
    }
    Some(event)
}

/// Logs a hook that has appeared at a port; a port that yields is logged separately.
pub(super) fn appeared(bypassed: &Bypassed, answer: Option<Answer>) -> Option<EventKind> {
    let (port, text) = (bypassed.port.clone(), bypassed.text());
    let (fate, why) = match answer {
        Some(Answer::Yield | Answer::Decided) => return None,
        Some(Answer::GoOn(why)) => ("is bypassed", format!("nothing changes ({why})")),
        Some(Answer::Stop(why)) => ("stops the port", format!("packets are dropped as kernel-hook ({why})")),
        Some(Answer::Bypass) | None => ("is bypassed", "nothing changes".to_owned()),
    };
    tracing::warn!("port {port}: a new kernel hook {fate}: {text}; {why}; `polder check` has remedies");
    Some(EventKind::HookAppeared { port, hook: text })
}

/// Logs obstacles to carrying connections that have appeared or gone.
pub(super) fn obstacles(before: &[String], now: &[String]) -> Vec<EventKind> {
    let new = now.iter().filter(|text| !before.contains(text));
    let new = new.map(|obstacle| EventKind::ObstacleAppeared { obstacle: obstacle.clone() });
    let gone = before.iter().filter(|text| !now.contains(text));
    let gone = gone.map(|obstacle| EventKind::ObstacleGone { obstacle: obstacle.clone() });
    let (new, gone) = (new.collect::<Vec<_>>(), gone.collect::<Vec<_>>());
    new.iter().for_each(|event| tracing::warn!("{}", event.text()));
    gone.iter().for_each(|event| tracing::info!("{}", event.text()));
    [new, gone].concat()
}
