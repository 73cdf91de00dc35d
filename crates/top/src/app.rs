//! State of the picture, which keys change.

use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

/// Rows that Page Up and Page Down go.
const PAGE: usize = 20;

/// Views, in the order of their keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum View {
    /// Ports.
    Ports,
    /// Stages.
    Stages,
    /// Queues in front of ports.
    Queues,
    /// Heaviest flows.
    Flows,
    /// Drops.
    Drops,
}

impl View {
    /// All views.
    pub(crate) const ALL: [Self; 5] = [Self::Ports, Self::Stages, Self::Queues, Self::Flows, Self::Drops];

    /// Title of the view.
    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Ports => "ports",
            Self::Stages => "stages",
            Self::Queues => "queues",
            Self::Flows => "flows",
            Self::Drops => "drops",
        }
    }
}

/// State of the picture.
#[derive(Debug)]
pub(crate) struct App {
    view: View,
    /// Column by which rows are sorted; none for the order of the gateway.
    sort: Option<usize>,
    reverse: bool,
    /// Rows above the first one that is shown.
    scrolled: usize,
    filter: String,
    /// True while the filter is typed.
    is_typing: bool,
    is_paused: bool,
    is_ended: bool,
    gateway: usize,
    is_utf8: bool,
}

impl App {
    /// The picture at the start.
    pub(crate) fn new(is_utf8: bool) -> Self {
        Self {
            view: View::Ports,
            sort: None,
            reverse: false,
            scrolled: 0,
            filter: String::new(),
            is_typing: false,
            is_paused: false,
            is_ended: false,
            gateway: 0,
            is_utf8,
        }
    }

    /// Obeys a key.
    #[expect(clippy::wildcard_enum_match_arm, reason = "other keys do nothing")]
    pub(crate) fn press(&mut self, key: KeyEvent) {
        if key.modifiers.contains(KeyModifiers::CONTROL) && key.code == KeyCode::Char('c') {
            self.is_ended = true;
            return;
        }
        if self.is_typing {
            return self.type_filter(key.code);
        }
        match key.code {
            KeyCode::Char('q') => self.is_ended = true,
            KeyCode::Esc => self.filter.clear(),
            KeyCode::Char('/') => self.is_typing = true,
            KeyCode::Char(' ') => self.is_paused = !self.is_paused,
            KeyCode::Char('r') => self.reverse = !self.reverse,
            KeyCode::Char('s') => self.sort = Some(self.sort.map_or(0, |column| column + 1)),
            KeyCode::Char('g') => self.gateway += 1,
            KeyCode::Up => self.scrolled = self.scrolled.saturating_sub(1),
            KeyCode::Down => self.scrolled += 1,
            KeyCode::PageUp => self.scrolled = self.scrolled.saturating_sub(PAGE),
            KeyCode::PageDown => self.scrolled += PAGE,
            KeyCode::Home => self.scrolled = 0,
            KeyCode::Tab | KeyCode::Right => self.turn(1),
            KeyCode::BackTab | KeyCode::Left => self.turn(View::ALL.len() - 1),
            KeyCode::Char(digit @ '1'..='5') => {
                let number = digit.to_digit(10).and_then(|number| usize::try_from(number).ok());
                self.show(number.unwrap_or(1) - 1);
            }
            _ => {}
        }
    }

    #[expect(clippy::wildcard_enum_match_arm, reason = "other keys do nothing")]
    fn type_filter(&mut self, code: KeyCode) {
        match code {
            KeyCode::Enter => self.is_typing = false,
            KeyCode::Esc => {
                self.is_typing = false;
                self.filter.clear();
            }
            KeyCode::Backspace => {
                self.filter.pop();
            }
            KeyCode::Char(character) if self.filter.len() < 40 => self.filter.push(character),
            _ => {}
        }
    }

    fn turn(&mut self, by: usize) {
        let at = View::ALL.iter().position(|&view| view == self.view).unwrap_or(0);
        self.show((at + by) % View::ALL.len());
    }

    fn show(&mut self, at: usize) {
        (self.view, self.sort, self.reverse, self.scrolled) = (View::ALL[at], None, false, 0);
    }

    /// The view that is shown.
    pub(crate) fn view(&self) -> View {
        self.view
    }

    /// Column by which rows are sorted, of that many, and true for the smallest first.
    pub(crate) fn sort(&self, columns: usize) -> (Option<usize>, bool) {
        (self.sort.map(|column| column % columns.max(1)), self.reverse)
    }

    /// Rows above the first one that is shown, of `rows`; one stays.
    pub(crate) fn scrolled(&self, rows: usize) -> usize {
        self.scrolled.min(rows.saturating_sub(1))
    }

    /// Text that rows must have.
    pub(crate) fn filter(&self) -> &str {
        &self.filter
    }

    /// True while the filter is typed.
    pub(crate) fn is_typing(&self) -> bool {
        self.is_typing
    }

    /// True while nothing is asked.
    pub(crate) fn is_paused(&self) -> bool {
        self.is_paused
    }

    /// True when a key has ended it.
    pub(crate) fn is_ended(&self) -> bool {
        self.is_ended
    }

    /// Number of the gateway that is shown, which counts on.
    pub(crate) fn gateway(&self) -> usize {
        self.gateway
    }

    /// True if the terminal shows more than ASCII.
    pub(crate) fn is_utf8(&self) -> bool {
        self.is_utf8
    }
}
