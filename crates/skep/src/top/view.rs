//! Draws the metrics of a server.

use std::time::{Duration, UNIX_EPOCH};

use indicatif::{BinaryBytes, HumanCount};
use ratatui::Frame;
use ratatui::buffer::{Buffer, Cell};
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Style, Stylize};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Paragraph, Row, Sparkline, Table};

use super::rates::History;
use crate::live::{HotKey, Slow};

/// Lines of the charts, and of the table of the spaces besides one for each.
const CHART_HEIGHT: u16 = 7;
const TABLE_EDGES: u16 = 3;
/// Lines of the log; those that are left are for hot keys and slow commands, up to ten of them.
const TRAFFIC_HEIGHT: u16 = 8;
const KEYS_HEIGHT_MAX: u16 = 12;

/// Draws all of it.
pub(super) fn draw(frame: &mut Frame<'_>, history: &History, address: &str) {
    let space_count = history.last.spaces.len() + usize::from(history.last.evictions.is_some());
    let [head, charts, spaces, rest] = Layout::vertical([
        Constraint::Length(1),
        Constraint::Length(CHART_HEIGHT),
        Constraint::Length(space_count as u16 + TABLE_EDGES),
        Constraint::Min(4),
    ])
    .areas(frame.area());
    draw_head(frame, head, history, address);
    draw_charts(frame, charts, history);
    draw_spaces(frame, spaces, history);
    let has_log = history.last.log.is_some();
    let parts =
        [Constraint::Fill(1), Constraint::Fill(1), if has_log { Constraint::Fill(1) } else { Constraint::Length(0) }];
    let keys_height = rest.height.saturating_sub(TRAFFIC_HEIGHT).min(KEYS_HEIGHT_MAX);
    let [rest, keys] = Layout::vertical([Constraint::Min(0), Constraint::Length(keys_height)]).areas(rest);
    let [commands, traffic, log] = Layout::horizontal(parts).areas(rest);
    draw_commands(frame, commands, history);
    draw_traffic(frame, traffic, history);
    if has_log {
        draw_log(frame, log, history);
    }
    let [hot, slow] = Layout::horizontal([Constraint::Fill(1), Constraint::Fill(1)]).areas(keys);
    draw_hot_keys(frame, hot, history);
    draw_slow(frame, slow, history);
}

/// Draws the line at the top: which server it is, and whether it replies.
fn draw_head(frame: &mut Frame<'_>, area: Rect, history: &History, address: &str) {
    let state = &history.last;
    let mut words = vec![Span::from(format!("skep {} at {address}", state.version)).bold()];
    match &history.trouble {
        Some(trouble) => words.push(Span::from(format!(" · {trouble}")).fg(Color::Red)),
        None => {
            let uptime = humantime::format_duration(Duration::from_secs(state.uptime as u64));
            words.push(Span::from(format!(" · up {uptime} · {} connections · q ends", state.connections)));
        }
    }
    frame.render_widget(Line::from(words), area);
}

/// Draws operations a second, and their delays.
fn draw_charts(frame: &mut Frame<'_>, area: Rect, history: &History) {
    let [left, right] = Layout::horizontal([Constraint::Fill(1), Constraint::Fill(1)]).areas(area);
    let rate = history.rate(|state| state.operations);
    let mut title = format!(" {}/s ", count(rate));
    if history.last.shards.len() > 1 && rate > 0.0 {
        let part = 100.0 * history.rate(|state| state.forwarded) / rate;
        title += &format!("· {part:.0} % for another shard ");
    }
    chart(frame, left, &history.rates, &title, Color::Cyan);
    let [middle, high, highest] = [0.5, 0.99, 0.999].map(|part| time(history.delay(part)));
    let title = format!(" p50 {middle} · p99 {high} · p99.9 {highest} ");
    chart(frame, right, &history.delays, &title, Color::Yellow);
}

/// Draws a chart whose right end is now.
fn chart(frame: &mut Frame<'_>, area: Rect, numbers: &[u64], title: &str, color: Color) {
    let width = area.width.saturating_sub(2) as usize;
    let newest = &numbers[numbers.len().saturating_sub(width)..];
    let data: Vec<u64> = std::iter::repeat_n(0, width - newest.len()).chain(newest.iter().copied()).collect();
    let block = Block::bordered().title(title.to_owned());
    frame.render_widget(Sparkline::default().data(&data).style(Style::new().fg(color)).block(block), area);
}

