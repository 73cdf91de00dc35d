//! `polder capture`: writes packets of a running gateway to a file or to standard output.

use super::arguments::{Capture, Stage};
use super::ask::odd;
use super::failure::{FAILED, Failure, WRONG};
use super::output;
use super::pcap::{ExpressionError, compile_apart};
use super::screen::Screen;
use crate::capture::pcapng::{self, Totals};
use crate::capture::{CaptureRequest, to_digits};
use crate::control::client::{Client, ClientError};
use crate::control::{Answer, Ask};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use signal_hook::consts::{SIGINT, SIGTERM};
use std::io::{self, BufReader, BufWriter, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Signals within this time of the first one count as the same.
const TOGETHER: Duration = Duration::from_secs(1);

pub(super) fn capture(arguments: &Capture) -> Result<(), Failure> {
    let program = compile_apart(&arguments.expression.join(" "), arguments.longest);
    let program = program.map_err(|error| {
        let code = if matches!(error, ExpressionError::Bad { .. }) { WRONG } else { FAILED };
        complain(&error.to_string(), code)
    })?;
    let to_output = arguments.write.as_deref().is_none_or(|path| path == Path::new("-"));
    if to_output && Screen::stdout().is_terminal() {
        let remedy = "captured packets are binary and not written to a terminal: end the line with `| \
                      tcpdump -r -`, or write a file with `-w FILE`";
        return Err(complain(remedy, WRONG));
    }
    let mut client = Client::connect(&arguments.socket()?)?;
    let answer = client.ask(Ask::Capture(request(arguments, to_digits(&program))))?;
    let Answer::Capturing(_) = answer else { return Err(odd(&answer)) };
    // Opened after the gateway has accepted, so that a mistake does not overwrite an older file.
    let file: Box<dyn Write> = match arguments.write.as_deref().filter(|_| !to_output) {
        Some(path) => Box::new(output::open(path)?),
        None => Box::new(io::stdout()),
    };
    let mut stream = client.into_stream().map_err(ClientError::from)?;
    end_when_told(stream.get_ref(), to_output)?;
    let own = stream.get_ref().try_clone()?;
    let (written, totals) = pass_on(&mut stream, BufWriter::new(file), &own)?;
    summary(written, totals)
}

fn request(arguments: &Capture, program: String) -> CaptureRequest {
    let asked = |stage| arguments.stage.contains(&stage);
    let drops = arguments.drops || asked(Stage::Drops);
    // Without `--stage` and `--drops`, both directions.
    let both = arguments.stage.is_empty() && !arguments.drops;
    CaptureRequest {
        port: arguments.port.clone(),
        rx: both || asked(Stage::Rx),
        tx: both || asked(Stage::Tx),
        drops,
        longest: arguments.longest,
        count: arguments.count,
        program,
    }
}

fn complain(text: &str, code: u8) -> Failure {
    let screen = Screen::stderr();
    // An error of the write cannot be reported.
    let _: io::Result<()> = screen.write(&format!("{}: {text}\n", screen.layout().bad("error")));
    Failure::Told(code)
}

/// Makes the first signal end the capture, and a later one the process; a closed standard output also ends
/// the capture. Signals right after the first one are ignored, because `timeout` signals both the process and
/// its group.
fn end_when_told(stream: &UnixStream, to_output: bool) -> Result<(), Failure> {
    let impatient = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        signal_hook::flag::register_conditional_shutdown(signal, 1, Arc::clone(&impatient))?;
    }
    let (told, teller) = UnixStream::pair()?;
    for signal in [SIGINT, SIGTERM] {
        signal_hook::low_level::pipe::register(signal, teller.try_clone()?)?;
    }
    let stream = stream.try_clone()?;
    std::thread::Builder::new().name("signals".to_owned()).spawn(move || {
        let stdout = io::stdout();
        let mut files = vec![PollFd::new(&told, PollFlags::IN)];
        if to_output {
            files.push(PollFd::new(&stdout, PollFlags::empty()));
        }
        while poll(&mut files, None) == Err(Errno::INTR) {}
        let _: io::Result<()> = stream.shutdown(std::net::Shutdown::Write);
        std::thread::sleep(TOGETHER);
        impatient.store(true, Ordering::Relaxed);
    })?;
    Ok(())
}

/// Copies whole blocks until the gateway ends the capture. Returns the number of packets, and the gateway's
/// counts.
fn pass_on(
    stream: &mut BufReader<UnixStream>,
    mut file: impl Write,
    end: &UnixStream,
) -> Result<(u64, Option<Totals>), Failure> {
    let (mut written, mut totals) = (0, None);
    while let Some(block) = pcapng::next(stream)? {
        totals = block.totals().or(totals);
        let done = file.write_all(&block.0).and_then(|()| {
            // Flushed when no more data is queued, so that a viewer sees all packets.
            if stream.buffer().is_empty() || totals.is_some() { file.flush() } else { Ok(()) }
        });
        match done {
            Ok(()) => written += u64::from(block.is_packet()),
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => {
                // The reader has closed its end.
                end.shutdown(std::net::Shutdown::Both)?;
                break;
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok((written, totals))
}

fn summary(written: u64, totals: Option<Totals>) -> Result<(), Failure> {
    let text = match totals {
        Some(Totals { asked, matched, lost }) => format!(
            "{written} packets captured; {matched} of {asked} matched, {lost} lost on the way to the file \
             (the traffic loses none)\n"
        ),
        None => {
            format!("{written} packets captured; the gateway did not report how many matched or were lost\n")
        }
    };
    Ok(Screen::stderr().write(&text)?)
}
