use super::app::{App, View};
use super::sample::Source;
use super::view::draw;
use polder::show::connections::{ConnectionRow, Connections};
use polder::show::drops::{self, Drops};
use polder::show::flows::{CarriedRow, Flows};
use polder::show::path::{Path, StageRow};
use polder::show::ports::PortRow;
use polder::show::queues::QueueRow;
use polder::show::{FORMAT, Shown, View as Rows};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::buffer::Buffer;
use ratatui::crossterm::event::{KeyCode, KeyEvent};
use ratatui::style::{Color, Modifier};
use std::path::PathBuf;

fn queue(seconds: u64) -> QueueRow {
    QueueRow {
        port: "radio".to_owned(),
        kind: "codel".to_owned(),
        left: 900 * seconds,
        left_bytes: 900_000 * seconds,
        waiting: 17,
        wait_nanos: 4_200_000,
        dropped_delay: 3 * seconds,
        ..QueueRow::default()
    }
}

/// A connection that is carried.
fn connection() -> ConnectionRow {
    ConnectionRow {
        protocol: "tcp".to_owned(),
        source: "192.168.1.7:48210".to_owned(),
        destination: "203.0.113.80:443".to_owned(),
        from: Some("lan".to_owned()),
        to: Some("radio".to_owned()),
        packets_per_second: 1800,
        bytes_per_second: 2_400_000,
        ..ConnectionRow::default()
    }
}

/// Views after so many seconds.
fn shown(seconds: u64) -> Vec<Shown> {
    let port = |name: &str, packets: u64| PortRow {
        name: name.to_owned(),
        state: "open".to_owned(),
        received: packets * seconds,
        received_bytes: packets * seconds * 1000,
        transmitted: packets * seconds / 2,
        transmitted_bytes: packets * seconds * 500,
        drops: [("rx-overrun".to_owned(), seconds * packets / 1000)].into(),
        ..PortRow::default()
    };
    let stage = |name: &str, nanos: u64| {
        let packets = 5000 * seconds;
        let stage = StageRow {
            stage: name.to_owned(),
            packets,
            batches: packets / 16,
            timed_packets: packets,
            timed_nanos: packets * nanos,
            ..StageRow::default()
        };
        stage.finish()
    };
    let flow = CarriedRow {
        from: "lan".to_owned(),
        to: "radio".to_owned(),
        source: "2001:db8:0:1:2:3:4:5".to_owned(),
        destination: "2001:db8:ffff:1:2:3:4:5".to_owned(),
        packets: 800 * seconds,
        bytes: 1_100_000 * seconds,
        ..CarriedRow::default()
    };
    let mut drop = drops::all().reasons.swap_remove(0);
    drop.packets = 12 * seconds;
    let views = [
        Rows::Ports(vec![
            port("lan", 4000),
            port("radio", 1000),
            port("a-port-with-a-very-long-name-31c", 9),
        ]),
        Rows::Path(Path { stages: vec![stage("receive", 41), stage("bridge", 120)], ..Path::default() }),
        Rows::Queues(vec![queue(seconds)]),
        Rows::Flows(Flows { flows: vec![flow], ..Flows::default() }),
        Rows::Connections(Connections { connections: vec![connection()], ..Connections::default() }),
        Rows::Drops(Drops { reasons: vec![drop], ..Drops::default() }),
    ];
    let shown = |view| Shown {
        format: FORMAT,
        gateway: "gw".to_owned(),
        uptime_nanos: seconds * 1_000_000_000,
        since_nanos: None,
        lost_threads: Vec::new(),
        view,
    };
    views.into_iter().map(shown).collect()
}

fn source() -> Source {
    let mut source = Source::new(PathBuf::from("gw.sock"));
    // Two seconds, three, and four: rates begin with the second sample.
    (2..5).for_each(|seconds| source.take(shown(seconds)));
    source
}

fn picture(app: &App, source: &Source, (width, height): (u16, u16)) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(frame, app, source)).unwrap();
    terminal.backend().to_string()
}

fn after(keys: &[KeyCode]) -> App {
    let mut app = App::new(true);
    keys.iter().for_each(|&key| app.press(KeyEvent::from(key)));
    app
}

#[test]
fn each_view_is_drawn_at_60_columns() {
    for (number, view) in View::ALL.iter().enumerate() {
        let digit = char::from_digit(u32::try_from(number).unwrap() + 1, 10).unwrap();
        let text = picture(&after(&[KeyCode::Char(digit)]), &source(), (60, 24));
        insta::assert_snapshot!(format!("{}_60", view.title()), text);
    }
}

#[test]
fn a_wider_terminal_shows_more() {
    insta::assert_snapshot!("ports_120", picture(&after(&[]), &source(), (120, 24)));
}

#[test]
fn a_taller_terminal_shows_the_other_views_too() {
    insta::assert_snapshot!("ports_120x40", picture(&after(&[]), &source(), (120, 40)));
    let text = picture(&after(&[KeyCode::Char('5')]), &source(), (120, 40));
    let titles =
        ["reason", "port ", "stage ", "queue ", "flow "].map(|title| text.find(&format!("\n\"{title}")));
    assert!(titles.is_sorted() && titles[0].is_some(), "{titles:?} in {text}");
    for height in 24..100 {
        picture(&after(&[KeyCode::Char('2')]), &source(), (80, height));
    }
}