/// Draws the spaces: keys, memory, hits.
fn draw_spaces(frame: &mut Frame<'_>, area: Rect, history: &History) {
    let rows = history.last.spaces.iter().map(|space| {
        let gets = space.hits + space.misses;
        let hits =
            if gets == 0 { "–".to_owned() } else { format!("{:.1} %", 100.0 * space.hits as f64 / gets as f64) };
        let part = 100.0 * space.used as f64 / space.memory.max(1) as f64;
        let memory = format!("{} of {}", BinaryBytes(space.used), BinaryBytes(space.memory));
        Row::new([space.name.clone(), HumanCount(space.keys).to_string(), memory, format!("{part:.0} %"), hits])
    });
    let evicted = history.last.evictions.map(|_| {
        let rate = history.rate(|state| state.evictions.unwrap_or(0));
        Row::new(["evicted".to_owned(), format!("{}/s", count(rate)), String::new(), String::new(), String::new()])
    });
    let widths = [10, 16, 26, 6, 8].map(Constraint::Length);
    let table = Table::new(rows.chain(evicted), widths)
        .header(Row::new(["space", "keys", "memory", "", "hits"]).dim())
        .block(Block::bordered().title(" spaces "));
    frame.render_widget(table, area);
}

/// Draws the most frequent commands of RESP.
fn draw_commands(frame: &mut Frame<'_>, area: Rect, history: &History) {
    let called = history.commands();
    let lines: Vec<Line<'_>> = match called.is_empty() {
        true => vec![Line::from("none")],
        false => called.iter().map(|(name, rate)| Line::from(format!("{name:<16} {:>14}/s", count(*rate)))).collect(),
    };
    frame.render_widget(Paragraph::new(lines).block(Block::bordered().title(" commands over RESP ")), area);
}

/// Draws bytes and memory of the connections, and the shards.
fn draw_traffic(frame: &mut Frame<'_>, area: Rect, history: &History) {
    let state = &history.last;
    let bytes = |rate: f64| BinaryBytes(rate as u64);
    let mut lines = vec![
        format!("in       {}/s", bytes(history.rate(|state| state.input_bytes))),
        format!("out      {}/s", bytes(history.rate(|state| state.output_bytes))),
        format!("memory   {} of {}", BinaryBytes(state.connection_memory), BinaryBytes(state.connection_memory_limit)),
        format!("BUSY     {}/s", count(history.rate(|state| state.refused))),
    ];
    let shards = history.shards();
    lines.extend(shards.iter().enumerate().map(|(shard, rate)| format!("shard {shard:<2} {}/s", count(*rate))));
    let lines: Vec<Line<'_>> = lines.into_iter().map(Line::from).collect();
    frame.render_widget(Paragraph::new(lines).block(Block::bordered().title(" connections, shards ")), area);
}

/// Draws the log.
fn draw_log(frame: &mut Frame<'_>, area: Rect, history: &History) {
    let Some(log) = &history.last.log else { return };
    let durable = history.rate(|state| state.log.as_ref().map_or(0, |log| log.durable));
    let mut lines = vec![
        Line::from(format!("level      {}", log.durability)),
        Line::from(format!("waiting    {}", BinaryBytes(log.unflushed))),
        Line::from(format!("written    {}/s", BinaryBytes(durable as u64))),
        Line::from(format!("snapshots  {}", log.snapshots)),
        Line::from(format!("disk       {}", BinaryBytes(log.disk_used))),
        Line::from(format!("disk free  {}", BinaryBytes(log.disk_free))),
    ];
    lines.extend(log.trouble.iter().map(|trouble| Line::from(trouble.clone()).fg(Color::Red)));
    frame.render_widget(Paragraph::new(lines).block(Block::bordered().title(" log ")), area);
}

/// Draws the keys that the most operations are on.
fn draw_hot_keys(frame: &mut Frame<'_>, area: Rect, history: &History) {
    let line = |key: &HotKey| {
        Line::from(format!("{:>3.0} % {:>12}/s  {} {}", 100.0 * key.share, count(key.rate), key.space, key.key))
    };
    let lines: Vec<Line<'_>> = match &history.last.hot_keys {
        None => vec![Line::from("shown only at an address of the machine itself")],
        Some(keys) if keys.is_empty() => vec![Line::from("no key has 1 % of the operations")],
        Some(keys) => keys.iter().map(line).collect(),
    };
    frame.render_widget(Paragraph::new(lines).block(Block::bordered().title(" hot keys ")), area);
}

