//! `skep top`: the metrics of a running server in a terminal, each second.
//!
//! ```text
//! server, --metrics ADDRESS ─▶ /state ─▶ fetch.rs ─▶ rates.rs: what a second has brought ─▶ view.rs
//! ```
//!
//! It shows what the page of `--metrics` shows, and asks the same: see `serve/watch`.

mod fetch;
mod rates;
mod screen;
mod view;

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyModifiers};

use crate::cli::address;
use crate::failure::Failure;
use fetch::Source;
use rates::History;

/// The time between two looks at the server.
const PERIOD: Duration = Duration::from_secs(1);
/// Columns and lines of what `--once` prints.
const PAGE: (u16, u16) = (100, 30);

/// Shows the metrics of a server.
#[derive(clap::Args, Debug)]
pub(crate) struct Arguments {
    /// Address of the server's metrics: that of `skep serve --metrics ADDRESS`, or its URL.
    #[arg(value_name = "ADDRESS", value_parser = address_of_page, default_value = "127.0.0.1:9121")]
    metrics: String,
    /// Print the metrics of one second as text, and end.
    #[arg(long)]
    once: bool,
    /// Print them as a JSON object on a line instead: rates of a second, delays in seconds, sizes in bytes.
    #[arg(long, requires = "once")]
    json: bool,
}

/// Checks the address of a page, which may be in a URL as the server prints it.
fn address_of_page(text: &str) -> Result<String, String> {
    address(text.strip_prefix("http://").unwrap_or(text).trim_end_matches('/'))
}

/// Shows the metrics until a key ends it.
pub(crate) fn run(arguments: &Arguments) -> Result<(), Failure> {
    let source = Source::new(&arguments.metrics)?;
    let mut history = History::default();
    // Its error is the same with and without a terminal.
    history.add(source.fetch().map_err(Failure::Runtime)?);
    if arguments.once {
        std::thread::sleep(PERIOD);
        history.add(source.fetch().map_err(Failure::Runtime)?);
        return match arguments.json {
            true => Ok(writeln!(io::stdout().lock(), "{}", history.json())?),
            false => print(&history, &arguments.metrics),
        };
    }
    if !io::stdout().is_terminal() {
        return Err(Failure::Usage("standard output is no terminal: add --once for one page of text".to_owned()));
    }
    let mut terminal = screen::open()?;
    let outcome = show(&mut terminal, &source, &mut history, &arguments.metrics);
    ratatui::restore();
    outcome
}

/// Draws the metrics each second, and at each change of the terminal's size.
fn show(
    terminal: &mut ratatui::DefaultTerminal,
    source: &Source,
    history: &mut History,
    address: &str,
) -> Result<(), Failure> {
    let mut next = Instant::now() + PERIOD;
    loop {
        screen::draw(terminal, history, address)?;
        while event::poll(next.saturating_duration_since(Instant::now()))? {
            match event::read()? {
                Event::Key(key) => match key.code {
                    KeyCode::Char('q') | KeyCode::Esc => return Ok(()),
                    KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => return Ok(()),
                    _ => {}
                },
                Event::Resize(..) => screen::draw(terminal, history, address)?,
                _ => {}
            }
        }
        match source.fetch() {
            Ok(state) => history.add(state),
            Err(error) => history.miss(error),
        }
        next = Instant::now() + PERIOD;
    }
}

/// Prints one page.
fn print(history: &History, address: &str) -> Result<(), Failure> {
    let (width, height) = PAGE;
    let Ok(mut terminal) = Terminal::new(TestBackend::new(width, height));
    let Ok(_) = terminal.draw(|frame| view::draw(frame, history, address));
    let mut out = io::stdout().lock();
    for line in view::lines(terminal.backend().buffer()) {
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(())
}