#[test]
fn a_small_terminal_is_told_so() {
    let text = picture(&after(&[]), &source(), (20, 6));
    assert!(text.contains("polder top needs 60") && text.contains("20 x 6"), "{text}");
    for size in [(1, 1), (59, 24), (60, 23)] {
        picture(&after(&[]), &source(), size);
    }
}

#[test]
fn every_size_from_the_least_on_is_drawn() {
    for width in 60..200 {
        for key in ['1', '2', '3', '4', '5'] {
            picture(&after(&[KeyCode::Char(key)]), &source(), (width, 24));
        }
    }
}

#[test]
fn keys_sort_and_filter() {
    let lines = |keys: &[KeyCode]| {
        let text = picture(&after(keys), &source(), (80, 24));
        let names = text.lines().filter_map(|line| line.trim_start_matches('"').split(' ').next());
        names
            .filter(|name| name.starts_with("lan") || name.starts_with("radio"))
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    assert_eq!(lines(&[]), ["lan", "radio"]);
    assert_eq!(lines(&[KeyCode::Char('r')]), ["radio", "lan"]);
    let third = [KeyCode::Char('s'); 3];
    assert_eq!(lines(&third), ["lan", "radio"], "most received first");
    let filter = ['/', 'r', 'a', 'd'].map(KeyCode::Char);
    assert_eq!(lines(&[&filter[..], &[KeyCode::Enter]].concat()), ["radio"]);
    assert_eq!(lines(&[&filter[..], &[KeyCode::Esc]].concat()), ["lan", "radio"]);
    assert!(after(&[KeyCode::Char('q')]).is_ended());
    assert!(!after(&['/', 'q'].map(KeyCode::Char)).is_ended(), "a letter of the filter");
}

#[test]
fn rows_scroll_and_the_last_one_stays() {
    let names = |keys: &[KeyCode]| {
        let text = picture(&after(keys), &source(), (80, 24));
        ["lan ", "radio ", "a-port"].map(|name| text.contains(name))
    };
    assert_eq!(names(&[]), [true; 3]);
    assert_eq!(names(&[KeyCode::Down]), [false, true, true]);
    assert_eq!(names(&[KeyCode::PageDown, KeyCode::PageDown]), [false, false, true]);
    assert_eq!(names(&[KeyCode::PageDown, KeyCode::Home]), [true; 3]);
    assert_eq!(names(&[KeyCode::Down, KeyCode::Up]), [true; 3]);
    assert_eq!(names(&[KeyCode::Down, KeyCode::Char('1')]), [true; 3], "a view begins at its top");
}

/// The guide's picture is what is drawn; `UPDATE_PICTURES=1` writes it.
#[test]
fn the_picture_of_the_guide_is_what_is_drawn() {
    let mut terminal = Terminal::new(TestBackend::new(80, 24)).unwrap();
    terminal.draw(|frame| draw(frame, &after(&[]), &source())).unwrap();
    let drawn = svg(terminal.backend().buffer());
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide/top.svg");
    if std::env::var_os("UPDATE_PICTURES").is_some() {
        std::fs::write(&path, &drawn).unwrap();
    }
    assert!(std::fs::read_to_string(&path).unwrap() == drawn, "{} is of another day", path.display());
}

/// A terminal's cells as text of a picture: a line an element, parts of another style inside.
fn svg(buffer: &Buffer) -> String {
    let (width, height) = (buffer.area.width, buffer.area.height);
    let mut text = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {}\" font-family=\"monospace\" \
         font-size=\"13\">\n<rect width=\"100%\" height=\"100%\" fill=\"#1c1c1c\"/>\n",
        width * 8 + 16,
        height * 17 + 16
    );
    for line in 0..height {
        text += &format!("<text x=\"8\" y=\"{}\" xml:space=\"preserve\" fill=\"#d8d8d8\">", line * 17 + 21);
        for column in 0..width {
            let cell = &buffer[(column, line)];
            let symbol = cell.symbol().replace('&', "&amp;").replace('<', "&lt;");
            if symbol == " " {
                continue;
            }
            let style = match (cell.fg, cell.modifier) {
                (Color::Red, _) => " fill=\"#ff6b5e\"",
                (_, modifier) if modifier.contains(Modifier::REVERSED) => {
                    " fill=\"#7fd1ff\" font-weight=\"bold\""
                }
                (_, modifier) if modifier.contains(Modifier::BOLD) => " font-weight=\"bold\"",
                (_, modifier) if modifier.contains(Modifier::DIM) => " fill=\"#8a8a8a\"",
                _ => "",
            };
            text += &format!("<tspan x=\"{}\"{style}>{symbol}</tspan>", column * 8 + 8);
        }
        text += "</text>\n";
    }
    text + "</svg>\n"
}

#[test]
fn ascii_is_ascii_and_trouble_is_told() {
    let mut source = source();
    assert!(picture(&App::new(false), &source, (120, 24)).is_ascii());
    source.trouble = Some("the gateway has closed the connection".to_owned());
    assert!(picture(&App::new(true), &source, (80, 24)).contains("closed the connection"));
}