/// Draws the last slow commands.
fn draw_slow(frame: &mut Frame<'_>, area: Rect, history: &History) {
    let now = UNIX_EPOCH.elapsed().unwrap_or_default().as_secs();
    let line = |slow: &Slow| {
        let ago = humantime::format_duration(Duration::from_secs(now.saturating_sub(slow.at)));
        let key = slow.key.as_deref().unwrap_or_default();
        Line::from(format!("{:>8}  {} {key}, {ago} ago", time(slow.seconds), slow.command))
    };
    let lines: Vec<Line<'_>> = match history.last.slow.is_empty() {
        true => vec![Line::from("none")],
        false => history.last.slow.iter().map(line).collect(),
    };
    frame.render_widget(Paragraph::new(lines).block(Block::bordered().title(" slow commands over RESP ")), area);
}

/// Returns a rate as text.
fn count(rate: f64) -> String {
    HumanCount(rate.round() as u64).to_string()
}

/// Returns a time in seconds as text; 0 is none.
fn time(seconds: f64) -> String {
    match seconds {
        0.0 => "–".to_owned(),
        ..1e-3 => format!("{:.0} µs", 1e6 * seconds),
        ..1.0 => format!("{:.1} ms", 1e3 * seconds),
        _ => format!("{seconds:.1} s"),
    }
}

/// Returns the lines of a page.
pub(super) fn lines(page: &Buffer) -> impl Iterator<Item = String> {
    page.content.chunks(page.area.width.into()).map(|cells| cells.iter().map(Cell::symbol).collect())
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::{History, draw, lines, time};
    use crate::live::{HotKey, Log, Slow, Space, State};

    fn state(uptime: f64, operations: u64) -> State {
        let space = Space {
            name: "hash".to_owned(),
            keys: 1_234_567,
            used: 1 << 29,
            memory: 1 << 30,
            hits: 9,
            misses: 1,
            expired: 0,
        };
        State {
            version: "1.2.3".to_owned(),
            uptime,
            operations,
            delays: vec![(5e-5, operations)],
            connections: 12,
            spaces: vec![space],
            evictions: Some(0),
            log: Some(Log { durability: "everysec".to_owned(), disk_free: 75 << 30, ..Log::default() }),
            commands: vec![("get".to_owned(), operations)],
            shards: vec![operations],
            hot_keys: Some(vec![HotKey {
                space: "hash".to_owned(),
                key: "page:1".to_owned(),
                rate: 500.0,
                share: 0.42,
            }]),
            slow: vec![Slow { at: 1, seconds: 0.25, command: "mget".to_owned(), key: Some("a".to_owned()) }],
            ..State::default()
        }
    }

    #[test]
    fn each_figure_is_on_the_page_at_all_sizes() {
        let mut history = History::default();
        history.add(state(60.0, 0));
        history.add(state(61.0, 98_765));
        for (width, height) in [(100, 30), (80, 24), (200, 60), (20, 5), (1, 1)] {
            let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
            terminal.draw(|frame| draw(frame, &history, "127.0.0.1:9121")).unwrap();
            let page: Vec<String> = lines(terminal.backend().buffer()).collect();
            let page = page.join("\n");
            let is_large = width >= 80 && height >= 24;
            for part in ["1.2.3 at 127.0.0.1:9121", "up 1m 1s", "12 connections", "98,765/s", "p99 50 µs", "1,234,567"]
            {
                assert!(!is_large || page.contains(part), "{part} is not on the page of {width} × {height}:\n{page}");
            }
            for part in [
                "90.0 %",
                "50 %",
                "everysec",
                "disk free  75.00 GiB",
                "get",
                "shard 0",
                "42 %",
                "hash page:1",
                "250.0 ms  mget a,",
            ] {
                assert!(!is_large || page.contains(part), "{part} is not on the page of {width} × {height}:\n{page}");
            }
        }
    }

    #[test]
    fn times_have_a_unit() {
        for (seconds, text) in [(0.0, "–"), (5e-6, "5 µs"), (0.0125, "12.5 ms"), (2.0, "2.0 s")] {
            assert_eq!(time(seconds), text);
        }
    }
}
